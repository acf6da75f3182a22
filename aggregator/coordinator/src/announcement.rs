//! One exchange of a round, ready to be announced: who is asked, and for what.

use common::{Codec, DeviceId, Tier, message::Task, wire::crc32};

use crate::published::Published;
use strategies::strategy::Kind;

#[derive(Clone, PartialEq, Debug)]
pub struct Announcement {
    pub round: u32,
    /// From 0.
    pub number: u8,
    pub kind: Kind,
    pub lr: f32,
    /// In DeviceId order.
    pub seats: Vec<(DeviceId, Tier, Task)>,
    /// A vector that is sent along, by tier; empty = none.
    pub guide: Vec<Published>,
}

impl Announcement {
    /// A checksum of all that devices are told.
    pub fn digest(&self) -> u32 {
        let guides: Vec<u32> = self.guide.iter().map(Published::check).collect();
        let told = (self.round, self.number, self.lr, &self.seats, guides);
        // Tasks are messages, so they can be encoded.
        crc32(&postcard::to_allocvec(&told).unwrap_or_default())
    }
}

/// What a task makes a device send, beside its scalars: vectors of the slice's length, and bytes.
pub fn upload(task: &Task, parameters: usize) -> (u8, u32) {
    match task {
        Task::Train(brief) => {
            let vectors = brief.product.vectors();
            let bytes = brief.codec.encoded_len(vectors * parameters).unwrap_or(0);
            (vectors as u8, bytes)
        }
        Task::Evaluate(_) | Task::Alone(_) | Task::Try(_) => (0, 0),
    }
}

/// How it is encoded.
pub fn codec(task: &Task) -> Codec {
    match task {
        Task::Train(brief) => brief.codec,
        Task::Evaluate(_) | Task::Alone(_) | Task::Try(_) => Codec::default(),
    }
}
