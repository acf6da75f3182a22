//! Types that programs of small boards are built without.
//!
//! The wire format is the same everywhere. A message with a type that the program lacks does not decode, and the Session
//! refuses with [`Code::LeftOut`](crate::Code::LeftOut). This saves kilobytes of decoders whose result would only be refused.

/// Types that decode only with the feature.
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
