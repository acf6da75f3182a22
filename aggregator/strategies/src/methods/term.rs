//! TERM: minimises `(1/t) ln sum_i p_i exp(t F_i)`, `p_i = n_i / n`.
//!
//! ```text
//! w_i = p_i exp(t F_i) / sum      theta^(j) += sum_{C(j)} w_i D_i^(j) / sum_{C(j)} w_i
//! ```
//! These are the entropy weights of FedEBA with `t = 1/tau` and the data as prior, but from the losses before training.

use common::Tier;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    cohort::{Cohort, Participant},
    methods::softmax::{of_members, softmax},
    parameter::not_negative,
    registry::Build,
    strategy::{Knob, Scale, Strategy, Weights},
};

/// Parameters of `term`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TermParams {
    /// How much high losses count; 0 is FedAvg.
    pub t: f64,
}

impl Default for TermParams {
    fn default() -> Self {
        Self { t: 0.1 }
    }
}

/// Exponentially tilted mean of losses.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Term {
    params: TermParams,
}

impl Build for Term {
    const NAME: &'static str = "term";
    const ABOUT: &'static str = "exponentially tilted mean of losses";

    type Params = TermParams;

    fn build(params: TermParams) -> Result<Self, String> {
        not_negative("t", params.t)?;
        Ok(Self { params })
    }
}

impl Strategy for Term {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn weigh(&self, cohort: &Cohort) -> Weights {
        if self.params.t == 0.0 {
            // The same bits as FedAvg; logarithms would round.
            return Weights::per_device(cohort.data_shares());
        }
        let losses: Vec<f64> = cohort.participants().iter().map(Participant::loss).collect();
        let data = cohort.data_shares();
        let tau = 1.0 / self.params.t;
        Weights::by_region(cohort, |members| {
            softmax(&of_members(&losses, members), tau, &of_members(&data, members))
        })
    }

    fn knobs(&self) -> Vec<Knob> {
        vec![Knob::new("t", 0.0, 3.0, Scale::Log1p)]
    }

    fn turn(&mut self, parameter: &str, _tier: Option<Tier>, value: f64) {
        if parameter == "t" {
            self.params.t = value;
        }
    }
}

#[cfg(test)]
mod tests;
