//! When a round begins, and which devices it may ask.

use common::{ExchangeId, Instant, message::Task, rng};
use strategies::strategy::Kind;

use super::{Action, Coordinator, Phase};
use crate::{
    announcement::{Announcement, AskedDevice},
    exchange::{OpenExchange, Purpose},
    per_tier::value_of,
    record::DeviceInTier,
};

impl Coordinator {
    /// Begins the next round if enough devices are connected. After the last round, the scores of the final model are
    /// collected. A paused run begins nothing.
    pub(super) fn gather(&mut self, now: Instant) {
        if self.paused || self.fleet.connected_len() < self.needed() {
            return;
        }
        let round = self.committed + 1;
        let connected = self
            .fleet
            .connected()
            .map(|device| DeviceInTier { device: device.record.device.clone(), tier: device.record.tier });
        let mut selected: Vec<DeviceInTier> = connected.collect();
        if self.has_trained() {
            let evaluate =
                |DeviceInTier { device, tier }| AskedDevice { device, tier, task: Task::Evaluate(None) };
            let announcement = Announcement {
                id: ExchangeId { round, exchange: 0 },
                kind: Kind::Losses,
                lr: self.settings.lr_of(round),
                asked: selected.into_iter().map(evaluate).collect(),
                guide: vec![],
            };
            self.collect(OpenExchange::open(announcement, Purpose::Evaluate, now));
            return;
        }
        rng::Rng::new(rng::derive(self.settings.seed, u64::from(round))).shuffle(&mut selected);
        let wanted = (self.settings.participation * selected.len() as f64).round().max(1.0) as usize;
        let rest = selected.split_off(wanted.min(selected.len()));
        self.wanted = self.select_more(&mut selected, rest);
        selected.sort();
        self.actions.extend(self.registrations.take_waiting().map(Action::Register));
        self.actions.push_back(Action::OpenRound { round, selected, wanted: self.wanted.clone() });
        self.phase = Phase::Opening;
    }

    /// Connected devices that a round needs to begin: `min_devices` for the first one. Later ones begin once `min_devices`
    /// (or the whole fleet, if it is smaller) x the mean quorum are connected.
    pub(super) fn needed(&self) -> usize {
        let least = self.settings.min_devices;
        let needed = match self.committed {
            0 => least,
            _ => (self.mean_quorum() * least.min(self.fleet.len()) as f64).ceil() as usize,
        };
        needed.max(1)
    }

    /// The mean over all devices of the quorum of their tier. A fleet that returns asks for it with every message.
    fn mean_quorum(&self) -> f64 {
        let mean = *self.mean_quorum.get_or_init(|| self.find_mean_quorum());
        debug_assert_eq!(mean, self.find_mean_quorum());
        mean
    }

    fn find_mean_quorum(&self) -> f64 {
        let quorum = |tier| value_of(&self.settings.deadlines.quorum, tier);
        let sum: f64 = self.fleet.devices().map(|device| quorum(device.record.tier)).sum();
        if self.fleet.is_empty() { 1.0 } else { sum / self.fleet.len() as f64 }
    }

    /// Selects more devices than are wanted, tier by tier. Returns how many are wanted; empty if no device was added.
    fn select_more(&self, selected: &mut Vec<DeviceInTier>, rest: Vec<DeviceInTier>) -> Vec<usize> {
        let mut wanted = vec![0; self.model.plans.len()];
        for selected in &*selected {
            wanted[selected.tier.index()] += 1;
        }
        let more = |wanted: &usize| (*wanted as f64 * (self.settings.over_selection - 1.0)).ceil().max(0.0);
        let mut room: Vec<usize> = wanted.iter().map(|wanted| more(wanted) as usize).collect();
        let before = selected.len();
        for device in rest {
            let room = &mut room[device.tier.index()];
            if *room > 0 {
                *room -= 1;
                selected.push(device);
            }
        }
        if selected.len() > before { wanted } else { vec![] }
    }
}
