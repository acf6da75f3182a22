//! FedEBA: devices whose loss is still high after training count more (the weights of FedEBA+ without alignment).
//!
//! ```text
//! theta^(j) += sum_{C(j)} p_i^(j) D_i^(j),   p^(j) = softmax over C(j) of FK / tau_eff
//! ```
//! Temperature, prior and limits: [`EbaParams`].

use common::Tier;

use crate::{
    cohort::Cohort,
    methods::{EbaParams, PUBLISHED_LRS},
    registry::Build,
    strategy::{Knob, Needs, Strategy, Weights},
};

/// Maximum-entropy weights from losses after training.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct FedEba {
    params: EbaParams,
}

impl Build for FedEba {
    const NAME: &'static str = "fedeba";
    const ABOUT: &'static str = "maximum-entropy weights from losses after training";

    type Params = EbaParams;

    fn build(params: EbaParams) -> Result<Self, String> {
        params.checked().map(|params| Self { params })
    }
}

impl Strategy for FedEba {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn uses_loss(&self, _trained: bool) -> bool {
        false
    }

    fn as_published(&self, lr: f64) -> Option<bool> {
        Some(PUBLISHED_LRS.contains(&lr))
    }

    fn needs(&self) -> Needs {
        Needs { loss_after: self.params.reweight, ..Needs::default() }
    }

    fn weigh(&self, cohort: &Cohort) -> Weights {
        let after = self.params.after(cohort);
        Weights::by_region(cohort, |members| after.over(members))
    }

    fn base_weights(&self, cohort: &Cohort) -> Vec<f64> {
        self.params.base_weights(cohort)
    }

    fn knobs(&self) -> Vec<Knob> {
        self.params.knobs()
    }

    fn turn(&mut self, parameter: &str, _tier: Option<Tier>, value: f64) {
        self.params.turn(parameter, value);
    }
}

#[cfg(test)]
mod tests;
