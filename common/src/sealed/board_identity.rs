//! The identity of a board, in a flash region of its own.
//!
//! ```text
//! 0       4          5           37      40    72      88       92
//! | FTP1  | length   | name ..   | 0     | key | seed  | CRC-32 |
//! | FTP2  | length   | name ..   | flags | key | seed  | secret | epsilon | answers | CRC-32 |
//! 0       4          5           37      40    72      88       120       124       128      132
//! ```
//! The gateway writes FTP1 when the board is enrolled. The owner's `fairtier board flash` turns it into FTP2. It adds what the
//! gateway must not know: the secret that noise is derived from, and what the owner allows. Flags state which fields are
//! set: 1 the secret, 2 the largest epsilon, 4 the largest number of answers.
//!
//! These bytes are enough to pose as the device, so a real board should keep them behind read-out protection.

use heapless::Vec;

use super::{Key, Nonce};
use crate::{
    id::{DeviceId, MAX_DEVICE_ID},
    privacy::{Policy, Privacy, Secret},
    wire::crc32,
};

const PLAIN: &[u8; 4] = b"FTP1";
const PRIVATE: &[u8; 4] = b"FTP2";
const NAME: usize = 5;
const FLAGS: usize = 37;
const KEY: usize = 40;
const SEED: usize = 72;
const END: usize = 88;
const SECRET: usize = 88;
const EPSILON: usize = 120;
const ANSWERS: usize = 124;
const PRIVATE_END: usize = 128;

const HAS_SECRET: u8 = 1;
const HAS_POLICY: u8 = 2;
const HAS_CAP: u8 = 4;

/// Why bytes are not a board identity.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each variant has its message")]
pub enum BoardIdentityError {
    #[error("there is no board identity here; write the one of `fairtier gateway enroll --serial`")]
    Missing,
    #[error("the board identity is damaged; write it again")]
    Damaged,
}

/// Name, key and privacy settings of a board.
#[derive(Clone, PartialEq)]
pub struct BoardIdentity {
    /// The name that the board is enrolled with.
    pub device: DeviceId,
    /// The key that it shares with the aggregator.
    pub key: Key,
    /// Seed of the device's nonces, where the board has no better source.
    pub seed: Nonce,
    /// The owner's privacy settings.
    pub privacy: Privacy,
}

impl core::fmt::Debug for BoardIdentity {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "BoardIdentity({})", self.device)
    }
}

impl BoardIdentity {
    /// Bytes of the longest encoding.
    pub const LEN: usize = PRIVATE_END + 4;

    /// Encodes as FTP1 without privacy settings, else as FTP2.
    pub fn encode(&self) -> Vec<u8, { Self::LEN }> {
        let (mut bytes, name) = ([0; Self::LEN], self.device.as_str().as_bytes());
        let private = self.privacy != Privacy::default();
        let end = if private { PRIVATE_END } else { END };
        bytes[..4].copy_from_slice(if private { PRIVATE } else { PLAIN });
        bytes[4] = name.len() as u8;
        put(&mut bytes[NAME..NAME + MAX_DEVICE_ID], name);
        bytes[KEY..SEED].copy_from_slice(&self.key);
        bytes[SEED..END].copy_from_slice(&self.seed);
        if let Some(secret) = &self.privacy.secret {
            bytes[FLAGS] |= HAS_SECRET;
            put(&mut bytes[SECRET..EPSILON], secret.bytes());
        }
        if let Some(policy) = self.privacy.policy {
            bytes[FLAGS] |= HAS_POLICY;
            bytes[EPSILON..ANSWERS].copy_from_slice(&policy.max_epsilon.to_le_bytes());
            if let Some(most) = policy.max_answers {
                bytes[FLAGS] |= HAS_CAP;
                bytes[ANSWERS..PRIVATE_END].copy_from_slice(&most.to_le_bytes());
            }
        }
        let check = crc32(&bytes[..end]).to_le_bytes();
        bytes[end..end + 4].copy_from_slice(&check);
        bytes.into_iter().take(end + 4).collect()
    }

    /// Reads an identity at the start of `bytes`; whatever follows it is ignored.
    pub fn decode(bytes: &[u8]) -> Result<Self, BoardIdentityError> {
        let end = match bytes.first_chunk() {
            Some(PLAIN) => END,
            Some(PRIVATE) => PRIVATE_END,
            _ => return Err(BoardIdentityError::Missing),
        };
        let (covered, rest) = bytes.split_at_checked(end).ok_or(BoardIdentityError::Missing)?;
        let check = rest.first_chunk().ok_or(BoardIdentityError::Missing)?;
        if *check != crc32(covered).to_le_bytes() {
            return Err(BoardIdentityError::Damaged);
        }
        let name = covered.get(NAME..NAME + usize::from(covered[4]));
        let name = name.and_then(|name| core::str::from_utf8(name).ok());
        let device = name.and_then(|name| name.parse().ok()).ok_or(BoardIdentityError::Damaged)?;
        let (mut key, mut seed) = ([0; 32], [0; 16]);
        key.copy_from_slice(&covered[KEY..SEED]);
        seed.copy_from_slice(&covered[SEED..END]);
        let privacy = if end == PRIVATE_END { privacy(covered)? } else { Privacy::default() };
        Ok(Self { device, key, seed, privacy })
    }
}

fn privacy(bytes: &[u8]) -> Result<Privacy, BoardIdentityError> {
    let has = |flag: u8| bytes[FLAGS] & flag != 0;
    let word = |at: usize| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
    let policy = Policy {
        max_epsilon: f32::from_le_bytes(word(EPSILON)),
        max_answers: has(HAS_CAP).then(|| u32::from_le_bytes(word(ANSWERS))),
    };
    if has(HAS_POLICY) && !(policy.max_epsilon.is_finite() && policy.max_epsilon >= 0.0) {
        return Err(BoardIdentityError::Damaged);
    }
    Ok(Privacy {
        secret: has(HAS_SECRET).then(|| Secret::new(core::array::from_fn(|at| bytes[SECRET + at]))),
        policy: has(HAS_POLICY).then_some(policy),
    })
}

fn put(place: &mut [u8], bytes: &[u8]) {
    place.iter_mut().zip(bytes).for_each(|(place, byte)| *place = *byte);
}
