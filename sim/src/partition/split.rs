//! The result of a partition: the samples of each client.

use std::sync::Arc;

use common::rng::{Rng, derive};
use trainer::{
    data::{DataError, partition as basic},
    train::VALIDATION_EVERY,
};

use super::{PartitionError, VALID, deal, dirichlet::apportion, pools};
use crate::data::{DataSet, DeviceShard, TestSource};

/// Samples of all clients.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Split {
    /// One entry per client, in the order of devices.
    pub clients: Vec<ClientSamples>,
    /// The records that the indices in [`ClientSamples::test`] refer to.
    pub held: TestSource,
    /// Training records without a client.
    pub left_out: Vec<u32>,
    /// Test records without a client. With [`TestSource::Train`] these are all of them; they are the common test set.
    pub left_out_test: Vec<u32>,
}

/// Samples of one client.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ClientSamples {
    /// Name of the natural client, or `client N`.
    pub name: String,
    /// Indices into the training records.
    pub train: Vec<u32>,
    /// Indices into the training records that are held out for validation, never for reports.
    pub valid: Vec<u32>,
    /// Indices into the records of [`Split::held`].
    pub test: Vec<u32>,
}

impl Split {
    pub(super) fn new(parts: Vec<Vec<u32>>, set: &DataSet) -> Self {
        let share = |(client, train)| ClientSamples {
            name: format!("client {client}"),
            train,
            ..ClientSamples::default()
        };
        let mut split =
            Self { clients: parts.into_iter().enumerate().map(share).collect(), ..Self::default() };
        split.left_out = missing(set.train.len(), split.clients.iter().map(|share| &*share.train));
        split.left_out_test = (0..set.test.len() as u32).collect();
        split
    }

    /// Holds out a share of each client's training samples for validation.
    pub(crate) fn with_validation(mut self, share: f64, seed: u64) -> Result<Self, PartitionError> {
        check(share)?;
        for (number, client) in (0..).zip(&mut self.clients) {
            let seed = derive(derive(seed, VALID), number);
            (client.train, client.valid) = basic::hold_out(&client.train, share, seed);
        }
        Ok(self)
    }

    /// Holds out the samples that devices keep for validation under strategies that use loss gaps.
    pub(crate) fn with_kept_fifth(mut self) -> Self {
        for client in &mut self.clients {
            let all = std::mem::take(&mut client.train);
            for (place, index) in (1..).zip(all) {
                if place % VALIDATION_EVERY == 0 {
                    client.valid.push(index);
                } else {
                    client.train.push(index);
                }
            }
        }
        self
    }

    /// The shard of each device; its test part is used for reports.
    pub fn shards(&self, data: &Arc<DataSet>) -> Result<Vec<DeviceShard>, DataError> {
        let shard = |share: &ClientSamples| {
            DeviceShard::new(
                data.clone(),
                share.train.as_slice().into(),
                share.test.as_slice().into(),
                self.held,
            )
        };
        self.clients.iter().map(shard).collect()
    }

    /// The same with validation samples in place of test samples.
    pub(crate) fn validation_shards(&self, data: &Arc<DataSet>) -> Result<Vec<DeviceShard>, DataError> {
        let shard = |share: &ClientSamples| {
            let (train, valid) = (share.train.as_slice().into(), share.valid.as_slice().into());
            DeviceShard::new(data.clone(), train, valid, TestSource::Train)
        };
        self.clients.iter().map(shard).collect()
    }

    pub(super) fn name_clients(&mut self, names: &[String]) {
        for (share, name) in self.clients.iter_mut().zip(names) {
            share.name.clone_from(name);
        }
    }

    pub(super) fn hold_out(&mut self, share: f64, seed: u64) -> Result<(), PartitionError> {
        check(share)?;
        for (number, client) in (0..).zip(&mut self.clients) {
            (client.train, client.test) = basic::hold_out(&client.train, share, derive(seed, number));
        }
        Ok(())
    }

    /// Divides test records with a key in the proportions of training records with that key.
    pub(super) fn divide_test(&mut self, train: &[u32], test: &[u32], seed: u64) {
        let mut owners = vec![None; train.len()];
        for (number, share) in self.clients.iter().enumerate() {
            for &index in &share.train {
                if let Some(owner) = owners.get_mut(index as usize) {
                    *owner = Some(number);
                }
            }
        }
        let mut parts = vec![Vec::new(); self.clients.len()];
        for (key, pool) in pools(test, seed) {
            let mut held = vec![0.0; self.clients.len()];
            let same = train.iter().zip(&owners).filter(|(other, _)| **other == key);
            for owner in same.filter_map(|(_, owner)| *owner) {
                if let Some(held) = held.get_mut(owner) {
                    *held += 1.0;
                }
            }
            deal(&mut parts, &pool, &apportion(&held, pool.len()));
        }
        // In random order, not sorted by class.
        for (number, (share, mut part)) in (0..).zip(self.clients.iter_mut().zip(parts)) {
            Rng::new(derive(seed, number)).shuffle(&mut part);
            share.test = part;
        }
        self.left_out_test = missing(test.len(), self.clients.iter().map(|share| &*share.test));
    }

    /// Keeps the first clients that are large enough, and leaves out the samples of others.
    pub(super) fn keep(
        &mut self,
        wanted: Option<usize>,
        good: impl Fn(&ClientSamples) -> bool,
    ) -> Result<(), PartitionError> {
        let there = self.clients.iter().filter(|share| good(share)).count();
        let wanted = wanted.unwrap_or(there);
        if there < wanted || there == 0 {
            return Err(PartitionError::TooFew { there, wanted: wanted.max(1) });
        }
        let (mut kept, mut gone) = (Vec::new(), Vec::new());
        for share in std::mem::take(&mut self.clients) {
            if kept.len() < wanted && good(&share) { kept.push(share) } else { gone.push(share) }
        }
        self.clients = kept;
        for mut share in gone {
            self.left_out.append(&mut share.train);
            match self.held {
                TestSource::Train => self.left_out.append(&mut share.test),
                TestSource::Test => self.left_out_test.append(&mut share.test),
            }
        }
        self.left_out.sort_unstable();
        self.left_out_test.sort_unstable();
        Ok(())
    }
}

fn check(share: f64) -> Result<(), PartitionError> {
    if (0.0..=1.0).contains(&share) { Ok(()) } else { Err(PartitionError::HoldOut(share)) }
}

/// The numbers of `0..len` that are in none of the lists.
fn missing<'a>(len: usize, lists: impl Iterator<Item = &'a [u32]>) -> Vec<u32> {
    let mut seen = vec![false; len];
    for &index in lists.flatten() {
        if let Some(seen) = seen.get_mut(index as usize) {
            *seen = true;
        }
    }
    (0..).zip(seen).filter(|(_, seen)| !seen).map(|(index, _)| index).collect()
}
