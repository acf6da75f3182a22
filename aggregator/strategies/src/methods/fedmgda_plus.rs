//! FedMGDA+: the shortest combination of normalised gradients, with weights near given ones.
//!
//! ```text
//! u_i = g_i / ||g_i||  (zero stays zero)
//! min ||sum lambda_i u_i||^2   over the simplex with |lambda_i - lambda0_i| <= eps
//! theta -= eta_g d,   d = sum lambda_i u_i
//! theta -= d ||mean g_i|| / ||d||            with `rescale`, and with several tiers; eta_g is then 1
//! ```
//! eps = 0 is a mean of normalised gradients, eps = 1 a direction that descends for every client. Each region is a separate
//! problem over the clients that hold it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    algebra::{NEGLIGIBLE, Products},
    blocks::Scope,
    cohort::Cohort,
    gram::{Gram, Grams},
    methods::minnorm::{min_norm, min_norm_in_box},
    parameter::{positive, share},
    registry::Build,
    strategy::{Direction, Strategy, direction::participants},
};

/// Parameters of `fedmgda_plus`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FedMgdaPlusParams {
    /// How far weights may differ from `lambda0`.
    pub eps: f64,
    /// Length of the step along d; not used if d is rescaled.
    pub eta_g: f64,
    /// The step is as long as the mean of the updates.
    pub rescale: bool,
    /// The weights that the solution stays close to.
    pub lambda0: Lambda0,
}

/// The weights that the solution stays close to.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Lambda0 {
    /// The same for all.
    #[default]
    Equal,
    /// Shares of the samples.
    Data,
}

impl Default for FedMgdaPlusParams {
    fn default() -> Self {
        Self { eps: 0.1, eta_g: 1.0, rescale: false, lambda0: Lambda0::Equal }
    }
}

/// Common descent near the mean.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct FedMgdaPlus {
    params: FedMgdaPlusParams,
}

impl Build for FedMgdaPlus {
    const NAME: &'static str = "fedmgda_plus";
    const ABOUT: &'static str = "common descent near the mean";

    type Params = FedMgdaPlusParams;

    fn build(params: FedMgdaPlusParams) -> Result<Self, String> {
        share("eps", params.eps)?;
        positive("eta_g", params.eta_g)?;
        Ok(Self { params })
    }
}

impl Strategy for FedMgdaPlus {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn uses_loss(&self, _trained: bool) -> bool {
        false
    }

    fn scope(&self) -> Option<Scope> {
        Some(Scope::Region)
    }

    fn direct(&self, cohort: &Cohort, grams: &Grams) -> Direction {
        let mut direction = Direction::none(grams);
        for (block, gram) in grams.blocks().iter().enumerate() {
            let count = participants(cohort, gram);
            if count == 0 {
                continue;
            }
            let products = Products::of(gram);
            let lengths: Vec<f64> = (0..count).map(|i| products.length(i)).collect();
            let inverse = |length: &f64| if *length > 0.0 { 1.0 / length } else { 0.0 };
            let inverse: Vec<f64> = lengths.iter().map(inverse).collect();
            let unit = products.select(&(0..count).collect::<Vec<_>>(), &inverse);
            let weights = shortest(&unit, &self.lambda0(cohort, gram, count), self.params.eps);
            let factor = if self.params.rescale || cohort.regions().tiers() > 1 {
                let length = unit.norm(&weights);
                if length > NEGLIGIBLE { products.mean_norm(count) / length } else { 0.0 }
            } else {
                self.params.eta_g
            };
            let step: Vec<f64> =
                weights.iter().zip(&inverse).map(|(weight, inverse)| weight * inverse).collect();
            direction.set_block(block, gram, &step, factor);
        }
        direction.note_conflicts(cohort, grams);
        direction
    }
}

impl FedMgdaPlus {
    fn lambda0(&self, cohort: &Cohort, gram: &Gram, count: usize) -> Vec<f64> {
        let samples = gram.rows[..count].iter().map(|&row| &cohort.participants()[row]);
        let weights: Vec<f64> = match self.params.lambda0 {
            Lambda0::Equal => vec![1.0; count],
            Lambda0::Data => samples.map(|participant| participant.samples()).collect(),
        };
        let all: f64 = weights.iter().sum();
        weights.iter().map(|weight| weight / all).collect()
    }
}

/// Weights of the shortest combination with `|lambda - lambda0| <= eps`.
fn shortest(unit: &Products, lambda0: &[f64], eps: f64) -> Vec<f64> {
    let lo: Vec<f64> = lambda0.iter().map(|weight| (weight - eps).max(0.0)).collect();
    let hi: Vec<f64> = lambda0.iter().map(|weight| (weight + eps).min(1.0)).collect();
    if eps == 0.0 {
        lambda0.to_vec()
    } else if lo.iter().all(|&lo| lo == 0.0) && hi.iter().all(|&hi| hi == 1.0) {
        min_norm(unit)
    } else {
        min_norm_in_box(unit, &lo, &hi)
    }
}

#[cfg(test)]
mod tests;
