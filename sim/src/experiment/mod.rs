//! Experiments: TOML files, run unit by unit on the simulated fleet.
//!
//! | part | does | file |
//! |---|---|---|
//! | [`spec`] | what a file says | `spec` |
//! | [`Loaded`], [`Setting`] | profile, keys set by hand, variants x strategies | `settings`, `text` |
//! | [`Arranged`] | data set, partition and tiers for one seed | `arrange` |
//! | units | one setting with one seed: train, choose on validation data, score | `unit`, `choose`, `lines` |
//! | scores | models on test data, by device and by group | `score` |
//! | baselines | `local`, `ufl`, `ffl_fedavg`, `cfl`: without an aggregator | `baseline`, `lone` |
//! | [`run`] | all units that are not there yet, each left as a file | `runner` |
//! | [`compare()`] | two settings, or two directories, figure by figure | `compare` |
//!
//! A unit depends on its setting and its seed alone: not on threads, not on what ran before.

mod arrange;
mod baseline;
mod choose;
mod compare;
mod error;
mod lines;
mod list;
mod lone;
mod runner;
mod score;
mod settings;
pub mod spec;
mod summary;
mod sweep;
mod text;
mod unit;

#[cfg(test)]
mod tests;

pub use arrange::Arranged;
pub use compare::{Comparison, Difference, Side, compare};
pub use error::ExperimentError;
pub use list::ALL;
pub use runner::{Event, Ran, RunOptions, run};
pub use settings::{Loaded, PROFILES, Setting};
pub use summary::{FIGURES, summary};
pub use sweep::sweep;
pub use text::KeyError;
