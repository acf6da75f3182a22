//! What the exchanges of a round have in common: the model's shape, the round, and what came before.

use std::ops::Range;

use common::{Code, DeviceId, Tier, region::RegionMap};

use super::Keeper;
use crate::store::{Entry, Header, StoreError};
use strategies::{
    cohort::{Absent, Cohort},
    error::CombineError,
};

/// What the exchanges of a round have in common.
pub(super) struct Scene<'a> {
    regions: &'a RegionMap,
    layers: &'a [Range<usize>],
    round: u32,
    lr: f64,
    clients: usize,
    refused: Vec<(DeviceId, Tier, Code)>,
    past: &'a [Entry],
}

impl<'a> Scene<'a> {
    pub(super) fn cohort(&self, entries: &[Entry]) -> Cohort {
        let mut cohort = Cohort::new(self.regions.clone(), self.lr);
        cohort.round = self.round;
        cohort.set_clients(self.clients);
        cohort.set_layers(self.layers);
        cohort.reserve(entries.len());
        for Entry { header, .. } in entries {
            let Header { device, tier, scalars, norms, .. } = header;
            // Refusals are kept in the cohort and come back with the outcome.
            let _ = cohort.admit(device.clone(), *tier, scalars.clone(), norms);
        }
        for (device, _, code) in &self.refused {
            cohort.refuse(device.clone(), *code);
        }
        for Entry { header, .. } in self.past {
            let Header { device, tier, ticket, lr, norms, .. } = header;
            let (device, round, lr) = (device.clone(), ticket.round, f64::from(*lr));
            cohort.remember(Absent { device, tier: *tier, round, lr, norm: norms.iter().sum() });
        }
        cohort
    }
}
impl Keeper {
    pub(super) fn scene<'a>(
        &self,
        regions: &'a RegionMap,
        layers: &'a [Range<usize>],
        round: u32,
        lr: f32,
        past: &'a [Entry],
    ) -> Scene<'a> {
        let refused = self.losses.refused.clone();
        Scene { regions, layers, round, lr: lr.into(), clients: self.fleet.len(), refused, past }
    }

    pub(super) fn past(&self, round: u32) -> Result<Vec<Entry>, CombineError<StoreError>> {
        let needs = self.method.needs();
        if needs.history == 0 {
            return Ok(vec![]);
        }
        let mut past = self.store.past(round).map_err(CombineError::Read)?;
        if needs.recent > 0 {
            past.retain(|entry| entry.header.ticket.round.saturating_add(needs.recent) >= round);
        }
        Ok(past)
    }
}
