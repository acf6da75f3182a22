//! Values that are configured per tier.

use common::Tier;
use strategies::strategy::PerTier;

/// The value of a tier. A list has one value for every tier of the model: the configuration is checked before a run starts.
pub(crate) fn value_of<T: Copy>(values: &PerTier<T>, tier: Tier) -> T {
    match values {
        PerTier::All(value) => *value,
        PerTier::Each(values) => values[tier.index()],
    }
}
