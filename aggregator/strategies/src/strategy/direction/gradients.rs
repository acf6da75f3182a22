//! For tests: the gradients of a fleet as vectors, so that directions can be checked without inner products.

use common::{Tier, rng::Rng};
use serde_json::Value;

use crate::{
    cohort::Absent,
    method::by_name,
    methods::fleet::{Fleet, TestDevice},
};

/// The gradients and losses of a problem.
#[derive(Clone, Debug)]
pub struct Gradients {
    /// In DeviceId order.
    pub clients: Vec<Vec<f64>>,
    pub losses: Vec<f64>,
    /// Absent clients: when they were last seen, and their gradient.
    pub past: Vec<(u32, Vec<f64>)>,
}

impl Gradients {
    /// Of the only tier.
    pub fn of(fleet: &Fleet) -> Self {
        assert_eq!(fleet.tiers.len(), 1);
        Self::inside(fleet, &fleet.tiers[0])
    }

    /// Of the devices that hold these parameters.
    fn inside(fleet: &Fleet, indices: &[usize]) -> Self {
        let holds = |tier: usize| indices.iter().all(|index| fleet.tiers[tier].contains(index));
        let pick = |tier: usize, update: &[f64]| {
            let place = |index| fleet.tiers[tier].iter().position(|own| own == index).unwrap();
            indices.iter().map(|index| -update[place(index)]).collect::<Vec<f64>>()
        };
        let mut devices: Vec<&TestDevice> =
            fleet.devices.iter().filter(|member| holds(member.tier)).collect();
        devices.sort_by(|a, b| a.device.cmp(&b.device));
        let past = fleet.absent.iter().filter(|(absent, _)| holds(absent.tier.index()));
        Self {
            clients: devices.iter().map(|member| pick(member.tier, &member.update)).collect(),
            losses: devices.iter().map(|member| member.loss).collect(),
            past: past.map(|(absent, update)| (absent.round, pick(absent.tier.index(), update))).collect(),
        }
    }

    pub fn size(&self) -> usize {
        self.clients[0].len()
    }

    pub fn mean(&self) -> Vec<f64> {
        let mut mean = vec![0.0; self.size()];
        self.clients.iter().for_each(|g| add(&mut mean, 1.0 / self.clients.len() as f64, g));
        mean
    }

    pub fn longest(&self) -> f64 {
        self.clients.iter().map(|g| norm(g)).fold(0.0, f64::max)
    }

    /// `d` with the length of the mean, and the lost precision of lengths that come from products. `None` if it is too short to
    /// have a direction.
    pub fn as_long_as_mean(&self, d: &[f64], longest: f64) -> Option<(Vec<f64>, f64)> {
        let ratio = longest / norm(d);
        let factor = norm(&self.mean()) / norm(d);
        (ratio < 1e6).then(|| (d.iter().map(|value| value * factor).collect(), 1e-12 * ratio * ratio))
    }
}

/// One tier, parameters 0, devices a, b, c, ..
pub fn fleet(gradients: &[Vec<f64>], losses: &[f64]) -> Fleet {
    let size = gradients[0].len();
    let all: Vec<usize> = (0..size).collect();
    let mut fleet = Fleet::new(&vec![0.0; size], 0.1, &[&all]);
    for ((g, &loss), name) in gradients.iter().zip(losses).zip('a'..='z') {
        fleet.add(&name.to_string(), 0, 10, loss, &negative(g));
    }
    fleet
}

/// Adds a device of the widest tier that took part before.
pub fn absent(fleet: &mut Fleet, name: &str, round: u32, gradient: &[f64]) {
    let tier = Tier::new(0).unwrap();
    let absent = Absent { device: name.parse().unwrap(), tier, round, lr: fleet.lr, norm: 1.0 };
    fleet.absent.push((absent, negative(gradient)));
}

/// Sets round 6 and adds up to three devices of any tier that took part before.
pub fn random_past(fleet: &mut Fleet, seed: u64) {
    let mut rng = Rng::new(seed ^ 77);
    fleet.round = 6;
    for number in 0..rng.below(4) {
        let tier = rng.below(fleet.tiers.len() as u64) as usize;
        let update = fleet.tiers[tier].iter().map(|_| 0.1 * rng.normal()).collect();
        let device = format!("p{number}").parse().unwrap();
        let round = 1 + rng.below(5) as u32;
        let absent = Absent { device, tier: Tier::new(tier).unwrap(), round, lr: fleet.lr, norm: 1.0 };
        fleet.absent.push((absent, update));
    }
}

/// theta - theta_new
pub fn step(fleet: &Fleet, name: &str, params: Value) -> Vec<f64> {
    let (theta, outcome) = fleet.combine(&mut by_name(name, params).unwrap());
    assert_eq!(outcome.kept, None);
    fleet.theta.iter().zip(&theta).map(|(old, new)| old - new).collect()
}

/// Parameters of each region with a holder, and the gradients there.
pub fn by_region(fleet: &Fleet) -> Vec<(Vec<usize>, Gradients)> {
    let holders =
        |index: usize| -> Vec<bool> { fleet.tiers.iter().map(|tier| tier.contains(&index)).collect() };
    let mut regions: Vec<(Vec<bool>, Vec<usize>)> = Vec::new();
    for index in 0..fleet.theta.len() {
        match regions.iter_mut().find(|(held, _)| *held == holders(index)) {
            Some((_, indices)) => indices.push(index),
            None => regions.push((holders(index), vec![index])),
        }
    }
    let with = |(_, indices): (_, Vec<usize>)| {
        let gradients = Gradients::inside(fleet, &indices);
        (indices, gradients)
    };
    regions.into_iter().map(with).filter(|(_, all)| !all.clients.is_empty()).collect()
}

pub fn restrict(vector: &[f64], indices: &[usize]) -> Vec<f64> {
    indices.iter().map(|&index| vector[index]).collect()
}

pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

pub fn norm(a: &[f64]) -> f64 {
    dot(a, a).sqrt()
}

pub fn add(into: &mut [f64], factor: f64, values: &[f64]) {
    into.iter_mut().zip(values).for_each(|(into, value)| *into += factor * value);
}

fn negative(values: &[f64]) -> Vec<f64> {
    values.iter().map(|value| -value).collect()
}
