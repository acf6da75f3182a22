//! What the operator should know and finds nowhere else. Each thing is said once, however often it happens.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt,
};

use common::{Code, DeviceId, message::Refusal};

/// Something for the log.
#[derive(Clone, PartialEq, Debug)]
pub struct Notice {
    pub device: DeviceId,
    pub refusal: Refusal,
    pub by: Side,
}

/// Which of both ends refuses.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Side {
    Aggregator,
    Device,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, refusal: Refusal { code, need, have }, by } = self;
        match by {
            Side::Aggregator => write!(f, "{device} is refused: {code}")?,
            Side::Device => write!(f, "{device} cannot do what it is asked to: {code}")?,
        }
        match code {
            // It is about something else than a size.
            _ if need <= have && *code == Code::DoesNotFit || *need == 0 && *have == 0 => Ok(()),
            Code::DoesNotFit => write!(f, " (needs {need} bytes, has {have})"),
            Code::NoValidation => write!(f, " (needs {need} samples, has {have})"),
            // Numbers per sample, or classes.
            _ => write!(f, " (needs {need}, has {have})"),
        }
    }
}

/// What waits to be said, and what was said.
#[derive(Debug, Default)]
pub(super) struct Notices {
    waiting: VecDeque<Notice>,
    said: BTreeMap<DeviceId, BTreeSet<(Side, Code)>>,
}

impl Notices {
    /// A device was turned away.
    pub(super) fn refused(&mut self, device: &DeviceId, refusal: Refusal) {
        self.say(Notice { device: device.clone(), refusal, by: Side::Aggregator });
    }

    /// A device says that it cannot take part.
    pub(super) fn declined(&mut self, device: &DeviceId, refusal: Refusal) {
        self.say(Notice { device: device.clone(), refusal, by: Side::Device });
    }

    pub(super) fn poll(&mut self) -> Option<Notice> {
        self.waiting.pop_front()
    }

    fn say(&mut self, notice: Notice) {
        let said = self.said.entry(notice.device.clone()).or_default();
        if said.insert((notice.by, notice.refusal.code)) {
            self.waiting.push_back(notice);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_of_each_device_is_said_once_with_its_figures() {
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
