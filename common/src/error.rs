//! Error codes that both ends share.
//!
//! A [`Code`] is sent to peers and printed in logs, reports and round files. Numbers are stable: new ones are added at the
//! end of their group, and none is reused. A peer that does not know a number reads [`Code::Unlisted`].

use core::fmt;

use serde::{Deserialize, Serialize};

/// A code that older peers do not know states the protocol that introduced it and the code that older peers get instead.
macro_rules! codes {
    ($($name:ident = $number:literal, $text:literal $(, since $version:literal, before $before:ident)?;)*) => {
        /// A numbered error. See [`Code::ALL`] for the table.
        #[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
        #[serde(into = "u16", from = "u16")]
        #[repr(u16)]
        #[non_exhaustive]
        pub enum Code {
            $(#[doc = $text] $name = $number,)*
        }

        impl Code {
            /// Every code, in ascending order.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// One line that says what went wrong.
            pub fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// The name used in tables.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            /// The code that a peer of this protocol version knows.
            pub fn for_version(self, version: u8) -> Self {
                match self {
                    $($(Self::$name if version < $version => Self::$before,)?)*
                    known => known,
                }
            }
        }
    };
}

codes! {
    // Bytes on the link.
    BadFrame = 1, "frame too short, too long or of unknown kind";
    BadChecksum = 2, "checksum of a frame does not match";
    WrongVersion = 3, "the peer speaks another protocol version";
    BadMessage = 4, "message does not decode";
    TooLong = 5, "message is longer than the agreed limit";
    Unexpected = 6, "message does not fit the state of the session";
    Unlisted = 7, "an error that this version of the program does not know", since 5, before Unexpected;

    // Updates.
    WrongShape = 10, "update length does not match the device's slice";
    EmptyShard = 11, "device has no training samples";
    NonFiniteUpdate = 12, "update holds NaN or infinity";
    NonFiniteLoss = 13, "loss is NaN, infinite or negative";
    WrongRound = 14, "update belongs to another run, round or attempt";
    Duplicate = 15, "update was already counted";
    WrongModel = 16, "update was trained on another model than the one assigned";
    RoundClosed = 17, "round is closed";
    NotSelected = 18, "device was not selected for this round";
    ImplausibleLoss = 19, "loss is far above those of the device's peers or its own earlier ones";
    ImplausibleNorm = 20, "update norm is far above those of the device's peers or its own earlier ones";
    ImplausibleSamples = 21, "number of samples is far from the device's earlier one or far above its peers'";
    PointsAway = 22, "updates of the device have pointed against those of all others";

    // Devices.
    UnknownDevice = 30, "device is not enrolled";
    WrongIdentity = 31, "device name does not match its certificate";
    BadCertificate = 32, "certificate is not from this aggregator";
    DoesNotFit = 33, "no tier fits the device's budget";
    WrongData = 34, "device's samples do not fit the model's inputs or outputs";
    BadPlan = 35, "plan is damaged or does not fit the arena";
    Busy = 36, "aggregator is at its limit; try again later";
    NotReady = 37, "device cannot do this now";
    NoValidation = 38, "device has too few samples to keep some for validation";
    NoGroups = 39, "device's samples have no attribute, or more groups than can be reported";
    NoBaseline = 40, "device has no baseline from training alone (it was restarted)";
    LeftOut = 41, "device's program was built without the requested feature";
    TierNotAllowed = 42, "device's certificate allows no tier that fits it";
    Displaced = 43, "another process has joined with the identity of this device";
    NoiseTooWeak = 44, "requested noise is below what the owner of the device requires", since 5, before LeftOut;
    PrivacySpent = 45, "device has sent all answers with noise that its owner allows", since 5, before LeftOut;
    AlreadyEnrolled = 46, "a device of this name is enrolled or was revoked; the token may not replace it", since 5, before UnknownDevice;
    TooOld = 47, "device's program is older than an operation of the model", since 7, before LeftOut;

    // Aggregator.
    BadConfig = 50, "configuration is not valid";
    BadModel = 51, "model cannot be used";
    StoreDamaged = 52, "stored data is damaged";
    StoreFailed = 53, "store cannot be written";
    NonFiniteResult = 54, "the combined model is not finite; the old one was kept";
    EmptyRound = 55, "no device took part in the round";
    Diverged = 56, "training diverges: losses are not finite, or many times the first ones";
}

impl Code {
    /// The number on the wire and after the `E` in texts.
    pub fn number(self) -> u16 {
        self as u16
    }

    /// The code of a number, if this version knows it.
    pub fn of(number: u16) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.number() == number)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "E{:02} {}", self.number(), self.text())
    }
}

impl core::error::Error for Code {}

impl From<Code> for u16 {
    fn from(code: Code) -> Self {
        code.number()
    }
}

/// Unknown numbers become [`Code::Unlisted`], so a message of a newer peer still decodes.
impl From<u16> for Code {
    fn from(number: u16) -> Self {
        Self::of(number).unwrap_or(Self::Unlisted)
    }
}

/// An error and its causes in one line. A cause that the text of an error already contains is not repeated.
#[cfg(feature = "std")]
pub fn explain(error: &dyn core::error::Error) -> std::string::String {
    let mut text = std::string::ToString::to_string(error);
    let mut next = error.source();
    while let Some(cause) = next {
        let said = std::string::ToString::to_string(cause);
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "std")]
    #[test]
    fn a_cause_is_printed_once() {
        #[derive(Debug, thiserror::Error)]
        enum Outer {
            #[error("the file is damaged: {0}")]
            Told(#[source] crate::wire::WireError),
            #[error("the file is damaged")]
            Untold(#[source] crate::wire::WireError),
        }
        let whole = "the file is damaged: checksum does not match";
        assert_eq!(explain(&Outer::Told(crate::wire::WireError::BadChecksum)), whole);
        assert_eq!(explain(&Outer::Untold(crate::wire::WireError::BadChecksum)), whole);
    }

    #[test]
    fn numbers_ascend_and_round_trip() {
        assert!(Code::ALL.windows(2).all(|pair| pair[0] < pair[1]));
        for &code in Code::ALL {
            assert_eq!(Code::of(code.number()), Some(code));
        }
        assert_eq!((Code::of(999), Code::from(999)), (None, Code::Unlisted));
    }

    #[test]
    fn older_peers_are_told_a_code_that_they_know() {
        for &code in Code::ALL {
            assert_eq!(code.for_version(crate::version::PROTOCOL_VERSION), code);
            let before = code.for_version(4);
            assert_eq!(before.for_version(4), before, "{code}");
        }
        assert_eq!(Code::Unlisted.for_version(4), Code::Unexpected);
        for code in [Code::NoiseTooWeak, Code::PrivacySpent] {
            assert_eq!((code.for_version(4), code.for_version(5)), (Code::LeftOut, code));
        }
        assert_eq!(Code::TooOld.for_version(6), Code::LeftOut);
    }
}
