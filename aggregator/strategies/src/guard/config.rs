//! The keys of `[guard]`.

use std::{collections::BTreeSet, path::PathBuf};

use common::DeviceId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::IgnoredAny};

/// Whether the guard acts.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Nothing is limited.
    Off,
    /// Bounds what one device can do to the model.
    #[default]
    Bound,
}

/// Which devices may count more than their plain share.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Bonus {
    /// All devices.
    #[default]
    All,
    /// Only devices whose updates do not point away from the others.
    Agreeing,
}

/// The guard's configuration; `default.toml` documents each key.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(from = "Keys")]
pub struct GuardConfig {
    /// Whether the guard acts.
    pub mode: Mode,
    /// A loss counts up to this many medians of the round.
    pub loss: f64,
    /// A device counts up to this many average devices.
    pub share: f64,
    /// The loudest fifth of the devices counts at most this many average devices each, on average.
    pub fifth: f64,
    /// By its sample count alone, a device counts up to this many average devices.
    pub counts: f64,
    /// A device counts at least this part of its plain share.
    pub floor: f64,
    /// An update counts with at most this many median lengths of the round.
    pub length: f64,
    /// Devices whose sample counts are trusted.
    pub trusted_counts: BTreeSet<DeviceId>,
    /// Which devices may count more than their plain share.
    pub bonus: Bonus,
    /// Labelled samples of the gateway; empty = no probe.
    pub probe: PathBuf,
    /// Factor for the numbers of its samples.
    pub probe_scale: f32,
    /// Keys of an older version in the file, which have no effect.
    #[serde(skip)]
    pub obsolete: Vec<&'static str>,
}

impl Default for GuardConfig {
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            loss: 6.0,
            share: 5.0,
            fifth: 3.0,
            counts: 2.0,
            floor: 0.33,
            length: 3.0,
            trusted_counts: BTreeSet::new(),
            bonus: Bonus::default(),
            probe: PathBuf::new(),
            probe_scale: 1.0,
            obsolete: vec![],
        }
    }
}

impl GuardConfig {
    /// The first invalid value: its key, the value, and the requirement.
    pub fn check(&self) -> Result<(), (&'static str, String, &'static str)> {
        let from_1 = |x: f64| x >= 1.0 && x.is_finite();
        let rules = [
            ("guard.loss", self.loss, from_1(self.loss), "must be 1 or more"),
            ("guard.share", self.share, from_1(self.share), "must be 1 or more"),
            ("guard.fifth", self.fifth, from_1(self.fifth), "must be 1 or more"),
            ("guard.counts", self.counts, from_1(self.counts), "must be 1 or more"),
            ("guard.floor", self.floor, (0.0..=1.0).contains(&self.floor), "must lie in [0, 1]"),
            ("guard.length", self.length, from_1(self.length), "must be 1 or more"),
        ];
        match rules.into_iter().find(|(.., holds, _)| !holds) {
            Some((key, value, _, why)) => Err((key, value.to_string(), why)),
            None => Ok(()),
        }
    }
}

/// The keys that a file may have, including those of the previous guard. An updated gateway must start with the file that its
/// `init` wrote.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Keys {
    mode: Option<ModeKey>,
    loss: Option<f64>,
    share: Option<f64>,
    fifth: Option<f64>,
    counts: Option<f64>,
    floor: Option<f64>,
    length: Option<f64>,
    #[serde(alias = "large_shards")]
    trusted_counts: BTreeSet<DeviceId>,
    bonus: Bonus,
    probe: PathBuf,
    probe_scale: Option<f32>,
    spread: Option<IgnoredAny>,
    factor: Option<IgnoredAny>,
    samples: Option<IgnoredAny>,
    peer_samples: Option<IgnoredAny>,
    robust: Option<IgnoredAny>,
    screen: Option<IgnoredAny>,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ModeKey {
    Off,
    Bound,
    /// A mode of the previous guard.
    Clip,
    Refuse,
}

impl From<Keys> for GuardConfig {
    fn from(keys: Keys) -> Self {
        let default = Self::default();
        let gone = [
            (keys.spread, "spread"),
            (keys.factor, "factor"),
            (keys.samples, "samples"),
            (keys.peer_samples, "peer_samples"),
            (keys.robust, "robust"),
            (keys.screen, "screen"),
        ];
        let mut obsolete: Vec<_> = gone.into_iter().filter_map(|(key, name)| key.map(|_| name)).collect();
        let mode = match keys.mode {
            Some(ModeKey::Off) => Mode::Off,
            Some(ModeKey::Clip) => {
                obsolete.push("mode = \"clip\"");
                Mode::Bound
            }
            Some(ModeKey::Refuse) => {
                obsolete.push("mode = \"refuse\"");
                Mode::Bound
            }
            Some(ModeKey::Bound) | None => Mode::Bound,
        };
        Self {
            mode,
            loss: keys.loss.unwrap_or(default.loss),
            share: keys.share.unwrap_or(default.share),
            fifth: keys.fifth.unwrap_or(default.fifth),
            counts: keys.counts.unwrap_or(default.counts),
            floor: keys.floor.unwrap_or(default.floor),
            length: keys.length.unwrap_or(default.length),
            trusted_counts: keys.trusted_counts,
            bonus: keys.bonus,
            probe: keys.probe,
            probe_scale: keys.probe_scale.unwrap_or(default.probe_scale),
            obsolete,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_the_previous_guard_is_read_and_its_keys_are_reported() {
        let old = "mode = \"clip\"\nspread = 8.0\nfactor = 4.0\nsamples = 2.0\npeer_samples = 30.0\n\
                   large_shards = [\"gw\"]\nrobust = \"off\"\nscreen = 0.15";
        let config: GuardConfig = toml::from_str(old).unwrap();
        assert_eq!(config.trusted_counts.iter().map(DeviceId::as_str).collect::<Vec<_>>(), ["gw"]);
        let named = ["spread", "factor", "samples", "peer_samples", "robust", "screen", "mode = \"clip\""];
        assert_eq!(config.obsolete, named);
        let rules = GuardConfig { trusted_counts: BTreeSet::new(), obsolete: vec![], ..config };
        assert_eq!(rules, GuardConfig::default());
    }

    #[test]
    fn unknown_keys_and_impossible_values_are_refused() {
        assert!(toml::from_str::<GuardConfig>("spreed = 8.0").is_err());
        assert!(toml::from_str::<GuardConfig>("mode = \"on\"").is_err());
        for (key, value) in [
            ("loss", "0.5"),
            ("share", "0.9"),
            ("fifth", "0.9"),
            ("counts", "0.9"),
            ("floor", "1.1"),
            ("length", "inf"),
        ] {
            let config: GuardConfig = toml::from_str(&format!("{key} = {value}")).unwrap();
            assert_eq!(config.check().unwrap_err().0, format!("guard.{key}"));
        }
        assert_eq!(GuardConfig::default().check(), Ok(()));
    }
}
