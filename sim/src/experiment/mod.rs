//! Experiments: TOML files, run unit by unit on a simulated fleet.
//!
//! | part | does | file |
//! |---|---|---|
//! | `spec` | format of the files | `spec` |
//! | [`LoadedExperiment`], `Setting` | profile, overridden keys, variants x strategies | `settings`, `text` |
//! | sources | a set by name, or files of one's own | `source`, `files` |
//! | `Arrangement` | data set, partition and tiers for one seed | `arrange` |
//! | [`keys`] | every key of the files, for the reference | `reference` |
//! | units | one setting with one seed: train, choose on validation data, score | `unit`, `choose`, `lines` |
//! | scores | models on test data, by device and by group | `score` |
//! | baselines | `local`, `ufl`, `ffl_fedavg`, `cfl`: without an aggregator | `baseline`, `local_training` |
//! | targets | who follows a fairness target, twins without fairness, targets from results | `target` |
//! | [`run`] | all unfinished units, each written to a file | `runner` |
//! | `targets`, `checks`, `prices` | what `sim run` prints below the table | `words`, `price` |
//! | `compare` | two settings, or two directories, figure by figure | `compare` |
//!
//! The result of a unit depends only on its setting and its seed, not on threads or earlier units.

mod arrange;
mod baseline;
mod choose;
mod compare;
mod error;
mod files;
mod lines;
mod list;
mod local_training;
mod price;
mod reference;
mod runner;
mod score;
mod settings;
mod source;
mod spec;
mod summary;
mod sweep;
mod target;
mod text;
mod unit;
mod words;

#[cfg(test)]
mod tests;

pub use error::ExperimentError;
pub use runner::{RunEvent, RunOptions, RunOutcome, run};
pub use settings::{LoadedExperiment, PROFILES};
pub use text::KeyError;

pub(crate) use compare::{ResultsPath, compare};
pub use reference::{KeyTable, keys};

pub(crate) use list::ALL;
pub(crate) use price::{Price, PriceLine, prices};
pub(crate) use runner::{Part, run_part};
pub(crate) use source::{data_of, rounds_of};
pub(crate) use summary::{diverged, summary};
pub(crate) use sweep::sweep;
pub(crate) use target::prepare;
pub(crate) use words::{checks, over_limit, targets};

pub(crate) use settings::Setting;
pub(crate) use spec::{StrategySpec, Variant};

use arrange::Arrangement;
