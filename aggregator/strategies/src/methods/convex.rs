//! Convergence on a convex task, for the methods whose papers have a theorem: `F_i = |theta - c_i|^2 / 2` over the coordinates
//! that a device holds, one full gradient step per round. The test knows each objective in closed form; it does not use the
//! weights of the strategy.
//!
//! An average must reach a point where the gradient of its objective is 0. A direction must reach the Pareto set, which is the
//! triangle of the centres. AFL must circle the point whose largest loss is smallest, the centre of the circumcircle.

use serde_json::{Value, json};

use crate::{
    combine::combine,
    method::{Method, by_name},
    methods::fleet::Fleet,
};

/// Tier, samples and centre of each device.
type Device = (usize, u32, [f64; 3]);

/// Devices of two tiers; the second one holds two of three parameters.
const TIERED: [Device; 4] = [
    (0, 10, [1.0, 0.0, 2.0]),
    (0, 30, [-1.0, 1.5, 0.5]),
    (1, 20, [0.5, -2.0, 0.0]),
    (1, 25, [2.0, 2.5, 0.0]),
];
/// A triangle with acute angles, in the plane of the first two parameters.
const TRIANGLE: [Device; 3] = [(0, 10, [0.0, 0.0, 0.0]), (0, 30, [2.0, 0.0, 0.0]), (0, 20, [0.8, 1.8, 0.0])];
const LR: f64 = 0.1;

struct Task {
    devices: Vec<Device>,
    held: Vec<usize>,
}

impl Task {
    fn new(devices: &[Device], tiers: &[&[usize]]) -> (Self, Fleet) {
        let fleet = Fleet::new(&[3.0, -3.0, 1.0], LR, tiers);
        let held = devices.iter().map(|(tier, ..)| tiers[*tier].len()).collect();
        (Self { devices: devices.to_vec(), held }, fleet)
    }

    fn gradient(&self, device: usize, theta: &[f64]) -> Vec<f64> {
        let centre = self.devices[device].2;
        (0..self.held[device]).map(|at| theta[at] - centre[at]).collect()
    }

    fn losses(&self, theta: &[f64]) -> Vec<f64> {
        let loss = |device| self.gradient(device, theta).iter().map(|slope| slope * slope / 2.0).sum();
        (0..self.devices.len()).map(loss).collect()
    }

    /// Length of `sum_i weight_i grad F_i`, where a device's gradient is 0 in what it does not hold, over the length with all
    /// weights positive.
    fn residual(&self, theta: &[f64], weights: &[f64]) -> f64 {
        let mut sum = [0.0; 3];
        for (device, weight) in weights.iter().enumerate() {
            self.gradient(device, theta).iter().enumerate().for_each(|(at, slope)| sum[at] += weight * slope);
        }
        let scale: f64 = weights.iter().map(|weight| weight.abs()).sum();
        sum.iter().map(|part| part * part).sum::<f64>().sqrt() / scale
    }

    /// Trains, and gives every model. `lr` is that of a round.
    fn train(
        &self,
        fleet: &mut Fleet,
        method: &mut Method,
        rounds: usize,
        lr: impl Fn(usize) -> f64,
    ) -> Vec<Vec<f64>> {
        let mut models = Vec::new();
        for round in 0..rounds {
            fleet.devices.clear();
            fleet.lr = lr(round);
            let told = method.strategy.training_weights().devices;
            let losses = self.losses(&fleet.theta);
            for (number, (tier, samples, _)) in self.devices.iter().enumerate() {
                let name = format!("d{number}");
                let weight = told.get(&name.parse().unwrap()).copied().unwrap_or(1.0);
                let update: Vec<f64> = self
                    .gradient(number, &fleet.theta)
                    .iter()
                    .map(|slope| -fleet.lr * weight * slope)
                    .collect();
                fleet.add(&name, *tier, *samples, losses[number], &update);
                let device = fleet.devices.last_mut().unwrap();
                device.loss_after = losses[number] * (1.0 - fleet.lr) * (1.0 - fleet.lr);
                // Alone, a device reaches 0.
                device.more.gap = Some(losses[number]);
            }
            fleet.round = 1 + round as u32;
            let mut theta = fleet.theta.clone();
            let outcome = combine(method, &fleet.cohort(), &[], &mut fleet.updates(), &mut theta).unwrap();
            assert_eq!(outcome.kept, None);
            fleet.theta = theta;
            models.push(fleet.theta.clone());
        }
        models
    }
}

/// `exp(t F_i)`, divided by the largest.
fn tilted(losses: &[f64], t: f64) -> Vec<f64> {
    let top = losses.iter().copied().fold(0.0, f64::max);
    losses.iter().map(|loss| (t * (loss - top)).exp()).collect()
}

/// How much each loss counts in the gradient of FairHeteroFL's objective.
fn fairheterofl(losses: &[f64], q: f64, q_m: f64) -> Vec<f64> {
    let samples = |tier: usize| {
        TIERED.iter().filter(|device| device.0 == tier).map(|device| f64::from(device.1)).sum::<f64>()
    };
    let all = samples(0) + samples(1);
    let weight = |(device, loss): (&Device, &f64)| {
        let own = samples(device.0);
        let inner: f64 = TIERED
            .iter()
            .zip(losses)
            .filter(|(other, _)| other.0 == device.0)
            .map(|(other, loss)| f64::from(other.1) / own * loss.powf(q_m + 1.0))
            .sum();
        own / all * inner.powf((q - q_m) / (q_m + 1.0)) * f64::from(device.1) / own * loss.powf(q_m)
    };
    TIERED.iter().zip(losses).map(weight).collect()
}

#[test]
fn averages_reach_the_minimum_of_their_objective() {
    type Objective = fn(&[f64]) -> Vec<f64>;
    let samples: Objective = |_| TIERED.iter().map(|device| f64::from(device.1)).collect();
    let cases: [(&str, Value, Objective); 9] = [
        ("fedavg", json!({}), samples),
        ("heterofl", json!({}), samples),
        ("qffl", json!({"q": 1.5}), |losses| losses.iter().map(|loss| loss.powf(1.5)).collect()),
        ("term", json!({"t": 0.7}), |losses| {
            TIERED
                .iter()
                .zip(tilted(losses, 0.7))
                .map(|(device, weight)| f64::from(device.1) * weight)
                .collect()
        }),
        // Its losses are those after training, (1 - lr)^2 F here.
        ("fedeba", json!({"tau": 1.0}), |losses| tilted(losses, (1.0 - LR) * (1.0 - LR))),
        ("prac_fedeba", json!({"tau": 1.0, "alpha": 1.0}), |losses| tilted(losses, 1.0)),
        ("fairheterofl", json!({"q": 2, "q_m": 0.5}), |losses| fairheterofl(losses, 2.0, 0.5)),
        ("fairheterofl", json!({"q": 0, "q_m": 1}), |losses| fairheterofl(losses, 0.0, 1.0)),
        ("fairheterofl", json!({"q": 2, "q_m": 0.5, "published": true}), |losses| {
            fairheterofl(losses, 2.0, 0.5)
        }),
    ];
    for (name, params, objective) in cases {
        let (task, mut fleet) = Task::new(&TIERED, &[&[0, 1, 2], &[0, 1]]);
        let before = task.residual(&fleet.theta, &objective(&task.losses(&fleet.theta)));
        task.train(&mut fleet, &mut by_name(name, params.clone()).unwrap(), 2000, |_| LR);
        let after = task.residual(&fleet.theta, &objective(&task.losses(&fleet.theta)));
        assert!(before > 0.1 && after < 1e-6, "{name} {params}: {before} to {after}");
    }
}

#[test]
fn eagle_reaches_the_minimum_of_its_objective() {
    let (lambda, count) = (0.1, TRIANGLE.len() as f64);
    let (task, mut fleet) = Task::new(&TRIANGLE, &[&[0, 1, 2]]);
    let weights = |losses: &[f64]| -> Vec<f64> {
        let mean = losses.iter().sum::<f64>() / count;
        losses.iter().map(|loss| 1.0 + 2.0 * lambda * count / (count - 1.0) * (loss - mean)).collect()
    };
    for params in [json!({"lambda": lambda}), json!({"lambda": lambda, "published": true})] {
        let before = task.residual(&fleet.theta, &weights(&task.losses(&fleet.theta)));
        task.train(&mut fleet, &mut by_name("eagle", params.clone()).unwrap(), 3000, |_| LR);
        let after = task.residual(&fleet.theta, &weights(&task.losses(&fleet.theta)));
        assert!(before > 0.1 && after < 1e-6, "{params}: {before} to {after}");
        fleet.theta = vec![3.0, -3.0, 1.0];
    }
}

/// Shares of the corners that make this point; negative outside of the triangle.
fn barycentric(theta: &[f64]) -> [f64; 3] {
    let [a, b, c] = TRIANGLE.map(|device| device.2);
    let area =
        |p: &[f64], q: &[f64], r: &[f64]| (q[0] - p[0]) * (r[1] - p[1]) - (r[0] - p[0]) * (q[1] - p[1]);
    let all = area(&a, &b, &c);
    [area(theta, &b, &c) / all, area(&a, theta, &c) / all, area(&a, &b, theta) / all]
}

#[test]
fn directions_reach_the_pareto_set() {
    for (name, params) in [
        ("fedlf", json!({})),
        ("fedlf", json!({"published": true})),
        ("fedmgda_plus", json!({"eps": 1, "rescale": true})),
        ("fedfv", json!({})),
    ] {
        let (task, mut fleet) = Task::new(&TRIANGLE, &[&[0, 1, 2]]);
        fleet.layers = std::iter::once(0..3).collect();
        assert!(barycentric(&fleet.theta).into_iter().any(|share| share < -0.5));
        task.train(&mut fleet, &mut by_name(name, params.clone()).unwrap(), 3000, |round| {
            LR / (1.0 + round as f64 / 100.0)
        });
        let shares = barycentric(&fleet.theta);
        let inside = shares.iter().all(|&share| share > -0.01) && fleet.theta[2].abs() < 0.01;
        assert!(inside, "{name} {params}: {shares:?} {:?}", fleet.theta);
    }
}

#[test]
fn afl_circles_the_least_worst_case() {
    let (task, mut fleet) = Task::new(&TRIANGLE, &[&[0, 1, 2]]);
    let mut method = by_name("afl", json!({"gamma_lambda": 0.01})).unwrap();
    let models = task.train(&mut fleet, &mut method, 4000, |_| LR);
    let late = &models[2000..];
    let mean: Vec<f64> =
        (0..3).map(|at| late.iter().map(|model| model[at]).sum::<f64>() / late.len() as f64).collect();
    let losses = task.losses(&mean);
    let (low, high) =
        losses.iter().fold((f64::INFINITY, 0.0f64), |(low, high), &loss| (low.min(loss), high.max(loss)));
    // All corners lie on the circumcircle.
    assert!(high - low < 0.02 * high, "{losses:?} at {mean:?}");
}
