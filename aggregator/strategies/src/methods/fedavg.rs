//! FedAvg: `theta += eta * sum_i p_i D_i`, `p_i = n_i / n`; on tiers renormalised over each region.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    registry::Build,
    strategy::{Needs, Strategy},
};

/// Parameters of `fedavg` and `heterofl`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AverageParams {
    /// The server's learning rate; absent: that of the round, 1 unless stated.
    pub eta: Option<f64>,
    /// Devices scale the outputs of sliced layers in training.
    pub scaler: bool,
}

impl AverageParams {
    pub(super) fn checked(self) -> Result<Self, String> {
        match self.eta {
            Some(eta) if !eta.is_finite() => Err(format!("`eta` must be a finite number, not {eta}")),
            _ => Ok(self),
        }
    }

    pub(super) fn needs(&self) -> Needs {
        Needs { scaler: self.scaler, ..Needs::default() }
    }
}

/// Mean weighted by samples, region by region.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct FedAvg {
    params: AverageParams,
}

impl Build for FedAvg {
    const NAME: &'static str = "fedavg";
    const ABOUT: &'static str = "mean weighted by samples, region by region";

    type Params = AverageParams;

    fn build(params: AverageParams) -> Result<Self, String> {
        params.checked().map(|params| Self { params })
    }
}

impl Strategy for FedAvg {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn uses_loss(&self, _trained: bool) -> bool {
        false
    }

    fn needs(&self) -> Needs {
        self.params.needs()
    }

    fn eta(&self) -> Option<f64> {
        self.params.eta
    }
}
