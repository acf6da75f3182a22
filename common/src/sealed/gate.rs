//! The aggregator's end of a line. Needs a heap, to try a packet with two keys.

use super::{
    CHALLENGE, Channel, HAIL, Key, MAX_PLAIN, NONCE, Nonce, REFUSED, SEAL_VERSION, SEALED, STRANGER,
    SealError, TAG, session_key,
};
use crate::{error::Code, id::DeviceId};

/// One line into the aggregator.
#[derive(Debug, Default)]
pub struct Gate {
    /// Hailed, and not yet proved to be who it says.
    pending: Option<Pending>,
    open: Option<(DeviceId, Channel)>,
}

#[derive(Debug)]
struct Pending {
    device: DeviceId,
    nonce: Nonce,
    challenge: [u8; 1 + NONCE + TAG],
    channel: Channel,
}

/// What a packet meant to the aggregator.
#[derive(PartialEq, Eq, Debug)]
pub enum Knock<'a> {
    Nothing,
    /// So many bytes of `reply` are to be sent back.
    Reply(usize),
    /// A frame of this device; `fresh` if its session begins with it (and an earlier one ends).
    Frame {
        device: DeviceId,
        fresh: bool,
        frame: &'a [u8],
    },
    Rejected(SealError),
}

impl Gate {
    /// `key_of` knows the keys of enrolled devices; `nonce` gives 16 unpredictable bytes.
    pub fn handle<'a>(
        &mut self,
        packet: &'a mut [u8],
        reply: &mut [u8; MAX_PLAIN],
        key_of: impl FnOnce(&DeviceId) -> Option<Key>,
        nonce: impl FnOnce() -> Nonce,
    ) -> Knock<'a> {
        match packet.first() {
            Some(&HAIL) => {
                let Some((theirs, device)) = read_hail(packet) else { return Knock::Nothing };
                let again = self.pending.as_ref().filter(|p| p.nonce == theirs && p.device == device);
                let challenge = match again {
                    Some(pending) => pending.challenge,
                    None => {
                        let Some(key) = key_of(&device) else { return refuse(Code::UnknownDevice, reply) };
                        let pending = Pending::new(device, theirs, &key, &nonce(), packet);
                        self.pending.insert(pending).challenge
                    }
                };
                reply[..challenge.len()].copy_from_slice(&challenge);
                Knock::Reply(challenge.len())
            }
            Some(&SEALED) => self.handle_sealed(packet, reply),
            _ => Knock::Nothing,
        }
    }

    fn handle_sealed<'a>(&mut self, packet: &'a mut [u8], reply: &mut [u8; MAX_PLAIN]) -> Knock<'a> {
        // Tags are checked before anything is decrypted, so a packet can be tried with two keys.
        let current = self.open.as_mut().map(|(_, channel)| channel.check(packet));
        let fresh = match (&current, &self.pending) {
            (Some(Ok(())), _) => false,
            (_, Some(pending)) if pending.channel.check(packet).is_ok() => true,
            (Some(Err(error)), _) => return Knock::Rejected(*error),
            (None, _) => {
                reply[0] = STRANGER;
                return Knock::Reply(1);
            }
        };
        if fresh && let Some(pending) = self.pending.take() {
            self.open = Some((pending.device, pending.channel));
        }
        let Some((device, channel)) = &mut self.open else { return Knock::Nothing };
        match channel.open(packet) {
            Ok(frame) => Knock::Frame { device: device.clone(), fresh, frame },
            Err(error) => Knock::Rejected(error),
        }
    }

    /// Seals the frame that lies at `packet[SEAL_HEAD..][..len]`; `None` without a session or room.
    pub fn seal(&mut self, packet: &mut [u8], len: usize) -> Option<usize> {
        self.open.as_mut()?.1.seal(packet, len)
    }
}

impl Pending {
    fn new(device: DeviceId, theirs: Nonce, key: &Key, ours: &Nonce, hail: &[u8]) -> Self {
        let channel = Channel::of_aggregator(session_key(key, &theirs, ours));
        let mut challenge = [CHALLENGE; 1 + NONCE + TAG];
        challenge[1..1 + NONCE].copy_from_slice(ours);
        challenge[1 + NONCE..].copy_from_slice(&channel.vouch(hail));
        Self { device, nonce: theirs, challenge, channel }
    }
}

fn refuse<'a>(code: Code, reply: &mut [u8; MAX_PLAIN]) -> Knock<'a> {
    let [a, b] = code.number().to_le_bytes();
    reply[..3].copy_from_slice(&[REFUSED, a, b]);
    Knock::Reply(3)
}

/// Whose hail a packet is.
pub fn name_in(packet: &[u8]) -> Option<DeviceId> {
    read_hail(packet).map(|(_, device)| device)
}

fn read_hail(packet: &[u8]) -> Option<(Nonce, DeviceId)> {
    let [HAIL, SEAL_VERSION, rest @ ..] = packet else { return None };
    let (nonce, name) = rest.split_first_chunk::<NONCE>()?;
    Some((*nonce, core::str::from_utf8(name).ok()?.parse().ok()?))
}
