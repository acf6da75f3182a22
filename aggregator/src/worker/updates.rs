//! Checks updates and hands them to the store.

use common::{Code, DeviceId, message::Ticket};
use coordinator::StoredUpdate;
use strategies::check::{check_encoded, check_update};
use tracing::warn;

use super::{Reply, RoundWorker, WorkerError};
use crate::store::{StoreError, UpdateHeader, UpdateRecord};

/// The result of checking and storing an update.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UpdateOutcome {
    /// The sender.
    pub device: DeviceId,
    /// The ticket that it answers.
    pub ticket: Ticket,
    /// Why it was refused, if it was.
    pub stored: Result<(), Code>,
}

impl RoundWorker {
    /// Checks an update and hands it to the store, once what is due is [recorded](RoundWorker::record). It counts when it is
    /// [settled](RoundWorker::settle). A bad update is reported in the outcome; an error is a failure of the store.
    pub fn put(&mut self, update: &StoredUpdate) -> Result<UpdateOutcome, WorkerError> {
        let stored = match self.check(update) {
            Err(code) => Err(code),
            Ok(norms) => {
                let header = UpdateHeader {
                    ticket: update.ticket,
                    device: update.device.clone(),
                    tier: update.tier,
                    kind: update.kind,
                    vectors: update.vectors,
                    lr: update.lr,
                    codec: update.codec,
                    scalars: update.scalars.clone(),
                    norms,
                };
                match self.store.put(&UpdateRecord { header, payload: &update.payload }) {
                    Err(refused @ (StoreError::WrongRound { .. } | StoreError::TooLong)) => {
                        Err(refused.code())
                    }
                    put => put.map(|_| Ok(()))?,
                }
            }
        };
        if let Err(code) = stored {
            warn!(device = %update.device, "update refused: {code}");
        }
        Ok(UpdateOutcome { device: update.device.clone(), ticket: update.ticket, stored })
    }

    /// Waits until all updates that were put are durable.
    pub fn settle(&mut self, outcomes: Vec<UpdateOutcome>) -> Result<Reply, WorkerError> {
        self.store.settle()?;
        Ok(Reply::Stored(outcomes))
    }

    /// Squared norms of an update by region; empty for scalars alone.
    fn check(&self, update: &StoredUpdate) -> Result<Vec<f64>, Code> {
        let regions = &self.conductor.run.model.regions;
        let count = regions.sets().len();
        let pieces = regions.pieces(update.tier);
        match update.vectors {
            0 => Ok(vec![0.0; count]),
            1 => check_encoded(&update.payload, update.codec, pieces, count),
            vectors => {
                let len = update.codec.count_in(update.payload.len()).ok_or(Code::WrongShape)?;
                let mut values = vec![0.0; len];
                update.codec.decode(&update.payload, &mut values).map_err(|_| Code::WrongShape)?;
                let mut parts = values.chunks(len.div_ceil(usize::from(vectors)).max(1));
                let mut norms = check_update(parts.next().ok_or(Code::WrongShape)?, pieces, count)?;
                // The guard shortens both by the longer one.
                parts.try_for_each(|part| {
                    let others = check_update(part, pieces, count)?;
                    norms.iter_mut().zip(others).for_each(|(norm, other)| *norm = norm.max(other));
                    Ok::<_, Code>(())
                })?;
                Ok(norms)
            }
        }
    }
}
