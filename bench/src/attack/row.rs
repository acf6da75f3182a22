//! The rows of the table.

use std::{fmt, str::FromStr};

use serde::Serialize;

use super::AttackError;

/// One row: all devices are honest, or a share of them is hostile.
#[derive(Copy, Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum GuardRow {
    /// All devices are honest.
    Honest(Honest),
    /// A share of the devices attacks, as in `flipped:20`.
    Attack {
        /// What they all do.
        attack: Attack,
        /// Their share of the fleet; their number is rounded.
        percent: u8,
    },
}

/// An honest fleet in which something is unusual.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Honest {
    /// Nothing is unusual.
    Plain,
    /// One device has two classes that no other device has.
    RareClasses,
    /// The same, and that device is in the middle tier.
    RareMiddle,
    /// The same, and that device is in the narrowest tier.
    RareNarrow,
    /// A tenth of the devices sees turned images.
    Turned,
    /// One device is alone in the narrowest tier.
    AloneInTier,
    /// Of one device's training labels, 40 % are wrong.
    WrongLabels,
    /// One device has 20 times as many samples as the others.
    MuchData,
}

/// What hostile devices do. It starts in the first round unless the variant says otherwise.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Attack {
    /// Report ten times their losses.
    LossX10,
    /// Report a million times their losses.
    LossX1e6,
    /// Negate their updates and report ten times their losses.
    Flipped,
    /// Send ten times their updates.
    UpdateX10,
    /// Send ten times their updates, negated.
    FlippedX10,
    /// Report 25 times their number of samples.
    CountX25,
    /// Report 100 times their number of samples.
    CountX100,
    /// Report losses that grow by a fifth from round to round.
    Ramp,
    /// Are honest for ten rounds, then negate their updates.
    Turncoat,
    /// Are all in the widest tier and report a million times their losses.
    OneTier,
    /// Send noise of the same length as their updates.
    Noise,
}

impl Honest {
    /// In the order of the table.
    pub const ALL: [Self; 8] = [
        Self::RareClasses,
        Self::RareMiddle,
        Self::RareNarrow,
        Self::Turned,
        Self::AloneInTier,
        Self::WrongLabels,
        Self::MuchData,
        Self::Plain,
    ];

    /// One device has two classes that no other device has.
    pub fn is_rare(self) -> bool {
        matches!(self, Self::RareClasses | Self::RareMiddle | Self::RareNarrow)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::RareClasses => "rare-classes",
            Self::RareMiddle => "rare-middle",
            Self::RareNarrow => "rare-narrow",
            Self::Turned => "turned",
            Self::AloneInTier => "alone-in-tier",
            Self::WrongLabels => "wrong-labels",
            Self::MuchData => "much-data",
        }
    }
}

impl Attack {
    /// In the order of the table.
    pub const ALL: [Self; 11] = [
        Self::LossX10,
        Self::LossX1e6,
        Self::Flipped,
        Self::UpdateX10,
        Self::FlippedX10,
        Self::CountX25,
        Self::CountX100,
        Self::Ramp,
        Self::Turncoat,
        Self::OneTier,
        Self::Noise,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::LossX10 => "loss-x10",
            Self::LossX1e6 => "loss-x1e6",
            Self::Flipped => "flipped",
            Self::UpdateX10 => "update-x10",
            Self::FlippedX10 => "flipped-x10",
            Self::CountX25 => "count-x25",
            Self::CountX100 => "count-x100",
            Self::Ramp => "ramp",
            Self::Turncoat => "turncoat",
            Self::OneTier => "one-tier",
            Self::Noise => "noise",
        }
    }
}

impl GuardRow {
    /// Shares of hostile devices, in percent.
    pub const SHARES: [u8; 2] = [5, 20];

    /// All honest fleets, and every attack by 5 % and by 20 % of the devices.
    pub fn all() -> Vec<Self> {
        let honest = Honest::ALL.into_iter().map(Self::Honest);
        let of = |percent| Attack::ALL.into_iter().map(move |attack| Self::Attack { attack, percent });
        honest.chain(Self::SHARES.into_iter().flat_map(of)).collect()
    }

    /// The reference that a row is compared with, with the guard off.
    pub(super) fn reference(self) -> Self {
        match self {
            Self::Honest(_) => self,
            Self::Attack { .. } => Self::Honest(Honest::Plain),
        }
    }

    pub(super) fn honest(self) -> Honest {
        match self {
            Self::Honest(honest) => honest,
            Self::Attack { .. } => Honest::Plain,
        }
    }

    pub(super) fn attack(self) -> Option<Attack> {
        match self {
            Self::Honest(_) => None,
            Self::Attack { attack, .. } => Some(attack),
        }
    }

    /// Number of hostile devices in a fleet of this size.
    pub(super) fn liars(self, devices: usize) -> usize {
        match self {
            Self::Honest(_) => 0,
            Self::Attack { percent, .. } => (f64::from(percent) / 100.0 * devices as f64).round() as usize,
        }
    }
}

impl fmt::Display for GuardRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Honest(honest) => f.write_str(honest.name()),
            Self::Attack { attack, percent } => write!(f, "{}:{percent}", attack.name()),
        }
    }
}

/// Reads `rare-classes`, or `flipped:20` for 20 % hostile devices.
impl FromStr for GuardRow {
    type Err = AttackError;

    fn from_str(text: &str) -> Result<Self, AttackError> {
        let unknown = || AttackError::NoRow(text.to_owned());
        let Some((name, percent)) = text.split_once(':') else {
            let found = Honest::ALL.into_iter().find(|honest| honest.name() == text);
            return found.map(Self::Honest).ok_or_else(unknown);
        };
        let percent: u8 =
            percent.parse().ok().filter(|percent| (1..=100).contains(percent)).ok_or_else(unknown)?;
        let found = Attack::ALL.into_iter().find(|attack| attack.name() == name);
        found.map(|attack| Self::Attack { attack, percent }).ok_or_else(unknown)
    }
}
