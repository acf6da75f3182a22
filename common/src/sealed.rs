//! Frames that only the device and the aggregator can read or write, whatever carries them between.
//!
//! A device behind a bridge has no certificate: it shares a key of 32 bytes with the aggregator. On every
//! new connection both choose a nonce, and every frame is sealed with ChaCha20-Poly1305 under a key that
//! follows from all three, so neither another device's nor an earlier session's packet is taken for good.
//!
//! ```text
//! device                                        aggregator
//! HAIL  version, nonce d, name                ->
//!                                             <- CHALLENGE  nonce a, tag of the HAIL under S
//! SEALED  counter, frame, tag                <-> S = HChaCha20(HChaCha20(key, d), a)
//!                                             <- STRANGER: who are you? (there is no session; hail again)
//!                                             <- REFUSED  code: no such device
//! ```
//! A packet's AEAD nonce is its direction and its counter, which only ever grows: a repeated packet is
//! dropped, a lost one is a gap that the transfer layer closes. `a` must be unpredictable, `d` must never
//! repeat under one key: see [`Nonces`]. HAIL, STRANGER and REFUSED are not authenticated; with them a
//! bridge can interrupt a session, as it can by pulling the plug, and no more.

use chacha20::{R20, hchacha};

use crate::{error::Code, id::DeviceId};

mod channel;
#[cfg(any(feature = "std", test))]
mod gate;
mod page;
#[cfg(test)]
mod tests;

pub use channel::{Channel, SEAL_HEAD, SEAL_OVERHEAD, SealError};
#[cfg(any(feature = "std", test))]
pub use gate::{Gate, Knock, name_in};
pub use page::{Page, PageError};

pub type Key = [u8; 32];
pub type Nonce = [u8; 16];

/// First byte of a packet. Kinds from 0x10 on are between a board and whoever holds its cable.
pub const HAIL: u8 = 1;
pub const CHALLENGE: u8 = 2;
pub const SEALED: u8 = 3;
pub const STRANGER: u8 = 4;
pub const REFUSED: u8 = 5;

/// Of this module's packets; frames inside have their own.
pub const SEAL_VERSION: u8 = 1;
/// Longest packet that is not a sealed frame.
pub const MAX_PLAIN: usize = 64;

const TAG: usize = 16;
const NONCE: usize = 16;

/// The key of one session.
fn session_key(key: &Key, device: &Nonce, aggregator: &Nonce) -> Key {
    let first = hchacha::<R20>(&(*key).into(), &(*device).into());
    hchacha::<R20>(&first, &(*aggregator).into()).into()
}

/// The device's nonces: a pseudo-random function of a seed and a number.
///
/// They do not repeat as long as no two starts of a board have both the same seed and the same count. A
/// board with a random number generator draws the seed at every start; one without keeps the count where a
/// reset does not reach it and takes the seed from its identity page, which is written anew at every start
/// of an emulated board.
#[derive(Clone, Debug)]
pub struct Nonces {
    seed: Nonce,
    count: u64,
}

impl Nonces {
    pub fn new(seed: Nonce, count: u64) -> Self {
        Self { seed, count }
    }

    fn draw(&mut self, key: &Key) -> Nonce {
        let mut block = self.seed;
        for (byte, count) in block.iter_mut().zip(self.count.to_le_bytes()) {
            *byte ^= count;
        }
        self.count += 1;
        let whole: Key = hchacha::<R20>(&(*key).into(), &block.into()).into();
        whole.first_chunk().copied().unwrap_or_default()
    }
}

/// The device's end.
#[derive(Debug)]
pub struct Caller {
    device: DeviceId,
    key: Secret,
    nonces: Nonces,
    state: Calling,
}

#[derive(Debug)]
enum Calling {
    Down,
    Hailing(Nonce),
    Open(Channel),
}

/// Keeps a key out of logs.
#[derive(Clone)]
struct Secret(Key);

impl core::fmt::Debug for Secret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Secret")
    }
}

/// What a packet meant to the device.
#[derive(PartialEq, Eq, Debug)]
pub enum Heard<'a> {
    Nothing,
    /// The aggregator has proved itself; frames can be sealed.
    Connected,
    /// The aggregator knows nothing of the session.
    Lost,
    Frame(&'a [u8]),
    Refused(Code),
    /// Right in form, but not from the aggregator or not now.
    Rejected(SealError),
}

impl Caller {
    pub fn new(device: DeviceId, key: Key, nonces: Nonces) -> Self {
        Self { device, key: Secret(key), nonces, state: Calling::Down }
    }

    pub fn is_open(&self) -> bool {
        matches!(self.state, Calling::Open(_))
    }

    /// Forgets the session.
    pub fn hang_up(&mut self) {
        self.state = Calling::Down;
    }

    /// Writes a HAIL, the same one until it is answered, and gives its length; 0 if there is no room.
    pub fn hail(&mut self, out: &mut [u8]) -> usize {
        let nonce = match self.state {
            Calling::Hailing(nonce) => nonce,
            _ => self.nonces.draw(&self.key.0),
        };
        self.state = Calling::Hailing(nonce);
        write_hail(&nonce, &self.device, out)
    }

    /// Seals the frame that lies at `packet[SEAL_HEAD..][..len]`; `None` without a session or room.
    pub fn seal(&mut self, packet: &mut [u8], len: usize) -> Option<usize> {
        match &mut self.state {
            Calling::Open(channel) => channel.seal(packet, len),
            _ => None,
        }
    }

    #[inline(never)]
    pub fn handle<'a>(&mut self, packet: &'a mut [u8]) -> Heard<'a> {
        match (&mut self.state, packet.first()) {
            (Calling::Hailing(nonce), Some(&CHALLENGE)) => {
                let nonce = *nonce;
                let mut hail = [0; MAX_PLAIN];
                let len = write_hail(&nonce, &self.device, &mut hail);
                let answer = packet.get(1..).and_then(<[u8]>::split_first_chunk::<NONCE>);
                let Some((theirs, tag)) = answer else { return Heard::Nothing };
                let mut channel = Channel::of_device(session_key(&self.key.0, &nonce, theirs));
                match channel.confirm(hail.get(..len).unwrap_or_default(), tag) {
                    Ok(()) => {
                        self.state = Calling::Open(channel);
                        Heard::Connected
                    }
                    Err(error) => Heard::Rejected(error),
                }
            }
            (Calling::Open(channel), Some(&SEALED)) => match channel.open(packet) {
                Ok(frame) => Heard::Frame(frame),
                Err(error) => Heard::Rejected(error),
            },
            (Calling::Open(_), Some(&STRANGER)) => {
                self.state = Calling::Down;
                Heard::Lost
            }
            (Calling::Hailing(_), Some(&REFUSED)) => match packet {
                [_, a, b] => Heard::Refused(u16::from_le_bytes([*a, *b]).into()),
                _ => Heard::Nothing,
            },
            _ => Heard::Nothing,
        }
    }
}

fn write_hail(nonce: &Nonce, device: &DeviceId, out: &mut [u8]) -> usize {
    let name = device.as_str().as_bytes();
    let len = 2 + NONCE + name.len();
    let Some([kind, version, rest @ ..]) = out.get_mut(..len) else { return 0 };
    (*kind, *version) = (HAIL, SEAL_VERSION);
    let (place, name_place) = rest.split_at_mut(NONCE);
    place.copy_from_slice(nonce);
    name_place.copy_from_slice(name);
    len
}
