//! Embedding: `y[t] = table[x[t]]`; `dtable[e] += s * sum_{t: x[t] = e} dy[t]`.
//!
//! The gradients of all occurrences of an entry are summed before they are applied. So applying them at once gives the same
//! bits as keeping them in a gradient segment.

use super::LANES;
use crate::train::{
    Float,
    part::{part, part_mut, tail},
};

/// Looks up all rows. The error is the first row whose number is not an entry of the table.
pub(in crate::train) fn forward<T: Float>(
    entries: usize,
    width: usize,
    x: &[T],
    table: &[T],
    y: &mut [T],
) -> Result<(), usize> {
    for (row, (&id, y)) in x.iter().zip(y.chunks_exact_mut(width.max(1))).enumerate() {
        let entry = entry(id, entries).ok_or(row)?;
        for (y, &value) in y.iter_mut().zip(tail(table, entry * width)) {
            *y = value;
        }
    }
    Ok(())
}

pub(in crate::train) fn param_grad<T: Float>(
    entries: usize,
    width: usize,
    factor: T,
    x: &[T],
    dy: &[T],
    dtable: &mut [T],
) {
    for (first, &id) in x.iter().enumerate() {
        let Some(entry) = entry(id, entries) else { continue };
        if part(x, 0..first).contains(&id) {
            continue;
        }
        let places = part_mut(dtable, entry * width..(entry + 1) * width);
        for (block, places) in places.chunks_mut(LANES).enumerate() {
            let mut sums = [T::ZERO; LANES];
            for (row, _) in x.iter().enumerate().skip(first).filter(|&(_, &other)| other == id) {
                let from = part(dy, row * width + block * LANES..(row + 1) * width);
                for (sum, &value) in sums.iter_mut().zip(from) {
                    *sum += value;
                }
            }
            for (place, &sum) in places.iter_mut().zip(&sums) {
                *place += factor * sum;
            }
        }
    }
}

/// The entry of a whole number in range; `None` for anything else, including NaN.
fn entry<T: Float>(id: T, entries: usize) -> Option<usize> {
    let id = id.to_f64();
    let inside = id >= 0.0 && id < entries as f64;
    let entry = if inside { id as usize } else { return None };
    (entry as f64 == id).then_some(entry)
}
