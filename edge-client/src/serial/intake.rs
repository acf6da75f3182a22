//! Samples that arrive over the serial line, for boards with room for them in RAM.
//!
//! ```text
//! holder of the board identity                            board
//! (PROVISION, see common::sealed)                      ->
//!                                                      <- TAKEN  code u16 (0 = fine), next u32, room u32
//! SAMPLES  offset u32, length of the file u32, bytes   ->
//!                                                      <- TAKEN
//! ```
//! The file has the format of [`BytesShard`]. Pieces are repeated until they are answered, and an answer states which piece
//! is next. Both are sealed with keys for this purpose, derived from the board's key: a bridge, which has no key, can neither
//! read nor replace samples. The aggregator has the board's key, so it could do so together with a bridge.

use common::Code;

use crate::data::{BytesShard, Shard};

/// First byte of a sealed frame with a piece of a file of samples.
pub const SAMPLES: u8 = 0x12;
/// First byte of the answer.
pub const TAKEN: u8 = 0x13;
/// Bytes in a piece; they fit every packet.
pub const PIECE: usize = 256;

/// The board's answer to a piece.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Taken {
    /// Why the file is refused.
    pub refused: Option<Code>,
    /// Bytes of the file that have arrived; its length once the board has accepted it.
    pub next: u32,
    /// Longest file that the board can store, in bytes.
    pub room: u32,
}

impl Taken {
    const LEN: usize = 11;

    /// Writes the frame; 0 if there is no room.
    pub(super) fn encode(&self, out: &mut [u8]) -> usize {
        let Some(out) = out.get_mut(..Self::LEN) else { return 0 };
        out[0] = TAKEN;
        out[1..3].copy_from_slice(&self.refused.map_or(0, Code::number).to_le_bytes());
        out[3..7].copy_from_slice(&self.next.to_le_bytes());
        out[7..].copy_from_slice(&self.room.to_le_bytes());
        Self::LEN
    }

    /// Reads a frame.
    pub fn decode(frame: &[u8]) -> Option<Self> {
        let [TAKEN, rest @ ..] = frame else { return None };
        let (code, rest) = rest.split_first_chunk()?;
        let (next, rest) = rest.split_first_chunk()?;
        let room = rest.try_into().ok()?;
        let refused = match u16::from_le_bytes(*code) {
            0 => None,
            number => Some(number.into()),
        };
        Some(Self { refused, next: u32::from_le_bytes(*next), room: u32::from_le_bytes(room) })
    }
}

/// The effect of a piece.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum IntakeEvent {
    Nothing,
    /// A new file begins; earlier samples are gone.
    Begun,
    /// The file is complete and valid.
    Whole,
}

/// Progress of a file.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Intake {
    len: u32,
    next: u32,
    whole: bool,
    answer: Option<Taken>,
}

impl Intake {
    /// A session for samples begins: queues an answer with the available room. Forgets an unfinished file of an earlier session.
    pub fn open(&mut self, room: &[u8]) {
        if !self.whole {
            (self.len, self.next) = (0, 0);
        }
        let room = u32::try_from(room.len()).unwrap_or(u32::MAX);
        self.answer = Some(Taken { refused: None, next: 0, room });
    }

    /// Handles a frame.
    #[inline(never)]
    pub fn handle(&mut self, frame: &[u8], room: &mut [u8]) -> IntakeEvent {
        let [SAMPLES, rest @ ..] = frame else { return IntakeEvent::Nothing };
        let Some((offset, rest)) = rest.split_first_chunk() else { return IntakeEvent::Nothing };
        let Some((len, piece)) = rest.split_first_chunk() else { return IntakeEvent::Nothing };
        let (offset, len) = (u32::from_le_bytes(*offset), u32::from_le_bytes(*len));
        if len as usize > room.len() {
            self.answer(Some(Code::DoesNotFit), room);
            return IntakeEvent::Nothing;
        }
        let mut event = IntakeEvent::Nothing;
        if offset == 0 && (self.len != len || self.next as usize != piece.len() || self.whole) {
            event = if self.whole { IntakeEvent::Begun } else { IntakeEvent::Nothing };
            (self.len, self.next, self.whole) = (len, 0, false);
        }
        let place = room.get_mut(offset as usize..(offset as usize).saturating_add(piece.len()));
        if offset != self.next || len != self.len || piece.is_empty() || self.whole {
            self.answer(None, room);
            return event;
        }
        let Some(place) = place.filter(|_| offset as usize + piece.len() <= len as usize) else {
            self.answer(Some(Code::WrongData), room);
            return event;
        };
        place.copy_from_slice(piece);
        self.next += piece.len() as u32;
        if self.next < len {
            self.answer(None, room);
            return event;
        }
        self.whole = true;
        let good = self.samples(room).is_some_and(|samples| samples.train_len() > 0);
        if !good {
            (self.whole, self.next) = (false, 0);
        }
        self.answer((!good).then_some(Code::WrongData), room);
        if good { IntakeEvent::Whole } else { event }
    }

    fn answer(&mut self, refused: Option<Code>, room: &[u8]) {
        let room = u32::try_from(room.len()).unwrap_or(u32::MAX);
        self.answer = Some(Taken { refused, next: self.next, room });
    }

    pub fn poll_answer(&mut self) -> Option<Taken> {
        self.answer.take()
    }

    /// Bytes of the file, once it is complete.
    pub fn arrived(&self) -> Option<usize> {
        self.whole.then_some(self.len as usize)
    }

    /// The samples, once they are complete.
    pub fn samples<'a>(&self, room: &'a [u8]) -> Option<BytesShard<'a>> {
        let file = room.get(..self.len as usize).filter(|_| self.whole)?;
        BytesShard::parse(file).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Images;

    fn file() -> Vec<u8> {
        let features: Vec<u8> = (0..100).collect();
        let train = Images::new(&features, &[3; 50], 2).unwrap();
        BytesShard::new(train, Images::new(&[], &[], 2).unwrap(), 0.5).unwrap().encode()
    }

    fn piece(file: &[u8], offset: usize, len: usize) -> Vec<u8> {
        let head = [(offset as u32).to_le_bytes(), (file.len() as u32).to_le_bytes()].concat();
        [&[SAMPLES], &head[..], &file[offset..file.len().min(offset + len)]].concat()
    }

    fn taken(intake: &mut Intake) -> Taken {
        let mut packet = [0; 16];
        let len = intake.poll_answer().unwrap().encode(&mut packet);
        Taken::decode(&packet[..len]).unwrap()
    }

    #[test]
    fn pieces_may_be_repeated_and_missed() {
        let (file, mut room, mut intake) = (file(), [0; 300], Intake::default());
        assert_eq!(intake.handle(&piece(&file, 0, 64), &mut room), IntakeEvent::Nothing);
        assert_eq!(taken(&mut intake), Taken { refused: None, next: 64, room: 300 });
        // The answer was lost; the piece comes again.
        assert_eq!(intake.handle(&piece(&file, 0, 64), &mut room), IntakeEvent::Nothing);
        assert_eq!(taken(&mut intake).next, 64);
        assert_eq!(intake.handle(&piece(&file, 128, 64), &mut room), IntakeEvent::Nothing);
        assert_eq!(taken(&mut intake).next, 64);
        assert!(intake.samples(&room).is_none());
        assert_eq!(intake.handle(&piece(&file, 64, 64), &mut room), IntakeEvent::Nothing);
        assert_eq!(intake.handle(&piece(&file, 128, 64), &mut room), IntakeEvent::Whole);
        assert_eq!(taken(&mut intake).next as usize, file.len());
        assert_eq!(intake.samples(&room).unwrap().train_len(), 50);
        // Another file replaces it.
        assert_eq!(intake.handle(&piece(&file, 0, 32), &mut room), IntakeEvent::Begun);
        assert!(intake.samples(&room).is_none());
    }

    #[test]
    fn files_that_are_too_long_or_invalid_are_refused() {
        let (file, mut room, mut intake) = (file(), [0; 100], Intake::default());
        assert_eq!(intake.handle(&piece(&file, 0, 64), &mut room), IntakeEvent::Nothing);
        assert_eq!(taken(&mut intake), Taken { refused: Some(Code::DoesNotFit), next: 0, room: 100 });
        let wrong = [9; 40];
        assert_eq!(intake.handle(&piece(&wrong, 0, 64), &mut room), IntakeEvent::Nothing);
        assert_eq!(taken(&mut intake).refused, Some(Code::WrongData));
        for short in 0..9 {
            assert_eq!(intake.handle(&piece(&wrong, 0, 64)[..short], &mut room), IntakeEvent::Nothing);
        }
        // Arbitrary offsets.
        let far = [u32::MAX.to_le_bytes(), 40u32.to_le_bytes()].concat();
        assert_eq!(intake.handle(&[&[SAMPLES], &far[..], &[1; 9]].concat(), &mut room), IntakeEvent::Nothing);
    }
}
