//! What the store holds of a round, as the conductor reads it.

use common::ExchangeId;
use coordinator::{
    conductor::{Deliveries, Delivery, Reading},
    record::UpdateHeader,
};

use crate::store::{Entry, SpooledUpdates, Store, StoreError};

/// A store as the conductor's [`Deliveries`].
pub struct StoredDeliveries<'s>(pub &'s mut (dyn Store + 'static));

impl Deliveries for StoredDeliveries<'_> {
    type Error = StoreError;
    type Updates<'a>
        = SpooledUpdates<'a, dyn Store>
    where
        Self: 'a;

    fn delivered(&self, exchange: ExchangeId) -> Result<Vec<Delivery>, StoreError> {
        let delivery = |entry: Entry| {
            let bytes = entry.payload_len() as u64;
            Delivery { header: entry.header, bytes }
        };
        let ExchangeId { round, exchange } = exchange;
        Ok(self.0.updates(round, exchange)?.into_iter().map(delivery).collect())
    }

    fn past(&self, round: u32) -> Result<Vec<UpdateHeader>, StoreError> {
        Ok(self.0.past(round)?.into_iter().map(|entry| entry.header).collect())
    }

    fn read(&mut self, exchange: ExchangeId, reading: Reading) -> Result<Self::Updates<'_>, StoreError> {
        let ExchangeId { round, exchange } = exchange;
        let entries = self.0.updates(round, exchange)?;
        Ok(match reading {
            Reading::Now => SpooledUpdates::new(&mut *self.0, entries),
            Reading::Unchecked => SpooledUpdates::new(&mut *self.0, entries).unchecked(),
            Reading::Past => {
                let past = self.0.past(round)?;
                SpooledUpdates::new(&mut *self.0, entries).with_past(past)
            }
        })
    }
}
