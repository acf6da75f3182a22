//! What every device did in an exchange that has ended.

use common::{DeviceId, ExchangeId, Instant};
use strategies::{guard::Delivered, strategy::Kind};

use super::{AnswerState, OpenExchange, RosterEntry};
use crate::{
    record::{DeviceInTier, RefusedDevice},
    wall::WallTime,
};

/// See the module. All lists are in DeviceId order.
#[derive(Clone, PartialEq, Debug)]
pub struct ClosedExchange {
    /// Its round and number.
    pub id: ExchangeId,
    /// What it asked for.
    pub kind: Kind,
    /// Learning rate of the round.
    pub lr: f32,
    /// When devices were told of it.
    pub opened: Instant,
    /// When it ended.
    pub closed: Instant,
    /// The same as a time of day, if the driver has a clock.
    pub at: Option<WallTime>,
    /// Devices whose update counts, with their scalars.
    pub delivered: Vec<Delivered>,
    /// Devices whose update was refused.
    pub refused: Vec<RefusedDevice>,
    /// Devices that were asked and did not answer in time.
    pub silent: Vec<DeviceInTier>,
    /// Those of the silent that had no connection any more.
    pub gone: Vec<DeviceInTier>,
    /// Those of the delivered that came after the deadline of their tier.
    pub late: Vec<DeviceInTier>,
}

impl ClosedExchange {
    /// An exchange in which nothing has happened.
    pub fn empty(id: ExchangeId, kind: Kind, lr: f32, opened: Instant) -> Self {
        Self {
            id,
            kind,
            lr,
            opened,
            closed: opened,
            at: None,
            delivered: vec![],
            refused: vec![],
            silent: vec![],
            gone: vec![],
            late: vec![],
        }
    }
}

impl OpenExchange {
    /// The outcome, device by device.
    pub fn settle(&self, closed: Instant, connected: impl Fn(&DeviceId) -> bool) -> ClosedExchange {
        let mut result =
            ClosedExchange { closed, ..ClosedExchange::empty(self.id, self.kind, self.lr, self.opened) };
        for (device, RosterEntry { tier, state, .. }) in self.roster.iter() {
            let tier = *tier;
            let in_tier = || DeviceInTier { device: device.clone(), tier };
            if self.late.contains(device) {
                result.late.push(in_tier());
            }
            match state {
                AnswerState::Delivered(scalars) => {
                    result.delivered.push((device.clone(), tier, scalars.clone()));
                }
                AnswerState::Refused(code) => {
                    result.refused.push(RefusedDevice { device: device.clone(), tier, code: *code });
                }
                _ => {
                    if !connected(device) {
                        result.gone.push(in_tier());
                    }
                    result.silent.push(in_tier());
                }
            }
        }
        result
    }
}
