//! Bytes of models, guides and updates in a round.

use common::{DeviceId, Tier};
use strategies::strategy::Kind;

use super::{Conductor, Open};
use crate::report::Traffic;

impl Conductor {
    /// By tier.
    pub(super) fn traffic(&self, open: &Open) -> Vec<Traffic> {
        let record = &open.record;
        let mut traffic = vec![Traffic::default(); self.run.model.plans.len()];
        let tier_of = |device: &DeviceId| {
            let found = record.selected.iter().find(|selected| selected.device == *device);
            found.map(|selected| selected.tier)
        };
        let slice = |tier: Tier| {
            let codec = self.run.settings.down.of(tier)?;
            let plan = self.run.model.plans.get(tier.index())?;
            codec.encoded_len(plan.info.params as usize).map(u64::from)
        };
        let mut fresh = true;
        for (exchange, found) in record.exchanges.iter().zip(&open.found) {
            let guided = exchange.kind == Kind::Try
                || exchange.kind == Kind::Train
                    && record.exchanges.iter().any(|other| other.kind == Kind::Gradients);
            let vectors = u64::from(fresh) + u64::from(guided);
            for tier in exchange.asked.iter().filter_map(tier_of) {
                if let Some(tally) = traffic.get_mut(tier.index()) {
                    tally.down += vectors * slice(tier).unwrap_or(0);
                }
            }
            for (tally, bytes) in traffic.iter_mut().zip(&found.bytes) {
                tally.up += bytes;
            }
            // A device that has trained no longer holds the model it received.
            fresh = exchange.kind == Kind::Train;
        }
        traffic
    }
}
