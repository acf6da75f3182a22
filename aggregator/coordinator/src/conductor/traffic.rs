//! Bytes of models, guides and updates in a round.

use std::collections::BTreeMap;

use common::{DeviceId, Tier};
use strategies::strategy::Kind;

use super::OpenRound;
use crate::{published::Published, report::Traffic};

impl OpenRound {
    /// By tier. `slices`: the model as each tier receives it; a guide is as long.
    pub(super) fn traffic(&self, slices: &[Published]) -> Vec<Traffic> {
        let record = &self.record;
        let mut traffic = vec![Traffic::default(); slices.len()];
        let tiers: BTreeMap<&DeviceId, Tier> =
            record.selected.iter().map(|selected| (&selected.device, selected.tier)).collect();
        let mut fresh = true;
        for (exchange, findings) in record.exchanges.iter().zip(&self.findings) {
            let guided = exchange.kind == Kind::Try
                || exchange.kind == Kind::Train
                    && record.exchanges.iter().any(|other| other.kind == Kind::Gradients);
            let vectors = u64::from(fresh) + u64::from(guided);
            for tier in exchange.asked.iter().filter_map(|device| tiers.get(device)) {
                traffic[tier.index()].down += vectors * slices[tier.index()].bytes().len() as u64;
            }
            for (sum, bytes) in traffic.iter_mut().zip(&findings.bytes) {
                sum.up += bytes;
            }
            // A device that has trained no longer holds the model it received.
            fresh = exchange.kind == Kind::Train;
        }
        traffic
    }
}
