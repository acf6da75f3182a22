//! Why a Plan cannot be trained.

use common::{Code, plan::PlanError};

use crate::data::DataError;

/// Why a task cannot be done.
#[derive(Copy, Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant has its message")]
pub enum TrainError {
    #[error("the plan needs an arena of {need} numbers, this one has {have}; use a narrower tier")]
    Arena { need: usize, have: usize },
    #[error("a node of the plan reads and writes the same memory; compile the model again")]
    Overlap,
    #[error("the plan was compiled for inference and cannot train; compile it for training")]
    InferenceOnly,
    #[error("two nodes share parameters, so the plan needs a gradient segment; compile it with one")]
    SharedParameters,
    #[error("the brief asks for {what}, so the plan needs a {segment} segment; compile it for this brief")]
    Segment { what: &'static str, segment: &'static str },
    #[error("{rows} samples do not fit the plan's batch of {batch}; lower the batch size of the brief")]
    Batch { rows: usize, batch: usize },
    #[error("the brief asks for batches of {batch} at rate {lr}; both must be above zero and finite")]
    Brief { batch: u16, lr: f32 },
    #[error("the brief's {0}; correct the strategy's settings")]
    Objective(&'static str),
    #[error("there are no training samples; give this device data before it joins")]
    EmptyShard,
    #[error("the model takes {plan} numbers per sample, the samples have {shard}")]
    Inputs { plan: u32, shard: u32 },
    #[error("the model has {plan} classes, but the labels go up to {}", classes.saturating_sub(1))]
    Classes { plan: u32, classes: u32 },
    #[error("the model has {plan} targets per sample, the samples have {shard}")]
    Targets { plan: u32, shard: u32 },
    #[error(
        "{samples} training samples are too few to keep every fifth for validation; give this device more"
    )]
    NoValidation { samples: u32 },
    #[error("this device has no baseline; it must train alone once before it can report gaps")]
    NoBaseline,
    #[error(
        "the samples have no attribute, or more groups than can be reported; name the attribute's column"
    )]
    NoGroups,
    #[error("this device has no secret for noise; write one to the board with `fairtier board flash`")]
    NoSecret,
    #[error("the owner of this device allows no more answers with noise; raise --max-private-rounds")]
    PrivacySpent,
    #[error(
        "this program was built without a feature that the plan or the brief needs; build it with feature `full`"
    )]
    LeftOut,
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Data(#[from] DataError),
    #[error("the loss is not a number at step {step}; lower the learning rate")]
    Diverged { step: u32 },
    #[error("the trained weights are not finite; lower the learning rate")]
    NonFiniteUpdate,
}

impl TrainError {
    /// The code that is sent to the aggregator.
    pub fn code(&self) -> Code {
        match self {
            Self::Arena { .. } | Self::Batch { .. } => Code::DoesNotFit,
            Self::Plan(error) => error.code(),
            Self::Overlap | Self::InferenceOnly | Self::SharedParameters | Self::Segment { .. } => {
                Code::BadPlan
            }
            Self::Brief { .. } | Self::Objective(_) => Code::BadConfig,
            Self::LeftOut => Code::LeftOut,
            Self::NoSecret => Code::NoiseTooWeak,
            Self::PrivacySpent => Code::PrivacySpent,
            Self::EmptyShard => Code::EmptyShard,
            Self::NoValidation { .. } => Code::NoValidation,
            Self::NoBaseline => Code::NoBaseline,
            Self::NoGroups => Code::NoGroups,
            Self::Inputs { .. } | Self::Classes { .. } | Self::Targets { .. } | Self::Data(_) => {
                Code::WrongData
            }
            Self::Diverged { .. } => Code::NonFiniteLoss,
            Self::NonFiniteUpdate => Code::NonFiniteUpdate,
        }
    }
}
