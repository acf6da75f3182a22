//! Prac-FedEBA+: the alignment of FedEBA+ from the updates themselves, in one exchange.
//!
//! ```text
//! p^(j) = softmax over C(j) of FK / tau_eff        ptilde^(j) = softmax over C(j) of F / tau_eff
//! theta^(j) += sum_{C(j)} [ (1-alpha) p_i^(j) + alpha ptilde_i^(j) ] D_i^(j)
//! ```
//! As published, every update is first moved towards the fair mean of all of them, `Dhat_i = (1-alpha) D_i + alpha sum_k
//! ptilde_k D_k`, and then `theta += sum_i p_i Dhat_i`. This is the same, because p sums to 1. The two softmaxes are mixed
//! after they are restricted to a region, because renormalising a mixture gives another result.

use common::Tier;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    cohort::Cohort,
    methods::{Anneal, EbaParams, PUBLISHED_LRS, Prior},
    parameter::share,
    registry::Build,
    strategy::{Knob, Needs, Strategy, Weights},
};

/// Parameters of `prac_fedeba`: those of `fedeba`, and `alpha`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PracFedEbaParams {
    /// Large: all count the same. Small: only the highest loss counts.
    pub tau: f64,
    /// Least weight of a device; 0: no limit.
    pub eps_p: f64,
    /// How the temperature falls from round to round.
    pub anneal: Anneal,
    /// How fast annealing goes.
    pub kappa: f64,
    /// Weights at an infinite temperature.
    pub prior: Prior,
    /// False: the last average is by samples.
    pub reweight: bool,
    /// Share of the losses before training in the weights.
    pub alpha: f64,
}

impl Default for PracFedEbaParams {
    fn default() -> Self {
        let EbaParams { tau, eps_p, anneal, kappa, prior, reweight } = EbaParams::default();
        Self { tau, eps_p, anneal, kappa, prior, reweight, alpha: 0.5 }
    }
}

/// Maximum-entropy weights from losses before and after training.
#[derive(Clone, PartialEq, Debug)]
pub struct PracFedEba {
    weights: EbaParams,
    alpha: f64,
}

impl Build for PracFedEba {
    const NAME: &'static str = "prac_fedeba";
    const ABOUT: &'static str = "maximum-entropy weights from losses before and after training";

    type Params = PracFedEbaParams;

    fn build(params: PracFedEbaParams) -> Result<Self, String> {
        let PracFedEbaParams { tau, eps_p, anneal, kappa, prior, reweight, alpha } = params;
        let weights = EbaParams { tau, eps_p, anneal, kappa, prior, reweight }.checked()?;
        Ok(Self { weights, alpha: share("alpha", alpha)? })
    }
}

impl Strategy for PracFedEba {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn as_published(&self, lr: f64) -> Option<bool> {
        Some(PUBLISHED_LRS.contains(&lr))
    }

    fn needs(&self) -> Needs {
        Needs { loss_after: self.weights.reweight, ..Needs::default() }
    }

    fn weigh(&self, cohort: &Cohort) -> Weights {
        let (before, after) = (self.weights.before(cohort), self.weights.after(cohort));
        Weights::by_region(cohort, |members| {
            let both = after.over(members).into_iter().zip(before.over(members));
            both.map(|(p, ptilde)| (1.0 - self.alpha) * p + self.alpha * ptilde).collect()
        })
    }

    fn base_weights(&self, cohort: &Cohort) -> Vec<f64> {
        self.weights.base_weights(cohort)
    }

    fn knobs(&self) -> Vec<Knob> {
        self.weights.knobs()
    }

    fn turn(&mut self, parameter: &str, _tier: Option<Tier>, value: f64) {
        self.weights.turn(parameter, value);
    }
}

#[cfg(test)]
mod tests;
