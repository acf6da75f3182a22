//! AFL: the worst mixture of clients, found by ascent on lambda over all N clients of the fleet.
//!
//! ```text
//! theta^(j) += sum_{C(j)} lambda_i D_i^(j) / sum_{C(j)} lambda_i         all 0 in C(j): equal weights
//! lambda_i  += gamma_lambda * F_i  for participants, then lambda is projected on {x >= 0, sum x = 1}
//! ```
//! Lambda starts at 1/N. Only clients that have taken part are named in the state; all others have the same
//! lambda, the rest of 1 in equal parts, and the projection counts that value as often as there are such
//! clients.

use std::collections::BTreeMap;

use common::DeviceId;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    Build, Exchange, Strategy, StrategyError, Weights, not_negative,
    simplex::project_repeated,
    softmax::{at, by_region},
    state,
};
use crate::combine::{Cohort, sum};

/// By how much the lambdas of a state may exceed 1 in sum: they may have been printed and read.
const TOLERANCE: f64 = 1e-6;

/// A rest of 1 that is only rounding: clients whose lambda is 0 must not seem to have more than others.
const NOTHING: f64 = 1e-14;

/// Largest addition to a lambda; more would only take digits from the sums.
const MOST: f64 = 1e300;

/// Parameters of `afl`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
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

#[derive(Clone, PartialEq, Debug, Default)]
pub struct Afl {
    params: AflParams,
    /// Of the clients that have taken part.
    lambda: BTreeMap<DeviceId, f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    lambda: BTreeMap<DeviceId, f64>,
}

impl Build for Afl {
    type Params = AflParams;

    fn build(params: AflParams) -> Result<Self, String> {
        not_negative("gamma_lambda", params.gamma_lambda)?;
        Ok(Self { params, lambda: BTreeMap::new() })
    }
}

impl Strategy for Afl {
    fn name(&self) -> &'static str {
        "afl"
    }

    fn weigh(&self, cohort: &Cohort<'_>) -> Weights {
        let lambda = self.of_participants(cohort);
        by_region(cohort, |members| {
            let own = at(&lambda, members);
            // A number too small to be divided by is none.
            if sum(own.iter().copied()).is_normal() { own } else { vec![1.0; own.len()] }
        })
    }

    fn learn(&mut self, cohort: &Cohort<'_>, _: &[Exchange<'_>]) {
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
        let saved = match saved {
            Value::Object(keys) if keys.is_empty() => Value::Null,
            other => other,
        };
        let lambda = state::<State>(self.name(), saved)?.map(|state| state.lambda).unwrap_or_default();
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
    fn of_participants(&self, cohort: &Cohort<'_>) -> Vec<f64> {
        let unnamed = self.of_unnamed(cohort);
        let of = |device| self.lambda.get(device).copied().unwrap_or(unnamed);
        cohort.participants().iter().map(|participant| of(&participant.device)).collect()
    }

    /// What each client has that is not named.
    fn of_unnamed(&self, cohort: &Cohort<'_>) -> f64 {
        let unknown = |device: &&DeviceId| !self.lambda.contains_key(*device);
        let here =
            cohort.participants().iter().map(|participant| &participant.device).filter(unknown).count();
        let count = cohort.clients().saturating_sub(self.lambda.len()).max(here);
        let rest = 1.0 - sum(self.lambda.values().copied());
        if count > 0 && rest > NOTHING { rest / count as f64 } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::{
        super::{
            Method, by_name,
            fleet::{Fleet, assert_close},
            simplex::project_simplex,
        },
        *,
    };
    use crate::combine::combine;

    fn afl(params: Value) -> Method {
        by_name("afl", params).unwrap()
    }

    fn lambda(method: &Method) -> Vec<f64> {
        let state = method.state();
        state["lambda"].as_object().unwrap().values().map(|value| value.as_f64().unwrap()).collect()
    }

    /// Combines with a stated size of the fleet.
    fn run(fleet: &Fleet, clients: usize, method: &mut Method) -> Vec<f64> {
        let mut cohort = fleet.cohort();
        cohort.set_clients(clients);
        let mut theta = fleet.theta.clone();
        combine(method, &cohort, &[], &mut fleet.updates(), &mut theta).unwrap();
        theta
    }

    fn worked() -> Fleet {
        let mut fleet = Fleet::new(&[0.0, 0.0, 0.0], 0.1, &[&[0, 1, 2]]);
        fleet.add("a", 0, 1, 0.5, &[1.0, 0.0, 0.0]);
        fleet.add("b", 0, 2, 1.0, &[0.0, 1.0, 0.0]);
        fleet.add("c", 0, 3, 2.0, &[0.0, 0.0, 1.0]);
        fleet
    }

    #[test]
    fn worked_numbers() {
        let (fleet, mut method) = (worked(), afl(Value::Null));
        let expected = [0.2666666667, 0.3166666667, 0.4166666667];
        assert_close(&fleet.combine(&mut method).0, &[1.0 / 3.0; 3], 1e-12);
        assert_close(&lambda(&method), &expected, 1e-10);
        assert_close(&fleet.combine(&mut method).0, &expected, 1e-10);
    }

    /// a has 0.3 of 1, so that b, c and two clients never seen have 0.7 / 4 each.
    #[test]
    fn clients_that_are_not_named_share_the_rest() {
        let (fleet, mut method) = (worked(), afl(Value::Null));
        method.set_state(json!({"lambda": {"a": 0.3}})).unwrap();
        let theta = run(&fleet, 5, &mut method);
        let all = 0.3 + 2.0 * 0.175;
        assert_close(&theta, &[0.3 / all, 0.175 / all, 0.175 / all], 1e-12);
        let full = project_simplex(&[0.35, 0.275, 0.375, 0.175, 0.175], 1.0);
        assert_close(&lambda(&method), &full[..3], 1e-12);
        // What is left belongs to those two.
        let left = 1.0 - lambda(&method).iter().sum::<f64>();
        assert_close(&[left], &[full[3] + full[4]], 1e-12);
        // A fleet that is smaller than the state: nobody has anything left to share.
        let mut method = afl(Value::Null);
        method.set_state(json!({"lambda": {"x": 0.6, "y": 0.1, "z": 0.1, "zz": 0.0}})).unwrap();
        assert_close(&run(&fleet, 3, &mut method), &[1.0 / 3.0; 3], 1e-12);
    }

    #[test]
    fn regions_without_lambda_average() {
        let mut fleet = Fleet::new(&[0.0, 0.0], 0.1, &[&[0, 1], &[0]]);
        fleet.add("a", 0, 1, 1.0, &[1.0, 1.0]);
        fleet.add("b", 0, 9, 1.0, &[3.0, 3.0]);
        fleet.add("c", 1, 1, 1.0, &[8.0]);
        let mut method = afl(Value::Null);
        method.set_state(json!({"lambda": {"a": 0, "b": 0, "c": 1}})).unwrap();
        assert_close(&fleet.combine(&mut method).0, &[8.0, 2.0], 1e-12);
        method.set_state(json!({"lambda": {"a": 0, "b": 0, "c": 0, "d": 1}})).unwrap();
        let (theta, outcome) = fleet.combine(&mut method);
        assert_close(&theta, &[4.0, 2.0], 1e-12);
        assert_close(&outcome.weights, &[1.0 / 3.0; 3], 1e-12);
        method.set_state(json!({"lambda": {"a": 5e-324, "b": 0, "c": 0, "d": 1}})).unwrap();
        assert_close(&fleet.combine(&mut method).0, &[4.0, 2.0], 1e-12);
    }

    #[test]
    fn states_and_parameters_are_checked() {
        let mut method = afl(Value::Null);
        for bad in [json!({"a": -0.1}), json!({"a": 0.6, "b": 0.6}), json!({"a": "x"}), json!([1])] {
            let why = method.set_state(json!({ "lambda": bad })).unwrap_err().to_string();
            assert!(why.contains("afl"), "{why}");
        }
        assert!(method.set_state(json!({"mu": {}})).is_err());
        method.set_state(json!({"lambda": {"a": 0.5}})).unwrap();
        method.set_state(Value::Null).unwrap();
        assert_eq!(method.state(), Value::Null);
        assert!(by_name("afl", json!({"gamma_lambda": -1})).is_err());
    }

    #[test]
    fn losses_of_any_size_leave_lambda_in_the_simplex() {
        let mut fleet = worked();
        for losses in [[0.0, 1e-12, 1e8], [1e300, 1e300, 0.0], [f64::MAX, f64::MAX, f64::MAX]] {
            fleet.devices.iter_mut().zip(losses).for_each(|(member, loss)| member.loss = loss);
            let mut method = afl(json!({"gamma_lambda": 0.7}));
            let _ = fleet.combine(&mut method);
            assert!((lambda(&method).iter().sum::<f64>() - 1.0).abs() < 1e-12, "{losses:?}");
            assert!(fleet.combine(&mut method).0.iter().all(|value| value.is_finite()));
        }
    }

    proptest! {
        /// Property 16, and several rounds of partial participation against lambda written out for all.
        #[test]
        fn lambda_stays_in_the_simplex(
            seed: u64, tiers in 1usize..5, nested: bool, gamma in 0.01..0.7f64, more in 0usize..4, rounds in 1usize..5
        ) {
            let full = Fleet::random(seed, tiers, nested);
            let clients = full.devices.len() + more;
            let mut method = afl(json!({"gamma_lambda": gamma}));
            let mut all: BTreeMap<String, f64> = full
                .devices
                .iter()
                .map(|member| member.device.to_string())
                .chain((0..more).map(|number| format!("unseen{number}")))
                .map(|id| (id, 1.0 / clients as f64))
                .collect();
            for round in 0..rounds {
                let mut fleet = full.clone();
                let keep = |number: usize| (seed >> ((number + 7 * round) % 60)) & 1 == 0;
                fleet.devices = (0..).zip(&full.devices).filter(|(number, _)| keep(*number)).map(|(_, m)| m.clone()).collect();
                if fleet.devices.is_empty() {
                    continue;
                }
                let theta = run(&fleet, clients, &mut method);
                let total: f64 = fleet.devices.iter().map(|member| all[member.device.as_str()]).sum();
                if total > 1e-9 && tiers == 1 {
                    assert_close(&theta, &fleet.weighted_mean(|member| all[member.device.as_str()]), 1e-9);
                }
                for member in &fleet.devices {
                    *all.get_mut(member.device.as_str()).unwrap() += gamma * member.loss;
                }
                let projected = project_simplex(&all.values().copied().collect::<Vec<_>>(), 1.0);
                all.values_mut().zip(projected).for_each(|(lambda, projected)| *lambda = projected);
                let state = method.state();
                for (id, value) in state["lambda"].as_object().unwrap() {
                    prop_assert!((value.as_f64().unwrap() - all[id]).abs() < 1e-12);
                }
                prop_assert!(lambda(&method).iter().all(|&lambda| lambda >= 0.0));
                prop_assert!(lambda(&method).iter().sum::<f64>() <= 1.0 + 1e-12);
            }
        }

        #[test]
        fn equal_losses_keep_lambda(seed: u64, loss in 0.0..10.0f64) {
            let mut fleet = Fleet::random(seed, 2, true);
            let mut method = afl(Value::Null);
            let _ = fleet.combine(&mut method);
            let before = lambda(&method);
            fleet.devices.iter_mut().for_each(|member| member.loss = loss);
            let _ = fleet.combine(&mut method);
            assert_close(&lambda(&method), &before, 1e-12);
        }
    }
}
