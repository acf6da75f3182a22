//! The operations of a Plan, one file each: formula, forward, backward.
//!
//! Slices contain exactly the rows of the batch. `factor` of a parameter gradient is 1 where gradients are kept, and `-lr`
//! where they are applied to the weights at once.

pub(super) mod activate;
pub(super) mod add;
pub(super) mod arithmetic;
pub(super) mod arrange;
pub(super) mod batchnorm;
pub(super) mod conv;
pub(super) mod dense;
pub(super) mod dropout;
pub(super) mod embed;
pub(super) mod gate;
mod gated;
pub(super) mod gru;
pub(super) mod last;
pub(super) mod norm;
pub(super) mod pool;
pub(super) mod prelu;
pub(super) mod recurrent;
pub(super) mod scale;
pub(super) mod sequence;
mod spread;

use super::{Float, part::tail};

/// Columns summed side by side.
const LANES: usize = 8;

/// What one kind of an op does, unless this program was built without it. No Plan has such a kind.
macro_rules! where_built {
    ($name:literal, $does:expr) => {
        if const { !common::plan::is_without($name) } {
            $does
        }
    };
}
use where_built;

/// Fills every row with the bias, or with zeros.
fn fill_rows<T: Float>(width: usize, bias: Option<&[T]>, y: &mut [T]) {
    match bias {
        Some(bias) if bias.len() == width => {
            // Four at a time, which are two instructions on a microcontroller.
            let (from, from_rest) = bias.as_chunks::<4>();
            for row in y.chunks_exact_mut(width.max(1)) {
                let (to, to_rest) = row.as_chunks_mut::<4>();
                to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
                to_rest.iter_mut().zip(from_rest).for_each(|(to, from)| *to = *from);
            }
        }
        _ => y.fill(T::ZERO),
    }
}

/// `sums[j] += factor * sum_r rows[r][j]` for rows `stride` apart; one accumulator per column, rows in
/// ascending order.
pub(super) fn column_sums<T: Float>(stride: usize, factor: T, rows: &[T], sums: &mut [T]) {
    for (block, sums) in sums.chunks_mut(LANES).enumerate() {
        let mut totals = [T::ZERO; LANES];
        for row in rows.chunks(stride.max(1)) {
            for (total, &value) in totals.iter_mut().zip(tail(row, block * LANES)) {
                *total += value;
            }
        }
        for (sum, &total) in sums.iter_mut().zip(&totals) {
            *sum += factor * total;
        }
    }
}

/// `dx = f(dy, y)`, or added to it.
fn each<T: Float>(dx: &mut [T], dy: &[T], y: &[T], add: bool, f: impl Fn(T, T) -> T) {
    let places = dx.iter_mut().zip(dy).zip(y);
    if add {
        places.for_each(|((dx, &dy), &y)| *dx += f(dy, y));
    } else {
        places.for_each(|((dx, &dy), &y)| *dx = f(dy, y));
    }
}
