//! Refusals that the operator should know of. Each reason of each device is reported once, however often it occurs.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt,
};

use common::{Code, DeviceId, message::Refusal};

/// A refusal, for the log.
#[derive(Clone, PartialEq, Debug)]
pub struct Notice {
    /// The device that refuses or is refused.
    pub device: DeviceId,
    /// The reason.
    pub refusal: Refusal,
    /// The end that refuses.
    pub by: RefusedBy,
}

/// The end that refuses.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum RefusedBy {
    /// It does not admit the device.
    Aggregator,
    /// It does not do what it is asked to.
    Device,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, refusal: Refusal { code, need, have }, by } = self;
        match by {
            RefusedBy::Aggregator => write!(f, "{device} is refused: {code}")?,
            RefusedBy::Device => write!(f, "{device} cannot do what it is asked to: {code}")?,
        }
        match code {
            // The device lacks something other than a size.
            _ if need <= have && *code == Code::DoesNotFit || *need == 0 && *have == 0 => Ok(()),
            Code::DoesNotFit => write!(f, " (needs {need} bytes, has {have})"),
            Code::NoValidation => write!(f, " (needs {need} samples, has {have})"),
            Code::TooOld => write!(f, " (needs protocol {need}, speaks {have}); update its program"),
            // Numbers per sample, or classes.
            _ => write!(f, " (needs {need}, has {have})"),
        }
    }
}

/// Notices to report, and those reported already.
#[derive(Debug, Default)]
pub(super) struct Notices {
    waiting: VecDeque<Notice>,
    reported: BTreeMap<DeviceId, BTreeSet<(RefusedBy, Code)>>,
}

impl Notices {
    /// The aggregator refuses a device.
    pub(super) fn refused(&mut self, device: &DeviceId, refusal: Refusal) {
        self.report(Notice { device: device.clone(), refusal, by: RefusedBy::Aggregator });
    }

    /// A device refuses what it is asked to do.
    pub(super) fn declined(&mut self, device: &DeviceId, refusal: Refusal) {
        self.report(Notice { device: device.clone(), refusal, by: RefusedBy::Device });
    }

    pub(super) fn poll(&mut self) -> Option<Notice> {
        self.waiting.pop_front()
    }

    /// All reasons that were reported, by device.
    pub(super) fn reported(&self) -> impl Iterator<Item = (&DeviceId, RefusedBy, Code)> {
        let reasons = self.reported.iter();
        reasons.flat_map(|(device, reasons)| reasons.iter().map(move |&(by, code)| (device, by, code)))
    }

    fn report(&mut self, notice: Notice) {
        let reported = self.reported.entry(notice.device.clone()).or_default();
        if reported.insert((notice.by, notice.refusal.code)) {
            self.waiting.push_back(notice);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_of_each_device_is_reported_once_with_its_figures() {
        let mut notices = Notices::default();
        let [a, b]: [DeviceId; 2] = ["a", "b"].map(|name| name.parse().unwrap());
        for _ in 0..3 {
            notices.refused(&a, Refusal { code: Code::DoesNotFit, need: 900, have: 100 });
            notices.refused(&a, Refusal { code: Code::WrongData, need: 64, have: 784 });
            notices.refused(&b, Code::EmptyShard.into());
            notices.declined(&b, Code::EmptyShard.into());
        }
        let said: Vec<_> = std::iter::from_fn(|| notices.poll()).map(|notice| notice.to_string()).collect();
        assert_eq!(
            said,
            [
                "a is refused: E33 no tier fits the device's budget (needs 900 bytes, has 100)",
                "a is refused: E34 device's samples do not fit the model's inputs or outputs (needs 64, has 784)",
                "b is refused: E11 device has no training samples",
                "b cannot do what it is asked to: E11 device has no training samples",
            ]
        );
    }
}
