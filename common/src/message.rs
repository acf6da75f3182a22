//! Messages between a device and the aggregator.
//!
//! The device drives: it repeats a request until it is answered, and the aggregator's answers depend only on the
//! aggregator's state. So a lost or repeated message does no harm on any link.
//!
//! ```text
//! device                              aggregator
//! Hello                            ->
//!                                  <- Welcome (tier, size of the plan) or Refusal
//! PlanRequest                      ->
//!                                  <- PlanPart ..
//! Ready                            ->
//!                                  <- Assignment (round, brief, model blob), Wait or Finished
//! Fetch model from offset          ->
//!                                  <- chunks, acknowledged with Ack
//! (evaluates, trains; Progress)    ->
//! Offer (scalars, update blob)     ->
//!                                  <- Fetch update from offset
//! chunks                           -> acknowledged with Ack
//!                                  <- Receipt, once the update is durable
//! ```
//! New variants go to the end of an enum and state their version in `since`; new fields go into the tail of a message. Every
//! change raises [`crate::version::PROTOCOL_VERSION`].

use heapless::Vec;
use serde::{Deserialize, Serialize};

use crate::{
    brief::{Brief, GroupReport, MAX_GROUPS},
    codec::Codec,
    error::Code,
    id::{DeviceId, ExchangeId, RunId, TransferId},
    plan::{BackwardStep, Node, PlanInfo},
    small::only_with,
    tier::{Budget, Tier},
    time::Duration,
    version::{ERRORS_SINCE, VALIDATION_SINCE},
    wire::{self, WireError},
};

/// Most nodes in one [`PlanPart`]: they fit a control frame in any case.
pub const PLAN_PART: usize = 3;
/// Most steps of the backward schedule in one [`PlanPart`].
pub const PLAN_STEPS: usize = 16;
/// The shortest [`ToDevice::Wait`].
pub const IDLE: Duration = Duration::from_secs(10);
/// Most steps of one [`Task::Try`]; none on a board without feature `full`.
pub const MAX_TRIALS: usize = if FULL { 12 } else { 0 };

const FULL: bool = cfg!(feature = "full");

/// A message from a device.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[expect(clippy::large_enum_variant, reason = "there is no heap to put the large one on")]
pub enum ToAggregator {
    /// The first message on every connection.
    Hello(Hello),
    /// Requests nodes and steps of the Plan, starting with these.
    PlanRequest {
        /// The first node.
        node: u16,
        /// The first step of the backward schedule.
        step: u16,
    },
    /// The device is free and asks for work.
    Ready,
    /// Requests bytes of a model, guide or file.
    Fetch(Fetch),
    /// Acknowledges them.
    Ack(Ack),
    /// The device is still working.
    Progress(Progress),
    /// The work is done.
    Offer(Offer),
    /// The device cannot do what it is asked to.
    Refusal(Refusal),
    /// Requests the device's sub-model as an ONNX file.
    PullOnnx,
    /// The device leaves.
    Goodbye,
}

/// A message to a device.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum ToDevice {
    /// The device is admitted.
    Welcome(Welcome),
    /// Answers [`ToAggregator::PlanRequest`].
    PlanPart(PlanPart),
    /// Work for the device.
    Assignment(Assignment),
    /// There is no work; ask again after this time, or when something arrives. The time beyond [`IDLE`] differs between
    /// devices, so that they do not all ask at once. After a lost link, the device waits this long before it reconnects.
    Wait(Duration),
    /// Requests bytes of an update.
    Fetch(Fetch),
    /// Acknowledges them.
    Ack(Ack),
    /// Answers [`ToAggregator::Offer`].
    Receipt(Receipt),
    /// The device is not admitted, or its message was not understood.
    Refusal(Refusal),
    /// Answers [`ToAggregator::PullOnnx`]: the file can be fetched.
    Onnx(Blob),
    /// The run is over.
    Finished {
        /// The last round.
        round: u32,
    },
}

impl ToAggregator {
    /// The protocol version that this message came with.
    pub fn since(&self) -> u8 {
        match self {
            Self::Hello(_)
            | Self::PlanRequest { .. }
            | Self::Ready
            | Self::Fetch(_)
            | Self::Ack(_)
            | Self::Progress(_)
            | Self::Offer(_)
            | Self::Refusal(_)
            | Self::PullOnnx
            | Self::Goodbye => 4,
        }
    }

    /// The message for a peer of this version; `None` if that version does not have it.
    pub fn for_version(mut self, version: u8) -> Option<Self> {
        match &mut self {
            Self::Refusal(refusal) => refusal.code = refusal.code.for_version(version),
            Self::Offer(Offer { scalars, .. }) if version < ERRORS_SINCE => {
                scalars.errors = None;
                scalars.validation = scalars.validation.filter(|_| version >= VALIDATION_SINCE);
            }
            _ => {}
        }
        (self.since() <= version).then_some(self)
    }

    /// Writes a control frame with the fields that belong into the tail, and returns its length.
    pub fn encode(&self, out: &mut [u8]) -> Result<usize, WireError> {
        match self {
            Self::Offer(Offer { scalars: Scalars { validation, errors: errors @ Some(_), .. }, .. })
                if FULL =>
            {
                wire::encode_control(&(self, validation, errors), out)
            }
            Self::Offer(Offer { scalars: Scalars { validation: validation @ Some(_), .. }, .. }) if FULL => {
                wire::encode_control(&(self, validation), out)
            }
            _ => wire::encode_control(self, out),
        }
    }

    /// Takes fields from the tail of a message of this version.
    pub fn read_tail(&mut self, tail: &[u8], version: u8) {
        if let Self::Offer(Offer { scalars, .. }) = self {
            let sent = if version < VALIDATION_SINCE { None } else { wire::tail::<Option<Validation>>(tail) };
            scalars.validation = sent.flatten();
            let both = if version < ERRORS_SINCE { None } else { wire::tail(tail) };
            let (_, errors): (Option<Validation>, Option<Errors>) = both.unwrap_or_default();
            scalars.errors = errors;
        }
    }
}

impl ToDevice {
    /// The protocol version that this message came with.
    pub fn since(&self) -> u8 {
        match self {
            Self::Welcome(_)
            | Self::PlanPart(_)
            | Self::Assignment(_)
            | Self::Wait(_)
            | Self::Fetch(_)
            | Self::Ack(_)
            | Self::Receipt(_)
            | Self::Refusal(_)
            | Self::Onnx(_)
            | Self::Finished { .. } => 4,
        }
    }

    /// The message for a peer of this version; `None` if that version does not have it.
    pub fn for_version(mut self, version: u8) -> Option<Self> {
        match &mut self {
            Self::Refusal(refusal) => refusal.code = refusal.code.for_version(version),
            Self::Receipt(Receipt { refused: Some(code), .. }) => *code = code.for_version(version),
            Self::Assignment(assignment) if version < VALIDATION_SINCE => assignment.task.set_validate(false),
            _ => {}
        }
        (self.since() <= version).then_some(self)
    }

    /// Writes a control frame with the fields that belong into the tail, and returns its length.
    pub fn encode(&self, out: &mut [u8]) -> Result<usize, WireError> {
        match self {
            Self::Assignment(assignment) if assignment.task.validates() => {
                wire::encode_control(&(self, true), out)
            }
            _ => wire::encode_control(self, out),
        }
    }

    /// Takes fields from the tail of a message of this version. A program without feature `full` cannot validate and ignores
    /// them.
    pub fn read_tail(&mut self, tail: &[u8], version: u8) {
        if let Self::Assignment(assignment) = self
            && FULL
        {
            let asked = version >= VALIDATION_SINCE && wire::tail(tail) == Some(true);
            assignment.task.set_validate(asked);
        }
    }
}

/// First message of a device on every connection. Its tail: [`crate::Versions`].
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// The name in the device's certificate.
    pub device: DeviceId,
    /// Its hardware.
    pub budget: Budget,
    /// Its samples.
    pub data: DataSummary,
    /// Longest chunk in bytes that its link and buffers take.
    pub max_chunk: u32,
    /// Nodes of a Plan that it can store.
    pub max_nodes: u16,
}

/// What the aggregator is told about a shard.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DataSummary {
    /// Samples for training.
    pub train_samples: u32,
    /// Samples for tests.
    pub test_samples: u32,
    /// Numbers per sample.
    pub inputs: u32,
    /// One more than the largest label.
    pub classes: u32,
    /// Training samples of each group: label x number of attributes + attribute. Empty where samples have no
    /// attribute.
    pub groups: Vec<u32, MAX_GROUPS>,
}

/// The tier of a device. Its tail, if the Hello had one: the negotiated protocol version, a `u8`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Welcome {
    /// The run that the device takes part in.
    pub run: RunId,
    /// The tier that the device is assigned to.
    pub tier: Tier,
    /// Sizes of its Plan.
    pub plan: PlanInfo,
}

/// Some nodes and steps of a Plan.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PlanPart {
    /// Digest of the whole Plan.
    pub digest: u32,
    /// Number of the first node here.
    pub node: u16,
    /// Number of the first step here.
    pub step: u16,
    /// Empty after the last node.
    pub nodes: Vec<Node, PLAN_PART>,
    /// Steps of the backward schedule; empty after the last one.
    pub steps: Vec<BackwardStep, PLAN_STEPS>,
}

/// Identifies what devices are asked in one exchange of a round.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Ticket {
    /// The run of the round.
    pub run: RunId,
    /// From 1.
    pub round: u32,
    /// Within the round, from 0.
    pub exchange: u8,
    /// Raised when the same exchange asks for something else: after a rollback, or after a restart with another
    /// configuration.
    pub attempt: u16,
}

impl Ticket {
    /// The exchange that is asked, without the run and the attempt.
    pub fn exchange_id(&self) -> ExchangeId {
        ExchangeId { round: self.round, exchange: self.exchange }
    }
}

/// A transfer that can be fetched.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Blob {
    /// The id to fetch it with.
    pub transfer: TransferId,
    /// Its length.
    pub bytes: u32,
    /// CRC-32 of all bytes; 0 where the sender forms them on the fly (updates).
    pub check: u32,
}

/// The work of a device in an exchange. Its tail from version 6 on, if true: [`Brief::validate`], a `bool`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Assignment {
    /// The answer must have the same.
    pub ticket: Ticket,
    /// What to do.
    pub task: Task,
    /// The tier's slice of the model.
    pub model: Blob,
    /// How the model and the guide are encoded.
    pub codec: Codec,
    /// A vector of the slice's length that goes into the guide segment: a fair gradient, or the direction to
    /// [`Task::Try`].
    pub guide: Option<Blob>,
}

/// What a device is asked to do with the received model.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Task {
    /// Train, and send the result.
    Train(Brief),
    /// Report its losses, by group if asked, without training.
    Evaluate(Option<GroupReport>),
    /// Train alone until the loss no longer falls, and keep the loss on validation data. Only the number of steps is
    /// reported.
    Alone(Alone),
    /// Report the losses at `received - step * guide` for each step.
    Try(Vec<f32, MAX_TRIALS>),
}

impl Task {
    /// Whether it asks for the validation loss of the received model.
    pub fn validates(&self) -> bool {
        matches!(self, Self::Train(brief) if brief.validate)
    }

    /// Asks for it, or does not. Only training can ask for it.
    pub fn set_validate(&mut self, validate: bool) {
        if let Self::Train(brief) = self {
            brief.validate = validate;
        }
    }
}

only_with!("full": Alone);

/// How a device finds out which loss it reaches without the fleet.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "full", derive(Deserialize))]
pub struct Alone {
    /// Learning rate, batch, optimiser and seed; its number of epochs is the maximum.
    pub brief: Brief,
    /// Epochs whose best loss is compared with the best one before.
    pub window: u16,
    /// Training ends when that relative improvement is at most this.
    pub tolerance: f32,
}

/// Requests a transfer from `offset` on. Also sent when a chunk was missed.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Fetch {
    /// From [`Blob::transfer`].
    pub transfer: TransferId,
    /// The first byte.
    pub offset: u32,
}

/// Acknowledges the bytes of a transfer.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Ack {
    /// From [`Blob::transfer`].
    pub transfer: TransferId,
    /// All bytes before this one have arrived.
    pub next: u32,
}

/// A sign of life during training.
#[derive(Copy, Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Progress {
    /// Of the assignment.
    pub ticket: Ticket,
    /// Passes that are done.
    pub step: u32,
    /// Passes in all.
    pub steps: u32,
}

/// The answer of a device: scalars now, the update as a transfer. Its tail from version 6 on, if there is one:
/// [`Scalars::validation`]. From version 8 on [`Scalars::errors`] may follow.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Offer {
    /// Of the assignment.
    pub ticket: Ticket,
    /// Its `bytes` are 0 if the task gives scalars only.
    pub update: Blob,
    /// CRC-32 of the received model: proves which model was trained.
    pub model_check: u32,
    /// The numbers beside the update.
    pub scalars: Scalars,
}

/// The numbers of one device in one exchange.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Scalars {
    /// Training samples, n_i.
    pub samples: u32,
    /// Mean loss of the received model over all training samples, F_i.
    pub loss_before: f64,
    /// The same for the trained model, FK_i.
    pub loss_after: Option<f64>,
    /// The received model on the device's own test samples.
    pub test: Option<Score>,
    /// Number of optimiser steps.
    pub steps: u32,
    /// Validation loss of the received model minus that of the device's own model, r_k.
    pub gap: Option<f64>,
    /// Sum of sample weights, V_i, if samples have weights.
    pub mass: Option<f64>,
    /// The personal model on the device's own test samples.
    pub personal: Option<Score>,
    /// Sum of losses of each group.
    pub group_losses: Vec<f64, MAX_GROUPS>,
    /// Samples of each group.
    pub group_counts: Vec<u32, MAX_GROUPS>,
    /// Losses at the steps of [`Task::Try`].
    pub trials: Vec<f64, MAX_TRIALS>,
    /// The received model on samples that the device does not train on. It travels in the tail of an [`Offer`].
    #[serde(skip)]
    pub validation: Option<Validation>,
    /// Of the received model on the device's own test samples, if it predicts numbers. It travels in the tail of an [`Offer`].
    #[serde(skip)]
    pub errors: Option<Errors>,
}

/// Loss of a model on validation samples. Empty on a board without feature `full`, which has no stack to spare for it.
#[derive(Copy, Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Validation {
    /// Mean over the samples.
    #[cfg(feature = "full")]
    pub loss: f64,
    /// Squared standard error of the mean: the sample variance of the losses (divisor samples - 1) over the number of samples.
    #[cfg(feature = "full")]
    pub error: f64,
}

impl Validation {
    /// A mean with its squared standard error; nothing on a board without feature `full`.
    #[cfg_attr(not(feature = "full"), expect(unused_variables, reason = "there is no room for them"))]
    pub fn new(loss: f64, error: f64) -> Self {
        Self {
            #[cfg(feature = "full")]
            loss,
            #[cfg(feature = "full")]
            error,
        }
    }
}

/// How far predicted numbers lie from the true ones, over all targets of [`Scalars::test`]. Empty on a board without feature
/// `full`.
#[derive(Copy, Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Errors {
    /// Mean absolute error, in the unit of the targets before scaling.
    #[cfg(feature = "full")]
    pub absolute: f64,
    /// Mean squared error of scaled targets, without the cap of a loss.
    #[cfg(feature = "full")]
    pub squared: f64,
    /// Mean of the scaled targets.
    #[cfg(feature = "full")]
    pub mean: f64,
    /// Variance of the scaled targets, with divisor N.
    #[cfg(feature = "full")]
    pub variance: f64,
}

/// Result of an evaluation.
#[derive(Copy, Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Score {
    /// Samples in all.
    pub samples: u32,
    /// Samples that are predicted correctly.
    pub correct: u32,
    /// Mean over the samples.
    pub loss: f64,
}

impl Score {
    /// Share of samples that are predicted correctly; 0 without samples.
    pub fn accuracy(&self) -> f64 {
        if self.samples == 0 { 0.0 } else { f64::from(self.correct) / f64::from(self.samples) }
    }
}

/// Acknowledges an update, or refuses it.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Receipt {
    /// Of the update.
    pub ticket: Ticket,
    /// `None`: the update is durable.
    pub refused: Option<Code>,
}

/// A refusal with its reason.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Refusal {
    /// The reason.
    pub code: Code,
    /// The size that is needed; the code determines its unit. 0 if the reason is not a size.
    pub need: u64,
    /// The size that the device has.
    pub have: u64,
}

impl From<Code> for Refusal {
    fn from(code: Code) -> Self {
        Self { code, need: 0, have: 0 }
    }
}
