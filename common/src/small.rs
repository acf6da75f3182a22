//! What programs of small boards are built without.
//!
//! The wire format is the same everywhere. Where such a program is told of something that it could not do, the
//! message does not decode, and its Session refuses with [`Code::LeftOut`](crate::Code::LeftOut): kilobytes of
//! decoders for nothing but a refusal would be what the board has no flash for.

/// Types that decode with the feature alone.
macro_rules! only_with {
    ($feature:literal: $($name:ty),+) => {$(
        #[cfg(not(feature = $feature))]
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
                Err(serde::de::Error::custom("left out"))
            }
        }
    )+};
}

pub(crate) use only_with;
