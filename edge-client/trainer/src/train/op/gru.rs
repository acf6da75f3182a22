//! Gated recurrent unit; formulas at [`common::plan::Gru`].
//!
//! ```text
//! keep     reset after: [samples][steps][z r q n], q = Rh h + Rbh       before: [samples][steps][z r n]
//! scratch  dh[samples][u]  G[samples][steps][3u]  S[samples][steps][u]
//!          after:  G = (az, ar, dq), S = an        before: G = (az, ar, an), S = r*h
//! ```
//! where `az, ar, an` are gradients by the arguments of the gates' functions. Backward runs from the last step to the first,
//! with `d = dh + dy[t]`, `h = y[t-1]` (0 in the first step):
//!
//! ```text
//! az = d (h - n) z(1-z)     an = d (1-z) (1-n^2)     dh = d z + az Rz + ar Rr + ...
//! after:  dq = an r   ar = an q r(1-r)               ... + dq Rh
//! before: e = an Rh   ar = e h r(1-r)                ... + e r
//! ```
//! Products of whole sequences are those of [`super::sequence`]; `W` takes `(az, ar, an)` and `R` takes `G`.

use common::plan::Gru;

use super::{
    column_sums, fill_rows,
    sequence::{RecurrentWeights, SequenceSizes, before, slice_mut},
};
use crate::train::{
    Backend, Float, GemmWrite,
    part::{part_mut, tail, tail_mut},
};

#[derive(Copy, Clone)]
pub(in crate::train) struct GruSizes {
    sequence: SequenceSizes,
    after: bool,
}

impl GruSizes {
    pub(in crate::train) fn new(gru: &Gru, samples: usize) -> Self {
        let (steps, inputs, units) = (gru.steps as usize, gru.inputs as usize, gru.units as usize);
        let sequence = SequenceSizes { samples, steps, inputs, units };
        Self { sequence, after: gru.reset_after }
    }

    /// Numbers that forward keeps per step.
    fn kept(&self) -> usize {
        if self.after { 4 * self.sequence.units } else { 3 * self.sequence.units }
    }
}

pub(in crate::train) fn forward<T: Float>(
    backend: &mut (impl Backend<T> + ?Sized),
    sizes: GruSizes,
    x: &[T],
    weights: &RecurrentWeights<'_, T>,
    keep: &mut [T],
    y: &mut [T],
) {
    let GruSizes { sequence, after } = sizes;
    let (SequenceSizes { samples, steps, inputs, units: u }, kept) = (sequence, sizes.kept());
    // The place of n. Where there is a q, it comes before n, so that z r q are the columns of one product.
    let n_at = kept - u;
    start_with_bias(sizes, weights.bias, keep);
    let (w, r) = (weights.input, weights.recurrent);
    let candidate = sequence.gates(u, kept);
    sequence.gates(2 * u, kept).add_inputs(backend, x, w, keep);
    candidate.add_inputs(backend, x, tail(w, 2 * u * inputs), tail_mut(keep, n_at));
    let joint = sequence.gates(if after { 3 * u } else { 2 * u }, kept);
    for step in 0..steps {
        if step > 0 {
            joint.add_states(backend, (y, step - 1), r, (keep, step));
        }
        let now = tail_mut(keep, step * kept);
        for sample in 0..samples {
            let gates = slice_mut(now, sample * steps * kept, 2 * u);
            gates.iter_mut().for_each(|gate| *gate = gate.sigmoid());
        }
        if !after && step > 0 {
            // The reset state is stored where the new state will be.
            for sample in 0..samples {
                let gates = tail(now, sample * steps * kept + u);
                let (old, new) = states(y, sequence, sample, step);
                for ((new, &old), &r) in new.iter_mut().zip(old).zip(gates) {
                    *new = r * old;
                }
            }
            candidate.add_states(backend, (y, step), tail(r, 2 * u * u), (tail_mut(now, n_at), 0));
        }
        for sample in 0..samples {
            let gates = slice_mut(now, sample * steps * kept, kept);
            let (rest, n) = gates.split_at_mut(n_at.min(gates.len()));
            if after {
                for ((n, &r), &q) in n.iter_mut().zip(tail(rest, u)).zip(tail(rest, 2 * u)) {
                    *n += r * q;
                }
            }
            let (old, new) = states(y, sequence, sample, step);
            for (at, ((new, n), &z)) in new.iter_mut().zip(n.iter_mut()).zip(&*rest).enumerate() {
                *n = n.tanh();
                let kept = old.get(at).map_or(T::ZERO, |&old| z * old);
                *new = (T::ONE - z) * *n + kept;
            }
        }
    }
}

/// Everything that backward reads.
pub(in crate::train) struct GruTape<'a, T> {
    pub x: &'a [T],
    pub y: &'a [T],
    pub keep: &'a [T],
    pub dy: &'a [T],
}

/// Fills the scratch with the gradients of all gates.
pub(in crate::train) fn gates<T: Float>(
    backend: &mut (impl Backend<T> + ?Sized),
    sizes: GruSizes,
    tape: &GruTape<'_, T>,
    recurrent: &[T],
    scratch: &mut [T],
) {
    let GruSizes { sequence, after } = sizes;
    let (SequenceSizes { samples, steps, units: u, .. }, kept) = (sequence, sizes.kept());
    let joint = sequence.gates(if after { 3 * u } else { 2 * u }, 3 * u);
    let (dh, g, s) = parts(sequence, scratch);
    dh.fill(T::ZERO);
    for step in (0..steps).rev() {
        for sample in 0..samples {
            let row = sample * steps + step;
            let gates = tail(tape.keep, row * kept);
            let (z, n) = (gates, tail(gates, kept - u));
            let old = if step > 0 { tail(tape.y, (row - 1) * u) } else { &[] };
            let dh = slice_mut(dh, sample * u, u);
            let an_at = if after { 0 } else { 2 * u };
            let (az, rest) = slice_mut(g, row * 3 * u, 3 * u).split_at_mut(u);
            let an = if after { slice_mut(s, row * u, u) } else { tail_mut(rest, an_at - u) };
            let values = z.iter().zip(n).zip(tail(tape.dy, row * u));
            for (at, (((&z, &n), &dy), ((dh, az), an))) in
                values.zip(dh.iter_mut().zip(az).zip(an)).enumerate()
            {
                let d = *dh + dy;
                let old = before(old, at);
                *az = d * (old - n) * (z * (T::ONE - z));
                *an = d * (T::ONE - z) * (T::ONE - n * n);
                *dh = d * z;
            }
        }
        if after {
            for sample in 0..samples {
                let row = sample * steps + step;
                let (r, q) = (tail(tape.keep, row * kept + u), tail(tape.keep, row * kept + 2 * u));
                let (ar, dq) = slice_mut(g, row * 3 * u + u, 2 * u).split_at_mut(u);
                let values = r.iter().zip(q).zip(tail(s, row * u));
                for (((&r, &q), &an), (ar, dq)) in values.zip(ar.iter_mut().zip(dq)) {
                    *ar = an * q * (r * (T::ONE - r));
                    *dq = an * r;
                }
            }
        } else {
            let (an, r) = (tail(g, 2 * u), tail(recurrent, 2 * u * u));
            let place = (tail_mut(s, step * u), steps * u);
            sequence.gates(u, 3 * u).state_grad(backend, (an, step), r, GemmWrite::Replace, place);
            for sample in 0..samples {
                let row = sample * steps + step;
                let r = tail(tape.keep, row * kept + u);
                let old = if step > 0 { tail(tape.y, (row - 1) * u) } else { &[] };
                let (ar, dh) = (slice_mut(g, row * 3 * u + u, u), slice_mut(dh, sample * u, u));
                let e = slice_mut(s, row * u, u);
                for (at, ((&r, ar), (dh, e))) in r.iter().zip(ar).zip(dh.iter_mut().zip(e)).enumerate() {
                    let old = before(old, at);
                    *ar = *e * old * (r * (T::ONE - r));
                    *dh += *e * r;
                    *e = r * old;
                }
            }
        }
        if step > 0 {
            joint.state_grad(backend, (g, step), recurrent, GemmWrite::Add(T::ONE), (dh, u));
        }
    }
}

pub(in crate::train) fn input_grad<T: Float>(
    backend: &mut (impl Backend<T> + ?Sized),
    sizes: GruSizes,
    scratch: &mut [T],
    w: &[T],
    add: bool,
    dx: &mut [T],
) {
    let GruSizes { sequence, after } = sizes;
    let SequenceSizes { inputs, units: u, .. } = sequence;
    let (_, g, s) = parts(sequence, scratch);
    let first = if add { GemmWrite::Add(T::ONE) } else { GemmWrite::Replace };
    sequence.gates(if after { 2 * u } else { 3 * u }, 3 * u).input_grad(backend, g, w, first, dx);
    if after {
        let w = tail(w, 2 * u * inputs);
        sequence.gates(u, u).input_grad(backend, s, w, GemmWrite::Add(T::ONE), dx);
    }
}

/// Overwrites the scratch memory: the first step has no state before it, so its gates are set to 0 for the recurrent product.
#[expect(clippy::too_many_arguments, reason = "what a gradient is made of")]
pub(in crate::train) fn param_grad<T: Float>(
    backend: &mut (impl Backend<T> + ?Sized),
    sizes: GruSizes,
    factor: T,
    tape: &GruTape<'_, T>,
    scratch: &mut [T],
    dw: &mut [T],
    dr: &mut [T],
    db: &mut [T],
) {
    let GruSizes { sequence, after } = sizes;
    let SequenceSizes { inputs, units: u, .. } = sequence;
    let (_, g, s) = parts(sequence, scratch);
    if !db.is_empty() {
        // Wbz Wbr Wbh Rbz Rbr Rbh.
        column_sums(3 * u, factor, g, slice_mut(db, 0, 2 * u));
        column_sums(3 * u, factor, g, slice_mut(db, 3 * u, 3 * u));
        if after {
            column_sums(u, factor, s, slice_mut(db, 2 * u, u));
        } else {
            column_sums(3 * u, factor, tail(g, 2 * u), slice_mut(db, 2 * u, u));
        }
    }
    let joint = sequence.gates(if after { 2 * u } else { 3 * u }, 3 * u);
    joint.weight_grad(backend, factor, g, tape.x, dw);
    if after {
        sequence.gates(u, u).weight_grad(backend, factor, s, tape.x, tail_mut(dw, 2 * u * inputs));
    }
    sequence.gates(3 * u, 3 * u).clear_first(g);
    let joint = sequence.gates(if after { 3 * u } else { 2 * u }, 3 * u);
    joint.recurrent_grad(backend, factor, g, tape.y, dr);
    if !after {
        // The reset states are not shifted: those of the first step are 0.
        let reset = SequenceSizes { inputs: u, ..sequence };
        reset.gates(u, 3 * u).weight_grad(backend, factor, tail(g, 2 * u), s, tail_mut(dr, 2 * u * u));
    }
}

fn start_with_bias<T: Float>(sizes: GruSizes, bias: Option<&[T]>, keep: &mut [T]) {
    let (u, kept) = (sizes.sequence.units, sizes.kept());
    let Some(bias) = bias else { return fill_rows(kept, None, keep) };
    let (input, recurrent) = bias.split_at((3 * u).min(bias.len()));
    for row in keep.chunks_exact_mut(kept.max(1)) {
        let (gates, rest) = row.split_at_mut(2 * u);
        for ((gate, &w), &r) in gates.iter_mut().zip(input).zip(recurrent) {
            *gate = w + r;
        }
        let candidate = tail(input, 2 * u).iter().zip(tail(recurrent, 2 * u));
        if sizes.after {
            let (q, n) = rest.split_at_mut(u);
            for ((q, n), (&w, &r)) in q.iter_mut().zip(n).zip(candidate) {
                (*q, *n) = (r, w);
            }
        } else {
            rest.iter_mut().zip(candidate).for_each(|(n, (&w, &r))| *n = w + r);
        }
    }
}

/// State before and after a step; the first has none before.
fn states<T>(y: &mut [T], sizes: SequenceSizes, sample: usize, step: usize) -> (&[T], &mut [T]) {
    let (u, row) = (sizes.units, sample * sizes.steps + step);
    let (before, now) = y.split_at_mut((row * u).min(y.len()));
    let old = if step > 0 { tail(before, row * u - u) } else { &[] };
    (old, part_mut(now, 0..u))
}

fn parts<T>(sizes: SequenceSizes, scratch: &mut [T]) -> (&mut [T], &mut [T], &mut [T]) {
    let (state, rows) = (sizes.samples * sizes.units, sizes.rows() * sizes.units);
    let (dh, rest) = scratch.split_at_mut(state.min(scratch.len()));
    let (g, s) = rest.split_at_mut((3 * rows).min(rest.len()));
    (dh, g, s)
}
