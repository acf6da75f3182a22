//! What recurrent layers share: the products of whole sequences and of single steps.
//!
//! A layer stores its gates, and later their gradients `G`, as columns of a matrix with one row per step of every sample. The
//! inputs of all steps are multiplied in one product, the states step by step:
//!
//! ```text
//! forward   gates += X W^T      gates[t] += h[t-1] R^T
//! backward  dh = G[t] R         dX = G W      dW += G^T X      dR += G^T H, with H the states of the step before
//! ```

use crate::train::{
    Backend, Float, GemmWrite, MatrixView, MatrixViewMut,
    part::{part_mut, tail, tail_mut},
};

#[derive(Copy, Clone)]
pub(super) struct SequenceSizes {
    pub samples: usize,
    pub steps: usize,
    pub inputs: usize,
    pub units: usize,
}

impl SequenceSizes {
    pub(super) fn rows(&self) -> usize {
        self.samples * self.steps
    }

    /// The gates in the first `width` columns of rows that begin `stride` apart.
    pub(super) fn gates(self, width: usize, stride: usize) -> Gates {
        Gates { sizes: self, width, stride }
    }
}

pub(in crate::train) struct RecurrentWeights<'a, T> {
    pub input: &'a [T],
    pub recurrent: &'a [T],
    pub bias: Option<&'a [T]>,
}

/// Columns of a matrix with one row per step of every sample.
#[derive(Copy, Clone)]
pub(super) struct Gates {
    pub sizes: SequenceSizes,
    width: usize,
    stride: usize,
}

impl Gates {
    /// `gates += X W^T`.
    pub(super) fn add_inputs<T: Float>(
        self,
        backend: &mut (impl Backend<T> + ?Sized),
        x: &[T],
        w: &[T],
        gates: &mut [T],
    ) {
        let (rows, inputs) = (self.sizes.rows(), self.sizes.inputs);
        let weights = MatrixView::new(w, self.width, inputs).transposed();
        let place = MatrixViewMut::strided(gates, rows, self.width, self.stride);
        backend.gemm(MatrixView::new(x, rows, inputs), weights, GemmWrite::Add(T::ONE), place);
    }

    /// `gates[step] += states[at] R^T`.
    pub(super) fn add_states<T: Float>(
        self,
        backend: &mut (impl Backend<T> + ?Sized),
        (states, at): (&[T], usize),
        r: &[T],
        (gates, step): (&mut [T], usize),
    ) {
        let SequenceSizes { samples, steps, units, .. } = self.sizes;
        let states = MatrixView::strided(tail(states, at * units), samples, units, steps * units);
        let weights = MatrixView::new(r, self.width, units).transposed();
        let (now, stride) = (tail_mut(gates, step * self.stride), steps * self.stride);
        let place = MatrixViewMut::strided(now, samples, self.width, stride);
        backend.gemm(states, weights, GemmWrite::Add(T::ONE), place);
    }

    /// `states = G[step] R`, or added to it; the samples of `states` begin `distance` apart.
    pub(super) fn state_grad<T: Float>(
        self,
        backend: &mut (impl Backend<T> + ?Sized),
        (g, step): (&[T], usize),
        r: &[T],
        store: GemmWrite<T>,
        (states, distance): (&mut [T], usize),
    ) {
        let SequenceSizes { samples, steps, units, .. } = self.sizes;
        let now = MatrixView::strided(tail(g, step * self.stride), samples, self.width, steps * self.stride);
        let place = MatrixViewMut::strided(states, samples, units, distance);
        backend.gemm(now, MatrixView::new(r, self.width, units), store, place);
    }

    /// `dX = G W`, or added to it.
    pub(super) fn input_grad<T: Float>(
        self,
        backend: &mut (impl Backend<T> + ?Sized),
        g: &[T],
        w: &[T],
        store: GemmWrite<T>,
        dx: &mut [T],
    ) {
        let (rows, inputs) = (self.sizes.rows(), self.sizes.inputs);
        let gates = MatrixView::strided(g, rows, self.width, self.stride);
        let weights = MatrixView::new(w, self.width, inputs);
        backend.gemm(gates, weights, store, MatrixViewMut::new(dx, rows, inputs));
    }

    /// `dW += factor G^T X`.
    pub(super) fn weight_grad<T: Float>(
        self,
        backend: &mut (impl Backend<T> + ?Sized),
        factor: T,
        g: &[T],
        x: &[T],
        dw: &mut [T],
    ) {
        let (rows, inputs) = (self.sizes.rows(), self.sizes.inputs);
        let gates = MatrixView::strided(g, rows, self.width, self.stride).transposed();
        let place = MatrixViewMut::new(dw, self.width, inputs);
        backend.gemm(gates, MatrixView::new(x, rows, inputs), GemmWrite::Add(factor), place);
    }

    /// `dR += factor G^T H`. The first step of every sample, which has no state before it, must be 0 ([`Self::clear_first`]).
    pub(super) fn recurrent_grad<T: Float>(
        self,
        backend: &mut (impl Backend<T> + ?Sized),
        factor: T,
        g: &[T],
        states: &[T],
        dr: &mut [T],
    ) {
        let units = self.sizes.units;
        let Some(rows) = self.sizes.rows().checked_sub(1).filter(|&rows| rows > 0) else { return };
        let gates = MatrixView::strided(tail(g, self.stride), rows, self.width, self.stride).transposed();
        let place = MatrixViewMut::new(dr, self.width, units);
        backend.gemm(gates, MatrixView::new(states, rows, units), GemmWrite::Add(factor), place);
    }

    /// Sets the first step of every sample to 0.
    pub(super) fn clear_first<T: Float>(self, g: &mut [T]) {
        for sample in g.chunks_mut((self.sizes.steps * self.stride).max(1)) {
            slice_mut(sample, 0, self.width).fill(T::ZERO);
        }
    }
}

/// A state before the first step is 0.
pub(super) fn before<T: Float>(old: &[T], unit: usize) -> T {
    old.get(unit).copied().unwrap_or(T::ZERO)
}

pub(super) fn slice_mut<T>(values: &mut [T], at: usize, len: usize) -> &mut [T] {
    part_mut(values, at..at.saturating_add(len))
}
