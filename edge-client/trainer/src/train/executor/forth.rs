//! One node, forward.

use core::ops::Range;

use common::plan::{Activation, Arithmetic, Constant, Node, Op, Plan, PlanError};

use super::{PassMode, TrainError, built_in, full, input, output, parameters, second_operand, span, stretch};
use crate::{
    data::DataError,
    train::{
        Backend, Float,
        op::{
            activate, add, arithmetic, arrange, batchnorm, conv, dense, dropout, embed, gate, gru, last,
            norm, pool, prelu, recurrent, scale, sequence::RecurrentWeights,
        },
        part::disjoint,
    },
};

pub(super) fn node<T: Float>(
    plan: Plan<'_>,
    node: &Node,
    arena: &mut [T],
    rows: usize,
    mode: PassMode,
    backend: &mut (impl Backend<T> + ?Sized),
) -> Result<(), TrainError> {
    let (x, y) = (input(node, node.input.at, rows), output(node, node.output, rows));
    let [first, second, third] = parameters(node, 0);
    match node.op {
        Op::Dense { rows: tokens, inputs, outputs, bias, .. } => {
            let rows = rows.saturating_mul(tokens as usize);
            let sizes = dense::DenseSizes { rows, inputs: inputs as usize, outputs: outputs as usize };
            let [x, w, b, y] = disjoint(arena, [x, first, second, y])?;
            dense::forward(backend, sizes, x, w, bias.map(|_| &*b), y);
        }
        Op::Conv(op) => {
            built_in!("Conv");
            let [x, w, b, y] = disjoint(arena, [x, first, second, y])?;
            conv::forward(backend, &op, rows, x, w, op.bias.map(|_| &*b), y);
        }
        Op::Activate { kind: Activation::Relu, .. } => backend.relu(moved(arena, x, y)?),
        Op::Activate { kind, .. } => {
            full()?;
            activate::forward(kind, moved(arena, x, y)?);
        }
        Op::Pool(op) => {
            built_in!("Pool");
            let [x, y] = disjoint(arena, [x, y])?;
            pool::forward(&op, x, y);
        }
        Op::Add { .. } => {
            let second = second_operand(node, rows)?;
            moved(arena, x, y.clone())?;
            let [second, y] = disjoint(arena, [second, y])?;
            add::forward(second, y);
        }
        Op::Embed { rows: tokens, entries, width, .. } => {
            built_in!("Embed");
            let [x, table, y] = disjoint(arena, [x, first, y])?;
            let looked_up = embed::forward(entries as usize, width as usize, x, table, y);
            looked_up.map_err(|row| {
                let tokens = (tokens as usize).max(1);
                let (index, position) = ((row / tokens) as u32, (row % tokens) as u32);
                DataError::Token { index, position, entries }
            })?;
        }
        Op::Gru(op) => {
            built_in!("Gru");
            let keep = kept(node, rows);
            let [x, w, r, b, keep, y] = disjoint(arena, [x, first, second, third, keep, y])?;
            let weights = RecurrentWeights { input: w, recurrent: r, bias: op.bias.map(|_| &*b) };
            gru::forward(backend, gru::GruSizes::new(&op, rows), x, &weights, keep, y);
        }
        Op::Dropout { rate, salt, .. } => {
            let values = moved(arena, x, y)?;
            if let PassMode::Train { seed, step } = mode {
                dropout::DropoutMask::new(seed, step, salt, rate).apply(values);
            }
        }
        Op::Norm(op) => {
            built_in!("Norm");
            let [x, scale, bias, y] = disjoint(arena, [x, first, second, y])?;
            norm::forward(&op, x, scale, bias, y);
        }
        Op::Standardize(op) => {
            built_in!("Standardize");
            let [x, scale, y] = disjoint(arena, [x, first, y])?;
            norm::forward(&norm::of_standardize(&op), x, scale, &[], y);
        }
        Op::BatchNorm { channels, inner, epsilon, stats, .. } => {
            built_in!("BatchNorm");
            let sizes =
                batchnorm::BatchNormSizes { channels: channels as usize, inner: inner as usize, epsilon };
            let base = plan.info().segments.stats.ok_or(PlanError::Inconsistent)?;
            let segment = span(base.saturating_add(stats), 2 * sizes.channels);
            let [x, scale, bias, segment, y] = disjoint(arena, [x, first, second, segment, y])?;
            let statistics = match mode {
                PassMode::Train { .. } => batchnorm::Statistics::Batch,
                PassMode::Statistics { share } => {
                    batchnorm::Statistics::Collect { share: T::from_f32(share), segment }
                }
                PassMode::Evaluate => batchnorm::Statistics::Stored(segment),
            };
            batchnorm::forward(sizes, statistics, x, scale, bias, y);
        }
        Op::Scale { factor, .. } => {
            let values = moved(arena, x, y)?;
            if matches!(mode, PassMode::Train { .. }) {
                scale::apply(factor, values);
            }
        }
        Op::Last { steps, width } => {
            let [x, y] = disjoint(arena, [x, y])?;
            last::forward(steps as usize, width as usize, x, y);
        }
        Op::PRelu(op) => {
            built_in!("PRelu");
            let [x, slope, y] = disjoint(arena, [x, first, y])?;
            prelu::forward(&op.spread, x, slope, y);
        }
        Op::Arithmetic(op) => {
            built_in!("Arithmetic");
            moved(arena, x, y.clone())?;
            let [numbers, y] = disjoint(arena, [constants(&op), y])?;
            arithmetic::forward(op.kind, operand(&op, numbers), y);
        }
        Op::Recurrent(op) => {
            built_in!("Recurrent");
            let keep = kept(node, rows);
            let [x, w, r, b, keep, y] = disjoint(arena, [x, first, second, third, keep, y])?;
            let weights = RecurrentWeights { input: w, recurrent: r, bias: op.bias.map(|_| &*b) };
            recurrent::forward(backend, recurrent::RecurrentLayer::new(&op, rows), x, &weights, keep, y);
        }
        Op::Arrange(op) => {
            full()?;
            let second = node.second.map_or(Ok(0..0), |_| second_operand(node, rows))?;
            let [x, second, y] = disjoint(arena, [x, second, y])?;
            arrange::forward(op, x, second, y);
        }
        Op::Gate(op) => {
            built_in!("Gate");
            let [x, gate, y] = disjoint(arena, [x, second_operand(node, rows)?, y])?;
            gate::forward(op.inner as usize, x, gate, y);
        }
    }
    Ok(())
}

/// Memory for what backward reads. `Plan::check` ensures that it exists where the op needs it.
pub(super) fn kept(node: &Node, rows: usize) -> Range<usize> {
    let len = rows.saturating_mul(node.op.keep() as usize);
    debug_assert!(node.keep.is_some() || len == 0);
    node.keep.map_or(0..0, |at| span(at, len))
}

/// Where the constants of a node are.
pub(super) fn constants(op: &Arithmetic) -> Range<usize> {
    op.constants().map_or(0..0, stretch)
}

/// The constants of a node; `numbers` are those in [`constants`].
pub(super) fn operand<'a, T: Float>(op: &Arithmetic, numbers: &'a [T]) -> arithmetic::Constants<'a, T> {
    match op.with {
        Constant::One(number) => arithmetic::Constants::One(T::from_f32(number)),
        Constant::Each { inner, .. } => arithmetic::Constants::Each { numbers, inner: inner as usize },
    }
}

/// The output range of an op that may work in place, filled with the input.
fn moved<T: Copy>(arena: &mut [T], x: Range<usize>, y: Range<usize>) -> Result<&mut [T], TrainError> {
    if x.end > arena.len() || y.end > arena.len() {
        return Err(TrainError::Overlap);
    }
    if x != y {
        arena.copy_within(x, y.start);
    }
    arena.get_mut(y).ok_or(TrainError::Overlap)
}
