//! Derives the key of the noise from the question: the same question gets the same noise, any other question other noise.
//!
//! ```text
//! Q      = HMAC(secret, "fairtier noise 1" run round exchange H(task) H(plan) H(model) H(guide) H(samples))
//! sums   = HMAC(Q, "sums" H(sums))                      keys of ChaCha20, nonce 0
//! update = HMAC(Q, "update" H(sums) H(update))
//! ids    = HMAC(Q, "question"), HMAC(Q, "answer" H(sums) H(update)), 8 bytes of each
//! ```
//! HMAC and H are those of SHA-256; numbers are little-endian; sums and update are those before the noise.
//!
//! Two answers with the same noise would reveal the difference of the hidden numbers. So everything that an answer depends on
//! is part of its key:
//! - what the aggregator chooses: task (seed, scales, clip, objective, product, codec), plan, model, and the guide where it is
//!   used. A checksum would not be enough, because two models with the same one are easy to construct.
//! - the training samples. They may change between two questions.
//! - the hidden numbers themselves. They cover everything else that may change them: other arithmetic after an update of the
//!   program, other hardware, an omission in this list.
//!
//! Not part of it:
//! - the attempt of the ticket. A repeated question, even after a rollback, must get the same bytes.
//! - the residual of a lossy codec from earlier rounds. It is added after the noise and derived from numbers with noise; the
//!   residual of an update without noise is discarded ([`PrivateState::owes_plain`](super::PrivateState)).
//! - the personal model and the baseline. Neither changes the update, and their scores are withheld.
//! - whether to validate. Nothing is validated where noise is asked for.
//! - test samples. Scores on them are sent without noise.

use chacha20::cipher::array::Array;
use common::{
    message::{Task, Ticket},
    plan::Plan,
    privacy::{SECRET, Secret},
};
use hmac::{Hmac, KeyInit, Mac};
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::{TrainError, finish::segment, noise::Noise};
use crate::{
    data::{DataSplit, Shard},
    train::part::part,
};

const DOMAIN: &[u8] = b"fairtier noise 1";

/// Q in the module's documentation.
#[derive(Copy, Clone)]
pub(super) struct QuestionKey([u8; SECRET]);

impl core::fmt::Debug for QuestionKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("QuestionKey")
    }
}

/// Identifies an answer with noise, for counting. Neither number can be computed without the secret.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Charge {
    /// Identifies the question.
    pub question: u64,
    /// Identifies the answer.
    pub answer: u64,
}

/// H of the hidden numbers.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(super) struct HiddenDigest([u8; SECRET]);

impl core::fmt::Debug for HiddenDigest {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("HiddenDigest")
    }
}

impl HiddenDigest {
    pub fn sums(sums: &[f64]) -> Self {
        let mut hash = Sha256::new();
        sums.iter().for_each(|sum| hash.update(sum.to_le_bytes()));
        Self(cut(hash.finalize().into()))
    }

    pub fn update(update: &[f32]) -> Self {
        Self(cut(numbers(update)))
    }
}

impl QuestionKey {
    /// To be called before the work begins, with the model in the weights. Uses the input buffer of `arena` for one sample.
    #[inline(never)]
    pub fn new(
        secret: &Secret,
        ticket: Ticket,
        task: &Task,
        plan: Plan<'_>,
        arena: &mut [f32],
        shard: &(impl Shard + ?Sized),
    ) -> Result<Self, TrainError> {
        let info = plan.info();
        let aligned = matches!(task, Task::Train(brief) if brief.objective.align > 0.0);
        let guide = info.segments.guide.filter(|_| aligned).map_or(0..0, |at| segment(plan, at));
        let model = numbers(part(arena, 0..info.params as usize));
        let guide = numbers(part(arena, guide));
        let room = info.input as usize..(info.input as usize).saturating_add(info.inputs as usize);
        let missing = TrainError::Arena { need: info.arena as usize, have: arena.len() };
        let samples = samples(shard, arena.get_mut(room).ok_or(missing)?)?;
        let question = [words(task)?, words(&(info, plan.nodes(), plan.schedule()))?, model, guide, samples];
        Ok(Self::of(secret, ticket, &question))
    }

    fn of(secret: &Secret, ticket: Ticket, parts: &[[u8; 32]]) -> Self {
        let mut mac = keyed(secret.bytes());
        mac.update(DOMAIN);
        mac.update(&ticket.run.0.to_le_bytes());
        mac.update(&ticket.round.to_le_bytes());
        mac.update(&[ticket.exchange]);
        parts.iter().for_each(|part| mac.update(part));
        Self(cut(mac.finalize().into_bytes().into()))
    }

    pub fn noise_of_sums(&self, sums: HiddenDigest) -> Noise {
        Noise::new(self.derive(b"sums", &[sums]))
    }

    pub fn noise_of_update(&self, sums: HiddenDigest, update: HiddenDigest) -> Noise {
        Noise::new(self.derive(b"update", &[sums, update]))
    }

    /// Identifies the question; known before the work is done.
    pub fn id(&self) -> u64 {
        first(self.derive(b"question", &[]))
    }

    pub fn charge(&self, sums: HiddenDigest, update: HiddenDigest) -> Charge {
        Charge { question: self.id(), answer: first(self.derive(b"answer", &[sums, update])) }
    }

    fn derive(&self, of: &[u8], hidden: &[HiddenDigest]) -> [u8; 32] {
        let mut mac = keyed(&self.0);
        mac.update(of);
        hidden.iter().for_each(|hidden| mac.update(&hidden.0));
        mac.finalize().into_bytes().into()
    }
}

/// HMAC pads short keys with zeros up to a block.
fn keyed(key: &[u8]) -> Hmac<Sha256> {
    let mut block = [0; 64];
    block.iter_mut().zip(key).for_each(|(place, byte)| *place = *byte);
    Hmac::new(&Array(block))
}

fn cut(bytes: [u8; 32]) -> [u8; SECRET] {
    core::array::from_fn(|at| bytes[at])
}

fn first(bytes: [u8; 32]) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = bytes;
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

/// H of the bits of some numbers.
fn numbers(numbers: &[f32]) -> [u8; 32] {
    let mut hash = Sha256::new();
    add(&mut hash, numbers);
    hash.finalize().into()
}

fn add(hash: &mut Sha256, numbers: &[f32]) {
    for numbers in numbers.chunks(16) {
        let mut words = [[0; 4]; 16];
        words.iter_mut().zip(numbers).for_each(|(word, number)| *word = number.to_le_bytes());
        hash.update(part(words.as_flattened(), 0..4 * numbers.len()));
    }
}

/// H of the training samples: their number and shape, then group, numbers and targets of each.
fn samples(shard: &(impl Shard + ?Sized), row: &mut [f32]) -> Result<[u8; 32], TrainError> {
    let mut hash = Sha256::new();
    for size in [shard.train_len(), shard.inputs(), shard.targets(), shard.groups()] {
        hash.update(size.to_le_bytes());
    }
    for index in 0..shard.train_len() {
        shard.sample(DataSplit::Train, index, row)?;
        hash.update(shard.group(DataSplit::Train, index).to_le_bytes());
        add(&mut hash, row);
        for position in 0..shard.targets() {
            hash.update(shard.value_at(DataSplit::Train, index, position)?.to_le_bytes());
        }
    }
    Ok(hash.finalize().into())
}

/// H of a value in the encoding of messages.
fn words(said: &impl Serialize) -> Result<[u8; 32], TrainError> {
    let hash = postcard::serialize_with_flavor(said, HashFlavor(Sha256::new()));
    let hash = hash.map_err(|_| TrainError::Objective("task cannot be encoded"))?;
    Ok(hash.finalize().into())
}

/// A postcard output that hashes.
struct HashFlavor(Sha256);

impl postcard::ser_flavors::Flavor for HashFlavor {
    type Output = Sha256;

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.update([byte]);
        Ok(())
    }

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.0.update(bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<Sha256> {
        Ok(self.0)
    }
}

#[cfg(test)]
#[cfg(feature = "full")]
mod tests;
