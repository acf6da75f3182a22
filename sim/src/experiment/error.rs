//! Errors of experiments.

use std::{io, path::PathBuf};

use aggregator::run::RunError;
use common::tier::MAX_TIERS;
use strategies::error::StrategyError;
use trainer::{
    data::{DataError, schema::TextError},
    train::TrainError,
};

use super::text::KeyError;
use crate::{data::SetError, engine::EngineError, partition::PartitionError, results::ResultsError};

/// Why an experiment cannot be read, run or compared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant has its message")]
pub enum ExperimentError {
    #[error("there is no experiment `{name}`{hint}; known are {known}; a file must end in .toml")]
    Unknown { name: String, hint: String, known: String },
    #[error("{}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("experiment {name}: {source}")]
    Parse { name: String, source: Box<toml::de::Error> },
    #[error(
        "`data` needs one source: `set` for a known set, or one of `csv`, `npz`, `npy`, `idx` and `folder`"
    )]
    Source,
    #[error("`data.{0}` is for files of your own; remove it, or name a file instead of `set`")]
    OwnKey(&'static str),
    #[error("{}: {source}", path.display())]
    Schema { path: PathBuf, source: Box<TextError> },
    #[error(
        "model {model} has {takes} {what}, the data of {data} needs {has}; correct the model or the schema, or let `mlp:in-32-out` fit"
    )]
    Model { model: String, data: String, what: &'static str, takes: usize, has: usize },
    #[error("{} is there already; choose another name, or remove it", .0.display())]
    Exists(PathBuf),
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("there is no profile `{0}`; known are quick, full")]
    Profile(String),
    #[error("there is no strategy with id `{id}` in this experiment{hint}; there are {known}")]
    NoStrategy { id: String, hint: String, known: String },
    #[error("there is no variant with id `{0}` in this experiment")]
    NoVariant(String),
    #[error("there is no strategy `{name}`{hint}; known are {known}")]
    NoMethod { name: String, hint: String, known: String },
    #[error("there is no setting `{setting}` in {}{hint}; there are {known}", dir.display())]
    NoSetting { setting: String, dir: PathBuf, hint: String, known: String },
    #[error("`{0}`: ids may contain letters, digits, `-`, `_` and `.`, because they are used in file names")]
    Id(String),
    #[error("two settings are called `{0}`; give each its own id")]
    Twice(String),
    #[error("choose.grid.{0}: expected a list of values")]
    Grid(String),
    #[error("choose.by = \"{0}\": there is no such figure")]
    Figure(String),
    #[error(
        "{0}: `choose` needs validation samples; set `data.validation` to a share such as 0.1, or to \"fifth\""
    )]
    NoValidation(String),
    #[error("--seeds {0}: expected a number of seeds (5), or different seeds as in 7,8 or 0-4 or 0..5")]
    Seeds(String),
    #[error("every candidate of {0} has failed; the last one: {1}")]
    NoCandidate(String, String),
    #[error("{setting}: {source}")]
    Setting { setting: String, source: Box<ExperimentError> },
    #[error("{setting}: {source}")]
    Target { setting: String, source: Box<ExperimentError> },
    #[error("no strategy of the experiment can follow `fairness.target`: {0}")]
    NobodyFollows(String),
    #[error("`reach` needs a disparity of {0} on validation samples: set data.validation, and run it first")]
    NoDisparity(String),
    #[error("reach.{key} = \"{id}\": no strategy that stands earlier has this id")]
    Reach { key: &'static str, id: String },
    #[error("{setting}, seed {seed}: {source}")]
    Unit { setting: String, seed: u64, source: Box<ExperimentError> },
    #[error("`hardware` needs one entry or one per tier; it has {got} for {tiers} tiers")]
    Hardware { got: usize, tiers: usize },
    #[error("a fleet has at most {MAX_TIERS} tiers, not {0}")]
    Tiers(usize),
    #[error(
        "{name} needs samples with an attribute and two classes; `fairtier sim data check {set}` shows what it has"
    )]
    NoGroups { name: &'static str, set: String },
    #[error("parameters of {name}: {source}")]
    Parameters { name: &'static str, source: serde_json::Error },
    #[error("models with batch normalisation cannot be scored outside their devices")]
    Statistics,
    #[error("there is nothing to compare: {0}")]
    Nothing(String),
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error(transparent)]
    Set(#[from] SetError),
    #[error(transparent)]
    Partition(#[from] PartitionError),
    #[error(transparent)]
    Data(#[from] DataError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Strategy(#[from] StrategyError),
    #[error("training failed: {0}")]
    Train(#[from] TrainError),
    #[error(transparent)]
    Results(#[from] ResultsError),
    #[error("cannot write JSON: {0}")]
    Json(#[from] serde_json::Error),
}
