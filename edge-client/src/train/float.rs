//! The number types a Plan can be executed in.
//!
//! `exp` and `ln` come from `libm` on every target: the standard library would use the platform's own,
//! whose last bits differ between a host and a board.

use core::{
    fmt::Debug,
    ops::{Add, AddAssign, Div, Mul, Neg, Sub, SubAssign},
};

/// `f32` on devices, `f64` in gradient checks.
pub trait Float:
    Copy
    + Debug
    + PartialOrd
    + Add<Output = Self>
    + AddAssign
    + Div<Output = Self>
    + Mul<Output = Self>
    + Neg<Output = Self>
    + Sub<Output = Self>
    + SubAssign
    + 'static
{
    const ZERO: Self;
    const ONE: Self;

    fn from_f64(value: f64) -> Self;
    fn to_f64(self) -> f64;
    #[must_use]
    fn exp(self) -> Self;
    #[must_use]
    fn ln(self) -> Self;
}

impl Float for f32 {
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;

    fn from_f64(value: f64) -> Self {
        value as Self
    }

    fn to_f64(self) -> f64 {
        self.into()
    }

    fn exp(self) -> Self {
        libm::expf(self)
    }

    fn ln(self) -> Self {
        libm::logf(self)
    }
}

impl Float for f64 {
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;

    fn from_f64(value: f64) -> Self {
        value
    }

    fn to_f64(self) -> f64 {
        self
    }

    fn exp(self) -> Self {
        libm::exp(self)
    }

    fn ln(self) -> Self {
        libm::log(self)
    }
}
