//! Keeps the model of the last round in flash, so that a board predicts and goes on with it after a reset.
//!
//! Two slots take turns: the older one is erased and written, and its header comes last. So whenever the power is cut, one of
//! the two holds a whole model. A slot counts only if the checksums of header and body match.
//!
//! ```text
//! slot   u16 length, header (a control frame, with its checksum), 0xff up to 256 bytes,
//!        body: nodes and steps of the Plan (u8 length and a control frame each), weights (f32, little-endian)
//! ```
//! A round is written once at most. The number of writes since the flash was empty is in the header: half of them, rounded up,
//! is how often a slot was erased. A write that the power cut is not counted.

use common::{
    plan::{BackwardStep, Node, PlanStore},
    wire::{self, Crc32, Frame},
};
use embedded_storage::nor_flash::NorFlash;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    Session,
    session::{Arena, ModelAtHand, ModelName},
};

mod model;

pub use crate::serial::Kept;
pub use model::{FlashModel, FlashModelError, Store};

const VERSION: u8 = 1;
const HEAD: u32 = 256;
const BLOCK: usize = 64;
/// Longest node or step as a control frame.
const RECORD: usize = 160;
const _: () = assert!((HEAD as usize).is_multiple_of(BLOCK) && RECORD < 256);

/// Why a model is not kept.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant has its message")]
pub enum KeepError {
    #[error("the slots do not begin and end at whole pages of the flash")]
    Pages,
    #[error(
        "the model takes more than a slot of {0} bytes; give the slots more room, or use a narrower tier"
    )]
    TooLong(u32),
    #[error("the flash reports an error")]
    Flash,
}

#[derive(Copy, Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Header {
    version: u8,
    writes: u32,
    name: ModelName,
    body: u32,
    check: u32,
}

/// Where the slots are, and how often they are written.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Slots {
    /// First byte of the first slot. The second follows it.
    pub start: u32,
    /// Bytes of each slot, in whole pages.
    pub length: u32,
    /// Rounds from one write to the next; 0 keeps nothing.
    pub every: u32,
}

/// Two slots in flash.
#[derive(Debug)]
pub struct Keeper<F> {
    flash: F,
    slots: Slots,
    /// The newest whole model, and its slot.
    newest: Option<(Header, u32)>,
    /// A round that could not be written is not tried again.
    failed: Option<u32>,
}

impl<F: NorFlash> Keeper<F> {
    /// Looks for the newest model.
    pub fn open(flash: F, slots: Slots) -> Result<Self, KeepError> {
        let page = F::ERASE_SIZE as u32;
        let fits = u64::from(slots.start) + 2 * u64::from(slots.length) <= flash.capacity() as u64;
        let whole = slots.start.is_multiple_of(page) && slots.length.is_multiple_of(page);
        let blocks = BLOCK.is_multiple_of(F::WRITE_SIZE) && BLOCK.is_multiple_of(F::READ_SIZE);
        if !whole || !fits || !blocks || slots.length <= HEAD {
            return Err(KeepError::Pages);
        }
        let mut keeper = Self { flash, slots, newest: None, failed: None };
        for slot in 0..2 {
            if let Some(header) = keeper.look(slot)
                && keeper.newest.is_none_or(|(newest, _)| header.writes > newest.writes)
            {
                keeper.newest = Some((header, slot));
            }
        }
        Ok(keeper)
    }

    /// What is kept.
    pub fn kept(&self) -> Option<Kept> {
        self.newest.map(|(header, _)| Kept { round: header.name.round, writes: header.writes })
    }

    /// The flash.
    pub fn into_flash(self) -> F {
        self.flash
    }

    /// After a start: gives the kept model and its Plan to a new Session. False if there is none that it has room for.
    #[inline(never)]
    pub fn go_on<A: Arena, const NODES: usize>(&mut self, session: &mut Session<A, NODES>) -> bool {
        let Some((header, slot)) = self.newest else { return false };
        let Ok(mut plan) = PlanStore::new(header.name.info) else { return false };
        let mut body = self.body(slot, header.body);
        for _ in 0..header.name.info.nodes {
            let Some(node) = body.record::<Node>() else { return false };
            plan.push(node);
        }
        for _ in 0..header.name.info.schedule {
            let Some(step) = body.record::<BackwardStep>() else { return false };
            plan.push_step(step);
        }
        session.go_on(header.name, plan, |weights| body.weights(weights)).is_ok()
    }

    /// Puts the kept model back into the weights if a prediction needs it there.
    #[inline(never)]
    pub fn take_back<A: Arena, const NODES: usize>(&mut self, session: &mut Session<A, NODES>) {
        let Some((header, slot)) = self.newest.filter(|(header, _)| session.lacks(&header.name)) else {
            return;
        };
        let info = header.name.info;
        let mut body = self.body(slot, header.body);
        let skipped = (0..info.nodes).all(|_| body.skip()) && (0..info.schedule).all(|_| body.skip());
        session.take_back(&header.name, |weights| if skipped { body.weights(weights) } else { None });
    }

    /// Writes the model that the Session has received, if it is due. To be called between two batches; it does nothing while the
    /// weights are being trained. True if it has written.
    #[inline(never)]
    pub fn keep<A: Arena, const NODES: usize>(
        &mut self,
        session: &mut Session<A, NODES>,
    ) -> Result<bool, KeepError> {
        let Some(model) = session.model_at_hand() else { return Ok(false) };
        let round = model.name.round;
        if self.failed == Some(round) || !self.is_due(&model.name) {
            return Ok(false);
        }
        let outcome = self.write(&model);
        self.failed = outcome.is_err().then_some(round);
        outcome.map(|()| true)
    }

    fn is_due(&self, name: &ModelName) -> bool {
        match self.newest {
            _ if self.slots.every == 0 => false,
            Some((Header { name: newest, .. }, _)) if newest.run == name.run && newest.info == name.info => {
                // A lower round follows a rollback.
                name.round < newest.round || name.round - newest.round >= self.slots.every
            }
            _ => true,
        }
    }

    fn write(&mut self, model: &ModelAtHand<'_>) -> Result<(), KeepError> {
        let slot = self.newest.map_or(0, |(_, slot)| 1 - slot);
        let writes = self.newest.map_or(0, |(header, _)| header.writes).saturating_add(1);
        let (start, end) = self.range(slot);
        self.flash.erase(start, end).map_err(|_| KeepError::Flash)?;
        let mut body = Writer::new(&mut self.flash, start + HEAD, end, self.slots.length);
        model.nodes.iter().try_for_each(|node| body.record(node))?;
        model.steps.iter().try_for_each(|step| body.record(step))?;
        model.weights.iter().try_for_each(|weight| body.put(&weight.to_le_bytes()))?;
        let (len, check) = body.finish()?;
        let header = Header { version: VERSION, writes, name: model.name, body: len, check };
        let mut bytes = [0xff; HEAD as usize];
        let (length, frame) = bytes.split_at_mut(2);
        let len = wire::encode_control(&header, frame).map_err(|_| KeepError::TooLong(HEAD))?;
        // The buffer was used for encoding.
        frame.get_mut(len..).unwrap_or_default().fill(0xff);
        length.copy_from_slice(&(len as u16).to_le_bytes());
        self.flash.write(start, &bytes).map_err(|_| KeepError::Flash)?;
        self.newest = Some((header, slot));
        Ok(())
    }

    fn range(&self, slot: u32) -> (u32, u32) {
        let start = self.slots.start + slot * self.slots.length;
        (start, start + self.slots.length)
    }

    fn body(&mut self, slot: u32, len: u32) -> Reader<'_, F> {
        let start = self.range(slot).0 + HEAD;
        Reader { flash: &mut self.flash, at: start, left: len, block: [0; BLOCK], place: BLOCK }
    }

    /// The header of a slot with a whole model.
    #[inline(never)]
    fn look(&mut self, slot: u32) -> Option<Header> {
        let mut bytes = [0; HEAD as usize];
        self.flash.read(self.range(slot).0, &mut bytes).ok()?;
        let (length, frame) = bytes.split_first_chunk()?;
        let header: Header = control(frame.get(..u16::from_le_bytes(*length).into())?)?;
        if header.version != VERSION || header.body > self.slots.length - HEAD {
            return None;
        }
        let (mut body, mut check) = (self.body(slot, header.body), Crc32::default());
        let mut bytes = [0; BLOCK];
        while body.left > 0 {
            let bytes = bytes.get_mut(..BLOCK.min(body.left as usize))?;
            body.take(bytes)?;
            check.update(bytes);
        }
        (check.finish() == header.check).then_some(header)
    }
}

fn control<T: DeserializeOwned>(frame: &[u8]) -> Option<T> {
    match Frame::decode(frame).ok()? {
        Frame::Control(body) => wire::message(body).ok(),
        Frame::Chunk { .. } => None,
    }
}

/// Writes bytes in whole blocks.
struct Writer<'a, F> {
    flash: &'a mut F,
    at: u32,
    end: u32,
    /// Of the slot, for the error.
    length: u32,
    block: [u8; BLOCK],
    filled: usize,
    written: u32,
    check: Crc32,
}

impl<'a, F: NorFlash> Writer<'a, F> {
    fn new(flash: &'a mut F, at: u32, end: u32, length: u32) -> Self {
        Self { flash, at, end, length, block: [0xff; BLOCK], filled: 0, written: 0, check: Crc32::default() }
    }

    fn record<T: Serialize>(&mut self, value: &T) -> Result<(), KeepError> {
        let mut frame = [0; RECORD];
        let len = wire::encode_control(value, &mut frame).map_err(|_| KeepError::TooLong(self.length))?;
        self.put(&[len as u8])?;
        self.put(frame.get(..len).unwrap_or_default())
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), KeepError> {
        self.check.update(bytes);
        self.written += bytes.len() as u32;
        for &byte in bytes {
            if let Some(place) = self.block.get_mut(self.filled) {
                *place = byte;
            }
            self.filled += 1;
            if self.filled == BLOCK {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), KeepError> {
        if self.at + BLOCK as u32 > self.end {
            return Err(KeepError::TooLong(self.length));
        }
        self.flash.write(self.at, &self.block).map_err(|_| KeepError::Flash)?;
        self.at += BLOCK as u32;
        (self.block, self.filled) = ([0xff; BLOCK], 0);
        Ok(())
    }

    fn finish(mut self) -> Result<(u32, u32), KeepError> {
        if self.filled > 0 {
            self.flush()?;
        }
        Ok((self.written, self.check.finish()))
    }
}

/// Reads bytes in whole blocks.
struct Reader<'a, F> {
    flash: &'a mut F,
    at: u32,
    left: u32,
    block: [u8; BLOCK],
    place: usize,
}

impl<F: NorFlash> Reader<'_, F> {
    fn take(&mut self, out: &mut [u8]) -> Option<()> {
        self.left = self.left.checked_sub(out.len() as u32)?;
        for out in out {
            if self.place == BLOCK {
                self.flash.read(self.at, &mut self.block).ok()?;
                self.at += BLOCK as u32;
                self.place = 0;
            }
            *out = *self.block.get(self.place)?;
            self.place += 1;
        }
        Some(())
    }

    fn record<T: DeserializeOwned>(&mut self) -> Option<T> {
        let (mut len, mut frame) = ([0], [0; RECORD]);
        self.take(&mut len)?;
        let frame = frame.get_mut(..len[0].into())?;
        self.take(frame)?;
        control(frame)
    }

    fn skip(&mut self) -> bool {
        let (mut len, mut frame) = ([0], [0; RECORD]);
        self.take(&mut len)
            .and_then(|()| frame.get_mut(..len[0].into()))
            .and_then(|frame| self.take(frame))
            .is_some()
    }

    fn weights(&mut self, weights: &mut [f32]) -> Option<()> {
        for weight in weights {
            let mut bytes = [0; 4];
            self.take(&mut bytes)?;
            *weight = f32::from_le_bytes(bytes);
        }
        Some(())
    }
}
