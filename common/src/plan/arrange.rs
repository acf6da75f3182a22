//! Operations that move numbers without changing them, and the product of two values.

use serde::Serialize;

use super::op::mul;
use crate::small::only_with;

only_with!("full": Arrange, Gate);

/// Moves numbers without changing them. Each works on every one of `rows` rows of a sample, so that an axis in the middle of
/// a tensor is one of rows that are longer by the axes behind it.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "full", derive(serde::Deserialize))]
#[expect(missing_docs, reason = "the line of a variant explains its fields")]
pub enum Arrange {
    /// A row of `first` numbers of the input, then one of `second` numbers of the second operand.
    Concat { rows: u32, first: u32, second: u32 },
    /// Of `width` numbers, `len` from `start` on.
    Part { rows: u32, width: u32, start: u32, len: u32 },
    /// Zeros before and after `width` numbers.
    Pad { rows: u32, width: u32, before: u32, after: u32 },
    /// A matrix of `height x width` becomes one of `width x height`.
    Transpose { rows: u32, height: u32, width: u32 },
}

impl Arrange {
    /// Numbers per sample of the input, of the second operand, and of the output.
    pub fn sizes(&self) -> (u64, u64, u64) {
        match *self {
            Self::Concat { rows, first, second } => {
                let (first, second) = (mul(rows, first), mul(rows, second));
                (first, second, first.saturating_add(second))
            }
            Self::Part { rows, width, len, .. } => (mul(rows, width), 0, mul(rows, len)),
            Self::Pad { rows, width, before, after } => {
                let padded = u64::from(width) + u64::from(before) + u64::from(after);
                (mul(rows, width), 0, padded.saturating_mul(rows.into()))
            }
            Self::Transpose { rows, height, width } => {
                let len = mul(height, width).saturating_mul(rows.into());
                (len, 0, len)
            }
        }
    }

    pub(super) fn is_sound(&self) -> bool {
        match *self {
            Self::Part { width, start, len, .. } => u64::from(start) + u64::from(len) <= width.into(),
            Self::Concat { .. } | Self::Pad { .. } | Self::Transpose { .. } => true,
        }
    }
}

/// `y[c][i] = x[c][i] * second[c]` with `channels` channels of `inner` numbers. Two values of equal shape have `inner == 1`.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "full", derive(serde::Deserialize))]
pub struct Gate {
    /// Numbers per sample of the second operand.
    pub channels: u32,
    /// Numbers of the input for each of them.
    pub inner: u32,
}
