//! Joins, cuts, pads and transposes the rows of a sample; the gradient goes back to where its number came from.

use common::plan::Arrange;

use super::where_built;
use crate::train::{
    Float,
    part::{part, part_mut},
};

pub(in crate::train) fn forward<T: Float>(op: Arrange, x: &[T], second: &[T], y: &mut [T]) {
    match op {
        Arrange::Concat { first, second: other, .. } => where_built!("Concat", {
            let (first, other) = (first as usize, other as usize);
            copy_rows(x, first, 0, y, first + other, 0, first, false);
            copy_rows(second, other, 0, y, first + other, first, other, false);
        }),
        Arrange::Part { width, start, len, .. } => where_built!("Part", {
            copy_rows(x, width as usize, start as usize, y, len as usize, 0, len as usize, false);
        }),
        Arrange::Pad { width, before, after, .. } => where_built!("Pad", {
            let (width, before) = (width as usize, before as usize);
            y.fill(T::ZERO);
            copy_rows(x, width, 0, y, before + width + after as usize, before, width, false);
        }),
        Arrange::Transpose { height, width, .. } => {
            where_built!("Transpose", transpose(height as usize, width as usize, x, false, y));
        }
    }
}

/// The gradient of the first operand.
pub(in crate::train) fn backward<T: Float>(op: Arrange, dy: &[T], add: bool, dx: &mut [T]) {
    match op {
        Arrange::Concat { first, second, .. } => where_built!("Concat", {
            let (first, second) = (first as usize, second as usize);
            copy_rows(dy, first + second, 0, dx, first, 0, first, add);
        }),
        Arrange::Part { width, start, len, .. } => where_built!("Part", {
            if !add {
                dx.fill(T::ZERO);
            }
            copy_rows(dy, len as usize, 0, dx, width as usize, start as usize, len as usize, add);
        }),
        Arrange::Pad { width, before, after, .. } => where_built!("Pad", {
            let (width, before) = (width as usize, before as usize);
            copy_rows(dy, before + width + after as usize, before, dx, width, 0, width, add);
        }),
        Arrange::Transpose { height, width, .. } => {
            where_built!("Transpose", transpose(width as usize, height as usize, dy, add, dx));
        }
    }
}

/// The gradient of the second operand of a concatenation.
pub(in crate::train) fn second_grad<T: Float>(op: Arrange, dy: &[T], add: bool, dx: &mut [T]) {
    if let Arrange::Concat { first, second, .. } = op {
        let (first, second) = (first as usize, second as usize);
        where_built!("Concat", copy_rows(dy, first + second, first, dx, second, 0, second, add));
    }
}

/// Copies or adds `len` numbers of every row: from `start` on in rows of `width`, to `to` on in rows of `to_width`.
#[expect(clippy::too_many_arguments, reason = "a place in two matrices")]
fn copy_rows<T: Float>(
    from: &[T],
    width: usize,
    start: usize,
    into: &mut [T],
    to_width: usize,
    to: usize,
    len: usize,
    add: bool,
) {
    for (from, into) in from.chunks_exact(width.max(1)).zip(into.chunks_exact_mut(to_width.max(1))) {
        let (from, into) = (part(from, start..start + len), part_mut(into, to..to + len));
        super::add::backward(from, add, into);
    }
}

/// Every matrix `[height][width]` to `[width][height]`.
fn transpose<T: Float>(height: usize, width: usize, from: &[T], add: bool, into: &mut [T]) {
    let area = (height * width).max(1);
    for (from, into) in from.chunks_exact(area).zip(into.chunks_exact_mut(area)) {
        for (x, into) in into.chunks_exact_mut(height.max(1)).enumerate() {
            for (into, &from) in into.iter_mut().zip(from.iter().skip(x).step_by(width.max(1))) {
                *into = if add { *into + from } else { from };
            }
        }
    }
}
