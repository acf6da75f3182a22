//! LSTM and plain recurrent layers; formulas at [`common::plan::Recurrent`].
//!
//! ```text
//! keep     LSTM: [samples][steps][i o f g c]      plain: [samples][steps][a], h = tanh(a)
//! scratch  dh[samples][u], and for an LSTM dc[samples][u]
//! ```
//! Backward runs from the last step to the first and replaces the gates with the gradients `G` by the arguments of their
//! functions. With `d = dh + dy[t]` and `e = dc + d o (1 - tanh(c)^2)`, where `c'` is the cell before (0 in the first step):
//!
//! ```text
//! LSTM   ai = e g i(1-i)   ao = d tanh(c) o(1-o)   af = e c' f(1-f)   ag = e i (1-g^2)   dc = e f
//! plain  a = d (1-h^2)
//! ```
//! Products of whole sequences are those of [`super::sequence`].

use common::plan::{Recurrent, RecurrentKind};

use super::{
    column_sums,
    sequence::{Gates, RecurrentWeights, SequenceSizes, before, slice_mut},
};
use crate::train::{
    Backend, Float, GemmWrite,
    part::{tail, value},
};

#[derive(Copy, Clone)]
pub(in crate::train) struct RecurrentLayer {
    kind: RecurrentKind,
    gates: Gates,
    /// Gates of a step.
    width: usize,
    /// Numbers that forward keeps per step.
    kept: usize,
}

impl RecurrentLayer {
    pub(in crate::train) fn new(op: &Recurrent, samples: usize) -> Self {
        let (steps, inputs, units) = (op.steps as usize, op.inputs as usize, op.units as usize);
        let (width, kept) = (op.kind.gates() as usize * units, op.kind.kept() as usize * units);
        let gates = SequenceSizes { samples, steps, inputs, units }.gates(width, kept);
        Self { kind: op.kind, gates, width, kept }
    }

    /// What is kept of one step of one sample, and the cell before it, which is empty in the first step.
    fn split<'a, T>(&self, keep: &'a mut [T], sample: usize, step: usize) -> (&'a [T], &'a mut [T]) {
        let row = sample * self.gates.sizes.steps + step;
        let (done, now) = keep.split_at_mut((row * self.kept).min(keep.len()));
        let cells =
            if step > 0 { tail(done, done.len().saturating_sub(self.gates.sizes.units)) } else { &[] };
        (cells, slice_mut(now, 0, self.kept))
    }
}

pub(in crate::train) fn forward<T: Float>(
    backend: &mut (impl Backend<T> + ?Sized),
    layer: RecurrentLayer,
    x: &[T],
    weights: &RecurrentWeights<'_, T>,
    keep: &mut [T],
    y: &mut [T],
) {
    let SequenceSizes { samples, steps, units: u, .. } = layer.gates.sizes;
    start_with_bias(layer, weights.bias, keep);
    layer.gates.add_inputs(backend, x, weights.input, keep);
    for step in 0..steps {
        if step > 0 {
            layer.gates.add_states(backend, (y, step - 1), weights.recurrent, (keep, step));
        }
        for sample in 0..samples {
            let (old, now) = layer.split(keep, sample, step);
            let h = slice_mut(y, (sample * steps + step) * u, u);
            match layer.kind {
                RecurrentKind::Lstm => lstm(now, old, h),
                RecurrentKind::Tanh => h.iter_mut().zip(now).for_each(|(h, a)| *h = a.tanh()),
            }
        }
    }
}

/// Replaces the kept gates with their gradients.
pub(in crate::train) fn gates<T: Float>(
    backend: &mut (impl Backend<T> + ?Sized),
    layer: RecurrentLayer,
    (y, dy): (&[T], &[T]),
    recurrent: &[T],
    keep: &mut [T],
    scratch: &mut [T],
) {
    let SequenceSizes { samples, steps, units: u, .. } = layer.gates.sizes;
    scratch.fill(T::ZERO);
    let (dh, dc) = scratch.split_at_mut((samples * u).min(scratch.len()));
    for step in (0..steps).rev() {
        for sample in 0..samples {
            let (old, now) = layer.split(keep, sample, step);
            let row = (sample * steps + step) * u;
            let d = slice_mut(dh, sample * u, u);
            d.iter_mut().zip(tail(dy, row)).for_each(|(d, &dy)| *d += dy);
            let places = now.iter_mut().zip(&*d).zip(tail(y, row));
            match layer.kind {
                RecurrentKind::Lstm => lstm_grad(now, old, d, slice_mut(dc, sample * u, u)),
                RecurrentKind::Tanh => places.for_each(|((a, &d), &h)| *a = d * (T::ONE - h * h)),
            }
        }
        if step > 0 {
            layer.gates.state_grad(backend, (keep, step), recurrent, GemmWrite::Replace, (dh, u));
        }
    }
}

pub(in crate::train) fn input_grad<T: Float>(
    backend: &mut (impl Backend<T> + ?Sized),
    layer: RecurrentLayer,
    keep: &[T],
    w: &[T],
    add: bool,
    dx: &mut [T],
) {
    let store = if add { GemmWrite::Add(T::ONE) } else { GemmWrite::Replace };
    layer.gates.input_grad(backend, keep, w, store, dx);
}

/// Overwrites the gradients of the first step, which has no state before it.
pub(in crate::train) fn param_grad<T: Float>(
    backend: &mut (impl Backend<T> + ?Sized),
    layer: RecurrentLayer,
    factor: T,
    (x, y): (&[T], &[T]),
    keep: &mut [T],
    [dw, dr, db]: [&mut [T]; 3],
) {
    let (input, recurrent) = db.split_at_mut(layer.width.min(db.len()));
    column_sums(layer.kept, factor, keep, input);
    column_sums(layer.kept, factor, keep, recurrent);
    layer.gates.weight_grad(backend, factor, keep, x, dw);
    layer.gates.clear_first(keep);
    layer.gates.recurrent_grad(backend, factor, keep, y, dr);
}

fn start_with_bias<T: Float>(layer: RecurrentLayer, bias: Option<&[T]>, keep: &mut [T]) {
    let Some(bias) = bias else { return keep.fill(T::ZERO) };
    let (input, recurrent) = bias.split_at(layer.width.min(bias.len()));
    for row in keep.chunks_exact_mut(layer.kept.max(1)) {
        for ((gate, &w), &r) in row.iter_mut().zip(input).zip(recurrent) {
            *gate = w + r;
        }
    }
}

/// One step of one sample: functions of the gates, the new cell and state.
fn lstm<T: Float>(now: &mut [T], old: &[T], h: &mut [T]) {
    let u = h.len();
    let (gates, cells) = now.split_at_mut((4 * u).min(now.len()));
    let (sigmoids, tanhs) = gates.split_at_mut((3 * u).min(gates.len()));
    sigmoids.iter_mut().for_each(|gate| *gate = gate.sigmoid());
    tanhs.iter_mut().for_each(|gate| *gate = gate.tanh());
    for (at, (c, h)) in cells.iter_mut().zip(h).enumerate() {
        let [i, o, f, g] = gates_of(gates, u, at);
        *c = f * before(old, at) + i * g;
        *h = o * c.tanh();
    }
}

fn lstm_grad<T: Float>(now: &mut [T], old: &[T], d: &[T], dc: &mut [T]) {
    let u = d.len();
    let (gates, cells) = now.split_at_mut((4 * u).min(now.len()));
    for (at, ((&c, &d), dc)) in cells.iter().zip(d).zip(dc).enumerate() {
        let [i, o, f, g] = gates_of(gates, u, at);
        let tanh = c.tanh();
        let e = *dc + d * o * (T::ONE - tanh * tanh);
        let gradients = [
            e * g * (i * (T::ONE - i)),
            d * tanh * (o * (T::ONE - o)),
            e * before(old, at) * (f * (T::ONE - f)),
            e * i * (T::ONE - g * g),
        ];
        let places = gates.iter_mut().skip(at).step_by(u.max(1));
        places.zip(gradients).for_each(|(place, gradient)| *place = gradient);
        *dc = e * f;
    }
}

/// The four gates of one unit.
fn gates_of<T: Float>(gates: &[T], units: usize, unit: usize) -> [T; 4] {
    [0, 1, 2, 3].map(|gate| value(gates, gate * units + unit))
}
