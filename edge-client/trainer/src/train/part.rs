//! Access to parts of slices that a checked Plan, or the sizes of an op, guarantee to exist.
//!
//! A place outside is a bug of this crate. Debug builds panic there. Release builds continue with an empty slice or 0, because
//! a panic would reset a board.

use core::ops::Range;

use super::{Float, TrainError};

#[inline(always)]
pub(super) fn part<T>(values: &[T], range: Range<usize>) -> &[T] {
    debug_assert!(range.start <= range.end && range.end <= values.len());
    values.get(range).unwrap_or_default()
}

#[inline(always)]
pub(super) fn part_mut<T>(values: &mut [T], range: Range<usize>) -> &mut [T] {
    debug_assert!(range.start <= range.end && range.end <= values.len());
    values.get_mut(range).unwrap_or_default()
}

/// Everything from `at` on.
#[inline(always)]
pub(super) fn tail<T>(values: &[T], at: usize) -> &[T] {
    debug_assert!(at <= values.len());
    values.get(at..).unwrap_or_default()
}

/// Everything from `at` on.
#[inline(always)]
pub(super) fn tail_mut<T>(values: &mut [T], at: usize) -> &mut [T] {
    debug_assert!(at <= values.len());
    values.get_mut(at..).unwrap_or_default()
}

#[inline(always)]
pub(super) fn value<T: Float>(values: &[T], at: usize) -> T {
    debug_assert!(at < values.len());
    values.get(at).copied().unwrap_or_default()
}

/// Parts of the arena; an error if they overlap.
pub(super) fn disjoint<T, const N: usize>(
    arena: &mut [T],
    ranges: [Range<usize>; N],
) -> Result<[&mut [T]; N], TrainError> {
    arena.get_disjoint_mut(ranges).map_err(|_| TrainError::Overlap)
}
