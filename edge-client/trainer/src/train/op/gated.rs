//! Functions `y = x g(x)` with a gate that rises from 0 to 1, and their derivatives `g(x) + x g'(x)`.

use core::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

use super::activate::{between, magnitude};
use crate::train::Float;

/// The share of a normal distribution below `x`.
fn share_below<T: Float>(x: T) -> T {
    half::<T>() * (T::ONE + (x * T::from_f64(FRAC_1_SQRT_2)).erf())
}

pub(super) fn gelu<T: Float>(x: T) -> T {
    x * share_below(x)
}

pub(super) fn gelu_slope<T: Float>(x: T) -> T {
    // 1 / sqrt(2 pi) = (2 / sqrt pi) / (2 sqrt 2).
    let density = (-half::<T>() * x * x).exp() * T::from_f64(0.5 * FRAC_2_SQRT_PI * FRAC_1_SQRT_2);
    share_below(x) + x * density
}

const CUBIC: f64 = 0.044715;

/// `tanh` in the approximation of Gelu, and the derivative of its argument.
fn approximation<T: Float>(x: T) -> (T, T) {
    // sqrt(2 / pi).
    let width = T::from_f64(FRAC_2_SQRT_PI * FRAC_1_SQRT_2);
    let square = T::from_f64(CUBIC) * x * x;
    ((width * x * (T::ONE + square)).tanh(), width * (T::ONE + T::from_f64(3.0) * square))
}

pub(super) fn gelu_tanh<T: Float>(x: T) -> T {
    half::<T>() * x * (T::ONE + approximation(x).0)
}

pub(super) fn gelu_tanh_slope<T: Float>(x: T) -> T {
    let (tanh, inner) = approximation(x);
    half::<T>() * (T::ONE + tanh + x * (T::ONE - tanh * tanh) * inner)
}

pub(super) fn silu<T: Float>(x: T) -> T {
    x * x.sigmoid()
}

pub(super) fn silu_slope<T: Float>(x: T) -> T {
    let gate = x.sigmoid();
    gate * (T::ONE + x * (T::ONE - gate))
}

/// `ln(1 + exp(x))`; the exponential does not overflow.
pub(super) fn softplus<T: Float>(x: T) -> T {
    let rest = (-magnitude(x)).exp().ln_1p();
    if x > T::ZERO { x + rest } else { rest }
}

pub(super) fn mish<T: Float>(x: T) -> T {
    x * softplus(x).tanh()
}

pub(super) fn mish_slope<T: Float>(x: T) -> T {
    let gate = softplus(x).tanh();
    gate + x * (T::ONE - gate * gate) * x.sigmoid()
}

pub(super) fn hard_swish<T: Float>(x: T) -> T {
    x * between(x / T::from_f64(6.0) + half(), T::ZERO, T::ONE)
}

pub(super) fn hard_swish_slope<T: Float>(x: T) -> T {
    let three = T::from_f64(3.0);
    if x < -three {
        T::ZERO
    } else if x > three {
        T::ONE
    } else {
        x / three + half()
    }
}

fn half<T: Float>() -> T {
    T::from_f64(0.5)
}
