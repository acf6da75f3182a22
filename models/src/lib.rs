//! The model path: ONNX in, a [`Graph`] with its hidden axes, slices of it, a Plan for devices, ONNX
//! out. The only crate that knows ONNX and (behind feature `tract`) an inference engine.
//!
//! ```text
//! ONNX --onnx::import--> Graph + parameters --slice--> Graph + packed parameters --onnx::export--> ONNX
//!                          |                                         |
//!                          +---------- plan::compile(mask) ----------+--> Plan (common::plan)
//! ```
//! Structure and parameters are kept apart: a [`Graph`] has no weights, a model is
//! `(Graph, Vec<f32>)`. Weights are `W[out][in]`, row-major, followed by the bias of the same layer.
//!
//! A device with 3 KiB of RAM trains half of every hidden layer:
//!
//! ```
//! use fairtier_models::{Graph, TierSpec, onnx, onnx::ExportOptions, plan, plan::PlanOptions, zoo};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Any ONNX file of supported operations; here one that is made on the spot.
//! let (graph, parameters) = zoo::build("mlp:4-16-3", 1).ok_or("not a model")?;
//! let file = onnx::export(&graph, &parameters, &ExportOptions::default())?;
//!
//! // What the device needs to train in batches of 16 samples.
//! let (graph, parameters) = Graph::from_onnx(&file)?;
//! let half = TierSpec::Rate(0.5).mask(&graph)?;
//! let plan = plan::compile(&graph, &half, &PlanOptions::train(16))?;
//! assert!(plan.info.arena_bytes() <= 3 << 10);
//!
//! // Its sub-model, as a file for any ONNX runtime.
//! let slice = graph.slice(&half)?;
//! let file = onnx::export(&slice, &graph.gather(&half, &parameters)?, &ExportOptions::default())?;
//! let (slice, weights) = Graph::from_onnx(&file)?;
//! assert_eq!((slice.full().widths(), weights.len()), (&[8][..], 67));
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

#[cfg(feature = "tools")]
pub mod check;
#[cfg(feature = "cli")]
#[expect(missing_docs, reason = "`fairtier model --help` describes the arguments")]
pub mod cli;
#[cfg(feature = "tools")]
pub mod forward;
#[cfg(feature = "tools")]
pub mod grad;
pub mod graph;
#[cfg(feature = "tract")]
pub mod infer;
pub mod onnx;
pub mod plan;
pub mod task;
pub mod tiers;
pub mod zoo;

pub use common::npy;
pub use graph::{Graph, GraphError};
pub use tiers::TierSpec;
