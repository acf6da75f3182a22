//! The worked example and the stated properties of the rule.
#![expect(clippy::needless_range_loop, reason = "matrices read best with indices")]

use common::Tier;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{
    method::by_name,
    methods::{
        fairheterofl::{FairHeteroFl, FairHeteroFlParams, StepRule},
        fleet::{Fleet, assert_close},
    },
    strategy::PerTier,
};

/// With the published step unless `params` name another one.
fn fair(mut params: Value) -> crate::method::Method {
    if params.is_null() {
        params = json!({});
    }
    if params.get("step").is_none() {
        params["step"] = "hessian".into();
    }
    by_name("fairheterofl", params).unwrap()
}

fn run(fleet: &Fleet, params: Value) -> Vec<f64> {
    fleet.combine(&mut fair(params)).0
}

fn worked() -> Fleet {
    let mut fleet = Fleet::new(&[1.0, -0.5, 0.25], 0.1, &[&[0, 1, 2], &[0, 1]]);
    fleet.add("0", 0, 10, 0.5, &[-0.10, 0.05, 0.02]);
    fleet.add("1", 0, 30, 1.0, &[-0.04, 0.0, 0.06]);
    fleet.add("2", 1, 20, 2.0, &[-0.20, 0.10]);
    fleet.add("3", 1, 20, 1.0, &[-0.12, -0.06]);
    fleet
}

/// The worked example with p and g stated rather than taken from the samples.
fn worked_by_weights() -> Fleet {
    let mut fleet = worked();
    for (member, weight) in fleet.devices.iter_mut().zip([0.25, 0.75, 0.5, 0.5]) {
        (member.samples, member.weight) = (7, Some(weight));
    }
    fleet.tier_weights = vec![Some(0.5), Some(0.5)];
    fleet
}

#[test]
fn worked_example() {
    for fleet in [worked(), worked_by_weights()] {
        let mut strategy = fair(json!({"q": 2, "q_m": [1, 0]}));
        let (theta, outcome) = fleet.combine(&mut strategy);
        assert_close(&theta, &[0.8986088922, -0.4871110005, 0.2976557978], 1e-10);
        let rho: Vec<f64> = outcome.regions.iter().filter_map(|region| region.rho).collect();
        assert_close(&rho, &[0.7735166091, 0.8778699595], 1e-10);
        // w = g S^e p f^q_m: 0.5 sqrt(0.8125) (0.125, 0.75) and 0.5 * 2.25 (0.5, 0.5), normalised.
        let root = 0.8125f64.sqrt();
        let raw = [0.125 * root, 0.75 * root, 1.125, 1.125];
        let all: f64 = raw.iter().sum();
        assert_close(&outcome.weights, &raw.map(|weight| weight / all), 1e-12);

        let reweight = run(&fleet, json!({"q": 2, "q_m": [1, 0], "step": "reweight"}));
        assert_close(&reweight, &[0.8689218737, -0.4833371393, 0.3042857143], 1e-10);
        let region = run(&fleet, json!({"q": 2, "q_m": [1, 0], "norm": "region"}));
        assert_close(&region, &[0.8972946385, -0.4869439304, 0.3010330579], 1e-10);
        assert_close(&run(&fleet, json!({"q": 0, "q_m": 0})), &[0.8925, -0.48375, 0.30], 1e-10);
        let clamped = run(&fleet, json!({"q": 0, "q_m": 2}));
        assert_close(&clamped, &[0.9132465334, -0.4729059332, 0.3001219182], 1e-10);
        let literal = run(&fleet, json!({"q": 0, "q_m": 2, "hessian": "literal"}));
        assert_close(&literal, &[0.8910512287, -0.4659740941, 0.3054489869], 1e-10);
        let steep = run(&fleet, json!({"q": 50, "q_m": 0}));
        assert_close(&steep, &[0.9834482759, -0.4979310345, 0.2617746005], 1e-10);
    }
}

#[test]
fn l_overrides_the_learning_rate() {
    let fleet = worked();
    let params = json!({"q": 2, "q_m": [1, 0]});
    let other = Fleet { lr: 0.5, ..fleet.clone() };
    let stated = run(&other, json!({"q": 2, "q_m": [1, 0], "L": 10}));
    assert_eq!(stated, run(&fleet, params.clone()));
    assert_ne!(run(&other, params), stated);
}

#[test]
fn uniform_groups_weigh_a_small_tier_more() {
    let mut fleet = worked();
    fleet.devices[0].samples = 100;
    let params = json!({"q": 0, "q_m": 0, "group_weight": "uniform"});
    let samples = |tier: usize| -> f64 {
        fleet
            .devices
            .iter()
            .filter(|member| member.tier == tier)
            .map(|member| f64::from(member.samples))
            .sum()
    };
    let expected = fleet.weighted_mean(|member| f64::from(member.samples) / samples(member.tier) / 2.0);
    assert_close(&run(&fleet, params), &expected, 1e-12);
}

/// 99 devices at their optimum and one at distance 1: the step is too long although each term is a
/// bound at theta.
#[test]
fn descent_is_not_guaranteed() {
    let objective = |x: f64| {
        let f = |c: f64| (x - c) * (x - c) / 2.0;
        0.5 * (0.99 * f(0.0).powi(2) + 0.01 * f(1.0).powi(2))
    };
    let mut fleet = Fleet::new(&[0.0], 1.0, &[&[0]]);
    for number in 0..99 {
        fleet.add(&format!("{number:02}"), 0, 1, 0.0, &[0.0]);
    }
    fleet.add("99", 0, 1, 0.5, &[1.0]);
    let theta = run(&fleet, json!({"q": 1, "q_m": 1}));
    assert!((objective(0.0) - 0.00125).abs() < 1e-12);
    assert!((objective(theta[0]) - 0.0017747).abs() < 5e-8, "{}", objective(theta[0]));
}

#[test]
fn parameters_are_checked() {
    let why = |params: Value| by_name("fairheterofl", params).unwrap_err().to_string();
    assert!(why(json!({"q": -1})).contains("`q` must be 0 or more"), "{}", why(json!({"q": -1})));
    assert!(why(json!({"q_m": [0.1, -2]})).contains("`q_m`"));
    assert!(why(json!({"q_m": "x"})).contains("list"));
    assert!(why(json!({"L": 0})).contains("`L` must be above 0"));
    assert!(why(json!({"l": 1})).contains("unknown field `l`"));
    assert!(why(json!({"step": "newton"})).contains("hessian"));
    let short = fair(json!({"q_m": [1]}));
    assert!(short.fits(&worked().regions).unwrap_err().to_string().contains("there are 2 tiers"));
    assert_eq!(FairHeteroFl::default().params, serde_json::from_value(json!({})).unwrap());
}

/// q-FFL as its own section states it, without tiers and without logs.
fn qffl(fleet: &Fleet, q: f64) -> Vec<f64> {
    let l = 1.0 / fleet.lr;
    let mut bound = 0.0;
    let mut delta = vec![0.0; fleet.theta.len()];
    for member in &fleet.devices {
        let gradient: Vec<f64> = member.update.iter().map(|update| -l * update).collect();
        let norm: f64 = gradient.iter().map(|g| g * g).sum();
        let curved = if q == 0.0 { 0.0 } else { q * member.loss.powf(q - 1.0) * norm };
        bound += curved + l * member.loss.powf(q);
        delta.iter_mut().zip(&gradient).for_each(|(delta, g)| *delta += member.loss.powf(q) * g);
    }
    fleet.theta.iter().zip(&delta).map(|(theta, delta)| theta - delta / bound).collect()
}

/// S and U of a tier, without logs.
fn sums(fleet: &Fleet, tier: usize, q_m: f64) -> Option<(f64, f64, f64)> {
    let members = || fleet.devices.iter().filter(|member| member.tier == tier);
    let all: f64 = fleet.devices.iter().map(|member| f64::from(member.samples)).sum();
    let own: f64 = members().map(|member| f64::from(member.samples)).sum();
    let of = |power: f64| -> f64 {
        members().map(|member| f64::from(member.samples) / own * member.loss.powf(power)).sum()
    };
    (own > 0.0).then(|| (own / all, of(q_m + 1.0), of(q_m)))
}

/// `H_j` by region, from what the strategy reports: `rho_j = L sum_m E_m U_m / H_j`.
fn reported_bounds(fleet: &Fleet, q: f64, q_m: f64) -> (Vec<f64>, Vec<f64>) {
    let (theta, outcome) = fleet.combine(&mut fair(json!({"q": q, "q_m": q_m})));
    let bound = |region: &crate::combine::RegionNote| {
        let plain: f64 = region
            .tiers
            .iter()
            .filter_map(|tier| sums(fleet, tier.index(), q_m))
            .map(|(g, s, u)| g * s.powf((q - q_m) / (q_m + 1.0)) * u / fleet.lr)
            .sum();
        plain / region.rho.unwrap()
    };
    (theta, outcome.regions.iter().map(bound).collect())
}

/// Quadratic losses `f_i(x) = a_i/2 ||x_m - c_i||^2 + b_i` on the tiers of a fleet, whose updates are one
/// exact gradient step.
struct Toy {
    fleet: Fleet,
    /// Per device: a, b, c.
    losses: Vec<(f64, f64, Vec<f64>)>,
}

impl Toy {
    fn new(seed: u64, tiers: usize, nested: bool) -> Self {
        let mut fleet = Fleet::random(seed, tiers, nested);
        let mut rng = common::rng::Rng::new(seed ^ 1);
        let mut losses = Vec::new();
        // Smoothness is at most 2, so L = 1/lr >= 2 is a valid bound.
        fleet.lr = 0.1 + 0.4 * rng.unit_f64();
        for member in &mut fleet.devices {
            let (a, b) = (0.2 + 1.8 * rng.unit_f64(), 0.05 + rng.unit_f64());
            let c: Vec<f64> = member.update.iter().map(|_| rng.normal()).collect();
            losses.push((a, b, c));
        }
        let mut toy = Self { fleet, losses };
        for number in 0..toy.losses.len() {
            let theta = toy.fleet.theta.clone();
            toy.fleet.devices[number].loss = toy.loss(number, &theta);
            let gradient = toy.gradient(number, &theta);
            let indices = toy.fleet.tiers[toy.fleet.devices[number].tier].clone();
            toy.fleet.devices[number].update =
                indices.iter().map(|&at| -toy.fleet.lr * gradient[at]).collect();
        }
        toy
    }

    fn indices(&self, number: usize) -> &[usize] {
        &self.fleet.tiers[self.fleet.devices[number].tier]
    }

    fn loss(&self, number: usize, theta: &[f64]) -> f64 {
        let (a, b, c) = &self.losses[number];
        let square: f64 = self.indices(number).iter().zip(c).map(|(&at, c)| (theta[at] - c).powi(2)).sum();
        a / 2.0 * square + b
    }

    /// In the whole model; 0 outside the tier.
    fn gradient(&self, number: usize, theta: &[f64]) -> Vec<f64> {
        let (a, _, c) = &self.losses[number];
        let mut gradient = vec![0.0; theta.len()];
        self.indices(number).iter().zip(c).for_each(|(&at, c)| gradient[at] = a * (theta[at] - c));
        gradient
    }

    /// p_{m,i} and g_m from the samples.
    fn shares(&self, number: usize) -> f64 {
        let own = &self.fleet.devices[number];
        let tier = self.fleet.devices.iter().filter(|member| member.tier == own.tier);
        f64::from(own.samples) / tier.map(|member| f64::from(member.samples)).sum::<f64>()
    }

    fn members(&self, tier: usize) -> impl Iterator<Item = usize> + Clone {
        (0..self.losses.len()).filter(move |&number| self.fleet.devices[number].tier == tier)
    }

    fn objective(&self, theta: &[f64], q: f64, q_m: f64) -> f64 {
        let tier = |tier: usize| {
            let (g, _, _) = sums(&self.fleet, tier, q_m)?;
            let s: f64 = self
                .members(tier)
                .map(|number| self.shares(number) * self.loss(number, theta).powf(q_m + 1.0))
                .sum();
            Some(g / (q + 1.0) * s.powf((q + 1.0) / (q_m + 1.0)))
        };
        (0..self.fleet.tiers.len()).filter_map(tier).sum()
    }

    /// Second derivatives of the objective at theta.
    fn hessian(&self, q: f64, q_m: f64) -> Vec<Vec<f64>> {
        let size = self.fleet.theta.len();
        let mut hessian = vec![vec![0.0; size]; size];
        for tier in 0..self.fleet.tiers.len() {
            let Some((g, s, _)) = sums(&self.fleet, tier, q_m) else { continue };
            let e = (q - q_m) / (q_m + 1.0);
            let mut v = vec![0.0; size];
            for number in self.members(tier) {
                let (p, f) = (self.shares(number), self.loss(number, &self.fleet.theta));
                let gradient = self.gradient(number, &self.fleet.theta);
                for row in 0..size {
                    v[row] += p * f.powf(q_m) * gradient[row];
                    for column in 0..size {
                        let outer = q_m * f.powf(q_m - 1.0) * gradient[row] * gradient[column];
                        hessian[row][column] += g * s.powf(e) * p * outer;
                    }
                }
                for &at in self.indices(number) {
                    hessian[at][at] += g * s.powf(e) * p * f.powf(q_m) * self.losses[number].0;
                }
            }
            for row in 0..size {
                for column in 0..size {
                    hessian[row][column] += g * (q - q_m) * s.powf(e - 1.0) * v[row] * v[column];
                }
            }
        }
        hessian
    }
}

/// Eigenvalues of a symmetric matrix (Jacobi).
fn eigenvalues(mut a: Vec<Vec<f64>>) -> Vec<f64> {
    let n = a.len();
    for _ in 0..100 {
        for p in 0..n {
            for q in p + 1..n {
                if a[p][q].abs() < 1e-300 {
                    continue;
                }
                let theta = (a[q][q] - a[p][p]) / (2.0 * a[p][q]);
                let t = theta.signum() / (theta.abs() + (theta * theta + 1.0).sqrt());
                let t = if theta == 0.0 { 1.0 } else { t };
                let c = 1.0 / (t * t + 1.0).sqrt();
                let s = t * c;
                for row in &mut a {
                    (row[p], row[q]) = (c * row[p] - s * row[q], s * row[p] + c * row[q]);
                }
                for k in 0..n {
                    (a[p][k], a[q][k]) = (c * a[p][k] - s * a[q][k], s * a[p][k] + c * a[q][k]);
                }
            }
        }
    }
    (0..n).map(|k| a[k][k]).collect()
}

#[test]
fn the_eigenvalues_of_the_tests_are_right() {
    let mut values = eigenvalues(vec![vec![2.0, 1.0, 0.0], vec![1.0, 2.0, 1.0], vec![0.0, 1.0, 2.0]]);
    values.sort_by(f64::total_cmp);
    let root = 2.0f64.sqrt();
    assert_close(&values, &[2.0 - root, 2.0, 2.0 + root], 1e-12);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Property 1.
    #[test]
    fn without_fairness_it_is_heterofl(seed: u64, tiers in 1usize..5, nested: bool) {
        let fleet = Fleet::random(seed, tiers, nested);
        let plain = run(&fleet, json!({"q": 0, "q_m": 0}));
        assert_close(&plain, &fleet.weighted_mean(|member| f64::from(member.samples)), 1e-12);
        for name in ["heterofl", "fedavg"] {
            let (other, _) = fleet.combine(&mut by_name(name, Value::Null).unwrap());
            assert_close(&plain, &other, 1e-12);
        }
    }

    /// Property 2.
    #[test]
    fn with_one_tier_it_is_qffl(seed: u64) {
        let mut fleet = Fleet::random(seed, 1, true);
        fleet.devices.iter_mut().for_each(|member| member.weight = Some(1.0));
        for q in [0.0, 0.5, 1.0, 5.0, 50.0] {
            assert_close(&run(&fleet, json!({"q": q, "q_m": q})), &qffl(&fleet, q), 1e-12);
        }
        // Two devices of different loss and update tell q_m = 1 from q_m = 2.
        if fleet.devices.len() > 1 {
            let other = run(&fleet, json!({"q": 1, "q_m": 2}));
            prop_assert!(other.iter().zip(qffl(&fleet, 1.0)).any(|(a, b)| (a - b).abs() > 1e-12));
        }
    }

    /// Property 3: `H_j * (theta - theta_new)` is the gradient of the objective.
    #[test]
    fn the_step_follows_the_gradient(seed: u64, tiers in 1usize..5, nested: bool, q in 0.0..4.0, q_m in 0.0..4.0) {
        let toy = Toy::new(seed, tiers, nested);
        let (next, bounds) = reported_bounds(&toy.fleet, q, q_m);
        let mut numeric = Vec::new();
        let mut stated = Vec::new();
        for (region, bound) in bounds.iter().enumerate() {
            let tier = toy.fleet.regions.sets()[region].iter().next().unwrap();
            for piece in toy.fleet.regions.pieces(tier).iter().filter(|piece| piece.region.index() == region) {
                for at in piece.full..piece.full + piece.len {
                    let width = 1e-5;
                    let shifted = |by: f64| {
                        let mut theta = toy.fleet.theta.clone();
                        theta[at] += by;
                        toy.objective(&theta, q, q_m)
                    };
                    numeric.push((shifted(width) - shifted(-width)) / (2.0 * width));
                    stated.push(bound * (toy.fleet.theta[at] - next[at]));
                }
            }
        }
        assert_close(&stated, &numeric, 1e-6);
    }

    /// Property 4: the bound is one at theta, and a short step along the update helps.
    #[test]
    fn the_bound_covers_the_curvature(seed: u64, tiers in 1usize..5, nested: bool, q in 0.0..6.0, q_m in 0.0..6.0) {
        let toy = Toy::new(seed, tiers, nested);
        let (next, bounds) = reported_bounds(&toy.fleet, q, q_m);
        let mut gap = toy.hessian(q, q_m);
        gap.iter_mut().flatten().for_each(|value| *value = -*value);
        for tier in (0..tiers).filter_map(common::Tier::new) {
            for piece in toy.fleet.regions.pieces(tier) {
                // A parameter appears once for each of its tiers; its bound is counted with the first.
                if toy.fleet.regions.sets()[piece.region.index()].iter().next() == Some(tier) {
                    for at in piece.full..piece.full + piece.len {
                        gap[at][at] += bounds[piece.region.index()];
                    }
                }
            }
        }
        let scale = bounds.iter().fold(0.0f64, |a, &b| a.max(b));
        for value in eigenvalues(gap) {
            prop_assert!(value >= -1e-9 * scale, "{value} with bounds {bounds:?}");
        }
        let along = |length: f64| -> Vec<f64> {
            toy.fleet.theta.iter().zip(&next).map(|(old, new)| old + length * (new - old)).collect()
        };
        let (before, short) = (toy.objective(&toy.fleet.theta, q, q_m), toy.objective(&along(1e-3), q, q_m));
        prop_assert!(short < before || next == toy.fleet.theta, "{short} after {before}");
        let plain = run(&toy.fleet, json!({"q": 0, "q_m": 0}));
        let before = toy.objective(&toy.fleet.theta, 0.0, 0.0);
        prop_assert!(toy.objective(&plain, 0.0, 0.0) <= before * (1.0 + 1e-12));
    }

    /// Property 5.
    #[test]
    fn losses_of_any_scale_give_finite_models(
        seed: u64, tiers in 1usize..5, nested: bool, exponent in -8i32..9, q_m in prop::sample::select(vec![0.0, 0.1, 1.0, 50.0])
    ) {
        let mut fleet = Fleet::random(seed, tiers, nested);
        fleet.devices.iter_mut().for_each(|member| member.loss *= 10f64.powi(exponent));
        for hessian in ["clamped", "literal"] {
            for norm in ["scalar", "region"] {
                for step in ["hessian", "reweight"] {
                    for q in [0, 50] {
                        let params = json!({"q": q, "q_m": q_m, "hessian": hessian, "norm": norm, "step": step});
                        let (theta, outcome) = fleet.combine(&mut fair(params));
                        prop_assert_eq!(outcome.kept, None);
                        prop_assert!(theta.iter().all(|value| value.is_finite()));
                        for region in &outcome.regions {
                            let rho = region.rho.unwrap();
                            prop_assert!(rho > 0.0 && rho <= 1.0 + 1e-12, "rho {}", rho);
                        }
                    }
                }
            }
        }
    }

    /// Property 6.
    #[test]
    fn a_tiers_own_region_is_its_own(seed: u64, tiers in 2usize..5, nested: bool, own in 0usize..4, q in 0.0..50.0) {
        let fleet = Fleet::random(seed, tiers, nested);
        let own = own % tiers;
        let mut other = fleet.clone();
        for member in other.devices.iter_mut().filter(|member| member.tier != own) {
            member.loss = member.loss * 1e6 + 3.0;
            member.samples += 17;
            member.update.iter_mut().for_each(|value| *value = 5.0 - *value);
        }
        let params = json!({"q": q, "q_m": 0.3});
        let (before, after) = (run(&fleet, params.clone()), run(&other, params));
        for at in 0..fleet.theta.len() {
            let holders: Vec<_> = (0..tiers).filter(|&tier| fleet.tiers[tier].contains(&at)).collect();
            if holders == [own] {
                prop_assert_eq!(before[at], after[at]);
            }
        }
    }

    /// Property 6b.
    #[test]
    fn reweight_is_the_weighted_mean(seed: u64, tiers in 1usize..5, nested: bool, q in 0.0..8.0, q_m in 0.0..8.0) {
        let fleet = Fleet::random(seed, tiers, nested);
        let weight = |member: &crate::methods::fleet::TestDevice| {
            let (_, s, _) = sums(&fleet, member.tier, q_m).unwrap();
            // g_m p_{m,i} is the device's share of all samples.
            s.powf((q - q_m) / (q_m + 1.0)) * f64::from(member.samples) * member.loss.powf(q_m)
        };
        let reweight = run(&fleet, json!({"q": q, "q_m": q_m, "step": "reweight"}));
        assert_close(&reweight, &fleet.weighted_mean(weight), 1e-11);

        let mut small = fleet.clone();
        small.theta.iter_mut().for_each(|value| *value = 0.0);
        small.devices.iter_mut().flat_map(|member| &mut member.update).for_each(|value| *value *= 1e-9);
        let steps = |step: &str| -> Vec<f64> {
            run(&small, json!({"q": q, "q_m": q_m, "step": step})).iter().map(|value| value * 1e9).collect()
        };
        assert_close(&steps("hessian"), &steps("reweight"), 1e-6);
    }

    /// Property 7.
    #[test]
    fn a_tier_changes_nothing_outside_its_mask(seed: u64, tiers in 1usize..5, nested: bool, own in 0usize..4) {
        let mut fleet = Fleet::random(seed, tiers, nested);
        let own = own % tiers;
        fleet.devices.retain(|member| member.tier == own);
        for step in ["hessian", "reweight"] {
            let theta = run(&fleet, json!({"q": 3, "step": step}));
            for at in (0..theta.len()).filter(|at| !fleet.tiers[own].contains(at)) {
                prop_assert_eq!(theta[at], fleet.theta[at]);
            }
        }
    }
}

#[test]
fn defaults_of_the_product() {
    let FairHeteroFlParams { q, q_m, step, .. } = FairHeteroFlParams::default();
    assert_eq!((q, q_m, step), (2.0, PerTier::All(1.0), StepRule::Reweight));
}

/// One tier is driven, the others keep what was stated.
#[test]
fn a_turned_tier() {
    let fleet = Fleet::random(6, 3, true);
    let run = |mut method: crate::method::Method, turn: bool| {
        if turn {
            method.strategy.turn("q_m", Tier::new(1), 0.25);
            method.strategy.turn("q", None, 3.0);
        }
        fleet.combine(&mut method).0
    };
    let turned = run(by_name("fairheterofl", json!({"q_m": 1})).unwrap(), true);
    assert_eq!(turned, run(by_name("fairheterofl", json!({"q": 3, "q_m": [1, 0.25, 1]})).unwrap(), false));
}
