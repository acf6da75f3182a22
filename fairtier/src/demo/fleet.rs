//! The fleet of the demo: all tiers have the same mixture of classes, and the devices of a tier have different parts
//! of it.
//!
//! The digits are dealt to the tiers class by class, so tiers differ in hardware only. Inside a tier they are sorted
//! by class and cut into stretches; every device gets a few of them. The cut is the same in every tier, so device `k`
//! of one tier has the same classes as device `k` of all others. Differences between tiers are therefore not caused
//! by classes.
//!
//! With a minority, classes 8 and 9 are taken away from all devices and given to [`MINORITY`] alone.

use aggregator::{run::open_model, server::ServerError};
use client::data::{DataError, DataSplit, Samples, Shard, VecShard, digits, partition};
use common::{
    Budget, DeviceId,
    rng::{Rng, derive},
};
use strategies::{strategy::Needs, tiered::TieredModel};

use super::{DemoError, DemoOptions};

/// Stretches of the sorted samples that each device gets.
const STRETCHES: usize = 3;
/// Share of a device's samples that it never trains on.
const TEST_FRACTION: f64 = 0.3;

/// The device that has classes of its own, if there is a minority. Its tier is the middle one.
pub(super) const MINORITY: &str = "t2-00";
/// Classes that only the minority has.
pub(super) const RARE: [u32; 2] = [8, 9];

/// The devices of the demo and the hardware of their tiers.
#[derive(Clone, Debug)]
pub struct Fleet {
    /// Hardware by tier, widest first.
    pub hardware: Vec<TierHardware>,
    /// Devices ordered by name.
    pub devices: Vec<FleetDevice>,
}

/// Memory of the devices of one tier, and the memory that the tier needs.
#[derive(Clone, PartialEq, Debug)]
pub struct TierHardware {
    /// Memory of every device.
    pub budget: Budget,
    /// Units of each hidden axis.
    pub widths: Vec<u32>,
    /// Number of parameters of the tier's model.
    pub parameters: u32,
    /// Bytes that training needs.
    pub needs: u64,
}

/// One device and its samples.
#[derive(Clone, Debug)]
pub struct FleetDevice {
    /// Name of the device.
    pub device: DeviceId,
    /// The tier that fits its memory. The aggregator makes its own choice.
    pub tier: usize,
    /// Training and test samples.
    pub shard: VecShard,
}

impl Fleet {
    /// Divides the built-in digits among the devices.
    pub fn new(options: &DemoOptions) -> Result<Self, DemoError> {
        let [baseline, _] = options.strategies();
        let (model, _) =
            open_model(&options.config(&baseline, 1), Needs::default()).map_err(ServerError::from)?;
        let hardware = hardware(&model);
        let all = everything()?;
        let (all, rare) = if options.minority { apart(&all, options.seed)? } else { (all, None) };
        let mut devices = vec![];
        for (tier, pool) in deal(all.labels(), hardware.len(), options.seed).iter().enumerate() {
            let pool = all.select(pool)?;
            let parts =
                partition::label_shards(pool.labels(), options.devices_per_tier, STRETCHES, options.seed);
            for (number, part) in parts.iter().enumerate() {
                let seed = derive(options.seed, (tier * 1000 + number) as u64);
                let device: DeviceId =
                    format!("t{tier}-{number:02}").parse().expect("a name of this form is valid");
                let own = match &rare {
                    Some(rare) if device.as_str() == MINORITY => first(rare, part.len())?,
                    _ => pool.select(part)?,
                };
                let shard = own.split(TEST_FRACTION, seed)?;
                devices.push(FleetDevice { device, tier, shard });
            }
        }
        Ok(Self { hardware, devices })
    }

    /// Training samples that devices hold out for a target: every fifth of each device.
    pub(super) fn held_out(&self) -> u64 {
        self.devices.iter().map(|device| u64::from(device.shard.len(DataSplit::Train) / 5)).sum()
    }

    /// Number of samples of all devices in a part.
    pub fn samples(&self, part: DataSplit) -> u64 {
        self.devices.iter().map(|device| u64::from(device.shard.len(part))).sum()
    }
}

/// Memory budgets, each large enough for one tier and too small for the next wider one.
fn hardware(model: &TieredModel) -> Vec<TierHardware> {
    let needs: Vec<u64> = model.plans.iter().map(|plan| plan.info.arena_bytes()).collect();
    let wider = [u64::MAX].into_iter().chain(needs.iter().copied());
    let tiers = model.plans.iter().zip(&model.masks).zip(wider);
    tiers
        .map(|((plan, mask), wider)| {
            let needs = plan.info.arena_bytes();
            let ram = needs.next_multiple_of(1024).min(wider - 1);
            TierHardware {
                budget: Budget { ram, ..Budget::UNLIMITED },
                widths: mask.widths().to_vec(),
                parameters: plan.info.params,
                needs,
            }
        })
        .collect()
}

/// All built-in digits. Devices hold out their own test samples.
fn everything() -> Result<Samples, DataError> {
    let digits = digits::all();
    let (train, test) = (Samples::of(&digits, DataSplit::Train)?, Samples::of(&digits, DataSplit::Test)?);
    let features = [train.features(), test.features()].concat();
    Samples::new(features, [train.labels(), test.labels()].concat(), train.inputs())
}

/// The samples of common classes, and those of rare ones in random order.
fn apart(all: &Samples, seed: u64) -> Result<(Samples, Option<Samples>), DataError> {
    let indices = (0..all.len() as u32).zip(all.labels());
    let (mut rare, mut common) = (vec![], vec![]);
    for (index, label) in indices {
        if RARE.contains(label) { rare.push(index) } else { common.push(index) }
    }
    Rng::new(derive(seed, 2 << 32)).shuffle(&mut rare);
    Ok((all.select(&common)?, Some(all.select(&rare)?)))
}

/// The first `count` samples, or all if there are fewer.
fn first(samples: &Samples, count: usize) -> Result<Samples, DataError> {
    samples.select(&(0..count.min(samples.len()) as u32).collect::<Vec<_>>())
}

/// Deals shuffled samples, sorted by class, to `hands` in turn. Class counts differ by at most one.
fn deal(labels: &[u32], hands: usize, seed: u64) -> Vec<Vec<u32>> {
    let mut order: Vec<u32> = (0..labels.len() as u32).collect();
    Rng::new(derive(seed, 1 << 32)).shuffle(&mut order);
    order.sort_by_key(|&index| labels[index as usize]);
    (0..hands).map(|hand| order.iter().skip(hand).step_by(hands).copied().collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(labels: &[u32]) -> Vec<usize> {
        (0..10).map(|class| labels.iter().filter(|&&label| label == class).count()).collect()
    }

    #[test]
    fn tiers_have_equal_classes_and_devices_differ() {
        let fleet = Fleet::new(&DemoOptions::default()).unwrap();
        assert_eq!(fleet.devices.len(), 20);
        assert_eq!(fleet.samples(DataSplit::Train) + fleet.samples(DataSplit::Test), 5620);
        let of = |device: &FleetDevice| {
            [DataSplit::Train, DataSplit::Test].map(|part| device.shard.part(part).labels().to_vec()).concat()
        };
        let tier = |tier| {
            counts(
                &fleet.devices.iter().filter(|device| device.tier == tier).flat_map(of).collect::<Vec<_>>(),
            )
        };
        for number in 1..5 {
            assert!(tier(0).iter().zip(tier(number)).all(|(a, b)| a.abs_diff(b) <= 1), "tier {number}");
        }
        for device in &fleet.devices {
            let classes = counts(&of(device)).iter().filter(|&&count| count > 0).count();
            assert!((2..=7).contains(&classes), "{} has {classes} classes", device.device);
            assert!(device.shard.len(DataSplit::Test) > 70);
        }
    }

    #[test]
    fn devices_with_the_same_number_have_the_same_classes() {
        let fleet = Fleet::new(&DemoOptions::default()).unwrap();
        for (first, last) in fleet.devices.iter().zip(fleet.devices.iter().skip(16)) {
            let all = |device: &FleetDevice| {
                counts(
                    &[DataSplit::Train, DataSplit::Test]
                        .map(|part| device.shard.part(part).labels().to_vec())
                        .concat(),
                )
            };
            for (a, b) in all(first).iter().zip(all(last)) {
                assert!(a.abs_diff(b) <= 5, "{} {:?} {:?}", first.device, all(first), all(last));
            }
        }
    }

    #[test]
    fn the_minority_alone_has_its_classes() {
        let fleet = Fleet::new(&DemoOptions { minority: true, ..DemoOptions::default() }).unwrap();
        assert_eq!(fleet.devices.len(), 20);
        for device in &fleet.devices {
            for part in [DataSplit::Train, DataSplit::Test] {
                let alone = device.device.as_str() == MINORITY;
                let labels = device.shard.part(part).labels();
                assert!(labels.iter().all(|label| RARE.contains(label) == alone), "{}", device.device);
                assert!(!labels.is_empty());
            }
        }
        // With few devices, one may have more samples than there are of the rare classes.
        let few = DemoOptions { minority: true, devices_per_tier: 1, ..DemoOptions::default() };
        assert_eq!(Fleet::new(&few).unwrap().devices.len(), 5);
    }

    #[test]
    fn every_budget_admits_its_tier_and_no_wider_one() {
        let hardware = Fleet::new(&DemoOptions::default()).unwrap().hardware;
        for (tier, here) in hardware.iter().enumerate() {
            assert!(here.needs <= here.budget.ram);
            assert!(hardware.iter().take(tier).all(|wider| wider.needs > here.budget.ram), "tier {tier}");
        }
    }
}
