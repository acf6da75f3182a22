//! Which versions of the protocol a peer speaks, and which one both use.
//!
//! ```text
//! device      Hello, then a tail: oldest, newest     ->
//!                                                    <- Welcome, then a tail: the version both use
//! ```
//! New fields are appended to a message as its tail. A peer ignores the part of a tail that it does not know. Messages and
//! codes that are newer than the agreed version are left out or replaced ([`crate::message::ToDevice::for_version`]). A device
//! is refused if its Plan has an operation that is newer ([`crate::plan::Op::since`]).
//!
//! Peers of protocol 4 accept no tail, so a device must know before Hello that the gateway does: on QUIC by ALPN
//! ([`crate::wire::ALPN`]), on a serial line by the version of the seal. A Hello without a tail is protocol 4.

use serde::{Deserialize, Serialize};

/// The newest protocol of this program. Raised whenever a message changes, or a Plan has new operations.
pub const PROTOCOL_VERSION: u8 = 8;

/// The first protocol in which devices report a validation loss.
pub const VALIDATION_SINCE: u8 = 6;

/// The first protocol in which devices report the errors of predicted numbers.
pub const ERRORS_SINCE: u8 = 8;

/// A range of protocol versions, both ends included.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Versions {
    /// The lowest version that the peer speaks.
    pub oldest: u8,
    /// The highest version that the peer speaks.
    pub newest: u8,
}

impl Versions {
    /// The versions that this program speaks.
    pub const OURS: Self = Self { oldest: 4, newest: PROTOCOL_VERSION };
    /// The version of a peer that names none.
    pub const FOUR: Self = Self { oldest: 4, newest: 4 };

    /// The newest version that both speak.
    pub fn agree(self, other: Self) -> Option<u8> {
        let newest = self.newest.min(other.newest);
        (newest >= self.oldest.max(other.oldest)).then_some(newest)
    }

    /// Whether a version lies in the range.
    pub fn contains(self, version: u8) -> bool {
        (self.oldest..=self.newest).contains(&version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(oldest: u8, newest: u8) -> Versions {
        Versions { oldest, newest }
    }

    #[test]
    fn both_use_the_newest_version_that_both_speak() {
        for (one, other, agreed) in [
            (range(4, 5), range(4, 5), Some(5)),
            (range(4, 5), range(4, 4), Some(4)),
            (range(4, 5), range(5, 9), Some(5)),
            (Versions::OURS, range(4, 5), Some(5)),
            (Versions::OURS, range(4, 9), Some(8)),
            (range(5, 6), range(4, 4), None),
            (range(7, 8), range(4, 5), None),
            // An inverted range contains nothing.
            (range(9, 4), range(4, 9), None),
        ] {
            assert_eq!((one.agree(other), other.agree(one)), (agreed, agreed), "{one:?} {other:?}");
        }
    }
}
