//! EAGLE: every device should be equally far from the loss that it reaches alone (loss-gap parity).
//!
//! ```text
//! r_k = L_k(theta) - Lstar_k            on the device's validation samples; Lstar_k: its own model, trained alone
//! minimise  (1/K) sum_k L_k + lambda * Var(r)                    Var with divisor K-1
//! w_k = 1 + coefficient * lambda * K/(K-1) * (r_k - mean r)      raw; coefficient 2 is the exact gradient
//! w <- w * sqrt(K)/||w||  (norm = sqrt_k),  w/||w||  (unit),  w  (none);  then w_k <- max(w_k, min_weight)
//! device:  x <- x - lr * w_k * grad L_k(x)
//! theta^(j) += mean of D_k over C(j)
//! ```
//! K counts the devices with a known r. All of them are weighed again after each round, from the last r of each, so w is one
//! round old. A device without a known r has w = 1 (`unit`: 1/sqrt(K), in the first round with K = the devices that take part).
//! The same holds for the only device with a known r.
//!
//! Weights may be negative: a device far below the mean is deliberately pushed up. With the guard on, w stays between `floor`
//! and `share` times the weight of equal gaps. Adam would cancel the scale of w, so only SGD is supported. Before its first
//! round a device trains alone ([`Ask::Alone`]) and keeps Lstar.

use std::collections::{BTreeMap, BTreeSet};

use common::{Code, DeviceId, Tier, brief::Brief, message::Alone};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    cohort::Cohort,
    error::StrategyError,
    kernel::sum,
    parameter::{not_negative, positive},
    registry::Build,
    strategy::{Ask, Exchange, Kind, Knob, Needs, Scale, Strategy, TrainingWeights, Weights, decode_state},
};

/// Most epochs of training alone.
const ALONE_EPOCHS: u16 = 500;
/// Training alone ends after this many epochs in a row without an improvement of [`ALONE_TOLERANCE`].
const ALONE_WINDOW: u16 = 10;
/// Relative improvement of the loss that [`ALONE_WINDOW`] epochs must exceed.
const ALONE_TOLERANCE: f32 = 1e-4;
/// Larger gaps are cut to this value, because their squares would overflow.
const LARGEST_GAP: f64 = 1e100;

/// Parameters of `eagle`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EagleParams {
    /// How much the variance of the gaps counts.
    pub lambda: f64,
    /// The length to which the weights are scaled.
    pub norm: EagleNorm,
    /// 2: the gradient of the objective; 4: as in the appendix of the source.
    pub coefficient: f64,
    /// The smallest weight; absent: no bound.
    pub min_weight: Option<f64>,
    /// As its paper prints it: sets `norm` = unit.
    pub published: bool,
    /// Smallest and largest factor of the plain weight that the guard allows.
    #[serde(skip)]
    pub factors: Option<(f64, f64)>,
}

/// The length to which the weights are scaled.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EagleNorm {
    /// sqrt(K): with lambda = 0 every weight is 1.
    #[default]
    SqrtK,
    /// 1, as published: effective learning rates are sqrt(K) times smaller.
    Unit,
    /// They are not scaled.
    None,
}

impl Default for EagleParams {
    fn default() -> Self {
        Self {
            lambda: 1.0,
            norm: EagleNorm::default(),
            coefficient: 2.0,
            min_weight: None,
            published: false,
            factors: None,
        }
    }
}

impl EagleParams {
    /// With the choices of `published`. Ours differs because unit norm divides every learning rate by sqrt(K).
    fn preset(self) -> Self {
        if self.published { Self { norm: EagleNorm::Unit, ..self } } else { self }
    }

    /// Weights w of devices with these gaps.
    pub fn weights(&self, gaps: &[f64]) -> Vec<f64> {
        let gaps: Vec<f64> = gaps.iter().map(|gap| gap.clamp(-LARGEST_GAP, LARGEST_GAP)).collect();
        let k = gaps.len() as f64;
        if gaps.len() < 2 {
            return gaps.iter().map(|_| self.bounded(1.0)).collect();
        }
        let mean = sum(gaps.iter().copied()) / k;
        let slope = self.coefficient * self.lambda * k / (k - 1.0);
        let raw = gaps.iter().map(|gap| 1.0 + slope * (gap - mean));
        // The raw weights sum to K, so their norm is at least sqrt(K).
        let norm = sum(raw.clone().map(|weight| weight * weight)).sqrt();
        let scale = match self.norm {
            EagleNorm::SqrtK => k.sqrt() / norm,
            EagleNorm::Unit => 1.0 / norm,
            EagleNorm::None => 1.0,
        };
        let plain = match self.norm {
            EagleNorm::Unit => 1.0 / k.sqrt(),
            EagleNorm::SqrtK | EagleNorm::None => 1.0,
        };
        let (least, most) = self.factors.unwrap_or((f64::NEG_INFINITY, f64::INFINITY));
        raw.map(|weight| self.bounded((weight * scale).clamp(least * plain, most * plain))).collect()
    }

    /// Weight w of a device without a known gap, among `k`.
    fn weight_without_gap(&self, k: usize) -> f64 {
        self.bounded(match self.norm {
            EagleNorm::Unit => 1.0 / (k.max(1) as f64).sqrt(),
            EagleNorm::SqrtK | EagleNorm::None => 1.0,
        })
    }

    fn bounded(&self, weight: f64) -> f64 {
        self.min_weight.map_or(weight, |least| weight.max(least))
    }
}

/// Equal distance from what each device reaches alone; devices train alone once, before the first round.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Eagle {
    params: EagleParams,
    state: EagleState,
    /// w of every device with a known gap; follows from `state`.
    weights: BTreeMap<DeviceId, f64>,
}

/// What is kept from round to round.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct EagleState {
    /// The last r of each device.
    gap: BTreeMap<DeviceId, f64>,
    /// Devices that have trained alone.
    baseline: BTreeSet<DeviceId>,
}

impl Build for Eagle {
    const NAME: &'static str = "eagle";
    const ABOUT: &'static str = "equal distance from what each device reaches alone; devices train alone once, before the first round";

    type Params = EagleParams;

    fn build(params: EagleParams) -> Result<Self, String> {
        not_negative("lambda", params.lambda)?;
        positive("coefficient", params.coefficient)?;
        if params.min_weight.is_some_and(|least| !least.is_finite()) {
            return Err("`min_weight` must be a finite number, or absent for no bound".into());
        }
        Ok(Self { params: params.preset(), ..Self::default() })
    }
}

impl Strategy for Eagle {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn as_published(&self, _lr: f64) -> Option<bool> {
        Some(self.params.norm == EagleNorm::Unit)
    }

    fn uses_loss(&self, _trained: bool) -> bool {
        false
    }

    fn needs(&self) -> Needs {
        Needs { validation: true, sgd: true, ..Needs::default() }
    }

    fn next(&self, made: &[Exchange], selected: &[DeviceId]) -> Option<Ask> {
        if made.iter().any(|exchange| exchange.kind == Kind::Train) {
            return None;
        }
        let new = selected.iter().filter(|device| !self.state.baseline.contains(*device));
        let devices: Vec<DeviceId> = new.cloned().collect();
        let asked = made.iter().any(|exchange| exchange.kind == Kind::Alone);
        if devices.is_empty() || asked {
            return Some(Ask::train());
        }
        Some(Ask::Alone { task: Self::alone(), devices })
    }

    fn brief(&self, device: &DeviceId, made: &[Exchange], brief: &mut Brief) {
        let weight = self
            .weights
            .get(device)
            .copied()
            .unwrap_or_else(|| self.params.weight_without_gap(self.count(made)));
        brief.objective.weight = weight.clamp(f32::MIN.into(), f32::MAX.into()) as f32;
        brief.gap = true;
    }

    fn weigh(&self, cohort: &Cohort) -> Weights {
        Weights::per_device(self.base_weights(cohort))
    }

    fn base_weights(&self, cohort: &Cohort) -> Vec<f64> {
        vec![1.0; cohort.participants().len()]
    }

    fn bound(&mut self, floor: f64, share: f64) {
        self.params.factors = Some((floor, share));
        self.weigh_anew();
    }

    fn learn(&mut self, cohort: &Cohort, earlier: &[Exchange]) {
        for exchange in earlier.iter().filter(|exchange| exchange.kind == Kind::Alone) {
            let answered = exchange.cohort.participants().iter();
            self.state.baseline.extend(answered.map(|participant| participant.device.clone()));
        }
        for participant in cohort.participants() {
            if let Some(gap) = participant.gap() {
                self.state.gap.insert(participant.device.clone(), gap);
                self.state.baseline.insert(participant.device.clone());
            }
        }
        for refused in cohort.refused().iter().filter(|refused| refused.code == Code::NoBaseline) {
            self.state.baseline.remove(&refused.device);
        }
        self.weigh_anew();
    }

    fn knobs(&self) -> Vec<Knob> {
        vec![Knob::new("lambda", 0.0, 1.0, Scale::Log1p).of_gaps()]
    }

    fn turn(&mut self, parameter: &str, _tier: Option<Tier>, value: f64) {
        if parameter == "lambda" {
            self.params.lambda = value;
            self.weigh_anew();
        }
    }

    fn training_weights(&self) -> TrainingWeights {
        TrainingWeights { devices: self.weights.clone(), ..TrainingWeights::default() }
    }

    fn save(&self) -> Value {
        if self.state == EagleState::default() {
            return Value::Null;
        }
        json!({ "gap": self.state.gap, "baseline": self.state.baseline })
    }

    fn restore(&mut self, saved: Value) -> Result<(), StrategyError> {
        let state: EagleState = decode_state(self.name(), saved)?;
        if let Some((device, gap)) = state.gap.iter().find(|(_, gap)| !gap.is_finite()) {
            let why = format!("the gap of {device} is {gap}");
            return Err(StrategyError::State { strategy: self.name(), why });
        }
        self.state = state;
        self.weigh_anew();
        Ok(())
    }
}

impl Eagle {
    /// When training alone ends; everything else is as in the round.
    pub fn alone() -> Alone {
        let brief = Brief::sgd(ALONE_EPOCHS, 1, 0.0, 0);
        Alone { brief, window: ALONE_WINDOW, tolerance: ALONE_TOLERANCE }
    }

    fn weigh_anew(&mut self) {
        let gaps: Vec<f64> = self.state.gap.values().copied().collect();
        self.weights = self.state.gap.keys().cloned().zip(self.params.weights(&gaps)).collect();
    }

    /// K. Before any gap is known: the devices that take part, which have all just trained alone.
    fn count(&self, made: &[Exchange]) -> usize {
        if !self.state.gap.is_empty() {
            return self.state.gap.len();
        }
        let alone = made.iter().filter(|exchange| exchange.kind == Kind::Alone);
        let answered = alone.flat_map(|exchange| exchange.cohort.participants());
        let ready: BTreeSet<&DeviceId> =
            answered.map(|participant| &participant.device).chain(&self.state.baseline).collect();
        ready.len()
    }
}

#[cfg(test)]
mod tests;
