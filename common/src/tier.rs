//! Hardware classes, and the resources of a device.

use core::fmt;

use serde::{Deserialize, Serialize};

/// Most tiers of a run, so that a [`TierSet`] is one word.
pub const MAX_TIERS: usize = 32;

/// Index of a tier in the run's list. Tier 0 is the widest.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Tier(u8);

impl Tier {
    /// `None` from [`MAX_TIERS`] on.
    pub fn new(index: usize) -> Option<Self> {
        (index < MAX_TIERS).then_some(Self(index as u8))
    }

    /// Position in the run's list of tiers.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tier {}", self.0)
    }
}

/// A set of tiers: the key of a Region.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct TierSet(u32);

impl TierSet {
    /// No tier.
    pub const EMPTY: Self = Self(0);

    /// The first `count` tiers.
    pub fn first(count: usize) -> Self {
        Self(if count >= MAX_TIERS { u32::MAX } else { (1u32 << count) - 1 })
    }

    /// Every possible tier.
    pub const ALL: Self = Self(u32::MAX);

    /// One bit for each tier; tier 0 is the lowest.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// The reverse of [`Self::bits`].
    pub fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// True if no tier is in the set.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Number of tiers in the set.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// True if the tier is in the set.
    pub fn contains(self, tier: Tier) -> bool {
        self.0 & (1 << tier.0) != 0
    }

    /// The set with one more tier.
    #[must_use]
    pub fn with(self, tier: Tier) -> Self {
        Self(self.0 | 1 << tier.0)
    }

    /// The intersection of two sets.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The tiers in ascending order.
    pub fn iter(self) -> impl Iterator<Item = Tier> {
        (0..MAX_TIERS as u8).map(Tier).filter(move |&tier| self.contains(tier))
    }
}

impl fmt::Debug for TierSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(Tier::index)).finish()
    }
}

/// The resources of one device that FairTier may use.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Budget {
    /// Bytes for the arena.
    pub ram: u64,
    /// Bytes for parameters that outlive a reset.
    pub flash: u64,
    /// Measured multiply-accumulates per second; 0 = not measured.
    pub macs_per_s: u64,
    /// Bytes per second of the link; 0 = not measured.
    pub link_bytes_per_s: u64,
}

impl Budget {
    /// A host without known limits.
    pub const UNLIMITED: Self = Self { ram: u64::MAX, flash: u64::MAX, macs_per_s: 0, link_bytes_per_s: 0 };
}
