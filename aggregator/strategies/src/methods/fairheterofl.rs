//! FairHeteroFL: fairness between tiers (`q`) and inside each tier (`q_m`).
//!
//! Objective: `sum_m g_m/(q+1) * (sum_{i in m} p_i f_i^(q_m+1))^((q+1)/(q_m+1))`. For tier m, with
//! `S = sum p f^(q_m+1)`, `e = (q-q_m)/(q_m+1)`, `V = sum p f^q_m G`, `U = sum p f^q_m`,
//! `Q = sum p f^(q_m-1) ||G||^2` and `G = -L D`:
//!
//! ```text
//! Delta_m = g S^e V
//! H_m     = g (q-q_m)_+ S^(e-1) ||V||^2 + g S^e (q_m Q + L U)
//! theta^(j) -= sum_{m in M(j)} Delta_m^(j) / sum_{m in M(j)} H_m          step = hessian
//! theta^(j) += sum_i w_i D_i^(j) / sum_i w_i,  w = g S^e p f^q_m           step = reweight
//! ```
//! Everything is evaluated in logs: `Delta_m = exp(B_m) v_m` and `H_m = exp(B_m) h_m`. Only differences of `B` inside a region
//! are exponentiated. So q = 50 neither overflows nor gives 0/0 in a region that only a tier with low losses holds. See
//! [`terms`].

use std::collections::BTreeMap;

use common::{RegionId, Tier, region::RegionMap};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use terms::Terms;

use crate::{
    cohort::{Cohort, Participant},
    error::StrategyError,
    parameter::{not_negative, positive},
    registry::Build,
    strategy::{Knob, Mix, PerTier, Scale, Strategy, TierSums, Weights},
};

mod terms;

/// Why no target drives a strategy that divides by the bound on the Hessian.
pub(super) const SHORT_STEPS: &str = "with `strategy.params.step = \"hessian\"` steps get short, and short steps look fair; set \
                                      `strategy.params.step = \"reweight\"`";

/// Parameters of `fairheterofl`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FairHeteroFlParams {
    /// Fairness between tiers.
    pub q: f64,
    /// Fairness inside each tier.
    pub q_m: PerTier,
    /// Absent: 1 / learning rate of the devices.
    #[serde(rename = "L")]
    pub l: Option<f64>,
    /// The factor of `||V||^2` in the bound where q < q_m.
    pub hessian: Hessian,
    /// Where the norms in the bound are taken.
    pub norm: NormScope,
    /// How long a step is.
    pub step: StepRule,
    /// Default weight of a tier.
    pub group_weight: GroupWeight,
    /// As its paper prints it: sets `step` = hessian, `hessian` = literal and `norm` = region. L is not printed; choose it on
    /// validation data.
    pub published: bool,
    /// `q_m` of tiers in which a fairness target drives it.
    #[serde(skip)]
    pub turned: BTreeMap<Tier, f64>,
}

/// The factor of `||V||^2` in the bound where q < q_m.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Hessian {
    /// `(q - q_m)_+`: a valid bound.
    #[default]
    Clamped,
    /// `q - q_m` as published: longer steps.
    Literal,
}

/// Where the norms in the bound are taken.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NormScope {
    /// Over the tier's whole slice: one number per tier.
    #[default]
    Scalar,
    /// Over the region.
    Region,
}

/// How long a step is.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StepRule {
    /// Divided by the Hessian bound, as published: short where devices train for several epochs.
    Hessian,
    /// The same relative weights without the shortening.
    #[default]
    Reweight,
}

/// Default weight of a tier.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum GroupWeight {
    /// Its share of all samples.
    #[default]
    Data,
    /// The same for every tier.
    Uniform,
}

impl Default for FairHeteroFlParams {
    fn default() -> Self {
        Self {
            q: 2.0,
            q_m: PerTier::All(1.0),
            l: None,
            hessian: Hessian::default(),
            norm: NormScope::default(),
            step: StepRule::default(),
            group_weight: GroupWeight::default(),
            published: false,
            turned: BTreeMap::new(),
        }
    }
}

impl FairHeteroFlParams {
    /// With the choices of `published`. Ours differ because `q - q_m` below 0 is no bound, norms over a region bound less than the
    /// step needs, and the bound shortens steps until nothing trains.
    fn preset(self) -> Self {
        let (step, hessian, norm) = (StepRule::Hessian, Hessian::Literal, NormScope::Region);
        if self.published { Self { step, hessian, norm, ..self } } else { self }
    }

    /// q_m of a tier; `None` beyond the end of the list.
    fn q_m(&self, tier: Tier) -> Option<f64> {
        self.turned.get(&tier).copied().or_else(|| self.q_m.of(tier))
    }

    /// Whether losses and stated weights do not enter, so that this is HeteroFL.
    fn is_plain(&self, cohort: &Cohort) -> bool {
        let mut tiers = (0..cohort.regions().tiers()).map_while(Tier::new);
        let equal = self.q == 0.0 && tiers.clone().all(|tier| self.q_m(tier) == Some(0.0));
        let mut devices = 0..cohort.participants().len();
        equal
            && self.group_weight == GroupWeight::Data
            && tiers.all(|tier| cohort.tier_weight(tier).is_none())
            && devices.all(|index| cohort.device_weight(index).is_none())
    }
}

/// Fairness between tiers (q) and inside them (q_m).
#[derive(Clone, PartialEq, Debug, Default)]
pub struct FairHeteroFl {
    params: FairHeteroFlParams,
}

impl Build for FairHeteroFl {
    const NAME: &'static str = "fairheterofl";
    const ABOUT: &'static str = "fairness between tiers (q) and inside them (q_m)";

    type Params = FairHeteroFlParams;

    fn build(params: FairHeteroFlParams) -> Result<Self, String> {
        not_negative("q", params.q)?;
        params.q_m.values().iter().try_for_each(|&q_m| not_negative("q_m", q_m).map(drop))?;
        params.l.map(|l| positive("L", l)).transpose()?;
        Ok(Self { params: params.preset() })
    }
}

impl Strategy for FairHeteroFl {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    /// With q = q_m = 0 it is HeteroFL.
    fn as_published(&self, _lr: f64) -> Option<bool> {
        let FairHeteroFlParams { q, q_m, step, hessian, norm, .. } = &self.params;
        let fair = *q > 0.0 || q_m.values().iter().any(|&q_m| q_m > 0.0);
        let printed = (*step, *hessian, *norm) == (StepRule::Hessian, Hessian::Literal, NormScope::Region);
        fair.then_some(printed)
    }

    fn uses_lr(&self) -> bool {
        true
    }

    fn fits(&self, regions: &RegionMap) -> Result<(), StrategyError> {
        self.params.q_m.fits("q_m", regions.tiers())
    }

    /// `u_i`, scaled so that the largest of each tier is 1.
    fn weigh(&self, cohort: &Cohort) -> Weights {
        if self.params.is_plain(cohort) {
            // The same bits as HeteroFL; logarithms would round.
            return Weights::per_device(cohort.participants().iter().map(Participant::samples).collect());
        }
        let mut weights = vec![0.0; cohort.participants().len()];
        let mut shares = weights.clone();
        let tiers = terms::of_tiers(&self.params, cohort);
        let top = tiers.iter().map(|terms| terms.ln_scale).fold(f64::NEG_INFINITY, f64::max);
        for terms in &tiers {
            for &(index, weight) in &terms.weights {
                weights[index] = weight;
                shares[index] = (terms.ln_scale - top).exp() * weight;
            }
        }
        Weights::scaled_by_tier(weights, &shares)
    }

    /// `g_m p_i`
    fn base_weights(&self, cohort: &Cohort) -> Vec<f64> {
        terms::priors(&self.params, cohort)
    }

    fn mix(&self, cohort: &Cohort, sums: &TierSums) -> Mix {
        if self.params.is_plain(cohort) {
            return Mix::plain_mean(cohort.regions(), sums);
        }
        let l = match self.params.step {
            StepRule::Hessian => self.params.l.unwrap_or(1.0 / cohort.lr),
            // A common factor would cancel.
            StepRule::Reweight => 1.0,
        };
        let all = terms::of_tiers(&self.params, cohort);
        let mut mix = Mix::none(cohort.regions());
        for (region, tiers) in cohort.regions().regions() {
            let held = || all.iter().filter(|terms| tiers.contains(terms.tier));
            if held().next().is_none() {
                continue;
            }
            let top = held().map(|terms| terms.ln_scale).fold(f64::NEG_INFINITY, f64::max);
            let scale = |terms: &Terms| (terms.ln_scale - top).exp();
            let plain: f64 = held().map(|terms| scale(terms) * l * terms.weight).sum();
            let bound: f64 = match self.params.step {
                StepRule::Reweight => plain,
                StepRule::Hessian => held()
                    .map(|terms| scale(terms) * self.bound(terms, l, &Norms { region, cohort, sums }))
                    .sum(),
            };
            for terms in held() {
                mix.set(region, terms.tier, scale(terms) * l / bound);
            }
            mix.set_rho(region, plain / bound);
        }
        mix
    }

    fn knobs(&self) -> Vec<Knob> {
        let knobs = [
            Knob::new("q", 0.0, 10.0, Scale::Log1p).between_tiers(),
            Knob::new("q_m", 0.0, 2.0, Scale::Log1p).per_tier(),
        ];
        let usable = |knob: Knob| match self.params.step {
            StepRule::Reweight => knob,
            StepRule::Hessian => knob.unusable(SHORT_STEPS),
        };
        knobs.map(usable).into()
    }

    fn turn(&mut self, parameter: &str, tier: Option<Tier>, value: f64) {
        match (parameter, tier) {
            ("q", None) => self.params.q = value,
            ("q_m", Some(tier)) => drop(self.params.turned.insert(tier, value)),
            _ => {}
        }
    }
}

impl FairHeteroFl {
    /// `h_m = L sum u + q_m sum exp(a - ln f - amax) ||G||^2 + (q-q_m)_+ exp(amax - lnS) ||v||^2`
    fn bound(&self, terms: &Terms, l: f64, norms: &Norms<'_>) -> f64 {
        let (q, q_m) = (self.params.q, terms.q_m);
        let plain = l * terms.weight;
        // Q in the scale of the tier; f^(q_m-1) is left out if it would be multiplied by 0.
        let spread = || {
            let of = |&(index, weight): &(usize, f64)| {
                weight / terms::loss(norms.cohort, index) * norms.update(&self.params, index)
            };
            l * l * terms.weights.iter().map(of).sum::<f64>()
        };
        let inside = if q_m > 0.0 { q_m * spread() } else { 0.0 };
        let step = || (terms.ln_top - terms.ln_s).exp() * l * l * norms.sum(&self.params, terms.tier);
        match self.params.hessian {
            _ if q > q_m => plain + inside + (q - q_m) * step(),
            Hessian::Literal if q < q_m => {
                // The Cauchy-Schwarz inequality gives this lower limit, which rounding must not undercut.
                let least = plain + if q > 0.0 { q * spread() } else { 0.0 };
                (plain + inside - (q_m - q) * step()).max(least)
            }
            _ => plain + inside,
        }
    }
}

/// The squared norms in the bound of a region.
struct Norms<'a> {
    region: RegionId,
    cohort: &'a Cohort,
    sums: &'a TierSums,
}

impl Norms<'_> {
    fn update(&self, params: &FairHeteroFlParams, index: usize) -> f64 {
        match params.norm {
            NormScope::Scalar => self.cohort.norm(index),
            NormScope::Region => self.cohort.norms(index)[self.region.index()],
        }
    }

    fn sum(&self, params: &FairHeteroFlParams, tier: Tier) -> f64 {
        match params.norm {
            NormScope::Scalar => self.sums.norm(tier),
            NormScope::Region => self.sums.norm_in(tier, self.region),
        }
    }
}

#[cfg(test)]
mod tests;
