//! What a device and the aggregator say to each other.
//!
//! The device drives: it repeats a request until it is answered, and the aggregator's answers follow
//! from its state alone, so a lost or repeated message does no harm on any link.
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
//! New variants go to the end of an enum and say since when they exist; new fields go into the tail of a message. Every
//! change raises [`crate::version::PROTOCOL_VERSION`].

use heapless::Vec;
use serde::{Deserialize, Serialize};

use crate::{
    brief::{Brief, GroupReport, MAX_GROUPS},
    codec::Codec,
    error::Code,
    id::{DeviceId, RunId},
    plan::{Node, PlanInfo, Step},
    small::only_with,
    tier::{Budget, Tier},
    time::Duration,
};

/// Nodes in one [`PlanPart`]: as many as surely fit a control frame.
pub const PLAN_PART: usize = 3;
/// Steps of the backward schedule in one [`PlanPart`].
pub const PLAN_STEPS: usize = 16;
/// The shortest [`ToDevice::Wait`].
pub const IDLE: Duration = Duration::from_secs(10);
/// Steps that one [`Task::Try`] can name; none on a board without feature `full`.
pub const MAX_TRIALS: usize = if cfg!(feature = "full") { 12 } else { 0 };

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[expect(clippy::large_enum_variant, reason = "there is no heap to put the large one on")]
pub enum ToAggregator {
    Hello(Hello),
    /// Asks for nodes and steps of the Plan from these numbers on.
    PlanRequest {
        node: u16,
        step: u16,
    },
    Ready,
    Fetch(Fetch),
    Ack(Ack),
    Progress(Progress),
    Offer(Offer),
    Refusal(Refusal),
    /// Asks for the device's sub-model as an ONNX file.
    PullOnnx,
    Goodbye,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum ToDevice {
    Welcome(Welcome),
    PlanPart(PlanPart),
    Assignment(Assignment),
    /// Nothing to do now; ask again after this time, or earlier if something arrives. What it is beyond [`IDLE`] is the
    /// device's place among all of them, so that they do not come at once; also when it comes back after a lost link.
    Wait(Duration),
    Fetch(Fetch),
    Ack(Ack),
    Receipt(Receipt),
    Refusal(Refusal),
    /// The ONNX file that was asked for.
    Onnx(Blob),
    /// The run is over.
    Finished {
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

    /// The message as a peer of this version knows it; `None` if it knows none like it.
    pub fn for_version(mut self, version: u8) -> Option<Self> {
        if let Self::Refusal(refusal) = &mut self {
            refusal.code = refusal.code.for_version(version);
        }
        (self.since() <= version).then_some(self)
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

    /// The message as a peer of this version knows it; `None` if it knows none like it.
    pub fn for_version(mut self, version: u8) -> Option<Self> {
        match &mut self {
            Self::Refusal(refusal) => refusal.code = refusal.code.for_version(version),
            Self::Receipt(Receipt { refused: Some(code), .. }) => *code = code.for_version(version),
            _ => {}
        }
        (self.since() <= version).then_some(self)
    }
}

/// First message of a device on every connection. Its tail: [`crate::Versions`].
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Hello {
    pub device: DeviceId,
    pub budget: Budget,
    pub data: DataSummary,
    /// Longest chunk the device's link and buffers take.
    pub max_chunk: u32,
    /// Nodes the device can store.
    pub max_nodes: u16,
}

/// What the aggregator may know of a shard.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DataSummary {
    pub train_samples: u32,
    pub test_samples: u32,
    /// Numbers per sample.
    pub inputs: u32,
    /// One more than the largest label.
    pub classes: u32,
    /// Training samples of each group: label x number of attributes + attribute. Empty where samples have no
    /// attribute.
    pub groups: Vec<u32, MAX_GROUPS>,
}

/// Its tail, if the Hello had one: the protocol version that both use from here on, a `u8`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Welcome {
    pub run: RunId,
    pub tier: Tier,
    pub plan: PlanInfo,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PlanPart {
    /// Of the plan these nodes belong to.
    pub digest: u32,
    /// Number of the first node here, and of the first step.
    pub node: u16,
    pub step: u16,
    pub nodes: Vec<Node, PLAN_PART>,
    pub steps: Vec<Step, PLAN_STEPS>,
}

/// Names what one device is asked in one exchange of a round.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Ticket {
    pub run: RunId,
    pub round: u32,
    /// Exchange of the round, from 0.
    pub exchange: u8,
    /// Raised when devices are told something else in the same exchange than before: after a rollback, or when
    /// the aggregator was started again in the middle of it with another configuration.
    pub attempt: u16,
}

/// A transfer that can be fetched.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Blob {
    pub transfer: u32,
    pub bytes: u32,
    /// CRC-32 of all bytes; 0 where the sender forms them on the fly (updates).
    pub check: u32,
}

/// What a device is told in a round.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Assignment {
    pub ticket: Ticket,
    pub task: Task,
    pub model: Blob,
    /// How the model and the guide are encoded.
    pub codec: Codec,
    /// A vector of the slice's length that goes into the guide segment: a fair gradient, or the direction to
    /// [`Task::Try`].
    pub guide: Option<Blob>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Task {
    Train(Brief),
    /// Report the losses of the received model, also by group if asked, and train nothing.
    Evaluate(Option<GroupReport>),
    /// Train alone, from the received model, until the loss is flat, and remember the loss on validation
    /// data. Only the steps made are reported.
    Alone(Alone),
    /// Report the losses at `received - step * guide` for each step.
    Try(Vec<f32, MAX_TRIALS>),
}

only_with!("full": Alone);

/// How a device finds out what it can reach without the fleet.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "full", derive(Deserialize))]
pub struct Alone {
    /// Learning rate, batch, optimiser and seed; its number of epochs is the largest one made.
    pub brief: Brief,
    /// Training ends when the best loss of the last `window` epochs is not better than the best one before by
    /// more than `tolerance`, relatively.
    pub window: u16,
    pub tolerance: f32,
}

/// Asks for (more of) a transfer, from `offset` on. Also sent when a chunk was missed.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Fetch {
    pub transfer: u32,
    pub offset: u32,
}

/// Everything before `next` has arrived.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Ack {
    pub transfer: u32,
    pub next: u32,
}

/// A sign of life during training.
#[derive(Copy, Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Progress {
    pub ticket: Ticket,
    pub step: u32,
    pub steps: u32,
}

/// What a device sends back: scalars now, the update as a transfer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Offer {
    pub ticket: Ticket,
    /// `bytes` is 0 where the task gives scalars only.
    pub update: Blob,
    /// CRC-32 of the received model, as proof of what was trained.
    pub model_check: u32,
    pub scalars: Scalars,
}

/// The numbers of one device in one round.
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
    /// Optimiser steps made.
    pub steps: u32,
    /// Loss of the received model on validation data beyond that of the device's own model, r_k.
    pub gap: Option<f64>,
    /// Sum of sample weights, V_i, where samples have weights.
    pub mass: Option<f64>,
    /// The personal model on the device's own test samples.
    pub personal: Option<Score>,
    /// Sum of losses of each group, and its samples.
    pub group_losses: Vec<f64, MAX_GROUPS>,
    pub group_counts: Vec<u32, MAX_GROUPS>,
    /// Losses at the steps of [`Task::Try`].
    pub trials: Vec<f64, MAX_TRIALS>,
}

/// Result of an evaluation.
#[derive(Copy, Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Score {
    pub samples: u32,
    pub correct: u32,
    /// Mean loss.
    pub loss: f64,
}

impl Score {
    pub fn accuracy(&self) -> f64 {
        if self.samples == 0 { 0.0 } else { f64::from(self.correct) / f64::from(self.samples) }
    }
}

/// The update is durable (`None`) or was refused.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Receipt {
    pub ticket: Ticket,
    pub refused: Option<Code>,
}

/// A request that was turned down.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Refusal {
    pub code: Code,
    /// Where it is about a size: what is needed and what is there, in bytes.
    pub need: u64,
    pub have: u64,
}

impl From<Code> for Refusal {
    fn from(code: Code) -> Self {
        Self { code, need: 0, have: 0 }
    }
}
