//! Walks the nodes of a Plan over its arena.
//!
//! One batch is: samples into the input buffer, [`forward`], then either [`score`] or
//! [`loss_and_gradient`] and [`backward`]. A batch may be shorter than the Plan's; buffers are then used
//! up to the last row. Parts of the arena are borrowed by `get_disjoint_mut`, so a Plan that would
//! read what it overwrites ends in an error whatever its bytes came from.

use core::ops::Range;

use common::plan::{Node, Op, Plan};

use super::{Backend, Float, Sizes, Tally, TrainError, dense, loss, relu};
use crate::data::DataError;

/// Where parameter gradients go.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum Target<T> {
    /// Into the Plan's gradient segment.
    Grads,
    /// Straight into the weights as `w -= lr * g`: a quarter less RAM and one pass less, with the same
    /// bits, provided that no two nodes share parameters.
    Weights { lr: T },
}

/// Input buffer to logits.
pub fn forward<T: Float>(
    plan: Plan<'_>,
    arena: &mut [T],
    rows: usize,
    backend: &(impl Backend<T> + ?Sized),
) -> Result<(), TrainError> {
    check(plan, arena.len(), rows)?;
    for (index, node) in plan.nodes.iter().enumerate() {
        let (x, y) = (input(node, node.input, rows), output(node, node.output, rows));
        match node.op {
            Op::Dense { inputs, outputs, weight, bias } => {
                let sizes = Sizes { rows, inputs: inputs as usize, outputs: outputs as usize };
                let w = span(weight, sizes.inputs.saturating_mul(sizes.outputs));
                let b = bias.map_or(0..0, |bias| span(bias, sizes.outputs));
                let [x, w, b, y] = disjoint(arena, [x, w, b, y], index)?;
                dense::forward(backend, sizes, x, w, bias.map(|_| &*b), y);
            }
            Op::Relu { .. } if x == y => {
                let [values] = disjoint(arena, [x], index)?;
                relu::forward_in_place(values);
            }
            Op::Relu { .. } => {
                let [x, y] = disjoint(arena, [x, y], index)?;
                relu::forward(x, y);
            }
        }
    }
    Ok(())
}

/// Losses of the logits that [`forward`] left. `label` gives the label of a row.
pub fn score<T: Float>(
    plan: Plan<'_>,
    arena: &[T],
    rows: usize,
    mut label: impl FnMut(usize) -> Result<u32, DataError>,
) -> Result<Tally, TrainError> {
    check(plan, arena.len(), rows)?;
    let width = plan.info.outputs as usize;
    let logits = arena.get(span(plan.info.logits, rows.saturating_mul(width))).unwrap_or_default();
    let mut tally = Tally::default();
    for (row, logits) in logits.chunks_exact(width.max(1)).enumerate() {
        let (loss, correct) = loss::score(logits, legal(label(row)?, row, plan)?);
        tally.add(loss, correct);
    }
    Ok(tally)
}

/// Like [`score`], and leaves the gradient of the batch's mean loss where [`backward`] reads it.
pub fn loss_and_gradient<T: Float>(
    plan: Plan<'_>,
    arena: &mut [T],
    rows: usize,
    mut label: impl FnMut(usize) -> Result<u32, DataError>,
) -> Result<Tally, TrainError> {
    check(plan, arena.len(), rows)?;
    let at = plan.nodes.last().and_then(|node| node.output_grad).ok_or(TrainError::InferenceOnly)?;
    let width = plan.info.outputs as usize;
    let logits = span(plan.info.logits, rows.saturating_mul(width));
    let gradient = span(at, logits.len());
    if gradient.end > arena.len() || logits.end > arena.len() {
        return Err(TrainError::Overlap(plan.nodes.len() - 1));
    }
    if gradient != logits {
        arena.copy_within(logits, gradient.start);
    }
    let scale = T::ONE / T::from_f64(rows as f64);
    let mut tally = Tally::default();
    let gradient = arena.get_mut(gradient).unwrap_or_default();
    for (row, logits) in gradient.chunks_exact_mut(width.max(1)).enumerate() {
        let (loss, correct) = loss::gradient(logits, legal(label(row)?, row, plan)?, scale);
        tally.add(loss, correct);
    }
    Ok(tally)
}

/// Gradient of the logits to gradients of all parameters.
pub fn backward<T: Float>(
    plan: Plan<'_>,
    arena: &mut [T],
    rows: usize,
    target: Target<T>,
    backend: &(impl Backend<T> + ?Sized),
) -> Result<(), TrainError> {
    check(plan, arena.len(), rows)?;
    let (base, scale) = match target {
        Target::Grads => {
            let at = plan.info.grads.ok_or(TrainError::InferenceOnly)?;
            arena.get_mut(span(at, plan.info.params as usize)).unwrap_or_default().fill(T::ZERO);
            (at, T::ONE)
        }
        Target::Weights { .. } if shares_parameters(plan) => return Err(TrainError::SharedParameters),
        Target::Weights { lr } => (0, -lr),
    };
    for (index, node) in plan.nodes.iter().enumerate().rev() {
        let Some(dy) = node.output_grad.map(|at| output(node, at, rows)) else {
            // Gradients stop where nothing upstream has parameters.
            if has_parameters(node) {
                return Err(TrainError::InferenceOnly);
            }
            continue;
        };
        let dx = node.input_grad.map(|at| input(node, at, rows));
        match node.op {
            Op::Dense { inputs, outputs, weight, bias } => {
                let sizes = Sizes { rows, inputs: inputs as usize, outputs: outputs as usize };
                let weights = sizes.inputs.saturating_mul(sizes.outputs);
                // Before the weights change, where they are the target.
                if let Some(dx) = dx {
                    let [w, dy, dx] = disjoint(arena, [span(weight, weights), dy.clone(), dx], index)?;
                    dense::input_grad(backend, sizes, dy, w, dx);
                }
                let dw = span(base.saturating_add(weight), weights);
                let db = bias.map_or(0..0, |bias| span(base.saturating_add(bias), sizes.outputs));
                let x = input(node, node.input, rows);
                let [dw, db, dy, x] = disjoint(arena, [dw, db, dy, x], index)?;
                dense::weight_grad(backend, sizes, scale, dy, x, dw);
                dense::bias_grad(sizes.outputs, scale, dy, db);
            }
            Op::Relu { .. } => {
                let y = output(node, node.output, rows);
                match dx {
                    Some(dx) if dx == dy => {
                        let [y, gradient] = disjoint(arena, [y, dx], index)?;
                        relu::backward_in_place(y, gradient);
                    }
                    Some(dx) => {
                        let [y, dy, dx] = disjoint(arena, [y, dy, dx], index)?;
                        relu::backward(y, dy, dx);
                    }
                    None => {}
                }
            }
        }
    }
    Ok(())
}

/// True if some parameter belongs to two nodes.
pub(super) fn shares_parameters(plan: Plan<'_>) -> bool {
    let held = |node: &Node| match node.op {
        Op::Dense { inputs, outputs, weight, bias } => {
            let weights = span(weight, (inputs as usize).saturating_mul(outputs as usize));
            [weights, bias.map_or(0..0, |bias| span(bias, outputs as usize))]
        }
        Op::Relu { .. } => [0..0, 0..0],
    };
    let overlap = |a: &Range<usize>, b: &Range<usize>| a.start < b.end && b.start < a.end;
    plan.nodes.iter().enumerate().any(|(index, node)| {
        let (mine, others) = (held(node), plan.nodes.iter().skip(index + 1));
        others.flat_map(held).any(|theirs| mine.iter().any(|mine| overlap(mine, &theirs)))
    })
}

pub(super) fn has_parameters(node: &Node) -> bool {
    matches!(node.op, Op::Dense { .. })
}

fn check(plan: Plan<'_>, have: usize, rows: usize) -> Result<(), TrainError> {
    let (need, batch) = (plan.info.arena as usize, usize::from(plan.info.batch));
    if have < need {
        return Err(TrainError::Arena { need, have });
    }
    if rows == 0 || rows > batch {
        return Err(TrainError::Batch { rows, batch });
    }
    Ok(())
}

fn legal(label: u32, row: usize, plan: Plan<'_>) -> Result<usize, DataError> {
    let classes = plan.info.outputs;
    let wrong = DataError::Label { index: row as u32, label, classes };
    if label < classes { Ok(label as usize) } else { Err(wrong) }
}

fn input(node: &Node, at: u32, rows: usize) -> Range<usize> {
    span(at, rows.saturating_mul(node.op.sizes().0 as usize))
}

fn output(node: &Node, at: u32, rows: usize) -> Range<usize> {
    span(at, rows.saturating_mul(node.op.sizes().1 as usize))
}

fn span(at: u32, len: usize) -> Range<usize> {
    at as usize..(at as usize).saturating_add(len)
}

fn disjoint<T, const N: usize>(
    arena: &mut [T],
    ranges: [Range<usize>; N],
    node: usize,
) -> Result<[&mut [T]; N], TrainError> {
    arena.get_disjoint_mut(ranges).map_err(|_| TrainError::Overlap(node))
}
