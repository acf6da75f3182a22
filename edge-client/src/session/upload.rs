//! Sends the result of the work, directly from the arena.
//!
//! An update is in the anchor segment and a first step in the guide segment directly behind it. Both together are one vector
//! of twice the length: indices, blocks and chunks of a codec span both.

use common::{
    Codec, TransferId,
    codec::BLOCK,
    message::{Blob, Task, Ticket},
    plan::Plan,
    transfer::{Lane, LinkLimits, Outgoing},
    wire,
};

use super::{Arena, Job, Session};
use crate::train::FULL;

/// The offered transfer: 0 bytes where the task gives scalars only, `None` if it is too long.
pub(super) fn blob(ticket: Ticket, task: &Task, plan: Plan<'_>) -> Option<Blob> {
    let bytes = match task {
        Task::Train(brief) => {
            let numbers = plan.trained().saturating_mul(brief.product.vectors());
            brief.codec.encoded_len(numbers)?
        }
        Task::Evaluate(_) | Task::Alone(_) | Task::Try(_) => 0,
    };
    Some(Blob { transfer: TransferId::update(ticket.exchange_id()), bytes, check: 0 })
}

pub(super) fn outgoing(update: &Blob, task: &Task, limits: LinkLimits) -> Outgoing {
    let align = if let Task::Train(brief) = task { brief.codec.align() } else { 1 };
    Outgoing::new(update.transfer, update.bytes, align, limits)
}

impl<A: Arena, const NODES: usize> Session<A, NODES> {
    /// Writes the next chunk of the update into `out`.
    pub(super) fn poll_chunk(&mut self, out: &mut [u8]) -> Option<(Lane, usize)> {
        let Job::Offering { offer, task: Task::Train(brief), outgoing } = &mut self.job else { return None };
        let info = self.plan.as_ref()?.info();
        let range = outgoing.poll_chunk()?;
        let len = (range.end - range.start) as usize;
        let (first, count) = (brief.codec.index_at(range.start)?, brief.codec.count_in(len)?);
        let at = info.segments.anchor? as usize + first;
        let values = self.arena.floats().get(at..at + count)?;
        let fill = |to: &mut [u8]| _ = brief.codec.encode(values, first, brief.seed, to);
        let transfer = offer.update.transfer;
        let len = wire::encode_chunk(transfer, range.start, len, out, fill).ok()?;
        Some((Lane::Transfer(transfer), len))
    }

    /// Stores what a lossy codec has not sent of the update.
    pub(super) fn keep_residual(&mut self, task: &Task) {
        let (Some(plan), Task::Train(brief)) = (&self.plan, task) else { return };
        let info = plan.info();
        let (Some(anchor), Some(residual)) = (info.segments.anchor, info.segments.residual) else { return };
        let params = plan.trained();
        let sent = anchor as usize..anchor as usize + params * brief.product.vectors();
        let residual = residual as usize..residual as usize + params;
        if let Ok([sent, residual]) = self.arena.floats().get_disjoint_mut([sent, residual]) {
            unsent(brief.codec, sent, brief.seed, residual);
            self.own.owes_plain = brief.privacy.is_none();
        }
    }
}

/// Computes what `codec` has not sent of the first `residual.len()` numbers. The last of them may share a block with others.
fn unsent(codec: Codec, sent: &[f32], seed: u64, residual: &mut [f32]) {
    debug_assert!(sent.len() >= residual.len(), "the residual covers a prefix of the numbers that were sent");
    let alone = if sent.len() > residual.len() { residual.len() / BLOCK * BLOCK } else { residual.len() };
    let (whole, shared) = residual.split_at_mut(alone);
    codec.residual(sent.get(..alone).unwrap_or_default(), seed, whole);
    let block = sent.get(alone..).unwrap_or_default();
    let block = block.get(..BLOCK).unwrap_or(block);
    if !FULL || shared.is_empty() {
        return;
    }
    let (mut bytes, mut decoded) = ([0; 4 * BLOCK], [0.0; BLOCK]);
    let len = codec.encoded_len(block.len()).map_or(0, |len| len as usize);
    debug_assert!(len > 0 && len <= bytes.len(), "a block has at most four bytes a number");
    let bytes = bytes.get_mut(..len).unwrap_or_default();
    let decoded = &mut decoded[..block.len()];
    let known = codec.encode(block, alone, seed, bytes).and_then(|()| codec.decode(bytes, decoded)).is_ok();
    for ((left, &value), &arrived) in shared.iter_mut().zip(block).zip(&*decoded) {
        let rest = value - arrived;
        *left = if known && rest.is_finite() { rest } else { 0.0 };
    }
}

#[cfg(test)]
mod tests {
    use common::Codec;

    use super::unsent;

    #[test]
    fn residual_and_sent_numbers_add_up() {
        let vector: Vec<f32> = (0..180).map(|x| (x as f32 * 0.37).sin() * (1 + x / 50) as f32).collect();
        for codec in Codec::ALL {
            for (sent, len) in [(180, 90), (128, 64), (90, 90), (20, 10)] {
                let mut bytes = vec![0; codec.encoded_len(sent).unwrap() as usize];
                codec.encode(&vector[..sent], 0, 7, &mut bytes).unwrap();
                let mut arrived = vec![0.0; sent];
                codec.decode(&bytes, &mut arrived).unwrap();
                let mut owed = vec![9.0; len];
                unsent(codec, &vector[..sent], 7, &mut owed);
                let expected: Vec<f32> = vector.iter().zip(&arrived).map(|(v, a)| v - a).take(len).collect();
                assert_eq!(owed, expected, "{codec:?} {sent} {len}");
                assert_eq!(codec != Codec::F32, owed.iter().any(|&owed| owed != 0.0));
            }
        }
    }
}
