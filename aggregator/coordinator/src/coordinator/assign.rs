//! What a device is told to do: an assignment, or to wait.

use common::{
    DeviceId, Duration, Tier, TransferId,
    message::{Assignment, ToDevice},
    transfer::LinkLimits,
};

use super::{Coordinator, Phase};
use crate::{
    exchange::{AnswerState, RosterEntry},
    pacing::idle_wait,
};
use strategies::tiered::TierPlan;

impl Coordinator {
    /// Tells a device that is free what to do now.
    pub(super) fn answer_ready(&mut self, device: &DeviceId) {
        let message = match &self.phase {
            Phase::Finished { round } => ToDevice::Finished { round: *round },
            Phase::Collecting(exchange) => match exchange.roster.get(device) {
                // A device whose tier has changed since the round was opened waits for the next one.
                Some(RosterEntry { tier, state: AnswerState::Assigned, .. })
                    if self.tier(device) == Some(*tier) =>
                {
                    match self.assignment(device) {
                        Some(assignment) => ToDevice::Assignment(assignment),
                        None => return,
                    }
                }
                _ => ToDevice::Wait(self.idle_wait(device)),
            },
            _ => ToDevice::Wait(self.idle_wait(device)),
        };
        self.say(device, message);
    }

    /// How long a device without work waits before it asks again.
    fn idle_wait(&self, device: &DeviceId) -> Duration {
        // After a restart, most connections have not said Hello yet.
        let fleet = self.conns.len().max(self.fleet.len());
        idle_wait(device, u64::from(self.committed), fleet, self.settings.arrivals_per_s)
    }

    pub(super) fn tier(&self, device: &DeviceId) -> Option<Tier> {
        self.fleet.get(device).map(|device| device.record.tier)
    }

    /// The Plan of a device: its own, or that of its tier.
    pub(super) fn plan(&self, device: &DeviceId, tier: Tier) -> &TierPlan {
        let own = self.fleet.get(device).and_then(|device| device.plan.as_deref());
        own.unwrap_or(&self.model.plans[tier.index()])
    }

    /// The limits of the link to a device.
    pub(super) fn limits(&self, device: &DeviceId) -> LinkLimits {
        let limits = self.settings.limits;
        self.fleet.get(device).map_or(limits, |device| limits.for_peer(device.max_chunk))
    }

    fn assignment(&mut self, device: &DeviceId) -> Option<Assignment> {
        let exchange = self.open_exchange()?;
        let ticket = self.ticket(exchange);
        let RosterEntry { tier, task, .. } = exchange.roster.get(device)?;
        let (tier, task) = (*tier, task.clone());
        let slice = self.published[tier.index()].clone();
        let guide = exchange.guide.get(tier.index()).cloned();
        let limits = self.limits(device);
        let codec = self.settings.down_codec(tier);
        let (model, guide) = self.conns.change(self.fleet.get(device)?.conn?, |outbox| {
            let model = outbox.publish(TransferId::model(ticket.round), slice, codec.align(), limits);
            let guide_id = TransferId::guide(ticket.exchange_id());
            (model, guide.map(|guide| outbox.publish(guide_id, guide, codec.align(), limits)))
        })?;
        Some(Assignment { ticket, task, model, codec, guide })
    }
}
