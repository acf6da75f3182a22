//! What is known of each device from the reports.

use std::collections::{BTreeMap, VecDeque};

use super::{Heard, Report};

/// Rounds of a device that are kept.
const POINTS: usize = 64;

/// A device in the rounds that were read.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct DeviceHistory {
    pub tier: usize,
    pub samples: u64,
    /// Of the last report that has it.
    pub loss: Option<f64>,
    /// The number of that report.
    pub reported_in: u32,
    pub accuracy: Option<f64>,
    /// The last round in which it was heard.
    pub heard_in: Option<u32>,
    /// Rounds in which its update counted.
    pub delivered: u32,
    /// Rounds in which it was asked and did not answer in time.
    pub dropped: u32,
    pub refused: u32,
    pub last_refusal: Option<LastRefusal>,
    /// Rounds in which the guard limited it.
    pub held: u32,
    /// Share in the last round that it took part in.
    pub weight: Option<f64>,
    /// The last rounds that it took part in.
    pub points: VecDeque<DevicePoint>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LastRefusal {
    pub round: u32,
    pub code: u16,
    pub why: String,
}

#[derive(Copy, Clone, PartialEq, Debug)]
pub struct DevicePoint {
    pub round: u32,
    pub loss: Option<f64>,
    pub weight: Option<f64>,
}

/// Adds a round.
pub(super) fn add(devices: &mut BTreeMap<String, DeviceHistory>, report: &Report) {
    for line in &report.devices {
        let device = heard(devices, line, report.round);
        device.heard_in = Some(report.round);
        device.delivered += 1;
        device.weight = line.weight;
        let point = DevicePoint { round: report.round, loss: line.loss(), weight: line.weight };
        device.points.push_back(point);
        if device.points.len() > POINTS {
            device.points.pop_front();
        }
    }
    for line in &report.silent {
        let device = named(devices, &line.device, line.tier);
        device.dropped += 1;
    }
    for line in &report.refused {
        let device = named(devices, &line.device, line.tier);
        device.refused += 1;
        let (round, code, why) = (report.round, line.code, line.why.clone());
        device.last_refusal = Some(LastRefusal { round, code, why });
    }
    let mut limited: Vec<&str> = report.guard.iter().map(|finding| finding.device.as_str()).collect();
    limited.sort_unstable();
    limited.dedup();
    for name in limited {
        if let Some(device) = devices.get_mut(name) {
            device.held += 1;
        }
    }
}

/// Shows the scores of the final model, which is no round.
pub(super) fn show(devices: &mut BTreeMap<String, DeviceHistory>, scores: &Report) {
    for line in &scores.devices {
        heard(devices, line, scores.round);
    }
}

fn heard<'a>(
    devices: &'a mut BTreeMap<String, DeviceHistory>,
    line: &Heard,
    round: u32,
) -> &'a mut DeviceHistory {
    let device = named(devices, &line.device, line.tier);
    device.samples = line.samples;
    device.reported_in = round;
    device.loss = line.loss();
    device.accuracy = line.test_accuracy;
    device
}

fn named<'a>(
    devices: &'a mut BTreeMap<String, DeviceHistory>,
    name: &str,
    tier: usize,
) -> &'a mut DeviceHistory {
    let device = devices.entry(name.to_owned()).or_default();
    device.tier = tier;
    device
}
