//! Where a run starts or goes on.

use std::collections::BTreeMap;

use common::{DeviceId, Instant, RunId, Tier, message::Scalars};
use strategies::device::DeviceRecord;

use crate::{
    announcement::Announcement,
    exchange::{AnswerState, OpenExchange, Purpose},
};

/// See the module.
#[derive(Debug)]
pub struct Start {
    /// Part of the tickets.
    pub run: RunId,
    /// Rounds committed so far.
    pub committed: u32,
    /// Of the tickets from now on.
    pub attempt: u16,
    /// Devices that have registered so far.
    pub devices: Vec<DeviceRecord>,
    /// Tiers fixed by the operator.
    pub fixed: BTreeMap<DeviceId, Tier>,
    /// The exchange that was open when the aggregator stopped.
    pub reopened: Option<ReopenedExchange>,
}

/// An exchange that was open when the aggregator stopped, with the updates that are durable.
#[derive(Clone, PartialEq, Debug)]
pub struct ReopenedExchange {
    /// The exchange, formed again.
    pub announcement: Announcement,
    /// Updates of each tier that are enough; empty: all.
    pub wanted: Vec<usize>,
    /// Scalars of the durable updates.
    pub delivered: BTreeMap<DeviceId, Scalars>,
}

impl ReopenedExchange {
    pub(super) fn open(self, now: Instant) -> OpenExchange {
        let mut exchange = OpenExchange::open(self.announcement, Purpose::Train, now);
        exchange.wanted = self.wanted;
        for (device, scalars) in self.delivered {
            exchange.roster.set(&device, AnswerState::Delivered(scalars));
        }
        exchange.complete_at_start = exchange.roster.all_answered();
        exchange
    }
}
