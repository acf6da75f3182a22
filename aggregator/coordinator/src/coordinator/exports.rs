//! Files that devices ask for. A tier's file is exported once for every model and shared by all who want it, so that
//! whoever asks a thousand times costs the keeper no more than whoever asks once.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use common::{DeviceId, Tier, message::ToDevice};

use super::{Action, Coordinator, ONNX_TRANSFER};
use crate::{fleet::ConnId, published::Published};

/// By tier.
#[derive(Debug, Default)]
pub(super) struct Exports {
    /// The keeper is at work for these connections.
    waiting: BTreeMap<Tier, BTreeSet<ConnId>>,
    /// Files of the present model, with its round.
    ready: BTreeMap<Tier, (u32, Published)>,
}

impl Exports {
    /// True if the keeper has to be asked.
    fn want(&mut self, tier: Tier, conn: ConnId) -> bool {
        let idle = !self.waiting.contains_key(&tier);
        self.waiting.entry(tier).or_default().insert(conn);
        idle
    }

    pub(super) fn forget(&mut self, conn: ConnId) {
        self.waiting.values_mut().for_each(|conns| _ = conns.remove(&conn));
    }

    /// There is a new model: files of others go. Whoever is being sent one has its own share of it.
    pub(super) fn expire(&mut self, committed: u32) {
        self.ready.retain(|_, (round, _)| *round == committed);
    }
}

impl Coordinator {
    pub(super) fn handle_pull(&mut self, conn: ConnId, device: &DeviceId) {
        let Some(tier) = self.fleet.member(device).map(|member| member.record.tier) else { return };
        match self.exports.ready.get(&tier).cloned() {
            Some((round, file)) => self.offer_file(conn, round, file),
            None => {
                if self.exports.want(tier, conn) {
                    self.actions.push_back(Action::Export { tier });
                }
            }
        }
    }

    /// A tier's file of the model after `round`.
    pub fn handle_onnx(&mut self, tier: Tier, round: u32, file: Bytes) {
        let file = Published::new(file);
        for conn in self.exports.waiting.remove(&tier).unwrap_or_default() {
            self.offer_file(conn, round, file.clone());
        }
        if round == self.committed {
            self.exports.ready.insert(tier, (round, file));
        }
    }

    fn offer_file(&mut self, conn: ConnId, round: u32, file: Published) {
        let limits = self.settings.limits;
        if let Some(outbox) = self.conns.get_mut(&conn) {
            let blob = outbox.publish(ONNX_TRANSFER | round, file, 1, limits);
            outbox.say(ToDevice::Onnx(blob));
            self.awake.insert(conn);
        }
    }
}
