//! Generated fleets for tests: a few parameters, one to four tiers, nested or not.

use std::ops::Range;

use common::{DeviceId, Tier, TierSet, message::Scalars, region::RegionMap, rng::Rng};

use crate::{
    check::check_update,
    cohort::{Absent, Cohort},
    combine::{Outcome, combine},
    method::Method,
    updates::{UpdateRef, Updates},
};

#[derive(Clone, Debug)]
pub struct Fleet {
    /// Parameters that each tier holds, ascending.
    pub tiers: Vec<Vec<usize>>,
    pub regions: RegionMap,
    pub theta: Vec<f64>,
    pub lr: f64,
    pub devices: Vec<TestDevice>,
    pub tier_weights: Vec<Option<f64>>,
    pub round: u32,
    /// Devices that took part before, with their packed update.
    pub absent: Vec<(Absent, Vec<f64>)>,
    pub layers: Vec<Range<usize>>,
}

#[derive(Clone, Debug)]
pub struct TestDevice {
    pub device: DeviceId,
    pub tier: usize,
    pub samples: u32,
    pub loss: f64,
    pub loss_after: f64,
    pub weight: Option<f64>,
    /// Packed.
    pub update: Vec<f64>,
    /// Packed update of the first step.
    pub first: Vec<f64>,
    /// Further scalars of the device.
    pub more: Scalars,
}

/// The scalars of a device about its groups: samples, and a sum for each.
pub fn groups(counts: &[u32], sums: &[f64]) -> Scalars {
    Scalars {
        group_counts: counts.iter().copied().collect(),
        group_losses: sums.iter().copied().collect(),
        ..Scalars::default()
    }
}

impl Fleet {
    /// Three devices in two tiers with two groups of two classes.
    pub fn grouped() -> Self {
        let mut fleet = Self::new(&[1.0, 2.0], 0.1, &[&[0, 1], &[0]]);
        fleet.add("a", 0, 50, 0.5, &[0.3, -0.1]);
        fleet.add("b", 1, 30, 0.9, &[0.6]);
        fleet.add("c", 1, 20, 0.4, &[0.0]);
        fleet.devices[0].more = groups(&[20, 10, 10, 10], &[5.0, 2.0, 6.0, 1.0]);
        fleet.devices[1].more = groups(&[10, 0, 10, 10], &[1.0, 0.0, 4.0, 0.0]);
        fleet.devices[2].more = groups(&[0, 10, 0, 10], &[0.0, 6.0, 0.0, 2.0]);
        fleet
    }

    pub fn new(theta: &[f64], lr: f64, tiers: &[&[usize]]) -> Self {
        let tiers: Vec<Vec<usize>> = tiers.iter().map(|tier| tier.to_vec()).collect();
        let holders = |at: usize| {
            let holds = |tier: &Tier| tiers[tier.index()].contains(&at);
            (0..tiers.len()).filter_map(Tier::new).filter(holds).fold(TierSet::EMPTY, TierSet::with)
        };
        let runs: Vec<_> = (0..theta.len()).map(|at| (at, 1, holders(at))).collect();
        let regions = RegionMap::from_spans(theta.len(), tiers.len(), runs);
        let tier_weights = vec![None; tiers.len()];
        Self {
            tiers,
            regions,
            theta: theta.to_vec(),
            lr,
            devices: Vec::new(),
            tier_weights,
            round: 1,
            absent: Vec::new(),
            layers: Vec::new(),
        }
    }

    /// `count` tiers over up to 8 parameters and 1 to 5 devices in each tier.
    pub fn random(seed: u64, count: usize, nested: bool) -> Self {
        let mut rng = Rng::new(seed);
        let size = 2 + rng.below(7) as usize;
        let theta: Vec<f64> = (0..size).map(|_| rng.normal()).collect();
        let mut tiers: Vec<Vec<usize>> = vec![(0..size).collect()];
        for number in 1..count {
            let from = if nested { tiers[number - 1].clone() } else { (0..size).collect() };
            let mut tier: Vec<usize> = from.iter().copied().filter(|_| rng.below(3) > 0).collect();
            if tier.is_empty() {
                tier.push(from[rng.below(from.len() as u64) as usize]);
            }
            tiers.push(tier);
        }
        let tiers: Vec<&[usize]> = tiers.iter().map(Vec::as_slice).collect();
        let mut fleet = Self::new(&theta, 0.02 + 0.2 * rng.unit_f64(), &tiers);
        for (tier, indices) in tiers.iter().enumerate() {
            for number in 0..1 + rng.below(5) {
                let update: Vec<f64> = indices.iter().map(|_| 0.1 * rng.normal()).collect();
                let loss = (rng.normal() - 0.3).exp();
                let samples = 1 + rng.below(100) as u32;
                fleet.add(&format!("d{}-{tier}{number}", rng.below(10)), tier, samples, loss, &update);
            }
        }
        fleet
    }

    pub fn add(&mut self, id: &str, tier: usize, samples: u32, loss: f64, update: &[f64]) {
        let device = id.parse().unwrap();
        self.devices.push(TestDevice {
            device,
            tier,
            samples,
            loss,
            loss_after: loss * 0.9,
            weight: None,
            update: update.to_vec(),
            first: update.iter().map(|value| value * 0.25).collect(),
            more: Scalars::default(),
        });
    }

    pub fn cohort(&self) -> Cohort {
        let mut cohort = Cohort::new(self.regions.clone(), self.lr);
        cohort.round = self.round;
        cohort.set_layers(self.layers.as_slice());
        for member in &self.devices {
            let tier = Tier::new(member.tier).unwrap();
            let scalars = Scalars {
                samples: member.samples,
                loss_before: member.loss,
                loss_after: Some(member.loss_after),
                steps: 1,
                ..member.more.clone()
            };
            let pieces = self.regions.pieces(tier);
            match check_update(&member.update, pieces, self.regions.sets().len()) {
                Ok(norms) => drop(cohort.admit(member.device.clone(), tier, scalars, &norms)),
                Err(code) => cohort.refuse(member.device.clone(), code),
            }
            if let Some(weight) = member.weight {
                cohort.set_device_weight(&member.device, weight).unwrap();
            }
        }
        for (tier, weight) in (0..).filter_map(Tier::new).zip(&self.tier_weights) {
            if let Some(weight) = *weight {
                cohort.set_tier_weight(tier, weight).unwrap();
            }
        }
        self.absent.iter().for_each(|(absent, _)| cohort.add_absent(absent.clone()));
        cohort
    }

    pub fn updates(&self) -> ByDevice<'_> {
        ByDevice(self)
    }

    /// The next model and the outcome.
    pub fn combine(&self, method: &mut Method) -> (Vec<f64>, Outcome) {
        let mut theta = self.theta.clone();
        let outcome = combine(method, &self.cohort(), &[], &mut self.updates(), &mut theta).unwrap();
        (theta, outcome)
    }

    /// The update of a device at a parameter of the whole model.
    pub fn update_at(&self, member: &TestDevice, at: usize) -> Option<f64> {
        let place = self.tiers[member.tier].iter().position(|&index| index == at)?;
        Some(member.update[place])
    }

    /// `theta + sum w_i D_i / sum w_i` over the devices that hold each parameter, computed directly.
    pub fn weighted_mean(&self, weight: impl Fn(&TestDevice) -> f64) -> Vec<f64> {
        let step = |at: usize| {
            let held: Vec<_> = self
                .devices
                .iter()
                .filter_map(|member| self.update_at(member, at).map(|update| (weight(member), update)))
                .collect();
            let all: f64 = held.iter().map(|(weight, _)| weight).sum();
            let step: f64 = held.iter().map(|(weight, update)| weight * update).sum();
            if all > 0.0 { step / all } else { 0.0 }
        };
        self.theta.iter().enumerate().map(|(at, theta)| theta + step(at)).collect()
    }
}

/// Updates of a fleet, found by DeviceId.
pub struct ByDevice<'f>(&'f Fleet);

impl Updates for ByDevice<'_> {
    type Value = f64;
    type Error = std::convert::Infallible;

    fn read<'a>(&'a mut self, which: UpdateRef<'_>, _: &'a mut Vec<f64>) -> Result<&'a [f64], Self::Error> {
        let find = |device: &DeviceId| self.0.devices.iter().find(|member| member.device == *device);
        Ok(match which {
            UpdateRef::Update(_, participant) => {
                find(&participant.device).map_or(&[], |member| &member.update)
            }
            UpdateRef::FirstStep(_, participant) => {
                find(&participant.device).map_or(&[], |member| &member.first)
            }
            UpdateRef::Absent(_, absent) => {
                let found = self.0.absent.iter().find(|(other, _)| other.device == absent.device);
                found.map_or(&[], |(_, update)| update)
            }
        })
    }
}

/// Fails unless all numbers agree, relative to the largest.
#[track_caller]
pub fn assert_close(got: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(got.len(), expected.len());
    let scale = expected.iter().fold(1.0f64, |scale, value| scale.max(value.abs()));
    for (a, b) in got.iter().zip(expected) {
        assert!((a - b).abs() <= tolerance * scale, "{got:?} is not {expected:?}");
    }
}
