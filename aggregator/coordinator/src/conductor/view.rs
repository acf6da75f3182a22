//! What has come in for an exchange, as strategies and the guard see it.

use strategies::{
    cohort::{Absent, Cohort},
    strategy::Exchange,
};

use super::{Conductor, Deliveries, Found, Open};
use crate::{exchange::ClosedExchange, record::Header};
use strategies::strategy::Kind;

impl Conductor {
    /// Participants and findings of the exchange that has just closed. This is the only place where they are computed.
    pub(super) fn take_in<D: Deliveries>(
        &self,
        open: &mut Open,
        lr: f32,
        deliveries: &D,
    ) -> Result<(), D::Error> {
        let number = open.made.len();
        let Some(kind) = open.record.exchanges.get(number).map(|exchange| exchange.kind) else {
            return Ok(());
        };
        let delivered = deliveries.delivered(open.record.number, number as u8)?;
        let mut bytes = vec![0; self.run.model.plans.len()];
        for (header, len) in &delivered {
            if let Some(sum) = bytes.get_mut(header.tier.index()) {
                *sum += len;
            }
        }
        let devices = delivered.iter().map(|(header, _)| header.device.clone()).collect();
        let mut cohort = self.cohort(open, lr, delivered.iter().map(|(header, _)| header));
        let verdict = self.run.guard.inspect(&mut cohort, kind);
        open.made.push(Exchange { kind, cohort });
        open.found.push(Found { devices, verdict, bytes });
        // Devices may have registered since the first exchange.
        open.made.iter_mut().for_each(|made| made.cohort.set_clients(self.run.fleet.len()));
        Ok(())
    }

    /// Before the guard has seen it.
    pub(super) fn cohort<'h>(
        &self,
        open: &Open,
        lr: f32,
        delivered: impl ExactSizeIterator<Item = &'h Header>,
    ) -> Cohort {
        let mut cohort = Cohort::new(self.run.model.regions.clone(), lr.into());
        cohort.round = open.record.number;
        cohort.set_clients(self.run.fleet.len());
        cohort.set_layers(self.run.model.layers.as_slice());
        cohort.reserve(delivered.len());
        for Header { device, tier, scalars, norms, .. } in delivered {
            // Refusals are kept in the cohort and come back with the outcome.
            let _ = cohort.admit(device.clone(), *tier, scalars.clone(), norms);
        }
        for (device, _, code) in &open.dropouts.refused {
            cohort.refuse(device.clone(), *code);
        }
        for Header { device, tier, ticket, lr, norms, .. } in &open.past {
            let (device, round, lr) = (device.clone(), ticket.round, f64::from(*lr));
            cohort.remember(Absent { device, tier: *tier, round, lr, norm: norms.iter().sum() });
        }
        cohort
    }

    pub(super) fn past<D: Deliveries>(&self, round: u32, deliveries: &D) -> Result<Vec<Header>, D::Error> {
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

impl Open {
    /// Takes note of those who did not deliver in the exchange, and of when the round began.
    pub(super) fn note(&mut self, closed: &mut ClosedExchange) {
        closed.opened = *self.dropouts.opened.get_or_insert(closed.opened);
        for (device, _, code) in &closed.refused {
            self.made.iter_mut().for_each(|made| made.cohort.refuse(device.clone(), *code));
        }
        self.dropouts.refused.append(&mut closed.refused);
        self.dropouts.silent.append(&mut closed.silent);
        self.dropouts.gone.append(&mut closed.gone);
        if closed.kind == Kind::Train {
            self.dropouts.late = std::mem::take(&mut closed.late);
        }
    }

    /// After a restart: who was asked in the last exchange that has closed, and has not delivered.
    pub(super) fn note_missing(&mut self) {
        let (Some(exchange), Some(found)) =
            (self.record.exchanges.get(self.found.len() - 1), self.found.last())
        else {
            return;
        };
        let asked = self
            .record
            .selected
            .iter()
            .filter(|selected| exchange.asked.binary_search(&selected.device).is_ok());
        let missing = asked.filter(|selected| found.devices.binary_search(&selected.device).is_err());
        self.dropouts.silent.extend(missing.map(|selected| (selected.device.clone(), selected.tier)));
    }
}
