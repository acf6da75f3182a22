//! Who a board is: a page of flash of its own, written when the board is enrolled.
//!
//! ```text
//! 0       4          5           37    40    72      88       92
//! | FTP1  | length   | name ..   | 0   | key | seed  | CRC-32 |
//! ```
//! Whoever can read the page can be the device: on a real part it belongs behind read-out protection.

use super::{Key, Nonce};
use crate::{
    id::{DeviceId, MAX_DEVICE_ID},
    wire::crc32,
};

const MAGIC: &[u8; 4] = b"FTP1";
const NAME: usize = 5;
const KEY: usize = 40;
const SEED: usize = 72;
const CHECK: usize = 88;

#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PageError {
    #[error("there is no identity page here; write the one of `aggregator enroll --serial`")]
    Missing,
    #[error("the identity page is damaged; write it again")]
    Damaged,
}

/// The content of an identity page.
#[derive(Clone, PartialEq, Eq)]
pub struct Page {
    pub device: DeviceId,
    pub key: Key,
    /// Of the device's nonces, where the board has no better source.
    pub seed: Nonce,
}

impl core::fmt::Debug for Page {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Page({})", self.device)
    }
}

impl Page {
    pub const LEN: usize = 92;

    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        let name = self.device.as_str().as_bytes();
        out[..4].copy_from_slice(MAGIC);
        out[4] = name.len() as u8;
        for (place, byte) in out[NAME..NAME + MAX_DEVICE_ID].iter_mut().zip(name) {
            *place = *byte;
        }
        out[KEY..SEED].copy_from_slice(&self.key);
        out[SEED..CHECK].copy_from_slice(&self.seed);
        let check = crc32(&out[..CHECK]).to_le_bytes();
        out[CHECK..].copy_from_slice(&check);
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, PageError> {
        let (page, _) = bytes.split_first_chunk::<{ Self::LEN }>().ok_or(PageError::Missing)?;
        if !page.starts_with(MAGIC) {
            return Err(PageError::Missing);
        }
        let (covered, check) = page.split_at(CHECK);
        if check != crc32(covered).to_le_bytes() {
            return Err(PageError::Damaged);
        }
        let name =
            page.get(NAME..NAME + usize::from(page[4])).and_then(|name| core::str::from_utf8(name).ok());
        let device = name.and_then(|name| name.parse().ok()).ok_or(PageError::Damaged)?;
        let (mut key, mut seed) = ([0; 32], [0; 16]);
        key.copy_from_slice(&page[KEY..SEED]);
        seed.copy_from_slice(&page[SEED..CHECK]);
        Ok(Self { device, key, seed })
    }
}
