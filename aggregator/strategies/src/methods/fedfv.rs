//! FedFV: gradients that conflict are projected onto each other's normal planes before they are averaged.
//!
//! ```text
//! order       clients by ascending loss; the ceil(alpha m) with the largest are kept as they are
//! inside      u_i = g_i; for j in order, j != i:  if g_j.u_i < 0:  u_i -= (g_j.u_i / ||g_j||^2) g_j
//! mean        g = mean u_i
//! outside     for rounds t-tau .. t-1:  c = sum of last gradients h of absent clients seen then, h.g < 0;
//!             if c.g < 0:  g -= (g.c / ||c||^2) c
//! length      theta -= g ||mean g_i|| / ||g||
//! ```
//! Each region is a separate problem over the clients that hold it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    algebra::{NEGLIGIBLE, Products, add_scaled},
    blocks::Scope,
    cohort::Cohort,
    gram::{Gram, Grams},
    parameter::share,
    registry::Build,
    strategy::{
        Direction, Needs, Strategy,
        direction::{losses, participants},
    },
};

/// Parameters of `fedfv`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FedFvParams {
    /// Share of the clients, those with the largest losses, whose gradients are not changed.
    pub alpha: f64,
    /// Rounds of history that are used.
    pub tau: u32,
}

impl Default for FedFvParams {
    fn default() -> Self {
        Self { alpha: 0.1, tau: 1 }
    }
}

/// Takes conflicts out of updates, in a fair order.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct FedFv {
    params: FedFvParams,
}

impl Build for FedFv {
    const NAME: &'static str = "fedfv";
    const ABOUT: &'static str = "takes conflicts out of updates, in a fair order";

    type Params = FedFvParams;

    fn build(params: FedFvParams) -> Result<Self, String> {
        share("alpha", params.alpha)?;
        Ok(Self { params })
    }
}

impl Strategy for FedFv {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn needs(&self) -> Needs {
        let history = if self.params.tau > 0 { usize::MAX } else { 0 };
        Needs { history, recent: self.params.tau, ..Needs::default() }
    }

    fn scope(&self) -> Option<Scope> {
        Some(Scope::Region)
    }

    fn direct(&self, cohort: &Cohort, grams: &Grams) -> Direction {
        let mut direction = Direction::none(grams);
        for (block, gram) in grams.blocks().iter().enumerate() {
            if participants(cohort, gram) == 0 {
                continue;
            }
            let losses = losses(cohort, gram);
            // 0.1 * 30 is a little more than 3.
            let kept = (self.params.alpha * losses.len() as f64 - 1e-9).ceil().max(0.0) as usize;
            let mean = fair_mean(&Products::of(gram), &losses, kept, &self.past(cohort, gram));
            direction.set_block(block, gram, &mean, 1.0);
        }
        direction.note_conflicts(cohort, grams);
        direction
    }
}

impl FedFv {
    /// Places of the absent devices among the rows of a block, by the round they were last seen in.
    fn past(&self, cohort: &Cohort, gram: &Gram) -> Vec<Vec<usize>> {
        let first = cohort.round.saturating_sub(self.params.tau);
        let mut past: Vec<(u32, Vec<usize>)> = Vec::new();
        for (place, &row) in gram.rows.iter().enumerate().skip(participants(cohort, gram)) {
            let absent = cohort.absent_row(row);
            let Some(absent) = absent.filter(|absent| (first..cohort.round).contains(&absent.round)) else {
                continue;
            };
            match past.last_mut() {
                Some((round, places)) if *round == absent.round => places.push(place),
                _ => past.push((absent.round, vec![place])),
            }
        }
        past.into_iter().map(|(_, places)| places).collect()
    }
}

/// Coefficients of the mean without conflicts; the first vectors are those of the clients.
fn fair_mean(products: &Products, losses: &[f64], kept: usize, past: &[Vec<usize>]) -> Vec<f64> {
    let count = losses.len();
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|&i, &j| losses[i].total_cmp(&losses[j]));
    let (changed, kept) = order.split_at(count - kept.min(count));
    let mut mean = vec![0.0; products.len()];
    kept.iter().for_each(|&i| mean[i] += 1.0);
    for &i in changed {
        mean[i] += 1.0;
        // Products of all vectors with u_i.
        let mut along = products.row(i).to_vec();
        for &j in order.iter().filter(|&&j| j != i) {
            let own = products.at(j, j);
            if along[j] < 0.0 && own > 0.0 {
                let factor = along[j] / own;
                mean[j] -= factor;
                add_scaled(&mut along, -factor, products.row(j));
            }
        }
    }
    mean.iter_mut().for_each(|coefficient| *coefficient /= count as f64);
    let nothing = NEGLIGIBLE * products.longest();
    for places in past {
        let along = products.with(&mean);
        let against: Vec<usize> = places.iter().copied().filter(|&place| along[place] < 0.0).collect();
        let mut sum = vec![0.0; products.len()];
        against.iter().for_each(|&place| sum[place] = 1.0);
        let length = products.norm(&sum);
        let product: f64 = against.iter().map(|&place| along[place]).sum();
        if product < 0.0 && length > nothing {
            add_scaled(&mut mean, -product / length / length, &sum);
        }
    }
    let longest = (0..count).map(|i| products.length(i)).fold(0.0, f64::max);
    let length = products.norm(&mean);
    let factor = if length > NEGLIGIBLE * longest { products.mean_norm(count) / length } else { 0.0 };
    mean.iter().map(|coefficient| coefficient * factor).collect()
}

#[cfg(test)]
mod tests;
