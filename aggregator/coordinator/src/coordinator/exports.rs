//! ONNX files that devices ask for. A tier's file is exported once per model and shared by all devices that ask. A device
//! that asks a thousand times costs the worker no more than one that asks once.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use common::{DeviceId, Tier, TransferId, message::ToDevice};

use super::{Action, Coordinator};
use crate::{fleet::ConnId, published::Published};

/// By tier.
#[derive(Debug, Default)]
pub(super) struct Exports {
    /// Connections for which the worker exports a file now.
    waiting: BTreeMap<Tier, BTreeSet<ConnId>>,
    /// Files of the present model.
    ready: BTreeMap<Tier, ExportedFile>,
}

#[derive(Clone, Debug)]
struct ExportedFile {
    /// The file holds the model after this round.
    round: u32,
    file: Published,
}

impl Exports {
    /// True if the worker has to be asked.
    fn want(&mut self, tier: Tier, conn: ConnId) -> bool {
        let idle = !self.waiting.contains_key(&tier);
        self.waiting.entry(tier).or_default().insert(conn);
        idle
    }

    pub(super) fn forget(&mut self, conn: ConnId) {
        self.waiting.values_mut().for_each(|conns| _ = conns.remove(&conn));
    }

    /// Drops the files of earlier models. A transfer that is under way has its own share of the bytes.
    pub(super) fn expire(&mut self, committed: u32) {
        self.ready.retain(|_, export| export.round == committed);
    }
}

impl Coordinator {
    pub(super) fn handle_pull(&mut self, conn: ConnId, device: &DeviceId) {
        let Some(tier) = self.tier(device) else { return };
        match self.exports.ready.get(&tier).cloned() {
            Some(export) => self.offer_file(conn, export),
            None => {
                if self.exports.want(tier, conn) {
                    self.actions.push_back(Action::Export { tier });
                }
            }
        }
    }

    /// A tier's file of the model after `round` is exported.
    pub fn handle_onnx(&mut self, tier: Tier, round: u32, file: Bytes) {
        let export = ExportedFile { round, file: Published::new(file) };
        for conn in self.exports.waiting.remove(&tier).into_iter().flatten() {
            self.offer_file(conn, export.clone());
        }
        if round == self.committed {
            self.exports.ready.insert(tier, export);
        }
    }

    fn offer_file(&mut self, conn: ConnId, ExportedFile { round, file }: ExportedFile) {
        let limits = self.settings.limits;
        let offered = self.conns.change(conn, |outbox| {
            let blob = outbox.publish(TransferId::onnx(round), file, 1, limits);
            outbox.say(ToDevice::Onnx(blob));
        });
        self.awake.extend(offered.map(|()| conn));
    }
}
