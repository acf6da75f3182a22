//! The other end of a serial line: the aggregator's, or that of the holder of a board identity. Needs a heap, to try a
//! packet with several keys.

use std::{collections::VecDeque, vec::Vec};

use super::{
    Channel, HAIL, Key, MAX_PLAIN, NONCE, Nonce, Purpose, SEAL_VERSION, SEALED, STRANGER, SealError, Secret,
    TAG, derive::LABEL, first,
};
use crate::id::DeviceId;

/// Most challenges that are open at once. Each repetition of a HAIL gets another challenge, and the device uses the one that
/// arrives first.
const PENDING: usize = 4;

/// The other end of one serial line.
#[derive(Debug, Default)]
pub struct Responder {
    purpose: Purpose,
    /// Sessions that were challenged and have sent no valid packet yet; the oldest first.
    pending: VecDeque<SealedSession>,
    open: Option<SealedSession>,
}

/// A device and its session, open or challenged.
#[derive(Debug)]
struct SealedSession {
    device: DeviceId,
    key: Secret,
    channel: AnyChannel,
}

/// What a packet means to the other end.
#[derive(PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the line of a variant explains its fields")]
pub enum ResponderEvent<'a> {
    /// The packet is ignored.
    Nothing,
    /// Send back this many bytes of `reply`.
    Reply(usize),
    /// A frame of this device. `fresh` if it is the first one of its session, which replaces any earlier session.
    Frame { device: DeviceId, fresh: bool, frame: &'a [u8] },
    /// The packet is forged, repeated or too short.
    Rejected(SealError),
}

/// A decoded HAIL.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hail {
    /// Version of the seal.
    pub version: u8,
    /// The name that the device claims.
    pub device: DeviceId,
    nonce: Nonce,
}

impl Hail {
    /// Reads a packet; `None` if it is not a valid HAIL.
    pub fn decode(packet: &[u8]) -> Option<Self> {
        let [HAIL, version @ (first::VERSION | SEAL_VERSION), rest @ ..] = packet else { return None };
        let (nonce, name) = rest.split_first_chunk::<NONCE>()?;
        if *version == first::VERSION && nonce.starts_with(LABEL) {
            return None;
        }
        let device = core::str::from_utf8(name).ok()?.parse().ok()?;
        Some(Self { version: *version, device, nonce: *nonce })
    }
}

impl Responder {
    /// For the holder of a board identity, which sends samples to the device.
    pub fn for_samples() -> Self {
        Self { purpose: Purpose::Samples, ..Self::default() }
    }

    /// Handles a packet from the line. `key_of` returns the key of a device; without one the packet is ignored. An aggregator
    /// returns a made-up key for an unknown device, so that the answer does not reveal who is enrolled. `nonce` returns 16
    /// unpredictable bytes.
    pub fn handle<'a>(
        &mut self,
        packet: &'a mut [u8],
        reply: &mut [u8; MAX_PLAIN],
        key_of: impl FnOnce(&DeviceId) -> Option<Key>,
        nonce: impl FnOnce() -> Nonce,
    ) -> ResponderEvent<'a> {
        match packet.first() {
            Some(&HAIL) => {
                let Some(hail) = Hail::decode(packet) else { return ResponderEvent::Nothing };
                // Older firmware takes no sealed samples.
                if self.purpose == Purpose::Samples && hail.version != SEAL_VERSION {
                    return ResponderEvent::Nothing;
                }
                let Some(key) = key_of(&hail.device) else { return ResponderEvent::Nothing };
                let ours = nonce();
                let channel = AnyChannel::new(&key, self.purpose, &hail, &ours);
                let mut challenge = [self.purpose.kind(); 1 + NONCE + TAG];
                challenge[1..1 + NONCE].copy_from_slice(&ours);
                challenge[1 + NONCE..].copy_from_slice(&channel.vouch(packet));
                if self.pending.len() >= PENDING {
                    self.pending.pop_front();
                }
                self.pending.push_back(SealedSession { device: hail.device, key: Secret(key), channel });
                reply[..challenge.len()].copy_from_slice(&challenge);
                ResponderEvent::Reply(challenge.len())
            }
            Some(&SEALED) => self.handle_sealed(packet, reply),
            _ => ResponderEvent::Nothing,
        }
    }

    fn handle_sealed<'a>(&mut self, packet: &'a mut [u8], reply: &mut [u8; MAX_PLAIN]) -> ResponderEvent<'a> {
        let current = self.open.as_ref().map(|session| session.channel.check(packet));
        let fresh = current != Some(Ok(()));
        if fresh {
            match (self.pending.iter().position(|session| session.channel.check(packet).is_ok()), current) {
                (Some(index), _) => {
                    self.open = self.pending.remove(index);
                    self.pending.clear();
                }
                (None, Some(Err(error))) => return ResponderEvent::Rejected(error),
                (None, _) => {
                    reply[0] = STRANGER;
                    return ResponderEvent::Reply(1);
                }
            }
        }
        let Some(SealedSession { device, channel, .. }) = &mut self.open else {
            return ResponderEvent::Nothing;
        };
        match channel.open(packet) {
            Ok(frame) => ResponderEvent::Frame { device: device.clone(), fresh, frame },
            Err(error) => ResponderEvent::Rejected(error),
        }
    }

    /// Whether the session was opened with this key.
    pub fn is_opened_with(&self, key: &Key) -> bool {
        self.open.as_ref().is_some_and(|session| session.key.0 == *key)
    }

    /// Version of the seal of the open session.
    pub fn version(&self) -> Option<u8> {
        self.open.as_ref().map(|session| match session.channel {
            AnyChannel::First(_) => first::VERSION,
            AnyChannel::Second(_) => SEAL_VERSION,
        })
    }

    /// Seals the frame at `packet[SEAL_HEAD..][..len]` and returns the packet's length; `None` without a session or room.
    pub fn seal(&mut self, packet: &mut [u8], len: usize) -> Option<usize> {
        match &mut self.open.as_mut()?.channel {
            AnyChannel::First(channel) => channel.seal(packet, len),
            AnyChannel::Second(channel) => channel.seal(packet, len),
        }
    }
}

/// A session of either version.
#[derive(Clone, Debug)]
enum AnyChannel {
    First(first::Channel),
    Second(Channel),
}

impl AnyChannel {
    fn new(key: &Key, purpose: Purpose, hail: &Hail, ours: &Nonce) -> Self {
        match hail.version {
            first::VERSION => Self::First(first::Channel::new(key, &hail.nonce, ours)),
            _ => Self::Second(Channel::to_device(key, purpose, &hail.nonce, ours)),
        }
    }

    fn vouch(&self, hail: &[u8]) -> [u8; TAG] {
        match self {
            Self::First(channel) => channel.vouch(hail),
            Self::Second(channel) => channel.vouch(hail),
        }
    }

    fn open<'a>(&mut self, packet: &'a mut [u8]) -> Result<&'a [u8], SealError> {
        match self {
            Self::First(channel) => channel.open(packet),
            Self::Second(channel) => channel.open(packet),
        }
    }

    /// Whether [`Self::open`] would succeed; leaves the packet alone.
    fn check(&self, packet: &[u8]) -> Result<(), SealError> {
        self.clone().open(&mut Vec::from(packet)).map(|_| ())
    }
}
