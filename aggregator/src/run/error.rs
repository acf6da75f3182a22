//! What can be wrong with a run.

use std::path::PathBuf;

use common::Code;
use strategies::{error::StrategyError, tiered::ModelError};

use crate::{
    config::ConfigError,
    store::StoreError,
    worker::{ProbeError, WorkerError},
};

/// Why a run cannot be opened, or cannot go on.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each variant has its message")]
#[non_exhaustive]
pub enum RunError {
    #[error("{code}: {0}", code = Code::BadConfig)]
    Config(#[from] ConfigError),
    #[error("{code}: {0}", code = Code::BadConfig)]
    Strategy(#[from] StrategyError),
    #[error("{code}: {0}", code = Code::BadModel)]
    Model(#[from] ModelError),
    #[error("{code}: guard.probe: {0}", code = Code::BadConfig)]
    Probe(#[from] ProbeError),
    #[error("{code}: {path}: {source}", code = Code::BadModel)]
    ModelFile { path: PathBuf, source: Box<models::onnx::ReadError> },
    #[error("{code}: {path}: {source}", code = Code::BadModel)]
    Import { path: PathBuf, source: Box<models::onnx::ImportError> },
    #[error("{code}: model.source = \"{name}\" is neither a file nor a model of the zoo ({known})", code = Code::BadModel)]
    UnknownModel { name: String, known: String },
    #[error("{code}: model.start = \"zero\", but the model has {layers} layers: with more than one of them no weight would ever change", code = Code::BadConfig)]
    ZeroStart { layers: usize },
    #[error("{code}: devices.{device} = {tier}, but there are {tiers} tiers (counted from 0)", code = Code::BadConfig)]
    FixedTier { device: String, tier: usize, tiers: usize },
    #[error("{code}: tier {tier} needs messages of {need} bytes, server.max_message = {max}: raise it, or choose a smaller model or another codec", code = Code::BadConfig)]
    MaxMessage { tier: usize, need: u64, max: u32 },
    #[error("{code}: the model has {model} {what}, the columns of [data] make {schema}: correct [data], or use another model", code = Code::BadConfig)]
    Schema { what: &'static str, model: usize, schema: usize },
    #[error("{code}: {0}", code = Code::BadConfig)]
    Task(#[from] models::task::TaskError),
    #[error("{code}: [data] is not that of the stored run; use the stored run's, or begin another run with `fairtier gateway run new NAME`", code = Code::BadConfig)]
    OtherSchema,
    #[error("{code}: model.source = \"{source_name}\" has the structure of the stored run's model and other initial weights, so it is another run: begin it with `fairtier gateway run new NAME`, or restore the earlier model.source, seed and start to continue this run", code = Code::WrongModel)]
    OtherWeights { source_name: String },
    #[error("{code}: the model has constants for each feature or channel, which wire.down of tier {tier} would round: set it to \"f32\"", code = Code::BadConfig)]
    RoundedConstants { tier: usize },
    #[error("{code}: the model computes something else when its hidden units change places, as strategy {strategy} does: take another strategy, or a model without constants of single channels", code = Code::BadModel)]
    TiedUnits { strategy: &'static str },
    #[error("{code}: {0}", code = Code::BadModel)]
    Forward(Box<models::forward::ForwardError>),
    #[error("{code}: {0}", code = .0.code())]
    Store(#[from] StoreError),
    #[error("the run cannot go on: {0}")]
    Worker(#[from] WorkerError),
}
