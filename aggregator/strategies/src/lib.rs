//! Strategies that combine the updates of a round into the next global model. This crate opens no sockets, never waits and
//! reads no clock; only [`roundfile`] reads and writes files.
//!
//! | module | contents |
//! |---|---|
//! | [`cohort`], [`updates`] | the participants of a round with their numbers, and where updates are read from |
//! | [`strategy`] | the trait [`Strategy`] and the types of its methods |
//! | [`methods`] | the strategies that come with FairTier, one file each |
//! | [`registry`], [`method`] | strategies by name, and the options that any of them takes |
//! | [`mod@combine`] | weigh, fold, mix, apply: from updates to the next model |
//! | [`fairness`] | how equal the fleet shall be: a target that drives a strategy's parameter |
//! | [`guard`] | bounds on the influence of one device |
//! | [`roundfile`] | one round as an open file, to check or to compute again |
//! | [`tiered`] | the global model under its tiers |
//!
//! Two devices have trained slices of one model. FairHeteroFL lets the one that is worse off count more:
//!
//! ```
//! use common::{Tier, message::Scalars, region::RegionMap};
//! use fairtier_strategies::{Cohort, Registry, check::check_update, combine::combine};
//! use models::{TierSpec, zoo};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (graph, mut model) = zoo::build("mlp:4-16-3", 1).ok_or("not a model")?;
//! let masks = [TierSpec::Rate(1.0).mask(&graph)?, TierSpec::Rate(0.5).mask(&graph)?];
//! let regions = RegionMap::new(graph.layout(), &masks);
//!
//! let (mut cohort, mut updates) = (Cohort::new(regions.clone(), 0.1), vec![]);
//! for (name, tier, loss) in [("camera", 0, 0.4), ("sensor", 1, 1.6)] {
//!     let tier = Tier::new(tier).ok_or("too many tiers")?;
//!     let update = vec![0.01_f32; regions.slice_len(tier)];
//!     let norms = check_update(&update, regions.pieces(tier), regions.sets().len())?;
//!     let scalars = Scalars { samples: 100, loss_before: loss, ..Scalars::default() };
//!     cohort.admit(name.parse()?, tier, scalars, &norms)?;
//!     updates.push(update);
//! }
//!
//! let mut method = Registry::standard().method("fairheterofl", serde_json::json!({ "q": 2 }))?;
//! let before = model.clone();
//! let outcome = combine(&mut method, &cohort, &[], &mut &updates[..], &mut model)?;
//! assert!(outcome.weights[1] > outcome.weights[0], "the sensor counts more: {:?}", outcome.weights);
//! assert_ne!(model, before);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod algebra;
pub mod blocks;
pub mod check;
pub mod cohort;
pub mod combine;
pub mod device;
pub mod error;
pub mod fairness;
pub mod gram;
pub mod guard;
pub mod kernel;
pub mod method;
pub mod methods;
pub mod parameter;
pub mod registry;
pub mod roundfile;
pub mod strategy;
mod table;
pub mod tiered;
pub mod updates;

pub use cohort::{Cohort, Participant};
pub use error::{CombineError, FairnessError, StrategyError};
pub use fairness::{Fairness, FairnessLine, FairnessSettings};
pub use method::Method;
pub use registry::{Build, NoParams, Registry};
pub use strategy::{Knob, Needs, Strategy, Weights};
