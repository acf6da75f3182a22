//! Secure aggregation reveals sums only, in fixed point: they must be enough for the step of a strategy.
//!
//! FedFB and EAGLE are checked beside their code.

use common::rng::Rng;
use proptest::prelude::*;
use serde_json::json;

use crate::{
    method::by_name,
    methods::fleet::{Fleet, assert_close},
};

/// 32 bits behind the point.
const SCALE: f64 = 4_294_967_296.0;

/// A sum of numbers as masks hide them.
#[derive(Default)]
struct Sum(i64);

impl Sum {
    fn add(&mut self, value: f64) {
        self.0 = self.0.wrapping_add((value * SCALE).round() as i64);
    }

    fn value(&self) -> f64 {
        self.0 as f64 / SCALE
    }
}

/// What the devices of a tier add up, with f/c in place of f and n in place of p.
#[derive(Default)]
struct TierSums {
    n: Sum,
    s: Sum,
    u: Sum,
    q: Sum,
    v: Vec<Sum>,
}

/// FairHeteroFL from five sums per tier and the public c.
fn fairheterofl(fleet: &Fleet, q: f64, q_m: &[f64], c: f64) -> Vec<f64> {
    let l = 1.0 / fleet.lr;
    let mut tiers: Vec<TierSums> = fleet.tiers.iter().map(|_| TierSums::default()).collect();
    for member in &fleet.devices {
        let (tier, q_m) = (&mut tiers[member.tier], q_m[member.tier]);
        let (n, f) = (f64::from(member.samples), member.loss / c);
        tier.v.resize_with(member.update.len(), Sum::default);
        tier.n.add(n);
        tier.s.add(n * f.powf(q_m + 1.0));
        tier.u.add(n * f.powf(q_m));
        tier.q.add(n * f.powf(q_m - 1.0) * member.update.iter().map(|d| (l * d).powi(2)).sum::<f64>());
        tier.v.iter_mut().zip(&member.update).for_each(|(v, d)| v.add(-n * f.powf(q_m) * l * d));
    }
    let all: f64 = tiers.iter().map(|tier| tier.n.value()).sum();
    let (mut steps, mut bounds) = (vec![0.0; fleet.theta.len()], vec![0.0; fleet.theta.len()]);
    for ((tier, &q_m), indices) in tiers.iter().zip(q_m).zip(&fleet.tiers) {
        let n = tier.n.value();
        let mean = |sum: &Sum, power: f64| c.powf(power) * sum.value() / n;
        let (s, u, spread) = (mean(&tier.s, q_m + 1.0), mean(&tier.u, q_m), mean(&tier.q, q_m - 1.0));
        let v: Vec<f64> = tier.v.iter().map(|v| mean(v, q_m)).collect();
        let (g, e) = (n / all, (q - q_m) / (q_m + 1.0));
        let norm: f64 = v.iter().map(|v| v * v).sum();
        let bound = g * (q - q_m).max(0.0) * s.powf(e - 1.0) * norm + g * s.powf(e) * (q_m * spread + l * u);
        for (&at, v) in indices.iter().zip(&v) {
            steps[at] += g * s.powf(e) * v;
            bounds[at] += bound;
        }
    }
    let steps = steps.iter().zip(&bounds).map(|(step, bound)| if *bound > 0.0 { step / bound } else { 0.0 });
    fleet.theta.iter().zip(steps).map(|(theta, step)| theta - step).collect()
}

proptest! {
    /// With one tier and q_m = q this is q-FFL with the weights of the data.
    #[test]
    fn fairheterofl_needs_sums_only(
        seed: u64,
        tiers in 1usize..5,
        nested: bool,
        q in prop::sample::select(vec![0.0, 0.5, 1.0, 2.0]),
        q_m in prop::collection::vec(prop::sample::select(vec![0.0, 0.5, 1.0, 2.0]), 4),
    ) {
        let mut fleet = Fleet::random(seed, tiers, nested);
        // A public scale can not serve losses of all sizes: they are within a factor of ten.
        let mut rng = Rng::new(seed);
        fleet.devices.iter_mut().for_each(|member| member.loss = 0.3 + 2.7 * rng.unit_f64());
        let q_m = &q_m[..tiers];
        let (theta, _) = fleet.combine(&mut by_name("fairheterofl", json!({"q": q, "q_m": q_m, "step": "hessian"})).unwrap());
        assert_close(&fairheterofl(&fleet, q, q_m, 3.0), &theta, 1e-6);
    }
}
