//! Operations with several implementations: matrix products, convolutions, and loops over every number.
//!
//! Dense layers, recurrent layers and (on hosts) convolutions use [`Backend::gemm`]. Everything else in training is the same
//! code everywhere.

use common::plan::{Activation, Conv};

use super::{
    Float,
    op::{activate, column_sums},
};

/// A matrix to read: element `(i, j)` is at `i * strides.0 + j * strides.1`.
#[derive(Copy, Clone, Debug)]
pub struct MatrixView<'a, T> {
    /// The numbers.
    pub data: &'a [T],
    /// Number of rows.
    pub rows: usize,
    /// Number of columns.
    pub columns: usize,
    /// Distance between neighbours in a column, and in a row.
    pub strides: (usize, usize),
}

impl<'a, T> MatrixView<'a, T> {
    /// Row after row, without gaps.
    pub fn new(data: &'a [T], rows: usize, columns: usize) -> Self {
        Self::strided(data, rows, columns, columns)
    }

    /// Rows that begin `stride` apart.
    pub fn strided(data: &'a [T], rows: usize, columns: usize, stride: usize) -> Self {
        Self { data, rows, columns, strides: (stride, 1) }
    }

    /// The same numbers with rows and columns exchanged.
    #[must_use]
    pub fn transposed(self) -> Self {
        let Self { data, rows, columns, strides } = self;
        Self { data, rows: columns, columns: rows, strides: (strides.1, strides.0) }
    }

    #[cfg(feature = "host")]
    pub(super) fn holds(&self) -> bool {
        holds(self.data.len(), self.rows, self.columns, self.strides)
    }
}

/// A matrix to write, rows `stride` apart.
#[derive(Debug)]
pub struct MatrixViewMut<'a, T> {
    /// The numbers.
    pub data: &'a mut [T],
    /// Number of rows.
    pub rows: usize,
    /// Number of columns.
    pub columns: usize,
    /// Distance between the beginnings of two rows.
    pub stride: usize,
}

impl<'a, T> MatrixViewMut<'a, T> {
    /// Row after row, without gaps.
    pub fn new(data: &'a mut [T], rows: usize, columns: usize) -> Self {
        Self::strided(data, rows, columns, columns)
    }

    /// Rows that begin `stride` apart.
    pub fn strided(data: &'a mut [T], rows: usize, columns: usize, stride: usize) -> Self {
        Self { data, rows, columns, stride }
    }

    #[cfg(feature = "host")]
    pub(super) fn holds(&self) -> bool {
        self.stride >= self.columns && holds(self.data.len(), self.rows, self.columns, (self.stride, 1))
    }
}

/// True if every element is inside the slice.
#[cfg(feature = "host")]
fn holds(len: usize, rows: usize, columns: usize, strides: (usize, usize)) -> bool {
    let (Some(row), Some(column)) = (rows.checked_sub(1), columns.checked_sub(1)) else { return true };
    let last = row.checked_mul(strides.0).zip(column.checked_mul(strides.1));
    let last = last.and_then(|(row, column)| row.checked_add(column));
    last.is_some_and(|last| last < len && isize::try_from(last).is_ok())
}

/// How a product is stored.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum GemmWrite<T> {
    /// `c = a b`.
    Replace,
    /// `c = c + factor * (a b)`.
    Add(T),
}

/// Computes products. The sizes of arguments match; an access outside a slice is a bug in this crate.
///
/// The three parts of a convolution add to the output: the caller has filled it with the bias, zeros or an earlier gradient.
/// `x`, `y` and their gradients are `[samples][channels][height][width]`.
pub trait Backend<T> {
    /// `c = a b`, stored as `store` states.
    fn gemm(
        &mut self,
        a: MatrixView<'_, T>,
        b: MatrixView<'_, T>,
        store: GemmWrite<T>,
        c: MatrixViewMut<'_, T>,
    );

    /// `y += W * x`.
    fn conv(&mut self, conv: &Conv, samples: usize, x: &[T], w: &[T], y: &mut [T]);

    /// `dx += W^T * dy`.
    fn conv_input_grad(&mut self, conv: &Conv, samples: usize, dy: &[T], w: &[T], dx: &mut [T]);

    /// `dW += factor * (dy * x)`.
    fn conv_weight_grad(&mut self, conv: &Conv, samples: usize, factor: T, dy: &[T], x: &[T], dw: &mut [T]);

    /// Replaces negative values by zero.
    fn relu(&mut self, values: &mut [T])
    where
        T: Float,
    {
        activate::forward(Activation::Relu, values);
    }

    /// Replaces the gradient by zero where `y` is not positive.
    fn relu_grad(&mut self, y: &[T], gradient: &mut [T])
    where
        T: Float,
    {
        activate::backward_in_place(Activation::Relu, y, gradient);
    }

    /// `sums_j += factor * sum_i rows[i][j]` with rows of `stride` numbers.
    fn column_sums(&mut self, stride: usize, factor: T, rows: &[T], sums: &mut [T])
    where
        T: Float,
    {
        column_sums(stride, factor, rows, sums);
    }
}
