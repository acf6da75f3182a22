//! The answers to an exchange, as strategies and the guard see them.

use common::{DeviceId, ExchangeId};
use strategies::{
    cohort::{Absent, Cohort},
    strategy::Exchange,
};

use super::{Conductor, Deliveries, ExchangeFindings, OpenRound};
use crate::{
    exchange::ClosedExchange,
    record::{DeviceInTier, RefusedDevice, UpdateHeader},
};
use strategies::strategy::Kind;

impl Conductor {
    /// Participants and findings of the exchange that has just closed. This is the only place where they are computed.
    pub(super) fn take_in<D: Deliveries>(
        &self,
        open: &mut OpenRound,
        lr: f32,
        deliveries: &D,
    ) -> Result<(), D::Error> {
        let closed = open.made.len();
        let Some(kind) = open.record.exchanges.get(closed).map(|exchange| exchange.kind) else {
            return Ok(());
        };
        let id = ExchangeId { round: open.record.round, exchange: closed as u8 };
        let delivered = deliveries.delivered(id)?;
        let mut bytes = vec![0; self.run.model.plans.len()];
        for delivery in &delivered {
            if let Some(sum) = bytes.get_mut(delivery.header.tier.index()) {
                *sum += delivery.bytes;
            }
        }
        let devices = delivered.iter().map(|delivery| delivery.header.device.clone()).collect();
        let mut cohort = self.cohort(open, lr, delivered.iter().map(|delivery| &delivery.header));
        let inspection = self.run.guard.inspect(&mut cohort, kind);
        open.made.push(Exchange { kind, cohort });
        open.findings.push(ExchangeFindings { devices, inspection, bytes });
        // Devices may have registered since the first exchange.
        let enrolled = self.enrolled();
        for made in &mut open.made {
            made.cohort.set_clients(self.run.fleet.len());
            made.cohort.set_enrolled(enrolled.clone());
        }
        Ok(())
    }

    /// The cohort before the guard inspects it.
    pub(super) fn cohort<'h>(
        &self,
        open: &OpenRound,
        lr: f32,
        delivered: impl ExactSizeIterator<Item = &'h UpdateHeader>,
    ) -> Cohort {
        let mut cohort = Cohort::new(self.run.model.regions.clone(), lr.into());
        cohort.round = open.record.round;
        cohort.set_clients(self.run.fleet.len());
        cohort.set_enrolled(self.enrolled());
        cohort.set_layers(self.run.model.layers.as_slice());
        cohort.reserve(delivered.len());
        for UpdateHeader { device, tier, scalars, norms, .. } in delivered {
            // Refusals are kept in the cohort and come back with the outcome.
            let _ = cohort.admit(device.clone(), *tier, scalars.clone(), norms);
        }
        for RefusedDevice { device, code, .. } in &open.dropouts.refused {
            cohort.refuse(device.clone(), *code);
        }
        for UpdateHeader { device, tier, ticket, lr, norms, .. } in &open.past {
            let (device, round, lr) = (device.clone(), ticket.round, f64::from(*lr));
            cohort.add_absent(Absent { device, tier: *tier, round, lr, norm: norms.iter().sum() });
        }
        cohort
    }

    /// Devices of the fleet in each tier.
    pub(super) fn enrolled(&self) -> Vec<usize> {
        let mut enrolled = vec![0; self.run.model.plans.len()];
        for record in self.run.fleet.values() {
            if let Some(count) = enrolled.get_mut(record.tier.index()) {
                *count += 1;
            }
        }
        enrolled
    }

    pub(super) fn past<D: Deliveries>(
        &self,
        round: u32,
        deliveries: &D,
    ) -> Result<Vec<UpdateHeader>, D::Error> {
        let needs = self.run.method.needs();
        if needs.history == 0 {
            return Ok(vec![]);
        }
        let mut past = deliveries.past(round)?;
        if needs.recent > 0 {
            past.retain(|header| header.ticket.round.saturating_add(needs.recent) >= round);
        }
        Ok(past)
    }
}

impl OpenRound {
    /// Notes the devices that did not deliver in the exchange, and when the round began.
    pub(super) fn note(&mut self, closed: &mut ClosedExchange) {
        closed.opened = *self.dropouts.opened.get_or_insert(closed.opened);
        for RefusedDevice { device, code, .. } in &closed.refused {
            self.made.iter_mut().for_each(|made| made.cohort.refuse(device.clone(), *code));
        }
        self.dropouts.refused.append(&mut closed.refused);
        self.dropouts.silent.append(&mut closed.silent);
        self.dropouts.gone.append(&mut closed.gone);
        if closed.kind == Kind::Train {
            self.dropouts.late = std::mem::take(&mut closed.late);
        }
    }

    /// After a restart: notes the devices that were asked in the last closed exchange and did not deliver.
    pub(super) fn note_missing(&mut self) {
        let Some((exchange, findings)) = self.record.exchanges.iter().zip(&self.findings).next_back() else {
            return;
        };
        let is_in =
            |devices: &[DeviceId], selected: &DeviceInTier| devices.binary_search(&selected.device).is_ok();
        let asked = self.record.selected.iter().filter(|selected| is_in(&exchange.asked, selected));
        let missing = asked.filter(|selected| !is_in(&findings.devices, selected));
        self.dropouts.silent.extend(missing.cloned());
    }
}
