//! FedLF: a direction that descends for every client in every layer, and makes losses more equal.
//!
//! ```text
//! rows of a block   g_i of the clients, g_P = sum q_i g_i, and last gradients of absent clients
//! q                 gradient of -cos(F, 1) in F:  q = (1/||F||) ((sum F)/(sqrt(m) ||F||^2) F - 1/sqrt(m))
//! direction         d_b = -(min-norm point of the rows, each rescaled to the clients' mean length)
//! blocks            layers; one whose point is 0 is merged with its neighbour. If all are one and still 0:
//!                   again without absent clients, then also without g_P
//! length            theta += d ||mean g_i|| / ||d||
//! absent clients    last seen in round t - tau or later, tau = floor(M_seen / |S|)
//! ```
//! Blocks lie inside one region each; losses, merging and length are those of the region's clients.
//! See [`block`] for one problem and [`region`] for merging.

use std::collections::BTreeSet;

use block::Problem;
use common::DeviceId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    algebra::{Guidance, Products},
    blocks::Scope,
    cohort::Cohort,
    error::StrategyError,
    gram::{Gram, Grams},
    parameter::not_negative,
    registry::Build,
    strategy::{
        Direction, Exchange, Needs, Strategy, decode_state,
        direction::{losses, participants},
    },
};

mod block;
mod region;

/// Parameters of `fedlf`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FedLfParams {
    /// Rescale rows to one length; false: the problem as published.
    pub normalize_rows: bool,
    /// Use gradients of absent clients.
    pub history: bool,
    /// How many absent clients are remembered, the latest first; absent: all.
    pub history_cap: Option<usize>,
    /// A direction shorter than this, relative to the longest row, is 0.
    pub ztol: f64,
    /// As its paper prints it: sets `normalize_rows` = false.
    pub published: bool,
}

impl Default for FedLfParams {
    fn default() -> Self {
        Self { normalize_rows: true, history: true, history_cap: None, ztol: 1e-6, published: false }
    }
}

impl FedLfParams {
    /// With the choices of `published`. Ours differs because the row of the fairness gradient grows without limit as losses become
    /// equal, and then the direction follows it alone.
    fn preset(self) -> Self {
        Self { normalize_rows: self.normalize_rows && !self.published, ..self }
    }
}

/// Common descent layer by layer, without conflicts.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct FedLf {
    params: FedLfParams,
    seen: SeenClients,
}

/// Clients that ever took part. A round file may state their number without their names.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SeenClients {
    #[serde(rename = "seen")]
    count: usize,
    #[serde(default)]
    ids: BTreeSet<DeviceId>,
}

impl Build for FedLf {
    const NAME: &'static str = "fedlf";
    const ABOUT: &'static str = "common descent layer by layer, without conflicts";

    type Params = FedLfParams;

    fn build(params: FedLfParams) -> Result<Self, String> {
        not_negative("ztol", params.ztol)?;
        if params.ztol >= 1.0 {
            return Err(format!("`ztol` must be below 1, not {}: nothing would ever move", params.ztol));
        }
        Ok(Self { params: params.preset(), seen: SeenClients::default() })
    }
}

impl Strategy for FedLf {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn needs(&self) -> Needs {
        let history = if self.params.history { self.params.history_cap.unwrap_or(usize::MAX) } else { 0 };
        Needs { history, ..Needs::default() }
    }

    fn as_published(&self, _lr: f64) -> Option<bool> {
        Some(!self.params.normalize_rows)
    }

    fn scope(&self) -> Option<Scope> {
        Some(Scope::Layer)
    }

    fn direct(&self, cohort: &Cohort, grams: &Grams) -> Direction {
        let mut direction = Direction::none(grams);
        let past = self.past(cohort);
        let (mut blocks, mut merged, mut fallbacks) = (0, 0, Vec::new());
        let mut first = 0;
        for layers in grams.blocks().chunk_by(|a, b| a.block.region == b.block.region) {
            let start = first;
            first += layers.len();
            let Some(gram) = layers.first().filter(|gram| participants(cohort, gram) > 0) else { continue };
            let products: Vec<Products> = layers.iter().map(Products::of).collect();
            let found = region::find(&products, &self.problem(cohort, gram, &past));
            blocks += found.blocks;
            merged += layers.len() - found.blocks;
            fallbacks.extend(
                found.fallback.map(|name| json!({"region": gram.block.region.index(), "rows": name})),
            );
            for (place, (gram, coefficients)) in layers.iter().zip(&found.coefficients).enumerate() {
                direction.set_block(start + place, gram, coefficients, 1.0);
            }
        }
        direction.note_conflicts(cohort, grams);
        direction.note("blocks", blocks);
        direction.note("merged", merged);
        direction.note("absent", past.len());
        if !fallbacks.is_empty() {
            direction.note("fallback", fallbacks);
        }
        direction
    }

    fn learn(&mut self, cohort: &Cohort, _earlier: &[Exchange]) {
        self.seen = self.seen.with(cohort);
    }

    fn save(&self) -> Value {
        if self.seen.count == 0 { Value::Null } else { json!(self.seen) }
    }

    fn restore(&mut self, saved: Value) -> Result<(), StrategyError> {
        self.seen = decode_state(self.name(), saved)?;
        Ok(())
    }
}

impl FedLf {
    /// Rows of the absent clients that are used.
    fn past(&self, cohort: &Cohort) -> BTreeSet<usize> {
        let (seen, now) = (self.seen.with(cohort).count, cohort.participants().len());
        if !self.params.history || seen <= now {
            return BTreeSet::new();
        }
        let tau = u32::try_from(seen / now).unwrap_or(u32::MAX);
        let first = cohort.round.saturating_sub(tau);
        let recent = cohort.absent().iter().enumerate().filter(|(_, absent)| absent.round >= first);
        let recent: Vec<usize> = recent.map(|(number, _)| now + number).collect();
        let cap = self.params.history_cap.unwrap_or(usize::MAX);
        recent.into_iter().rev().take(cap).collect()
    }

    /// The rows of a region, before any block is solved.
    fn problem(&self, cohort: &Cohort, gram: &Gram, past: &BTreeSet<usize>) -> Problem {
        let guidance = Guidance::of(&losses(cohort, gram));
        let ratio = |row: usize| {
            let ratio = cohort.absent_row(row).map_or(1.0, |absent| cohort.lr / absent.lr);
            if ratio.is_finite() && ratio > 0.0 { ratio } else { 1.0 }
        };
        let places = gram.rows.iter().enumerate().filter(|(_, row)| past.contains(row));
        Problem {
            clients: participants(cohort, gram),
            q: Some(guidance.v.iter().map(|v| v / guidance.norm).collect()),
            past: places.map(|(place, &row)| (place, ratio(row))).collect(),
            normalize: self.params.normalize_rows,
            ztol: self.params.ztol,
        }
    }
}

impl SeenClients {
    fn with(&self, cohort: &Cohort) -> Self {
        let mut ids = self.ids.clone();
        ids.extend(cohort.participants().iter().map(|participant| participant.device.clone()));
        ids.extend(cohort.absent().iter().map(|absent| absent.device.clone()));
        Self { count: self.count.max(ids.len()), ids }
    }
}

#[cfg(test)]
mod tests;
