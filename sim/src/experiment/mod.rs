//! Experiments: TOML files, run unit by unit on the simulated fleet.
//!
//! | part | does | file |
//! |---|---|---|
//! | [`spec`] | what a file says | `spec` |
//! | [`LoadedExperiment`], [`Setting`] | profile, keys set by hand, variants x strategies | `settings`, `text` |
//! | [`Arrangement`] | data set, partition and tiers for one seed | `arrange` |
//! | units | one setting with one seed: train, choose on validation data, score | `unit`, `choose`, `lines` |
//! | scores | models on test data, by device and by group | `score` |
//! | baselines | `local`, `ufl`, `ffl_fedavg`, `cfl`: without an aggregator | `baseline`, `local_training` |
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
mod local_training;
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

pub use arrange::Arrangement;
pub use compare::{Comparison, Difference, ResultsPath, compare};
pub use error::ExperimentError;
pub use list::ALL;
pub use runner::{RunEvent, RunOptions, RunOutcome, run};
pub use settings::{LoadedExperiment, PROFILES, Setting};
pub use summary::{FIGURES, summary};
pub use sweep::sweep;
pub use text::KeyError;
