//! What can be wrong with a strategy, and with combining.

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StrategyError {
    #[error("there is no strategy `{name}`; known are {known}")]
    Unknown { name: String, known: String },
    #[error("parameters of strategy `{strategy}`: {why}")]
    Parameters { strategy: &'static str, why: String },
    #[error("`{key}` lists {got} values, but there are {tiers} tiers; give one number or one per tier")]
    Tiers { key: &'static str, got: usize, tiers: usize },
    #[error("`{key}` works with one tier only; there are {tiers}")]
    OneTier { key: &'static str, tiers: usize },
    #[error("state of strategy `{strategy}`: {why}")]
    State { strategy: &'static str, why: String },
    #[error("strategy `{strategy}`: `{method}` does not give {expected}")]
    Shape { strategy: &'static str, method: &'static str, expected: String },
}

/// An update does not have the length of its device's slice.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the update of {device} has {got} numbers, its slice has {expected}")]
pub struct UpdateLength {
    pub device: common::DeviceId,
    pub expected: usize,
    pub got: usize,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CombineError<E> {
    #[error("the model has {expected} parameters, got {got}")]
    Model { expected: usize, got: usize },
    #[error(transparent)]
    Update(#[from] UpdateLength),
    #[error(transparent)]
    Strategy(#[from] StrategyError),
    #[error("an update cannot be read: {0}")]
    Read(E),
}
