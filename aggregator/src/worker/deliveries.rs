//! What the store holds of a round, as the conductor reads it.

use coordinator::{
    conductor::{Deliveries, Reading},
    record::Header,
};

use crate::store::{Entry, Spooled, Store, StoreError};

/// See the module.
#[expect(missing_debug_implementations, reason = "a view of a store")]
pub struct Shelf<'s>(pub &'s mut (dyn Store + 'static));

impl Deliveries for Shelf<'_> {
    type Error = StoreError;
    type Updates<'a>
        = Spooled<'a, dyn Store>
    where
        Self: 'a;

    fn delivered(&self, round: u32, exchange: u8) -> Result<Vec<(Header, u64)>, StoreError> {
        let with_len = |entry: Entry| {
            let len = entry.payload_len() as u64;
            (entry.header, len)
        };
        Ok(self.0.updates(round, exchange)?.into_iter().map(with_len).collect())
    }

    fn past(&self, round: u32) -> Result<Vec<Header>, StoreError> {
        Ok(self.0.past(round)?.into_iter().map(|entry| entry.header).collect())
    }

    fn read(&mut self, round: u32, exchange: u8, reading: Reading) -> Result<Self::Updates<'_>, StoreError> {
        let entries = self.0.updates(round, exchange)?;
        Ok(match reading {
            Reading::Now => Spooled::new(&mut *self.0, entries),
            Reading::Unchecked => Spooled::new(&mut *self.0, entries).unchecked(),
            Reading::Past => {
                let past = self.0.past(round)?;
                Spooled::new(&mut *self.0, entries).with_past(past)
            }
        })
    }
}
