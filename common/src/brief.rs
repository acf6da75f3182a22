//! How a device is told to train.
//!
//! The gradient of a step is built up in this order; every part is neutral by default:
//!
//! ```text
//! l_k            loss of a target, l = (sum_k v_k l_k) / targets  with v = per-sample group weights
//! phi(l)         PropFair's transform of the batch loss: the gradient gets the factor 1/max(M - l, eps)
//! g              gradient of that by the weights
//! g = weight * g                               EAGLE's scalar, possibly negative
//! g = (1 - align) * g + align * guide          FedEBA+: towards a received vector
//! g = g + prox * (w - anchor)                  FedProx, Ditto
//! g = g * min(1, clip / ||g||)                 clipping, over all parameters
//! g = g + decay * w                            weight decay (for Adam, apart from its moments: AdamW)
//! ```

use heapless::Vec;
use serde::{Deserialize, Serialize};

use crate::{codec::Codec, small::only_with};

/// Groups (label x attribute) that can have a weight of their own; none on a board without feature `full`.
pub const MAX_GROUPS: usize = if cfg!(feature = "full") { 16 } else { 0 };

only_with!("full": SelfRegular, GroupReport, Laplace);

/// The training instructions of one device in one exchange.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Brief {
    /// Passes over the training samples.
    pub epochs: u16,
    /// Samples per optimiser step. If the Plan has room for fewer at once, gradients are summed over
    /// several passes, which needs a gradient segment.
    pub batch: u16,
    /// Learning rate of this round, decay included.
    pub lr: f32,
    /// Determines the order of samples, dropout and the rounding of the codec.
    pub seed: u64,
    /// How a gradient becomes a step.
    pub optimizer: Optimizer,
    /// Largest L2 norm of a gradient; longer ones are scaled down to it.
    pub clip: Option<f32>,
    /// What is minimised beyond the loss.
    pub objective: Objective,
    /// What to send back.
    pub product: Product,
    /// Also report the loss after training.
    pub loss_after: bool,
    /// Report the mean loss of the first training epoch as the loss before training, which saves an evaluation pass. The pass is
    /// made anyway where groups or privacy need it, and on the smallest devices.
    pub running: bool,
    /// Also report the losses of the groups.
    pub groups: Option<GroupReport>,
    /// Keep every fifth training sample for validation and report how much worse the received model does
    /// there than the device's own; needs an earlier [`crate::message::Task::Alone`].
    pub gap: bool,
    /// Keep every fifth training sample for validation, unless the device has validation samples of its own, and report the
    /// loss of the received model there. A device with fewer than five training samples trains on all of them and reports
    /// nothing. It travels in the tail of an [`Assignment`](crate::message::Assignment).
    #[serde(skip)]
    pub validate: bool,
    /// Also train a personal model, which stays on the device. The value is the strength of its pull towards the received model.
    pub personal: Option<f32>,
    /// Noise that hides single samples.
    pub privacy: Option<Laplace>,
    /// How to encode the update.
    pub codec: Codec,
}

impl Brief {
    /// Plain SGD.
    pub fn sgd(epochs: u16, batch: u16, lr: f32, seed: u64) -> Self {
        Self {
            epochs,
            batch,
            lr,
            seed,
            optimizer: Optimizer::default(),
            clip: None,
            objective: Objective::default(),
            product: Product::default(),
            loss_after: false,
            running: false,
            groups: None,
            gap: false,
            validate: false,
            personal: None,
            privacy: None,
            codec: Codec::F32,
        }
    }
}

/// How a gradient becomes a step. State starts fresh in every round.
#[derive(Copy, Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the line of a variant explains its fields")]
pub enum Optimizer {
    /// `b = momentum * b + g` (`b = g` in the first step); `w -= lr * b`, or with Nesterov
    /// `w -= lr * (g + momentum * b)`.
    Sgd { momentum: f32, nesterov: bool, decay: f32 },
    /// With bias correction; `decay` as in AdamW.
    Adam { beta1: f32, beta2: f32, epsilon: f32, decay: f32 },
}

impl Default for Optimizer {
    fn default() -> Self {
        Self::Sgd { momentum: 0.0, nesterov: false, decay: 0.0 }
    }
}

impl Optimizer {
    /// Adam with the usual constants and no weight decay.
    pub const ADAM: Self = Self::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, decay: 0.0 };

    /// Segments of parameter length that the optimiser needs.
    pub fn moments(&self) -> usize {
        match self {
            Self::Sgd { momentum, .. } => usize::from(*momentum != 0.0),
            Self::Adam { .. } => 2,
        }
    }
}

/// What is minimised, beyond the loss on the samples.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Objective {
    /// Factor of the local gradient.
    pub weight: f32,
    /// Pull towards the received model.
    pub prox: f32,
    /// Share of the received vector in every step, in [0, 1]; above 0 the Plan needs a guide.
    pub align: f32,
    /// PropFair's transform of the batch loss.
    pub transform: Option<PropFair>,
    /// Weight of each sample by its group, which its Shard knows; empty: all 1. The device divides by the mean weight of its
    /// samples. The sum of weights (its mass) then states how much its update counts.
    pub groups: Vec<f32, MAX_GROUPS>,
    /// Self-regularisation against noisy labels.
    pub robust: Option<SelfRegular>,
}

impl Default for Objective {
    fn default() -> Self {
        Self { weight: 1.0, prox: 0.0, align: 0.0, transform: None, groups: Vec::new(), robust: None }
    }
}

/// `phi(l) = -ln(M - l)` where `M - l >= eps`, continued linearly.
#[derive(Copy, Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PropFair {
    /// Upper bound on the loss, M.
    pub m: f32,
    /// Distance to `m` below which the transform is linear.
    pub eps: f32,
}

/// Local self-regularisation against noisy labels; softmax losses only.
#[derive(Copy, Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "full", derive(Deserialize))]
pub struct SelfRegular {
    /// Sharpening temperature Ts.
    pub sharpen: f32,
    /// Temperature Td of the compared distributions.
    pub soften: f32,
    /// Weight of the distance between them.
    pub gamma: f32,
    /// How the copy of a sample differs from it.
    pub augment: Augment,
}

/// How the copy of a sample is made; every sample has its own draw.
#[derive(Copy, Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the line of a variant explains its fields")]
pub enum Augment {
    /// Normal noise of this standard deviation on every number.
    Noise(f32),
    /// Samples are images `[channels][height][width]`: moved by up to `pixels` in both directions, with zeros
    /// where nothing was, and mirrored left to right half of the time if `flip`.
    Shift { channels: u16, height: u16, width: u16, pixels: u8, flip: bool },
}

/// What a device sends back.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Product {
    /// `trained - received`.
    #[default]
    Update,
    /// The same after the first optimiser step; training ends there.
    FirstStep,
    /// The gradient of the objective over all training samples at the received model.
    Gradient,
    /// `Update` followed by what `FirstStep` would give, in one transfer; needs a guide segment to keep it.
    Both,
}

impl Product {
    /// Vectors of the slice's length that are sent back.
    pub fn vectors(self) -> usize {
        if self == Self::Both { 2 } else { 1 }
    }
}

/// Sums of a loss over the samples of each group (label x attribute), under the received model.
#[derive(Copy, Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "full", derive(Deserialize))]
pub struct GroupReport {
    /// The loss that is summed.
    pub signal: Signal,
    /// Largest loss of one sample that counts.
    pub cap: f32,
}

/// Which loss a group reports.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Signal {
    /// 1 for a wrong prediction, else 0.
    #[default]
    ZeroOne,
    /// The cross-entropy of the sample.
    CrossEntropy,
}

/// Scales of Laplace noise, and the norm bound that they relate to.
#[derive(Copy, Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "full", derive(Deserialize))]
pub struct Laplace {
    /// Added to each group's loss sum.
    pub sums: f32,
    /// L1 norm to which the update is cut.
    pub clip_l1: f32,
    /// Added to each number of the update.
    pub update: f32,
}
