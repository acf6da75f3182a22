//! FedMDFG: a direction that descends for every client and makes losses more equal, with a line search.
//!
//! ```text
//! rows       g_i mu / ||g_i||, mu = mean ||g_i||; clients with ||g_i|| <= 1e-6 are left out
//! guidance   if angle(F, 1) > theta_deg:  one more row  sum h_i g_i,  h ~ (r.Fh) Fh - r,  ||h|| = 1
//! history    the last gradients of clients of the round before that are absent now
//! direction  d = min-norm point of the rows, as long as the mean of the rows of clients
//! step       1, 1/2, .., 2^-s;  from 2^s on if the same clients took part in the round before
//! ```
//! After training, devices are asked for their losses at `theta - step d` ([`line_search`] chooses the step). Each region has
//! its own direction; the step is common.

use std::collections::BTreeSet;

use common::{DeviceId, message::MAX_TRIALS};
use line_search::LineSearch;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    algebra::{Guidance, NEGLIGIBLE, Products, add_scaled, dot},
    blocks::Scope,
    cohort::Cohort,
    error::StrategyError,
    gram::{Gram, Grams},
    methods::minnorm::min_norm,
    parameter::not_negative,
    registry::Build,
    strategy::{
        Ask, Direction, Exchange, Kind, Needs, Strategy, decode_state,
        direction::{losses, participants},
    },
};

mod line_search;

/// Shorter gradients are ignored.
const SHORT: f64 = 1e-6;

/// Parameters of `fedmdfg`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FedMdfgParams {
    /// Losses are pulled together if they differ by more than this angle.
    pub theta_deg: f64,
    /// The smallest step is `2^-s`.
    pub s: u32,
    /// Also use gradients of the round before.
    pub history: bool,
}

impl Default for FedMdfgParams {
    fn default() -> Self {
        Self { theta_deg: 11.25, s: 5, history: false }
    }
}

/// Common descent with a fair guide and a line search; two exchanges a round.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct FedMdfg {
    params: FedMdfgParams,
    last: BTreeSet<DeviceId>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct FedMdfgState {
    last_participants: BTreeSet<DeviceId>,
}

impl Build for FedMdfg {
    const NAME: &'static str = "fedmdfg";
    const ABOUT: &'static str = "common descent with a fair guide and a line search; two exchanges a round";

    type Params = FedMdfgParams;

    fn build(params: FedMdfgParams) -> Result<Self, String> {
        not_negative("theta_deg", params.theta_deg)?;
        // From 2^s down to 2^-s.
        let most = (MAX_TRIALS as u32 - 1) / 2;
        if params.s > most {
            return Err(format!(
                "`s` must be at most {most}, not {}: devices try {MAX_TRIALS} steps",
                params.s
            ));
        }
        Ok(Self { params, last: BTreeSet::new() })
    }
}

impl Strategy for FedMdfg {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn needs(&self) -> Needs {
        let history = if self.params.history { usize::MAX } else { 0 };
        Needs { guide: true, history, recent: 1, ..Needs::default() }
    }

    fn next(&self, made: &[Exchange], _selected: &[DeviceId]) -> Option<Ask> {
        let Some(train) = made.iter().find(|exchange| exchange.kind == Kind::Train) else {
            return Some(Ask::train());
        };
        let tried = made.iter().any(|exchange| exchange.kind == Kind::Try);
        let open = !tried && !train.cohort.participants().is_empty();
        open.then(|| Ask::Try { steps: self.steps(&train.cohort) })
    }

    fn scope(&self) -> Option<Scope> {
        Some(Scope::Region)
    }

    /// Step 1 while no losses at other steps are known.
    fn direct(&self, cohort: &Cohort, grams: &Grams) -> Direction {
        let mut direction = Direction::none(grams);
        let mut line_search = LineSearch::new(cohort);
        for (block, gram) in grams.blocks().iter().enumerate() {
            if let Some(found) = self.find(cohort, gram) {
                direction.set_block(block, gram, &found.coefficients, 1.0);
                line_search.add(gram, &found.along, found.guided);
            }
        }
        direction.note_conflicts(cohort, grams);
        direction.note("guided", line_search.guided);
        let steps = if cohort.steps.is_empty() { self.steps(cohort) } else { cohort.steps.clone() };
        if let Some(step) = line_search.accept(&steps) {
            direction.scale(step);
            direction.note("step", step);
        }
        direction
    }

    fn learn(&mut self, cohort: &Cohort, _earlier: &[Exchange]) {
        self.last = cohort.participants().iter().map(|participant| participant.device.clone()).collect();
    }

    fn save(&self) -> Value {
        if self.last.is_empty() { Value::Null } else { json!({"last_participants": self.last}) }
    }

    fn restore(&mut self, saved: Value) -> Result<(), StrategyError> {
        let FedMdfgState { last_participants } = decode_state(self.name(), saved)?;
        self.last = last_participants;
        Ok(())
    }
}

/// The direction of one region.
struct RegionDirection {
    /// Of the rows of the region.
    coefficients: Vec<f64>,
    /// By participant of the region: `g_i.d` with the rescaled g_i; `None` if it is too short.
    along: Vec<Option<f64>>,
    guided: bool,
}

impl FedMdfg {
    /// From 2^s down if the same devices took part in the round before.
    fn steps(&self, cohort: &Cohort) -> Vec<f64> {
        let now = cohort.participants();
        let same =
            now.len() == self.last.len() && now.iter().all(|device| self.last.contains(&device.device));
        let s = self.params.s as i32;
        let top = if same { s } else { 0 };
        (-top..=s).map(|power| 2f64.powi(-power)).collect()
    }

    fn find(&self, cohort: &Cohort, gram: &Gram) -> Option<RegionDirection> {
        let all = Products::of(gram);
        let count = participants(cohort, gram);
        let clients: Vec<usize> = (0..count).filter(|&i| all.length(i) > SHORT).collect();
        if clients.is_empty() {
            return None;
        }
        let mu = clients.iter().map(|&i| all.length(i)).sum::<f64>() / clients.len() as f64;
        let seen_before = |&place: &usize| {
            cohort.absent_row(gram.rows[place]).is_some_and(|absent| absent.round + 1 == cohort.round)
                && all.length(place) > SHORT
        };
        let past: Vec<usize> =
            (count..if self.params.history { all.len() } else { count }).filter(seen_before).collect();
        // All rows in units of mu.
        let factors: Vec<f64> =
            clients.iter().map(|&i| 1.0 / all.length(i)).chain(past.iter().map(|_| 1.0 / mu)).collect();
        let members: Vec<usize> = clients.iter().chain(&past).copied().collect();
        let rows = all.select(&members, &factors);
        let losses = losses(cohort, gram);
        let guidance = Guidance::of(&clients.iter().map(|&i| losses[i]).collect::<Vec<_>>());
        let guided = guidance.angle > self.params.theta_deg.to_radians();
        // A sum of many rows is less precise than one row.
        let mut longest = rows.longest();
        let mut weights = if guided {
            let length = dot(&guidance.v, &guidance.v).sqrt();
            let mut guide: Vec<f64> = guidance.v.iter().map(|v| v / length).collect();
            longest = longest.max(guide.iter().map(|coefficient| coefficient.abs()).sum());
            guide.resize(members.len(), 0.0);
            let mut weights = min_norm(&rows.extended(&guide));
            let own = weights[rows.len()];
            weights.truncate(rows.len());
            add_scaled(&mut weights, own, &guide);
            weights
        } else {
            min_norm(&rows)
        };
        let length = rows.norm(&weights);
        let zero = length <= NEGLIGIBLE * longest;
        let factor = if zero { 0.0 } else { rows.mean_norm(clients.len()) / length };
        weights.iter_mut().for_each(|weight| *weight *= factor);
        let products = rows.with(&weights);
        let mut coefficients = vec![0.0; all.len()];
        let mut along = vec![None; count];
        for (place, &member) in members.iter().enumerate() {
            coefficients[member] = weights[place] * factors[place] * mu;
            if let Some(along) = along.get_mut(member) {
                *along = Some(products[place] * mu * mu);
            }
        }
        Some(RegionDirection { coefficients, along, guided })
    }
}

#[cfg(test)]
mod tests;
