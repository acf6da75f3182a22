//! Why a Graph cannot be built, or a tier cannot be cut out of it.

use common::mask::MaskError;

use super::UncutAxis;

/// Why a graph cannot be built.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant has its message")]
pub enum GraphError {
    #[error("the input of the model has {0} dimensions per sample; at most 4 are supported")]
    Rank(usize),
    #[error("a dimension of the input is 0 or above 2^31")]
    InputSize,
    #[error(
        "'{node}' takes {expected} numbers per sample, but its input has shape {got}; put a Flatten before it"
    )]
    DenseInput { node: String, expected: usize, got: String },
    #[error("'{0}' has no outputs, or more than 2^31")]
    DenseOutput(String),
    #[error("the model has {0} parameters, or as many numbers in one value; at most 2^31 are supported")]
    TooLarge(u64),
    #[error("the model has no parameters on the way from input to output, so there is nothing to train")]
    NothingToTrain,
    #[error("two layers use parameter '{0}' in different ways; they cannot share it")]
    Shared(String),
    #[error("'{node}' {problem}")]
    Layer { node: String, problem: String },
    #[error(transparent)]
    Mask(#[from] MaskError),
}

/// Why a tier cannot be cut out of a Graph.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant has its message")]
pub enum SliceError {
    #[error(transparent)]
    Mask(#[from] MaskError),
    #[error(
        "'{node}' normalises {groups} groups of channels, but the tier keeps {width} channels, which do not divide; give the tier explicit widths"
    )]
    Groups { node: String, groups: u32, width: u32 },
    #[error(
        "{0}; give the tier explicit widths of the other axes, or let such axes stay whole (keep_whole = true, or --keep-whole)"
    )]
    Uncut(UncutAxis),
    #[error("no hidden axis can be cut, so a tier of rate {rate} would be the whole model; use rate 1{}", because(.why))]
    Nothing { rate: f64, why: Option<UncutAxis> },
}

fn because(why: &Option<UncutAxis>) -> String {
    why.as_ref().map_or_else(String::new, |axis| format!(" ({axis})"))
}
