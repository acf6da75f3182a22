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
#![forbid(unsafe_code)]

#[cfg(feature = "tools")]
pub mod check;
#[cfg(feature = "cli")]
pub mod cli;
#[cfg(feature = "tools")]
pub mod grad;
pub mod graph;
#[cfg(feature = "tract")]
pub mod infer;
pub mod onnx;
pub mod plan;
pub mod tiers;
pub mod zoo;

pub use common::npy;
pub use graph::{Graph, GraphError};
pub use tiers::TierSpec;
