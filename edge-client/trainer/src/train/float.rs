//! The number types a Plan can be executed in.
//!
//! `exp`, `ln`, `tanh`, `erf` and their kin come from `libm` on every target, because those of the standard library differ in their last bits
//! between a host and a board. Square root and fused multiply-add are always correctly rounded, so a host may use its
//! hardware for them.

use core::{
    fmt::Debug,
    ops::{Add, AddAssign, Div, DivAssign, Mul, MulAssign, Neg, Sub, SubAssign},
};

/// `f32` on devices, `f64` in gradient checks.
pub trait Float:
    Copy
    + Debug
    + Default
    + PartialOrd
    + Add<Output = Self>
    + AddAssign
    + Div<Output = Self>
    + DivAssign
    + Mul<Output = Self>
    + MulAssign
    + Neg<Output = Self>
    + Sub<Output = Self>
    + SubAssign
    + 'static
{
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;

    /// The nearest number of this type.
    fn from_f64(value: f64) -> Self;
    /// The same number, exactly.
    fn to_f64(self) -> f64;
    /// e to the power of `self`.
    #[must_use]
    fn exp(self) -> Self;
    /// Natural logarithm.
    #[must_use]
    fn ln(self) -> Self;
    /// Hyperbolic tangent.
    #[must_use]
    fn tanh(self) -> Self;
    /// The error function.
    #[must_use]
    fn erf(self) -> Self;
    /// `exp(x) - 1`, exact near 0.
    #[must_use]
    fn exp_m1(self) -> Self;
    /// `ln(1 + x)`, exact near 0.
    #[must_use]
    fn ln_1p(self) -> Self;
    /// Square root.
    #[must_use]
    fn sqrt(self) -> Self;
    /// `self * factor + term`, rounded once.
    #[must_use]
    fn fused(self, factor: Self, term: Self) -> Self;

    /// The same number, exactly.
    fn from_f32(value: f32) -> Self {
        Self::from_f64(value.into())
    }

    /// `1 / (1 + exp(-x))`; an overflowing exponential gives the right limit.
    #[must_use]
    fn sigmoid(self) -> Self {
        Self::ONE / (Self::ONE + (-self).exp())
    }
}

macro_rules! float {
    ($float:ty, $exp:ident, $ln:ident, $tanh:ident, $erf:ident, $expm1:ident, $log1p:ident, $sqrt:ident, $fma:ident) => {
        impl Float for $float {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;

            fn from_f64(value: f64) -> Self {
                value as Self
            }

            fn to_f64(self) -> f64 {
                self.into()
            }

            fn exp(self) -> Self {
                libm::$exp(self)
            }

            fn ln(self) -> Self {
                libm::$ln(self)
            }

            fn tanh(self) -> Self {
                libm::$tanh(self)
            }

            fn erf(self) -> Self {
                libm::$erf(self)
            }

            fn exp_m1(self) -> Self {
                libm::$expm1(self)
            }

            fn ln_1p(self) -> Self {
                libm::$log1p(self)
            }

            // Both are correctly rounded and give the same bits; that of the standard library can be vectorised.
            #[inline]
            fn sqrt(self) -> Self {
                #[cfg(feature = "host")]
                return <$float>::sqrt(self);
                #[cfg(not(feature = "host"))]
                libm::$sqrt(self)
            }

            #[inline]
            fn fused(self, factor: Self, term: Self) -> Self {
                #[cfg(feature = "host")]
                return self.mul_add(factor, term);
                #[cfg(not(feature = "host"))]
                libm::$fma(self, factor, term)
            }
        }
    };
}

float!(f32, expf, logf, tanhf, erff, expm1f, log1pf, sqrtf, fmaf);
float!(f64, exp, log, tanh, erf, expm1, log1p, sqrt, fma);
