//! AFL: the worst mixture of clients, found by ascent on lambda over all N clients of the fleet.
//!
//! ```text
//! theta^(j) += sum_{C(j)} lambda_i D_i^(j) / sum_{C(j)} lambda_i         all 0 in C(j): equal weights
//! lambda_i  += gamma_lambda * F_i  for participants, then lambda is projected on {x >= 0, sum x = 1}
//! ```
//! Lambda starts at 1/N. The state names only clients that have taken part. All others share the remaining mass equally, and
//! the projection counts that value once for each of them.

use std::collections::BTreeMap;

use common::DeviceId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    cohort::Cohort,
    error::StrategyError,
    kernel::sum,
    methods::{simplex::project_repeated, softmax::of_members},
    parameter::not_negative,
    registry::Build,
    strategy::{Exchange, Strategy, Weights, decode_state},
};

/// Tolerance by which the lambdas of a state may exceed 1 in sum: they may have been printed and parsed.
const TOLERANCE: f64 = 1e-6;

/// Tolerance below which the remaining mass counts as zero: clients whose lambda is 0 must not get more than others.
const NEGLIGIBLE: f64 = 1e-14;

/// Largest addition to a lambda; a larger one would only cost precision in the sums.
const MOST: f64 = 1e300;

/// Parameters of `afl`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AflParams {
    /// Length of the step of lambda.
    pub gamma_lambda: f64,
}

impl Default for AflParams {
    fn default() -> Self {
        Self { gamma_lambda: 0.1 }
    }
}

/// The worst case over mixtures of devices.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Afl {
    params: AflParams,
    /// Lambda of the clients that have taken part.
    lambda: BTreeMap<DeviceId, f64>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct AflState {
    lambda: BTreeMap<DeviceId, f64>,
}

impl Build for Afl {
    const NAME: &'static str = "afl";
    const ABOUT: &'static str = "the worst case over mixtures of devices";

    type Params = AflParams;

    fn build(params: AflParams) -> Result<Self, String> {
        not_negative("gamma_lambda", params.gamma_lambda)?;
        Ok(Self { params, lambda: BTreeMap::new() })
    }
}

impl Strategy for Afl {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn weigh(&self, cohort: &Cohort) -> Weights {
        let lambda = self.of_participants(cohort);
        Weights::by_region(cohort, |members| {
            let own = of_members(&lambda, members);
            // A sum that is too small to divide by counts as 0.
            if sum(own.iter().copied()).is_normal() { own } else { vec![1.0; own.len()] }
        })
    }

    /// Lambda starts with the same value for all.
    fn base_weights(&self, cohort: &Cohort) -> Vec<f64> {
        vec![1.0; cohort.participants().len()]
    }

    fn learn(&mut self, cohort: &Cohort, _: &[Exchange]) {
        let lambda = self.of_participants(cohort);
        let unnamed = self.of_unnamed(cohort);
        for (participant, lambda) in cohort.participants().iter().zip(lambda) {
            let raised = lambda + (self.params.gamma_lambda * participant.loss()).min(MOST);
            self.lambda.insert(participant.device.clone(), raised);
        }
        let others = cohort.clients().saturating_sub(self.lambda.len());
        let mut all: Vec<(f64, f64)> = self.lambda.values().map(|&lambda| (lambda, 1.0)).collect();
        if others > 0 {
            all.push((unnamed, others as f64));
        }
        let projected = project_repeated(&all, 1.0);
        self.lambda.values_mut().zip(projected).for_each(|(lambda, projected)| *lambda = projected);
    }

    fn save(&self) -> Value {
        if self.lambda.is_empty() { Value::Null } else { json!({ "lambda": self.lambda }) }
    }

    fn restore(&mut self, saved: Value) -> Result<(), StrategyError> {
        let AflState { lambda } = decode_state(self.name(), saved)?;
        let all = sum(lambda.values().copied());
        let possible = lambda.values().all(|&lambda| lambda >= 0.0) && all <= 1.0 + TOLERANCE;
        if !possible {
            let why = format!("`lambda` must be 0 or more and at most 1 in sum, which is {all}");
            return Err(StrategyError::State { strategy: self.name(), why });
        }
        self.lambda = lambda;
        Ok(())
    }
}

impl Afl {
    fn of_participants(&self, cohort: &Cohort) -> Vec<f64> {
        let unnamed = self.of_unnamed(cohort);
        let of = |device| self.lambda.get(device).copied().unwrap_or(unnamed);
        cohort.participants().iter().map(|participant| of(&participant.device)).collect()
    }

    /// The lambda of each client that the state does not name.
    fn of_unnamed(&self, cohort: &Cohort) -> f64 {
        let unknown = |device: &&DeviceId| !self.lambda.contains_key(*device);
        let here =
            cohort.participants().iter().map(|participant| &participant.device).filter(unknown).count();
        let count = cohort.clients().saturating_sub(self.lambda.len()).max(here);
        let rest = 1.0 - sum(self.lambda.values().copied());
        if count > 0 && rest > NEGLIGIBLE { rest / count as f64 } else { 0.0 }
    }
}

#[cfg(test)]
mod tests;
