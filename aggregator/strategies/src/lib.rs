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
#![forbid(unsafe_code)]

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
pub use registry::{Build, Registry};
pub use strategy::{Knob, Needs, Strategy, Weights};
