//! The program `fairtier` with one more strategy: `median_loss`.
//!
//! Devices whose loss lies above the median of the round get `boost` times the weight of their samples. The strategy
//! then works wherever a strategy is named: in `fairtier.toml`, in the simulator, and in `round combine`.

use std::process::ExitCode;

use fairtier::{Build, Cohort, Knob, Registry, Strategy, Weights, common::Tier, strategy::Scale};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Parameters of `median_loss`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Params {
    /// Factor by which a device with a high loss counts more.
    boost: f64,
}

impl Default for Params {
    fn default() -> Self {
        Self { boost: 2.0 }
    }
}

#[derive(Debug)]
struct MedianLoss(Params);

impl Build for MedianLoss {
    const NAME: &'static str = "median_loss";
    const ABOUT: &'static str = "devices with a loss above the median count more";
    type Params = Params;

    fn build(params: Params) -> Result<Self, String> {
        match params.boost {
            boost if boost.is_finite() && boost >= 1.0 => Ok(Self(params)),
            boost => Err(format!("`boost` must be 1 or more, not {boost}")),
        }
    }
}

impl Strategy for MedianLoss {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn weigh(&self, cohort: &Cohort) -> Weights {
        let mut losses: Vec<f64> = cohort.participants().iter().map(|device| device.loss()).collect();
        losses.sort_unstable_by(f64::total_cmp);
        let median = losses.get(losses.len() / 2).copied().unwrap_or(f64::INFINITY);
        let boost = |loss: f64| if loss > median { self.0.boost } else { 1.0 };
        let shares = cohort.participants().iter().zip(cohort.data_shares());
        Weights::per_device(shares.map(|(device, share)| share * boost(device.loss())).collect())
    }

    fn knobs(&self) -> Vec<Knob> {
        vec![Knob::new("boost", 1.0, 8.0, Scale::Log)]
    }

    fn turn(&mut self, parameter: &str, _tier: Option<Tier>, value: f64) {
        if parameter == "boost" {
            self.0.boost = value;
        }
    }
}

fn main() -> ExitCode {
    fairtier::run(&Registry::standard().with::<MedianLoss>())
}
