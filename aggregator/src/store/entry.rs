//! The record of an update in the ledger and in the spool.
//!
//! ```text
//! record  | fields, postcard | tail: Option<Validation>, then Option<Errors> if there are any, postcard |
//! ```
//! The tail holds what came after format 5. It is written only where a device has reported it, so records without it have
//! the bytes of format 5, and a store needs no migration.

use common::message::{Errors, Validation};
use serde::{Deserialize, Serialize};

use super::UpdateHeader;

/// An update in the store.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// Everything except the payload.
    pub header: UpdateHeader,
    /// Where its record starts in the spool.
    pub(super) offset: u64,
    /// Bytes of the payload.
    pub(super) len: u32,
    /// Checksum of the record.
    pub(super) crc: u32,
}

impl Entry {
    /// Bytes of the payload.
    pub fn payload_len(&self) -> usize {
        self.len as usize
    }

    /// The record as the ledger keeps it, with its tail. `None` if it cannot be encoded.
    pub fn encode(&self) -> Option<Vec<u8>> {
        with_tail(self, &self.header)
    }

    /// The entry of a record; `None` if it does not decode or has bytes left over.
    pub fn decode(record: &[u8]) -> Option<Self> {
        let (mut entry, tail) = postcard::take_from_bytes::<Self>(record).ok()?;
        if !tail.is_empty() {
            let (validation, rest) = postcard::take_from_bytes::<Option<Validation>>(tail).ok()?;
            let (errors, rest) = match rest {
                [] => (None, rest),
                _ => postcard::take_from_bytes::<Option<Errors>>(rest).ok()?,
            };
            // A tail that says nothing is never written.
            let scalars = &mut entry.header.scalars;
            (scalars.validation, scalars.errors) = (validation, errors);
            (rest.is_empty() && tail_of(&entry.header)? == tail).then_some(())?;
        }
        Some(entry)
    }
}

/// The header of an update as the spool keeps it, with its tail. `None` if it cannot be encoded.
pub(super) fn encode_header(header: &UpdateHeader) -> Option<Vec<u8>> {
    with_tail(header, header)
}

/// Bytes of [`encode_header`].
pub(super) fn header_len(header: &UpdateHeader) -> Option<usize> {
    Some(postcard::experimental::serialized_size(header).ok()? + tail_of(header)?.len())
}

fn with_tail(record: &impl Serialize, header: &UpdateHeader) -> Option<Vec<u8>> {
    let mut bytes = postcard::to_allocvec(record).ok()?;
    bytes.extend(tail_of(header)?);
    Some(bytes)
}

/// Empty where a device has reported nothing that came after format 5.
fn tail_of(header: &UpdateHeader) -> Option<Vec<u8>> {
    match (header.scalars.validation, header.scalars.errors) {
        (None, None) => Ok(vec![]),
        (validation, None) => postcard::to_allocvec(&validation),
        both => postcard::to_allocvec(&both),
    }
    .ok()
}
