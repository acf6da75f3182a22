//! q-FFL: minimises `sum_i p_i/(q+1) F_i^(q+1)`. With `G_i = -L D_i`, per region j over C(j):
//!
//! ```text
//! theta^(j) -= sum_i p_i F_i^q G_i^(j) / sum_i p_i (q F_i^(q-1) ||G_i||^2 + L F_i^q)
//! ```
//! Norms are over the device's whole slice. One factor L cancels: with `w_i = p_i F_i^q`, formed from
//! logarithms and scaled so that the weights of a region sum to 1,
//!
//! ```text
//! theta^(j) += sum_i w_i D_i^(j) / sum_i w_i (1 + q L ||D_i||^2 / F_i)              step = hessian
//! theta^(j) += sum_i w_i D_i^(j) / sum_i w_i                                        step = reweight
//! ```

use common::Tier;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    cohort::Cohort,
    kernel::sum,
    methods::{
        fairheterofl::SHORT_STEPS,
        softmax::{exp_shares, floored_loss, of_members},
    },
    parameter::{not_negative, positive},
    registry::Build,
    strategy::{Knob, Mix, Scale, Strategy, TierSums, Weights},
};

/// Parameters of `qffl`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct QfflParams {
    /// Fairness; 0 is plain averaging.
    pub q: f64,
    /// Absent: 1 / learning rate of the devices.
    #[serde(rename = "L")]
    pub l: Option<f64>,
    /// p_i of a device that has no weight of its own.
    pub weighting: Weighting,
    /// How long a step is. A fairness target needs `reweight`.
    pub step: QfflStep,
}

/// How long a step is.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum QfflStep {
    /// Divided by the bound on the Hessian, as published.
    #[default]
    Hessian,
    /// The same relative weights without the shortening.
    Reweight,
}

/// p_i of a device that has no weight of its own.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Weighting {
    /// The same for all, as published.
    #[default]
    Equal,
    /// Its share of all samples.
    Data,
}

impl Default for QfflParams {
    fn default() -> Self {
        Self { q: 1.0, l: None, weighting: Weighting::default(), step: QfflStep::default() }
    }
}

/// Losses to the power q as weights, with a bounded step.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Qffl {
    params: QfflParams,
}

impl Build for Qffl {
    const NAME: &'static str = "qffl";
    const ABOUT: &'static str = "losses to the power q as weights, with a bounded step";

    type Params = QfflParams;

    fn build(params: QfflParams) -> Result<Self, String> {
        not_negative("q", params.q)?;
        params.l.map(|l| positive("L", l)).transpose()?;
        Ok(Self { params })
    }
}

impl Strategy for Qffl {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn uses_lr(&self) -> bool {
        true
    }

    fn weigh(&self, cohort: &Cohort) -> Weights {
        if self.params.q == 0.0 {
            // The priors themselves; logarithms would round.
            return Weights::per_device(self.priors(cohort));
        }
        let logs = self.log_weights(cohort);
        Weights::by_region(cohort, |members| exp_shares(&of_members(&logs, members)))
    }

    fn base_weights(&self, cohort: &Cohort) -> Vec<f64> {
        self.priors(cohort)
    }

    fn mix(&self, cohort: &Cohort, sums: &TierSums) -> Mix {
        if self.params.q == 0.0 || self.params.step == QfflStep::Reweight {
            return Mix::plain_mean(cohort.regions(), sums);
        }
        let logs = self.log_weights(cohort);
        let mut mix = Mix::none(cohort.regions());
        for (region, tiers) in cohort.regions().regions() {
            let members = cohort.holders(tiers);
            let weights = exp_shares(&of_members(&logs, &members));
            let bound =
                sum(members.iter().zip(&weights).map(|(&index, weight)| weight * self.bound(cohort, index)));
            if bound > 0.0 {
                tiers.iter().for_each(|tier| mix.set(region, tier, 1.0 / bound));
                mix.set_rho(region, 1.0 / bound);
            }
        }
        mix
    }

    fn knobs(&self) -> Vec<Knob> {
        let knob = Knob::new("q", 0.0, 3.0, Scale::Log1p);
        match self.params.step {
            QfflStep::Reweight => vec![knob],
            QfflStep::Hessian => vec![knob.unusable(SHORT_STEPS)],
        }
    }

    fn turn(&mut self, parameter: &str, _tier: Option<Tier>, value: f64) {
        if parameter == "q" {
            self.params.q = value;
        }
    }
}

impl Qffl {
    /// p_i
    fn priors(&self, cohort: &Cohort) -> Vec<f64> {
        let default = match self.params.weighting {
            Weighting::Equal => vec![1.0 / cohort.participants().len() as f64; cohort.participants().len()],
            Weighting::Data => cohort.data_shares(),
        };
        let own = |(index, default)| cohort.device_weight(index).unwrap_or(default);
        default.into_iter().enumerate().map(own).collect()
    }

    /// `ln p_i + q ln F_i`
    fn log_weights(&self, cohort: &Cohort) -> Vec<f64> {
        let log =
            |(index, prior): (usize, f64)| prior.ln() + self.params.q * floored_loss(cohort, index).ln();
        self.priors(cohort).into_iter().enumerate().map(log).collect()
    }

    /// `1 + q L ||D_i||^2 / F_i`
    fn bound(&self, cohort: &Cohort, index: usize) -> f64 {
        let l = self.params.l.unwrap_or(1.0 / cohort.lr);
        if self.params.q > 0.0 {
            1.0 + self.params.q * l * cohort.norm(index) / floored_loss(cohort, index)
        } else {
            1.0
        }
    }
}

#[cfg(test)]
mod tests;
