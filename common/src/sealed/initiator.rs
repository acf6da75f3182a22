//! The device's end of a serial line.

use super::{
    CHALLENGE, Channel, HAIL, Key, MAX_PLAIN, NONCE, Nonce, Nonces, PROVISION, Purpose, REFUSED,
    SEAL_VERSION, SEALED, STRANGER, SealError, Secret,
};
use crate::{error::Code, id::DeviceId};

/// The device's end of a serial line.
#[derive(Debug)]
pub struct Initiator {
    device: DeviceId,
    key: Secret,
    nonces: Nonces,
    state: InitiatorState,
}

#[derive(Debug)]
enum InitiatorState {
    Down,
    Hailing(Nonce),
    Open(Purpose, Channel),
}

/// What a packet means to the device.
#[derive(PartialEq, Eq, Debug)]
pub enum InitiatorEvent<'a> {
    /// The packet is ignored.
    Nothing,
    /// The aggregator has proved that it has the key; frames can be sealed.
    Connected,
    /// The holder of the board identity has proved that it has the key, and has samples.
    Provisioning,
    /// The other end does not know the session.
    Lost,
    /// A frame of the aggregator.
    Frame(&'a [u8]),
    /// A piece of samples from the holder of the board identity.
    Piece(&'a [u8]),
    /// The aggregator opens no session now.
    Refused(Code),
    /// Well-formed, but not from the other end, or not valid now.
    Rejected(SealError),
}

impl Initiator {
    /// An end without a session.
    pub fn new(device: DeviceId, key: Key, nonces: Nonces) -> Self {
        Self { device, key: Secret(key), nonces, state: InitiatorState::Down }
    }

    /// Whether there is a session with the aggregator.
    pub fn is_open(&self) -> bool {
        matches!(self.state, InitiatorState::Open(Purpose::Frames, _))
    }

    /// Whether there is a session with the holder of the board identity.
    pub fn is_provisioning(&self) -> bool {
        matches!(self.state, InitiatorState::Open(Purpose::Samples, _))
    }

    /// Whether a HAIL is unanswered.
    pub fn is_hailing(&self) -> bool {
        matches!(self.state, InitiatorState::Hailing(_))
    }

    /// Forgets the session.
    pub fn hang_up(&mut self) {
        self.state = InitiatorState::Down;
    }

    /// Writes a HAIL and returns its length; 0 if there is no room. The HAIL stays the same until it is answered.
    pub fn hail(&mut self, out: &mut [u8]) -> usize {
        let nonce = match self.state {
            InitiatorState::Hailing(nonce) => nonce,
            _ => self.nonces.draw(&self.key.0),
        };
        self.state = InitiatorState::Hailing(nonce);
        write_hail(&nonce, &self.device, out)
    }

    /// Seals the frame at `packet[SEAL_HEAD..][..len]` and returns the packet's length; `None` without a session or room.
    pub fn seal(&mut self, packet: &mut [u8], len: usize) -> Option<usize> {
        match &mut self.state {
            InitiatorState::Open(_, channel) => channel.seal(packet, len),
            _ => None,
        }
    }

    /// Handles a packet from the line.
    #[inline(never)]
    pub fn handle<'a>(&mut self, packet: &'a mut [u8]) -> InitiatorEvent<'a> {
        match (&mut self.state, packet.first()) {
            (InitiatorState::Hailing(_), Some(&CHALLENGE)) => self.handle_challenge(Purpose::Frames, packet),
            (InitiatorState::Hailing(_), Some(&PROVISION)) => self.handle_challenge(Purpose::Samples, packet),
            (InitiatorState::Open(purpose, channel), Some(&SEALED)) => {
                match (channel.open(packet), purpose) {
                    (Ok(frame), Purpose::Frames) => InitiatorEvent::Frame(frame),
                    (Ok(piece), Purpose::Samples) => InitiatorEvent::Piece(piece),
                    (Err(error), _) => InitiatorEvent::Rejected(error),
                }
            }
            (InitiatorState::Open(..), Some(&STRANGER)) => {
                self.state = InitiatorState::Down;
                InitiatorEvent::Lost
            }
            (InitiatorState::Hailing(_), Some(&REFUSED)) => match packet {
                [_, a, b] => InitiatorEvent::Refused(u16::from_le_bytes([*a, *b]).into()),
                _ => InitiatorEvent::Nothing,
            },
            _ => InitiatorEvent::Nothing,
        }
    }

    #[inline(never)]
    fn handle_challenge<'a>(&mut self, purpose: Purpose, packet: &[u8]) -> InitiatorEvent<'a> {
        let InitiatorState::Hailing(nonce) = self.state else { return InitiatorEvent::Nothing };
        let mut hail = [0; MAX_PLAIN];
        let len = write_hail(&nonce, &self.device, &mut hail);
        let answer = packet.get(1..).and_then(<[u8]>::split_first_chunk::<NONCE>);
        let Some((theirs, tag)) = answer else { return InitiatorEvent::Nothing };
        let channel = Channel::of_device(&self.key.0, purpose, &nonce, theirs);
        if let Err(error) = channel.confirm(hail.get(..len).unwrap_or_default(), tag) {
            return InitiatorEvent::Rejected(error);
        }
        self.state = InitiatorState::Open(purpose, channel);
        match purpose {
            Purpose::Frames => InitiatorEvent::Connected,
            Purpose::Samples => InitiatorEvent::Provisioning,
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
