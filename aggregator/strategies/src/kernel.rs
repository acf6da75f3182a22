//! The loops over every number of every update: sum of squares, `acc += w * x`, and the `int8` codec.
//!
//! Sums are computed in `f64`. The loops are plain code in fixed-size chunks, which the compiler turns into vector
//! instructions. They are compiled once for every processor and once for AVX2; `pulp` chooses at run time. The number of lanes
//! is fixed, so the result does not depend on the width of the processor's registers. Each loop is a type with an inlined
//! `call`, because a function that is not inlined would not be compiled for AVX2.

use std::fmt;

use pulp::{Arch, NullaryFnOnce};

pub mod int8;

/// A number that updates and models are made of.
pub trait Scalar: Copy + Default + Send + Sync + fmt::Debug + sealed::Sealed + 'static {
    /// The same number in `f64`.
    fn wide(self) -> f64;
    /// The nearest number of this type.
    fn narrow(wide: f64) -> Self;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

impl Scalar for f32 {
    fn wide(self) -> f64 {
        f64::from(self)
    }

    fn narrow(wide: f64) -> Self {
        wide as f32
    }
}

impl Scalar for f64 {
    fn wide(self) -> f64 {
        self
    }

    fn narrow(wide: f64) -> Self {
        wide
    }
}

/// Independent sums, so that additions do not wait for each other.
const LANES: usize = 8;

/// Sum of squares in `f64`. Finite exactly if all `f32` inputs are: their squares cannot overflow.
pub(crate) fn sum_squares<T: Scalar>(values: &[T]) -> f64 {
    Arch::new().dispatch(SumSquares(values))
}

struct SumSquares<'a, T>(&'a [T]);

impl<T: Scalar> NullaryFnOnce for SumSquares<'_, T> {
    type Output = f64;

    #[inline(always)]
    fn call(self) -> f64 {
        let (chunks, rest) = self.0.as_chunks::<LANES>();
        let mut lanes = [0.0; LANES];
        for chunk in chunks {
            for (lane, value) in lanes.iter_mut().zip(chunk) {
                let value = value.wide();
                *lane += value * value;
            }
        }
        for (lane, value) in lanes.iter_mut().zip(rest) {
            let value = value.wide();
            *lane += value * value;
        }
        lanes.iter().sum()
    }
}

/// `acc += weight * values`, elementwise.
pub(crate) fn axpy<T: Scalar>(acc: &mut [f64], weight: f64, values: &[T]) {
    Arch::new().dispatch(Axpy { acc, weight, values });
}

struct Axpy<'a, T> {
    acc: &'a mut [f64],
    weight: f64,
    values: &'a [T],
}

impl<T: Scalar> NullaryFnOnce for Axpy<'_, T> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        for (acc, value) in self.acc.iter_mut().zip(self.values) {
            *acc += self.weight * value.wide();
        }
    }
}

/// Sum with compensation (Neumaier), so that a large fleet loses no precision.
pub fn sum(terms: impl IntoIterator<Item = f64>) -> f64 {
    let (mut total, mut lost) = (0.0f64, 0.0f64);
    for term in terms {
        let next = total + term;
        lost += if total.abs() >= term.abs() { (total - next) + term } else { (term - next) + total };
        total = next;
    }
    // An infinite total makes `lost` NaN; then the total alone is returned.
    if lost.is_finite() { total + lost } else { total }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn squares_of_any_length() {
        for len in 0..50 {
            let values: Vec<f32> = (0..len).map(|i| i as f32 - 7.5).collect();
            let plain: f64 = values.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
            assert!((sum_squares(&values) - plain).abs() <= 1e-12 * plain);
        }
    }

    #[test]
    fn a_bad_number_is_detected_at_any_place() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for at in 0..40 {
                let mut values = [f32::MAX; 40];
                assert!(sum_squares(&values).is_finite());
                values[at] = bad;
                assert!(!sum_squares(&values).is_finite());
            }
        }
    }

    #[test]
    fn small_terms_are_not_lost() {
        assert_eq!(sum([1e16, 1.0, 1.0, -1e16]), 2.0);
        assert_eq!(sum([]), 0.0);
        assert_eq!(sum([f64::INFINITY, 1.0]), f64::INFINITY);
    }
}
