//! The board's side of version 1 of the seal, as in firmware of protocol 4.

use chacha20::{R20, hchacha};
use chacha20poly1305::{AeadInOut, ChaCha20Poly1305, KeyInit};
use common::{
    DeviceId,
    sealed::{CHALLENGE, HAIL, InitiatorEvent, Key, Nonce, REFUSED, SEAL_HEAD, SEALED, STRANGER, SealError},
};

const TAG: usize = 16;

/// The board's side.
#[derive(Debug)]
pub struct Initiator {
    device: DeviceId,
    key: Key,
    nonce: Nonce,
    /// Key of the session, with the counters of the last packets of both sides.
    open: Option<(Key, u32, u32)>,
}

impl Initiator {
    pub fn new(device: DeviceId, key: Key, nonce: Nonce) -> Self {
        Self { device, key, nonce, open: None }
    }

    fn hail_packet(&self) -> Vec<u8> {
        [&[HAIL, 1], &self.nonce[..], self.device.as_str().as_bytes()].concat()
    }

    pub fn hail(&mut self, out: &mut [u8]) -> usize {
        if self.open.take().is_some() {
            self.nonce[0] = self.nonce[0].wrapping_add(1);
        }
        let packet = self.hail_packet();
        out[..packet.len()].copy_from_slice(&packet);
        packet.len()
    }

    pub fn seal(&mut self, packet: &mut [u8], len: usize) -> Option<usize> {
        let (key, sent, _) = self.open.as_mut()?;
        *sent += 1;
        packet[0] = SEALED;
        packet[1..SEAL_HEAD].copy_from_slice(&sent.to_le_bytes());
        let frame = &mut packet[SEAL_HEAD..SEAL_HEAD + len];
        let tag = cipher(key).encrypt_inout_detached(&nonce(0, *sent), &[], frame.into()).unwrap();
        packet[SEAL_HEAD + len..SEAL_HEAD + len + TAG].copy_from_slice(&tag);
        Some(SEAL_HEAD + len + TAG)
    }

    pub fn handle<'a>(&mut self, packet: &'a mut [u8]) -> InitiatorEvent<'a> {
        match (&mut self.open, packet[0]) {
            (None, CHALLENGE) => {
                let first = hchacha::<R20>(&self.key.into(), &self.nonce.into());
                let theirs: Nonce = packet[1..17].try_into().unwrap();
                let key: Key = hchacha::<R20>(&first, &theirs.into()).into();
                let tag: [u8; TAG] = packet[17..].try_into().unwrap();
                let (hail, nothing) = (self.hail_packet(), &mut [][..]);
                let proof =
                    cipher(&key).decrypt_inout_detached(&nonce(1, 0), &hail, nothing.into(), &tag.into());
                if proof.is_err() {
                    return InitiatorEvent::Rejected(SealError::Forged);
                }
                self.open = Some((key, 0, 0));
                InitiatorEvent::Connected
            }
            (Some((key, _, received)), SEALED) => {
                let counter = u32::from_le_bytes(packet[1..SEAL_HEAD].try_into().unwrap());
                if counter <= *received {
                    return InitiatorEvent::Rejected(SealError::Replayed);
                }
                let (frame, tag) = packet[SEAL_HEAD..].split_last_chunk_mut::<TAG>().unwrap();
                let tag = (*tag).into();
                if cipher(key)
                    .decrypt_inout_detached(&nonce(1, counter), &[], (&mut *frame).into(), &tag)
                    .is_err()
                {
                    return InitiatorEvent::Rejected(SealError::Forged);
                }
                *received = counter;
                InitiatorEvent::Frame(frame)
            }
            (Some(_), STRANGER) => {
                self.open = None;
                InitiatorEvent::Lost
            }
            (None, REFUSED) => InitiatorEvent::Refused(u16::from_le_bytes([packet[1], packet[2]]).into()),
            _ => InitiatorEvent::Nothing,
        }
    }
}

fn cipher(key: &Key) -> ChaCha20Poly1305 {
    ChaCha20Poly1305::new(&(*key).into())
}

fn nonce(direction: u8, counter: u32) -> chacha20poly1305::Nonce {
    let mut nonce = [0; 12];
    nonce[0] = direction;
    nonce[8..].copy_from_slice(&counter.to_le_bytes());
    nonce.into()
}
