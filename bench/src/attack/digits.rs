//! Devices with the built-in digits.

use std::{io::Write as _, sync::Arc};

use client::data::{DataError, DataSplit, Samples, VecShard, digits};
use common::rng::{Rng, derive};

use super::{AttackError, AttackOptions, Honest};
use sim::{engine::SharedShard, partition::dirichlet::proportions};

/// Training and test samples of a device.
const TRAIN: usize = 60;
const TEST: usize = 40;
/// Minimum number of test samples of all devices that a row is about.
const SUBJECT_TEST: usize = 200;
/// Dirichlet concentration of the classes of a device.
const ALPHA: f64 = 0.5;
/// Classes that only one device has.
const RARE: [u32; 2] = [8, 9];
const CLASSES: usize = digits::CLASSES as usize;
/// Samples of every class in the probe.
const PROBE: usize = 10;

/// Samples that are not yet assigned, by class.
struct Pools {
    all: Samples,
    left: Vec<Vec<u32>>,
    rng: Rng,
}

impl Pools {
    fn new(seed: u64) -> Result<Self, DataError> {
        let (train, test) =
            (Samples::of(&digits::all(), DataSplit::Train)?, Samples::of(&digits::all(), DataSplit::Test)?);
        let features = [train.features(), test.features()].concat();
        let labels = [train.labels(), test.labels()].concat();
        let all = Samples::new(features, labels, digits::PIXELS)?;
        let mut rng = Rng::new(seed);
        let mut left = vec![vec![]; CLASSES];
        let mut order: Vec<u32> = (0..all.len() as u32).collect();
        rng.shuffle(&mut order);
        for index in order {
            if let Some(pool) =
                all.labels().get(index as usize).and_then(|&label| left.get_mut(label as usize))
            {
                pool.push(index);
            }
        }
        Ok(Self { all, left, rng })
    }

    /// Draws one sample by these shares of classes. If the drawn class is used up, takes one of the class with most
    /// samples left.
    fn draw(&mut self, shares: &[f64]) -> Option<u32> {
        let mut at = self.rng.unit_f64() * shares.iter().sum::<f64>();
        let class = shares.iter().position(|share| {
            at -= share;
            at < 0.0
        });
        let drawn = class.and_then(|class| self.left.get_mut(class)).and_then(Vec::pop);
        let allowed = |class: usize| shares.get(class).is_some_and(|&share| share > 0.0);
        drawn.or_else(|| {
            let fullest =
                (0..CLASSES).filter(|&class| allowed(class)).max_by_key(|&class| self.left[class].len())?;
            self.left[fullest].pop()
        })
    }

    fn samples(&mut self, shares: &[f64], count: usize) -> Result<Samples, DataError> {
        let chosen: Vec<u32> = (0..count).map_while(|_| self.draw(shares)).collect();
        self.all.select(&chosen)
    }
}

/// The shards of a fleet. The devices that the row is about come first.
pub(super) fn shards(
    options: &AttackOptions,
    row: Honest,
    seed: u64,
) -> Result<Vec<SharedShard>, AttackError> {
    let mut pools = Pools::new(derive(seed, 1))?;
    // The probe's samples belong to no device.
    for pool in &mut pools.left {
        pool.truncate(pool.len() - PROBE);
    }
    let subjects = subjects(row, options.devices);
    let mut shards: Vec<SharedShard> = vec![];
    for index in 0..options.devices {
        let subject = index < subjects;
        let rare = |class: usize| RARE.contains(&(class as u32));
        let open = (0..CLASSES).map(|class| !row.is_rare() || rare(class) == subject);
        let shares = proportions(&mut pools.rng, ALPHA, open);
        let shares = if row.is_rare() && subject {
            (0..CLASSES).map(|class| f64::from(u8::from(rare(class)))).collect()
        } else {
            shares
        };
        let train = if subject && row == Honest::MuchData { 20 * TRAIN } else { TRAIN };
        let test = if subject { SUBJECT_TEST.div_ceil(subjects) } else { TEST };
        let (mut train, mut test) = (pools.samples(&shares, train)?, pools.samples(&shares, test)?);
        if subject && row == Honest::Turned {
            (train, test) = (turned(&train)?, turned(&test)?);
        }
        if subject && row == Honest::WrongLabels {
            train = mislabelled(&train, &mut pools.rng)?;
        }
        shards.push(Arc::new(VecShard::new(train, test)?));
    }
    Ok(shards)
}

/// Number of devices that a row is about.
pub(super) fn subjects(row: Honest, devices: usize) -> usize {
    match row {
        Honest::Plain => 0,
        Honest::Turned => devices.div_ceil(10),
        _ => 1,
    }
}

/// Turns images by a quarter.
fn turned(samples: &Samples) -> Result<Samples, DataError> {
    let side = digits::SIDE;
    let mut features = Vec::with_capacity(samples.features().len());
    for image in samples.features().chunks(digits::PIXELS) {
        features.extend((0..digits::PIXELS).map(|at| image[(side - 1 - at % side) * side + at / side]));
    }
    Samples::new(features, samples.labels().to_vec(), digits::PIXELS)
}

/// Replaces two of five labels by random ones.
fn mislabelled(samples: &Samples, rng: &mut Rng) -> Result<Samples, DataError> {
    let label = |&label: &u32| match rng.unit_f64() < 0.4 {
        true => (label + 1 + rng.below(u64::from(digits::CLASSES) - 1) as u32) % digits::CLASSES,
        false => label,
    };
    let labels = samples.labels().iter().map(label).collect();
    Samples::new(samples.features().to_vec(), labels, digits::PIXELS)
}

/// Writes ten samples of every class to a CSV file.
pub(super) fn probe(seed: u64) -> Result<tempfile::NamedTempFile, AttackError> {
    let mut pools = Pools::new(derive(seed, 1))?;
    let mut file = tempfile::NamedTempFile::new().map_err(AttackError::Probe)?;
    for class in 0..CLASSES {
        let first = pools.left[class].len() - PROBE;
        for index in pools.left[class].split_off(first) {
            let missing = DataError::NoSample { index, len: pools.all.len() as u32 };
            let row = pools.all.row(index as usize).ok_or(missing)?;
            let cells: Vec<String> = row.iter().map(f32::to_string).collect();
            writeln!(file, "{},{class}", cells.join(",")).map_err(AttackError::Probe)?;
        }
    }
    Ok(file)
}
