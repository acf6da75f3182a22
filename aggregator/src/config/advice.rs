//! What a configuration should have for a large fleet.

use common::Codec;
use strategies::strategy::PerTier;

use super::Config;

/// From this many devices on, the network of one gateway is its narrowest part.
const MANY_DEVICES: usize = 1000;

/// What could be better, and what to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Advice {
    pub what: String,
    pub remedy: &'static str,
}

impl Config {
    /// Advice about updates of a fleet with this many devices. An update in int8 has about a quarter of the bytes.
    pub(crate) fn advice(&self, devices: usize) -> Option<Advice> {
        let codecs = match &self.wire.up {
            PerTier::All(codec) => std::slice::from_ref(codec),
            PerTier::Each(codecs) => codecs.as_slice(),
        };
        if devices < MANY_DEVICES || codecs.iter().all(|&codec| codec == Codec::Int8) {
            return None;
        }
        Some(Advice {
            what: format!(
                "{devices} devices send updates that are not in int8, so rounds take longer than needed"
            ),
            remedy: "set wire.up = \"int8\", which has about a quarter of the bytes of f32",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn int8_is_advised_from_a_thousand_devices_on() {
        let advised = |config: &str, devices| Config::parse(config).unwrap().advice(devices).is_some();
        assert!(!advised("", 999));
        assert!(advised("", 1000));
        assert!(advised("wire.up = [\"int8\", \"int8\", \"f16\", \"int8\", \"int8\"]", 5000));
        assert!(!advised("wire.up = \"int8\"", 5000));
        assert!(advised("wire.down = \"int8\"", 5000));
    }
}
