//! Packets on a line of bytes: COBS between zero bytes, with a checksum.
//!
//! ```text
//! 0 | COBS of (packet, CRC-32) | 0
//! ```
//! COBS replaces every zero by the distance to the next one, so a zero is always the end of a packet. A receiver that has
//! missed bytes is synchronised again after the next zero. The zero in front ends preceding noise. The checksum distinguishes
//! noise from forgery: a packet with a valid checksum that does not open is forged.

use common::wire::crc32;

const CHECK: usize = 4;
/// Longest run without a zero that one code byte covers.
const STRETCH: usize = 254;

/// Iterates over the bytes of one packet on the line.
#[derive(Clone, Debug)]
pub struct Encoder<'a> {
    packet: &'a [u8],
    check: [u8; CHECK],
    /// Bytes of packet and checksum that are already sent.
    done: usize,
    /// Bytes that follow before the next code.
    left: usize,
    /// The run ends with a zero of the packet, which the code byte represents.
    zero: bool,
    phase: Phase,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Phase {
    Open,
    Code,
    Data,
    Over,
}

impl<'a> Encoder<'a> {
    /// Encodes a packet.
    pub fn new(packet: &'a [u8]) -> Self {
        let check = crc32(packet).to_le_bytes();
        Self { packet, check, done: 0, left: 0, zero: false, phase: Phase::Open }
    }

    fn at(&self, index: usize) -> Option<u8> {
        match self.packet.get(index) {
            Some(byte) => Some(*byte),
            None => self.check.get(index - self.packet.len()).copied(),
        }
    }

    fn code(&mut self) -> u8 {
        let run = (0..STRETCH).take_while(|ahead| self.at(self.done + ahead).is_some_and(|b| b != 0)).count();
        self.left = run;
        self.zero = run < STRETCH && self.at(self.done + run).is_some();
        self.after();
        run as u8 + 1
    }

    /// What follows once the bytes of a run are sent.
    fn after(&mut self) {
        if self.left > 0 {
            self.phase = Phase::Data;
            return;
        }
        let ends_here = self.at(self.done).is_none();
        self.done += usize::from(self.zero);
        // A zero at the end of the packet needs one more code; a full run at the end needs none.
        self.phase = if ends_here && !self.zero { Phase::Over } else { Phase::Code };
        self.zero = false;
    }
}

impl Iterator for Encoder<'_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        match self.phase {
            Phase::Open => {
                self.phase = Phase::Code;
                Some(0)
            }
            Phase::Code => Some(self.code()),
            Phase::Data => {
                let byte = self.at(self.done);
                self.done += 1;
                self.left -= 1;
                self.after();
                byte
            }
            Phase::Over if self.done == usize::MAX => None,
            Phase::Over => {
                self.done = usize::MAX;
                Some(0)
            }
        }
    }
}

/// Why a packet is dropped.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each variant has its message")]
pub enum LineError {
    #[error("packet is longer than its buffer")]
    TooLong,
    #[error("packet is damaged")]
    Damaged,
}

/// Decodes packets from the bytes of a line.
#[derive(Clone, Debug)]
pub struct Decoder<const ROOM: usize> {
    buffer: [u8; ROOM],
    len: usize,
    /// Bytes until the next code.
    left: u8,
    /// A zero follows these bytes.
    zero: bool,
    state: Reading,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Reading {
    Good,
    TooLong,
    /// Already returned; the next byte begins a packet.
    Over,
}

impl<const ROOM: usize> Default for Decoder<ROOM> {
    fn default() -> Self {
        Self { buffer: [0; ROOM], len: 0, left: 0, zero: false, state: Reading::Good }
    }
}

impl<const ROOM: usize> Decoder<ROOM> {
    /// Takes a byte; returns a packet when it is complete.
    pub fn push(&mut self, byte: u8) -> Option<Result<&mut [u8], LineError>> {
        if self.state == Reading::Over {
            (self.len, self.left, self.zero, self.state) = (0, 0, false, Reading::Good);
        }
        if byte == 0 {
            return self.end();
        }
        if self.left > 0 {
            self.left -= 1;
            self.put(byte);
        } else {
            if self.zero {
                self.put(0);
            }
            self.left = byte - 1;
            self.zero = byte != u8::MAX;
        }
        None
    }

    fn put(&mut self, byte: u8) {
        match self.buffer.get_mut(self.len) {
            Some(place) => {
                *place = byte;
                self.len += 1;
            }
            None => self.state = Reading::TooLong,
        }
    }

    fn end(&mut self) -> Option<Result<&mut [u8], LineError>> {
        let (state, cut) = (self.state, self.left > 0);
        self.state = Reading::Over;
        if state == Reading::TooLong {
            return Some(Err(LineError::TooLong));
        }
        debug_assert!(self.len <= ROOM, "put() checks the room");
        let packet = self.buffer.get_mut(..self.len).unwrap_or_default();
        if packet.is_empty() && !cut {
            return None;
        }
        let Some((packet, check)) = packet.split_last_chunk_mut::<CHECK>() else {
            return Some(Err(LineError::Damaged));
        };
        let good = !cut && !packet.is_empty() && crc32(packet).to_le_bytes() == *check;
        Some(if good { Ok(packet) } else { Err(LineError::Damaged) })
    }
}
