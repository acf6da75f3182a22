//! What a report says of one knob after a round.

use common::Tier;
use serde::{Deserialize, Serialize};

use super::{
    ledger::Ledger, resolution::Resolution, settings::Measure, status::FairnessStatus, sums::SignalKind,
};
use crate::{guard::CappedShare, strategy::FairnessScope};

/// Devices that are named where the guard bounds them; of more only the number is known.
const NAMED: usize = 5;

/// One knob after a round.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct FairnessLine {
    /// Name of the strategy.
    pub strategy: String,
    /// The parameter that is driven.
    pub parameter: String,
    /// Of a parameter per tier.
    pub tier: Option<usize>,
    /// Between whom the disparity is measured.
    pub scope: FairnessScope,
    /// The figure that is compared with the target.
    pub measure: Measure,
    /// What the figure is computed from.
    pub signal: SignalKind,
    /// c*
    pub target: f64,
    /// c, the disparity last measured.
    pub measured: Option<f64>,
    /// d, the estimate of its square.
    pub squared: Option<f64>,
    /// Rounds over which the status is judged.
    pub window: usize,
    /// Root mean square of the disparity over the window so far.
    pub window_rms: Option<f64>,
    /// u
    pub position: f64,
    /// I
    pub integrator: f64,
    /// Of the parameter in this round.
    pub value: f64,
    /// Of the parameter in the next round.
    pub next_value: f64,
    /// The value without fairness, and the strongest one.
    pub neutral: f64,
    /// The value of the strongest fairness.
    pub most: f64,
    /// How the target stands.
    pub status: FairnessStatus,
    /// Whether `bound` is certain.
    pub certified: bool,
    /// What the root mean square of the disparity since the ledger began is below, if certified.
    pub bound: Option<f64>,
    /// What the bound is computed from.
    pub ledger: Ledger,
    /// Mean of d/c*^2 - 1 since the ledger began.
    pub mean_error: Option<f64>,
    /// Lowest disparity of a window at the end of the knob.
    pub reached: Option<f64>,
    /// Mean loss, and the lowest so far.
    pub mean: Option<f64>,
    /// The lowest mean loss so far.
    pub best_mean: Option<f64>,
    /// Rounds of the window in which the budget held the knob back.
    pub price_acted: usize,
    /// Devices of this round without a signal.
    pub unmeasured: u64,
    /// With `not_reachable`: false if the end of the knob is worse than what was before it.
    pub raising_helps: Option<bool>,
    /// What the measurement can tell; absent where nothing is left to chance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution: Option<Resolution>,
    /// Devices whose shares the guard bounded in the last round that was combined.
    #[serde(default, skip_serializing_if = "Capped::is_empty")]
    pub capped: Capped,
}

/// Devices that would have counted more without the guard.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Capped {
    /// How many.
    pub devices: u64,
    /// The first of them.
    pub names: Vec<String>,
}

impl Capped {
    /// Of one tier, or of all.
    pub(super) fn of(shares: &[CappedShare], tier: Option<Tier>) -> Self {
        let own = || shares.iter().filter(|share| tier.is_none_or(|tier| share.tier == tier));
        let names = own().take(NAMED).map(|share| share.device.to_string()).collect();
        Self { devices: own().count() as u64, names }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.devices == 0
    }
}
