//! AAggFF-S: an online Newton step over few clients.
//!
//! ```text
//! r_i     = cdf(x_i) / K         x_i = F_i / mean F;  a client that is absent has the mean of the others
//! g       = -r / (1 + <p, r>)    the gradient of -ln(1 + <p, r>) at the present decision p, 1 / K at first
//! p_next  = argmin over the simplex of  sum <g_t, p> + a/2 |p|^2 + b/2 sum <g_t, p - p_t>^2
//! a = 4 K L = 4,  b = 1 / (4 L) = K / 4          with L = 1 / K, which bounds the entries of g
//! theta^(j) += sum_{C(j)} p_i D_i^(j) / sum_{C(j)} p_i                        p_next, after this round's losses
//! ```
//! `g` enters less its mean: what all clients have in common adds the same to every point of the simplex.
//!
//! The authors' program leaves p_t out of the square, and adds `a` to the matrix once more. A client that joins later begins
//! with the share 1 / K.

use std::collections::BTreeMap;

use common::DeviceId;
use serde::{Deserialize, Serialize};

use crate::{algebra::dot, cohort::Cohort, kernel::sum, methods::simplex::project_simplex};

/// a: how strongly decisions are pulled to equal shares.
const PULL: f64 = 4.0;
/// Most steps of the solver, and the change below which it ends.
const STEPS: usize = 20_000;
const STILL: f64 = 1e-15;

/// State of the learner.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Silos {
    /// All clients, ascending.
    devices: Vec<DeviceId>,
    /// p.
    decision: Vec<f64>,
    /// `sum g_t - b sum g_t <g_t, p_t>`, with the b of each round.
    linear: Vec<f64>,
    /// `sum b g_t g_t^T`, row by row.
    square: Vec<f64>,
}

/// Shares with sum 1. The learner may have given everything to other clients; then these count alike.
pub fn scaled(shares: &[f64]) -> Vec<f64> {
    let all = sum(shares.iter().copied());
    let equal = 1.0 / shares.len() as f64;
    shares.iter().map(|share| if all > 0.0 { share / all } else { equal }).collect()
}

impl Silos {
    /// True before any client is known.
    pub fn is_empty(&self) -> bool {
        self.devices.is_empty()
    }

    /// Whether the parts of a saved state fit each other.
    pub fn check(&self) -> Result<(), String> {
        let clients = self.devices.len();
        let sizes = [self.decision.len(), self.linear.len()] == [clients; 2]
            && self.square.len() == clients * clients;
        let numbers = || self.decision.iter().chain(&self.linear).chain(&self.square);
        match (sizes, self.devices.is_sorted_by(|a, b| a < b), numbers().all(|number| number.is_finite())) {
            (false, ..) => Err(format!("`silos` has other sizes than its {clients} devices need")),
            (_, false, _) => Err("`silos.devices` must be ascending".into()),
            (.., false) => Err("`silos` has a number that is not finite".into()),
            (true, true, true) => Ok(()),
        }
    }

    /// Takes in clients that are not known yet.
    pub fn join<'a>(&mut self, devices: impl Iterator<Item = &'a DeviceId>) {
        let mut all = self.devices.clone();
        all.extend(devices.cloned());
        all.sort_unstable();
        all.dedup();
        let (clients, known) = (all.len(), self.devices.len());
        if clients == known {
            return;
        }
        let place: Vec<Option<usize>> =
            all.iter().map(|device| self.devices.binary_search(device).ok()).collect();
        let share = 1.0 / clients as f64;
        // Those that are known share the rest as before.
        let rest = known as f64 * share;
        let moved = |from: &[f64], absent: f64, factor: f64| -> Vec<f64> {
            place.iter().map(|place| place.map_or(absent, |at| factor * from[at])).collect()
        };
        let square: Vec<f64> = place
            .iter()
            .flat_map(|row| place.iter().map(move |column| (*row, *column)))
            .map(|(row, column)| {
                row.zip(column).map_or(0.0, |(row, column)| self.square[row * known + column])
            })
            .collect();
        self.decision = moved(&self.decision, share, rest);
        self.linear = moved(&self.linear, 0.0, 1.0);
        (self.devices, self.square) = (all, square);
    }

    /// Takes in a round: the responses from 0 to 1 of its participants.
    pub fn learn(&mut self, responses: &BTreeMap<&DeviceId, f64>) {
        let clients = self.devices.len();
        if clients == 0 || responses.is_empty() {
            return;
        }
        let mean = sum(responses.values().copied()) / responses.len() as f64;
        let response =
            |device: &DeviceId| responses.get(device).map_or(mean, |&response| response) / clients as f64;
        let responses: Vec<f64> = self.devices.iter().map(response).collect();
        let below = 1.0 + dot(&self.decision, &responses);
        let middle = sum(responses.iter().copied()) / clients as f64;
        let gradient: Vec<f64> = responses.iter().map(|response| (middle - response) / below).collect();
        let b = clients as f64 / 4.0;
        let along = 1.0 - b * dot(&gradient, &self.decision);
        for (row, own) in gradient.iter().enumerate() {
            self.linear[row] += own * along;
            let squares = &mut self.square[row * clients..][..clients];
            squares.iter_mut().zip(&gradient).for_each(|(square, other)| *square += b * own * other);
        }
        self.decision = self.solve();
    }

    /// Shares of the participants, not scaled. All of them are clients.
    pub fn decisions(&self, cohort: &Cohort) -> Vec<f64> {
        let share = |device: &DeviceId| {
            let place = self.devices.binary_search(device);
            debug_assert!(place.is_ok(), "{device} has not joined");
            place.map_or(f64::NAN, |at| self.decision[at])
        };
        cohort.participants().iter().map(|participant| share(&participant.device)).collect()
    }

    /// The next decision, by accelerated projected gradients: the objective is a/2-strongly convex.
    fn solve(&self) -> Vec<f64> {
        let clients = self.devices.len();
        let steepest = PULL + sum((0..clients).map(|at| self.square[at * clients + at]));
        let momentum = (steepest.sqrt() - PULL.sqrt()) / (steepest.sqrt() + PULL.sqrt());
        let (mut decision, mut ahead) = (self.decision.clone(), self.decision.clone());
        for _ in 0..STEPS {
            let slope = |row: usize| {
                self.linear[row] + PULL * ahead[row] + dot(&self.square[row * clients..][..clients], &ahead)
            };
            let step: Vec<f64> = (0..clients).map(|row| ahead[row] - slope(row) / steepest).collect();
            let next = project_simplex(&step, 1.0);
            let change = next.iter().zip(&decision).map(|(new, old)| (new - old).abs()).fold(0.0, f64::max);
            ahead = next.iter().zip(&decision).map(|(new, old)| new + momentum * (new - old)).collect();
            decision = next;
            if change <= STILL {
                break;
            }
        }
        decision
    }
}
