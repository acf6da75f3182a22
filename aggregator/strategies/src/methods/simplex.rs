//! Nearest points in simplices (Euclidean).
//!
//! ```text
//! {x >= 0, sum x = c}    x = max(v - shift, 0),  shift = (u_1 + .. + u_rho - c) / rho,
//!                        u = v descending, rho = last k with u_k > (u_1 + .. + u_k - c) / k
//! {x >= 0, sum x <= c}   max(v, 0) if its sum is at most c, else the nearest point with sum c
//! ```

use crate::kernel::sum;

/// Nearest point with `x >= 0` and `sum x = c`; c < 0 counts as 0.
pub(super) fn project_simplex(v: &[f64], c: f64) -> Vec<f64> {
    project_repeated(&v.iter().map(|&value| (value, 1.0)).collect::<Vec<_>>(), c)
}

/// Nearest point with `x >= 0` and `sum x <= c`.
pub(super) fn project_below(v: &[f64], c: f64) -> Vec<f64> {
    let clipped: Vec<f64> = v.iter().map(|value| value.max(0.0)).collect();
    if sum(clipped.iter().copied()) <= c { clipped } else { project_simplex(v, c) }
}

/// [`project_simplex`] of a vector that holds each value as many times as stated.
pub(super) fn project_repeated(v: &[(f64, f64)], c: f64) -> Vec<f64> {
    let top = v.iter().map(|&(value, _)| value).fold(f64::NEG_INFINITY, f64::max);
    let c = c.max(0.0);
    // Only values less than c below the largest one count. Taking them relative to it keeps the precision for values of any
    // size.
    let mut near: Vec<(f64, f64)> =
        v.iter().map(|&(value, times)| (value - top, times)).filter(|&(value, _)| value > -c).collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0));
    let (mut total, mut count, mut shift) = (0.0, 0.0, 0.0);
    for (value, times) in near {
        let next = (total + value * times - c) / (count + times);
        if value <= next {
            break;
        }
        (total, count, shift) = (total + value * times, count + times, next);
    }
    let place = |&(value, _): &(f64, f64)| if count > 0.0 { (value - top - shift).max(0.0) } else { 0.0 };
    v.iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::fleet::assert_close, *};

    #[test]
    fn worked_numbers() {
        assert_close(&project_simplex(&[0.6, 0.7, -0.1], 1.0), &[0.45, 0.55, 0.0], 1e-15);
        assert_close(&project_below(&[0.6, 0.7, -0.1], 1.0), &[0.45, 0.55, 0.0], 1e-15);
        assert_eq!(project_below(&[0.2, 0.3, -5.0], 1.0), [0.2, 0.3, 0.0]);
    }

    #[test]
    fn corners() {
        assert!(project_simplex(&[], 1.0).is_empty());
        assert_eq!(project_simplex(&[3.0, 3.0], 0.0), [0.0, 0.0]);
        assert_eq!(project_below(&[3.0, -1.0], 0.0), [0.0, 0.0]);
        assert_eq!(project_simplex(&[-7.0], 0.5), [0.5]);
        assert_eq!(project_simplex(&[1e300, 0.0, 1e300], 1.0), [0.5, 0.0, 0.5]);
        assert_eq!(project_simplex(&[1e9, 1e9 + 0.5], 1.0), [0.25, 0.75]);
    }

    proptest! {
        /// x is nearest exactly if (v - x).(y - x) <= 0 for every corner y of the set.
        #[test]
        fn nearest(v in prop::collection::vec(-3.0..3.0f64, 1..20), c in 0.01..4.0f64) {
            for (x, below) in [(project_simplex(&v, c), false), (project_below(&v, c), true)] {
                let total: f64 = x.iter().sum();
                prop_assert!(x.iter().all(|&value| value >= 0.0));
                prop_assert!(total <= c + 1e-12 && (below || total >= c - 1e-12));
                let away = |at: usize| v[at] - x[at];
                let here: f64 = (0..v.len()).map(|at| away(at) * x[at]).sum();
                for corner in 0..v.len() {
                    prop_assert!(away(corner) * c - here <= 1e-10);
                }
                prop_assert!(!below || -here <= 1e-10);
            }
        }

        #[test]
        fn repeats_count_as_often_as_stated(v in prop::collection::vec((-1.0..1.0f64, 1u8..5), 1..8)) {
            let repeated: Vec<_> = v.iter().map(|&(value, times)| (value, f64::from(times))).collect();
            let long = |x: &[f64]| -> Vec<f64> {
                x.iter().zip(&v).flat_map(|(&x, &(_, times))| vec![x; times.into()]).collect()
            };
            let values: Vec<f64> = v.iter().map(|&(value, _)| value).collect();
            assert_close(&long(&project_repeated(&repeated, 1.0)), &project_simplex(&long(&values), 1.0), 1e-12);
        }
    }
}
