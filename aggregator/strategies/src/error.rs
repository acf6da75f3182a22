//! What can be wrong with a strategy, and with combining.

/// Why a strategy cannot be made or used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant has its message")]
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
    #[error(transparent)]
    Fairness(#[from] FairnessError),
}

/// Why a fairness target is refused. Each names the key and the next step.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant has its message")]
pub enum FairnessError {
    #[error("`fairness.{key}` must be {must}, not {value}")]
    Value { key: &'static str, must: &'static str, value: String },
    #[error(
        "strategy `{strategy}` has no parameter that `fairness.{key}` could drive; set `fairness.{key} = 0` or choose another \
         strategy, such as fairheterofl"
    )]
    NoKnob { strategy: &'static str, key: &'static str },
    #[error("`fairness.{key}` cannot drive `{parameter}` of strategy `{strategy}`: {why}")]
    Unusable { strategy: &'static str, key: &'static str, parameter: &'static str, why: &'static str },
    #[error(
        "`fairness.{key}` drives `{parameter}`, which `strategy.params` also states; delete `strategy.params.{parameter}` to let \
         the target drive it, or `fairness.{key}` to keep the fixed value"
    )]
    BothPlaces { key: &'static str, parameter: &'static str },
    #[error(
        "`fairness.measure = \"cv\"` cannot be used with `fairness.signal = \"training\"`: training losses near 0 make it rise; set \
         `fairness.measure = \"spread\"` or `fairness.signal = \"validation\"`"
    )]
    TrainingCv,
    #[error(
        "strategy `{strategy}` makes gaps equal, which may be negative; set `fairness.measure = \"spread\"`"
    )]
    OnlySpread { strategy: &'static str },
    #[error("strategy `{strategy}` makes gaps equal; delete `fairness.{key}`, which is for losses")]
    NotOfGaps { strategy: &'static str, key: &'static str },
    #[error(
        "`{parameter}` cannot go from {neutral} to {most}; `fairness.most` must be finite and lie on the side of {neutral} on which \
         `{parameter}` is fair"
    )]
    Range { parameter: &'static str, neutral: String, most: String },
}

/// An update does not have the length of its device's slice.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the update of {device} has {got} numbers, its slice has {expected}")]
pub struct UpdateLength {
    /// The device.
    pub device: common::DeviceId,
    /// Numbers of its slice.
    pub expected: usize,
    /// Numbers of the update.
    pub got: usize,
}

/// Why a round cannot be combined. `E` is the error of reading updates.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant has its message")]
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
