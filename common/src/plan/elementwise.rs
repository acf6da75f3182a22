//! Operations on single numbers that have numbers of their own: slopes that are trained, and constants that are not.

use serde::{Deserialize, Serialize};

use crate::small::only_with;

only_with!("full": PRelu, Arithmetic);

/// Which of `channels` numbers belongs to each of `len` numbers per sample: number `i` has that of `i / inner % channels`.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Spread {
    /// Numbers per sample; a multiple of `channels * inner`.
    pub len: u32,
    /// Numbers that are spread.
    pub channels: u32,
    /// How many neighbours have the same one.
    pub inner: u32,
}

impl Spread {
    pub(super) fn is_sound(&self) -> bool {
        let period = u64::from(self.channels) * u64::from(self.inner);
        period > 0 && u64::from(self.len).is_multiple_of(period)
    }
}

/// A leaky ReLU whose slopes are parameters.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "full", derive(Deserialize))]
pub struct PRelu {
    /// Which slope belongs to which number.
    pub spread: Spread,
    /// Offset of the slopes in the parameters.
    pub slope: u32,
}

/// Arithmetic with constants.
#[derive(Copy, Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "full", derive(Deserialize))]
pub struct Arithmetic {
    /// What is computed.
    pub kind: ArithmeticKind,
    /// Numbers per sample.
    pub len: u32,
    /// What it is computed with.
    pub with: Constant,
}

/// An operation of arithmetic; the constant is the second operand.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ArithmeticKind {
    /// `x + c`.
    Add,
    /// `x - c`.
    Sub,
    /// `x * c`.
    Mul,
    /// `x / c`.
    Div,
}

/// Numbers that are part of the model and not trained.
#[derive(Copy, Clone, PartialEq, Debug, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the line of a variant explains its fields")]
pub enum Constant {
    /// The same for every number.
    One(f32),
    /// One of `channels` numbers at offset `at` of the weights, as in [`Spread`].
    Each { channels: u32, inner: u32, at: u32 },
}

impl Arithmetic {
    /// The constants as `(offset, length)` in the weights.
    pub fn constants(&self) -> Option<(u32, u64)> {
        match self.with {
            Constant::One(_) => None,
            Constant::Each { channels, at, .. } => Some((at, channels.into())),
        }
    }

    pub(super) fn is_sound(&self) -> bool {
        match self.with {
            Constant::One(number) => number.is_finite(),
            Constant::Each { channels, inner, .. } => Spread { len: self.len, channels, inner }.is_sound(),
        }
    }
}
