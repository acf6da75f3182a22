//! One exchange of a round, ready to be announced: which devices are asked, and for what.

use common::{Codec, DeviceId, ExchangeId, Tier, message::Task, wire::crc32};
use serde::Serialize;

use crate::published::Published;
use strategies::strategy::Kind;

/// See the module.
#[derive(Clone, PartialEq, Debug)]
pub struct Announcement {
    /// The exchange.
    pub id: ExchangeId,
    /// What it asks for.
    pub kind: Kind,
    /// Learning rate of the round.
    pub lr: f32,
    /// In DeviceId order.
    pub asked: Vec<AskedDevice>,
    /// A vector that is sent along, by tier; empty: none.
    pub guide: Vec<Published>,
}

/// A device, and what it is asked to do.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct AskedDevice {
    /// Its name.
    pub device: DeviceId,
    /// The tier that it has in the round.
    pub tier: Tier,
    /// What it has to do.
    pub task: Task,
}

impl Announcement {
    /// A checksum of everything that devices are told.
    pub fn digest(&self) -> u32 {
        let guides: Vec<u32> = self.guide.iter().map(Published::check).collect();
        let told = (self.id.round, self.id.exchange, self.lr, &self.asked, guides);
        let encoded = "tasks are parts of messages, which can be encoded";
        let mut told = postcard::to_allocvec(&told).expect(encoded);
        // What travels in tails is no part of a task's encoding. Without it, the checksum is that of older programs.
        let validates: Vec<bool> = self.asked.iter().map(|asked| asked.task.validates()).collect();
        if validates.contains(&true) {
            told.extend(postcard::to_allocvec(&validates).expect(encoded));
        }
        crc32(&told)
    }
}

/// Vectors of the slice's length that a task makes a device send beside its scalars.
pub fn vectors(task: &Task) -> u8 {
    match task {
        Task::Train(brief) => brief.product.vectors() as u8,
        Task::Evaluate(_) | Task::Alone(_) | Task::Try(_) => 0,
    }
}

/// The same in bytes; `None` if they do not fit a transfer.
pub fn update_bytes(task: &Task, parameters: usize) -> Option<u32> {
    match task {
        Task::Train(brief) => brief.codec.encoded_len(brief.product.vectors() * parameters),
        Task::Evaluate(_) | Task::Alone(_) | Task::Try(_) => Some(0),
    }
}

/// How they are encoded.
pub fn codec(task: &Task) -> Codec {
    match task {
        Task::Train(brief) => brief.codec,
        Task::Evaluate(_) | Task::Alone(_) | Task::Try(_) => Codec::default(),
    }
}
