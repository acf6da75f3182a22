//! Parameters of `fedfb`.

use common::brief::{GroupReport, Laplace, MAX_GROUPS, Signal};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    methods::fedfb::{
        fairbatch::Parity,
        step_size::{Decay, StepSize},
    },
    parameter::{not_negative, positive},
};

/// B of a cross-entropy that noise hides.
const CAP: f64 = 5.0;
/// Largest cross-entropy of one sample that counts.
const LARGEST_LOSS: f64 = 1e4;

/// Parameters of `fedfb`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FedFbParams {
    /// The notion of fairness.
    pub notion: Notion,
    /// Number of attributes, A; absent: from the counts.
    pub groups: Option<usize>,
    /// Length of the outer step.
    pub alpha: f64,
    /// How steps shorten over the rounds.
    pub decay: Decay,
    /// Steps of length `alpha_t` whatever the gap, as published.
    pub normalize_mu: bool,
    /// Which loss feeds the outer step; absent: `zero_one` for dp, else `cross_entropy`.
    #[schemars(with = "Option<SignalName>")]
    pub signal: Option<Signal>,
    /// Losses in this many bits; absent: not quantised.
    pub bits: Option<u32>,
    /// What is quantised.
    pub quant: Quant,
    /// Range of the quantiser; absent: by signal, or [-2, 2] with `quant = round`.
    pub range: Option<[f64; 2]>,
    /// Privacy budget of a round; absent: no noise.
    pub eps: Option<f64>,
    /// L1 norm to which updates are clipped if there is noise.
    pub clip_l1: f64,
    /// The model whose losses are used for a step.
    pub losses: LossTime,
    /// As its paper prints it: sets `normalize_mu` = true and `signal` = cross_entropy.
    pub published: bool,
}

/// The names of [`Signal`], for documentation.
#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
#[expect(dead_code, reason = "only its schema is used")]
enum SignalName {
    ZeroOne,
    CrossEntropy,
}

/// The notion of fairness.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Notion {
    /// Demographic parity.
    #[default]
    Dp,
    /// Equal opportunity.
    Eo,
    /// Equalized odds.
    Eodds,
    /// Client parity.
    Cp,
}

/// What is quantised.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Quant {
    /// The mean loss of each cell.
    #[default]
    Each,
    /// A device's contributions to the gaps f_a, which share the bits; dp only.
    Round,
}

/// The model whose losses are used for a step.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LossTime {
    /// The model that a round starts from; its losses come with the updates.
    #[default]
    Received,
    /// The result of a round; its losses are asked for in one more exchange before the next training.
    New,
}

impl Default for FedFbParams {
    fn default() -> Self {
        Self {
            notion: Notion::default(),
            groups: None,
            alpha: 0.3,
            decay: Decay::default(),
            normalize_mu: false,
            signal: None,
            bits: None,
            quant: Quant::default(),
            range: None,
            eps: None,
            clip_l1: 1.0,
            losses: LossTime::default(),
            published: false,
        }
    }
}

impl FedFbParams {
    /// With the choices of `published`. Ours differ because steps of one length do not settle in a few rounds, and equal
    /// cross-entropies are not equal rates.
    fn preset(self) -> Self {
        if self.published {
            Self { normalize_mu: true, signal: Some(Signal::CrossEntropy), ..self }
        } else {
            self
        }
    }

    /// As the paper prints it.
    pub(super) fn is_published(&self) -> bool {
        self.normalize_mu && self.signal() == Signal::CrossEntropy
    }

    pub(super) fn checked(self) -> Result<Self, String> {
        not_negative("alpha", self.alpha)?;
        positive("clip_l1", self.clip_l1)?;
        self.eps.map(|eps| positive("eps", eps)).transpose()?;
        let most = MAX_GROUPS / 2;
        match (self.groups, self.bits, self.range) {
            (Some(groups), ..) if !(2..=most).contains(&groups) => {
                return Err(format!("`groups` must lie in 2..={most}, not {groups}"));
            }
            (_, Some(bits), _) if !(1..=32).contains(&bits) => {
                return Err(format!("`bits` must lie in 1..=32, not {bits}"));
            }
            (.., Some([lo, hi])) if !(lo.is_finite() && hi.is_finite() && lo < hi) => {
                return Err(format!("`range` must be two numbers, the smaller first, not [{lo}, {hi}]"));
            }
            _ => {}
        }
        if self.quant == Quant::Round && self.notion != Notion::Dp {
            return Err("`quant` = \"round\" is about the gaps of notion \"dp\"; use \"each\"".into());
        }
        if self.eps.is_some() && self.losses == LossTime::New {
            return Err(
                "with `eps` losses are hidden by noise on what comes with the updates; `losses` must \
                        be \"received\""
                    .into(),
            );
        }
        Ok(self.preset())
    }

    /// The notion among groups; `None`: among devices.
    pub(super) fn parity(&self) -> Option<Parity> {
        match self.notion {
            Notion::Dp => Some(Parity::Demographic),
            Notion::Eo => Some(Parity::Opportunity),
            Notion::Eodds => Some(Parity::Odds),
            Notion::Cp => None,
        }
    }

    pub(super) fn signal(&self) -> Signal {
        let usual = if self.notion == Notion::Dp { Signal::ZeroOne } else { Signal::CrossEntropy };
        self.signal.unwrap_or(usual)
    }

    /// B: the largest loss of one sample that counts.
    pub(super) fn cap(&self) -> f64 {
        match self.signal() {
            Signal::ZeroOne => 1.0,
            Signal::CrossEntropy if self.eps.is_some() => CAP,
            Signal::CrossEntropy => LARGEST_LOSS,
        }
    }

    /// Range of the quantiser.
    pub(super) fn range(&self) -> [f64; 2] {
        let usual = match (self.quant, self.signal()) {
            (Quant::Round, _) => [-2.0, 2.0],
            (Quant::Each, Signal::ZeroOne) => [0.0, 1.0],
            (Quant::Each, Signal::CrossEntropy) => [0.0, CAP],
        };
        self.range.unwrap_or(usual)
    }

    pub(super) fn step_size(&self) -> StepSize {
        StepSize { alpha: self.alpha, decay: self.decay, normalize: self.normalize_mu }
    }

    /// What devices report about their groups. Client parity needs no report, except of wrong predictions or of sums to which
    /// noise is added.
    pub(super) fn report(&self) -> Option<GroupReport> {
        let without =
            self.notion == Notion::Cp && self.signal() == Signal::CrossEntropy && self.eps.is_none();
        (!without).then(|| GroupReport { signal: self.signal(), cap: self.cap() as f32 })
    }

    /// Half of the budget is for the sums, of which one sample changes one by at most B. The other half is for the update,
    /// whose L1 norm changes by at most twice the bound between two data sets.
    pub(super) fn noise(&self) -> Option<Laplace> {
        let scales = |eps: f64| Laplace {
            sums: (2.0 * self.cap() / eps) as f32,
            clip_l1: self.clip_l1 as f32,
            update: (4.0 * self.clip_l1 / eps) as f32,
        };
        self.eps.map(scales)
    }
}
