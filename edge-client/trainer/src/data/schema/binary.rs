//! The compact form of a schema, which travels and is digested.
//!
//! ```text
//! version:1  postcard of Schema
//! ```

use std::fmt;

use sha2::{Digest, Sha256};

use super::{Schema, SchemaError};

/// Raised whenever the layout of [`Schema`] changes.
const VERSION: u8 = 1;
/// Most bytes of a compact schema.
const LIMIT: usize = 1 << 20;

/// Why bytes are not a schema.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant has its message")]
pub enum DecodeError {
    #[error("the schema is damaged; get it again from the gateway")]
    Damaged,
    #[error("the schema has format {0}, this program knows {VERSION}; update the program")]
    Version(u8),
    #[error("the schema is longer than {LIMIT} bytes; list fewer levels and classes")]
    TooLong,
    #[error(transparent)]
    Schema(#[from] SchemaError),
}

/// SHA-256 of the compact form: equal for schemas that read files alike.
#[derive(Copy, Clone, PartialEq, Eq, Hash)]
pub struct SchemaDigest(pub [u8; 32]);

impl fmt::Display for SchemaDigest {
    /// The first eight bytes, in hexadecimal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..8].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for SchemaDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SchemaDigest({self})")
    }
}

impl Schema {
    /// The compact form.
    pub fn encode(&self) -> Result<Vec<u8>, DecodeError> {
        let bytes = postcard::to_extend(self, vec![VERSION]).map_err(|_| DecodeError::TooLong)?;
        if bytes.len() > LIMIT { Err(DecodeError::TooLong) } else { Ok(bytes) }
    }

    /// Reads and checks the compact form.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        if bytes.len() > LIMIT {
            return Err(DecodeError::TooLong);
        }
        match bytes.split_first() {
            Some((&VERSION, body)) => match postcard::take_from_bytes::<Self>(body) {
                Ok((schema, [])) => schema.check().map(|()| schema).map_err(DecodeError::from),
                Ok(_) | Err(_) => Err(DecodeError::Damaged),
            },
            Some((&version, _)) => Err(DecodeError::Version(version)),
            None => Err(DecodeError::Damaged),
        }
    }

    /// Identifies what files mean.
    pub fn digest(&self) -> Result<SchemaDigest, DecodeError> {
        Ok(SchemaDigest(Sha256::digest(self.encode()?).into()))
    }
}
