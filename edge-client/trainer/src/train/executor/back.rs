//! One node, backward: first the gradient of the input, with the old weights, then the gradients of the parameters.

use core::ops::Range;

use common::plan::{Activation, Grad, Node, Op, Plan};

use super::{
    GradTarget, PassMode, TrainError, built_in,
    forth::{constants, kept, operand},
    full, has_parameters, input, is_trained, output, parameters, second, second_operand, span,
};
use crate::train::{
    Backend, Float,
    op::{
        activate, add, arithmetic, arrange, batchnorm, conv, dense, dropout, embed, gate, gru, last, norm,
        pool, prelu, recurrent, scale,
    },
    part::disjoint,
};

pub(super) fn node<T: Float>(
    plan: Plan<'_>,
    node: &Node,
    arena: &mut [T],
    rows: usize,
    mode: PassMode,
    target: GradTarget<T>,
    backend: &mut (impl Backend<T> + ?Sized),
) -> Result<(), TrainError> {
    let Some(dy) = node.output_grad.map(|at| output(node, at, rows)) else {
        // No gradient is needed where nothing before this node is trained.
        return if is_trained(plan, node) { Err(TrainError::InferenceOnly) } else { Ok(()) };
    };
    gates(node, arena, rows, dy.clone(), backend)?;
    if let Some(grad) = node.input.grad {
        input_grad(node, arena, rows, mode, dy.clone(), grad, backend)?;
    }
    if let Some(grad) = node.second.and_then(|port| port.grad) {
        second_grad(node, arena, rows, dy.clone(), grad)?;
    }
    if !has_parameters(node) {
        return Ok(());
    }
    // Segments begin with the first trained parameter.
    let base = |segment: u32| segment.saturating_sub(plan.frozen());
    let (base, factor) = match target {
        GradTarget::Grads | GradTarget::MoreGrads => {
            (base(plan.info().segments.grads.ok_or(TrainError::InferenceOnly)?), T::ONE)
        }
        GradTarget::Weights(descent) => {
            let anchors = match plan.info().segments.anchor {
                Some(at) => parameters(node, base(at)).map(Some),
                None => [None, None, None],
            };
            for (weights, anchor) in parameters(node, 0).into_iter().zip(anchors) {
                descent.pull(arena, weights, anchor)?;
            }
            (0, -descent.lr)
        }
    };
    param_grad(node, arena, rows, dy, (base, factor), backend)
}

fn input_grad<T: Float>(
    node: &Node,
    arena: &mut [T],
    rows: usize,
    mode: PassMode,
    dy: Range<usize>,
    grad: Grad,
    backend: &mut (impl Backend<T> + ?Sized),
) -> Result<(), TrainError> {
    let (x, dx) = (input(node, node.input.at, rows), input(node, grad.at, rows));
    let [w, ..] = parameters(node, 0);
    let in_place = dx == dy;
    if in_place && (grad.add || !node.op.may_work_in_place()) {
        return Err(TrainError::Overlap);
    }
    match node.op {
        Op::Dense { rows: tokens, inputs, outputs, .. } => {
            let rows = rows.saturating_mul(tokens as usize);
            let sizes = dense::DenseSizes { rows, inputs: inputs as usize, outputs: outputs as usize };
            let [w, dy, dx] = disjoint(arena, [w, dy, dx])?;
            dense::input_grad(backend, sizes, dy, w, grad.add, dx);
        }
        Op::Conv(op) => {
            built_in!("Conv");
            let [w, dy, dx] = disjoint(arena, [w, dy, dx])?;
            conv::input_grad(backend, &op, rows, dy, w, grad.add, dx);
        }
        Op::Activate { kind, .. } => {
            let read = if kind.needs_input() { x } else { output(node, node.output, rows) };
            if kind != Activation::Relu {
                full()?;
            }
            if in_place {
                let [read, gradient] = disjoint(arena, [read, dx])?;
                match kind {
                    Activation::Relu => backend.relu_grad(read, gradient),
                    kind => activate::backward_in_place(kind, read, gradient),
                }
            } else {
                let [read, dy, dx] = disjoint(arena, [read, dy, dx])?;
                activate::backward(kind, read, dy, grad.add, dx);
            }
        }
        Op::Pool(op) => {
            built_in!("Pool");
            // The input of an average is not kept, so its memory may hold something else.
            let x = if node.op.backward_reads_input() { x } else { 0..0 };
            let [x, dy, dx] = disjoint(arena, [x, dy, dx])?;
            pool::backward(&op, x, dy, grad.add, dx);
        }
        Op::Add { .. } => added(arena, dy, dx, grad)?,
        // Tokens have no gradient, so it is zero.
        Op::Embed { .. } => {
            let [dx] = disjoint(arena, [dx])?;
            if !grad.add {
                dx.fill(T::ZERO);
            }
        }
        Op::Gru(op) => {
            built_in!("Gru");
            let [w, scratch, dx] = disjoint(arena, [w, scratch(node, rows), dx])?;
            gru::input_grad(backend, gru::GruSizes::new(&op, rows), scratch, w, grad.add, dx);
        }
        Op::Dropout { rate, salt, .. } => {
            let mask = match mode {
                PassMode::Train { seed, step } => Some(dropout::DropoutMask::new(seed, step, salt, rate)),
                PassMode::Statistics { .. } | PassMode::Evaluate => None,
            };
            match (mask, in_place) {
                (Some(mask), true) => {
                    let [gradient] = disjoint(arena, [dx])?;
                    mask.apply(gradient);
                }
                (Some(mask), false) => {
                    let [dy, dx] = disjoint(arena, [dy, dx])?;
                    mask.backward(dy, grad.add, dx);
                }
                (None, true) => {}
                (None, false) => {
                    let [dy, dx] = disjoint(arena, [dy, dx])?;
                    add::backward(dy, grad.add, dx);
                }
            }
        }
        Op::Norm(op) => {
            built_in!("Norm");
            let [x, scale, dy, dx] = disjoint(arena, [x, w, dy, dx])?;
            norm::input_grad(&op, x, scale, dy, grad.add, dx);
        }
        Op::Standardize(op) => {
            built_in!("Standardize");
            let [x, scale, dy, dx] = disjoint(arena, [x, w, dy, dx])?;
            norm::input_grad(&norm::of_standardize(&op), x, scale, dy, grad.add, dx);
        }
        Op::BatchNorm { channels, inner, epsilon, .. } => {
            built_in!("BatchNorm");
            let sizes =
                batchnorm::BatchNormSizes { channels: channels as usize, inner: inner as usize, epsilon };
            let [x, scale, dy, dx] = disjoint(arena, [x, w, dy, dx])?;
            batchnorm::input_grad(sizes, x, scale, dy, grad.add, dx);
        }
        Op::Scale { factor, .. } => {
            let factor = if matches!(mode, PassMode::Train { .. }) { factor } else { 1.0 };
            if in_place {
                let [gradient] = disjoint(arena, [dx])?;
                scale::apply(factor, gradient);
            } else {
                let [dy, dx] = disjoint(arena, [dy, dx])?;
                scale::backward(factor, dy, grad.add, dx);
            }
        }
        Op::Last { steps, width } => {
            let [dy, dx] = disjoint(arena, [dy, dx])?;
            last::backward(steps as usize, width as usize, dy, grad.add, dx);
        }
        Op::PRelu(op) => {
            built_in!("PRelu");
            let [x, slope, dy, dx] = disjoint(arena, [x, w, dy, dx])?;
            prelu::input_grad(&op.spread, x, slope, dy, grad.add, dx);
        }
        Op::Arithmetic(op) => {
            built_in!("Arithmetic");
            if in_place {
                let [numbers, gradient] = disjoint(arena, [constants(&op), dx])?;
                arithmetic::backward_in_place(op.kind, operand(&op, numbers), gradient);
            } else {
                let [numbers, dy, dx] = disjoint(arena, [constants(&op), dy, dx])?;
                arithmetic::backward(op.kind, operand(&op, numbers), dy, grad.add, dx);
            }
        }
        Op::Recurrent(op) => {
            built_in!("Recurrent");
            let [w, keep, dx] = disjoint(arena, [w, kept(node, rows), dx])?;
            let layer = recurrent::RecurrentLayer::new(&op, rows);
            recurrent::input_grad(backend, layer, keep, w, grad.add, dx);
        }
        Op::Arrange(op) => {
            full()?;
            let [dy, dx] = disjoint(arena, [dy, dx])?;
            arrange::backward(op, dy, grad.add, dx);
        }
        Op::Gate(op) => {
            built_in!("Gate");
            let [gate, dy, dx] = disjoint(arena, [second_operand(node, rows)?, dy, dx])?;
            gate::backward(op.inner as usize, gate, dy, grad.add, dx);
        }
    }
    Ok(())
}

fn second_grad<T: Float>(
    node: &Node,
    arena: &mut [T],
    rows: usize,
    dy: Range<usize>,
    grad: Grad,
) -> Result<(), TrainError> {
    let dx = second(node, grad.at, rows);
    match node.op {
        Op::Arrange(op) => {
            full()?;
            let [dy, dx] = disjoint(arena, [dy, dx])?;
            arrange::second_grad(op, dy, grad.add, dx);
            Ok(())
        }
        Op::Gate(op) => {
            built_in!("Gate");
            let [x, dy, dx] = disjoint(arena, [input(node, node.input.at, rows), dy, dx])?;
            gate::second_grad(op.inner as usize, x, dy, grad.add, dx);
            Ok(())
        }
        // `Plan::check` allows a second operand for no other op.
        _ => added(arena, dy, dx, grad),
    }
}

/// The gradient of an operand of a sum is that of the sum, which may stay in place.
fn added<T: Float>(
    arena: &mut [T],
    dy: Range<usize>,
    dx: Range<usize>,
    grad: Grad,
) -> Result<(), TrainError> {
    if dx == dy && !grad.add {
        return Ok(());
    }
    let [dy, dx] = disjoint(arena, [dy, dx])?;
    add::backward(dy, grad.add, dx);
    Ok(())
}

fn param_grad<T: Float>(
    node: &Node,
    arena: &mut [T],
    rows: usize,
    dy: Range<usize>,
    (base, factor): (u32, T),
    backend: &mut (impl Backend<T> + ?Sized),
) -> Result<(), TrainError> {
    let x = input(node, node.input.at, rows);
    let [first, second, third] = parameters(node, base);
    match node.op {
        Op::Dense { rows: tokens, inputs, outputs, .. } => {
            let rows = rows.saturating_mul(tokens as usize);
            let sizes = dense::DenseSizes { rows, inputs: inputs as usize, outputs: outputs as usize };
            let [dw, db, dy, x] = disjoint(arena, [first, second, dy, x])?;
            dense::param_grad(backend, sizes, factor, dy, x, dw, db);
        }
        Op::Conv(op) => {
            built_in!("Conv");
            let [dw, db, dy, x] = disjoint(arena, [first, second, dy, x])?;
            conv::param_grad(backend, &op, rows, factor, dy, x, dw, db);
        }
        Op::Embed { entries, width, .. } => {
            built_in!("Embed");
            let [table, dy, x] = disjoint(arena, [first, dy, x])?;
            embed::param_grad(entries as usize, width as usize, factor, x, dy, table);
        }
        Op::Gru(op) => {
            built_in!("Gru");
            let (y, keep) = (output(node, node.output, rows), kept(node, rows));
            let scratch = scratch(node, rows);
            let [dw, dr, db, x, y, keep, dy, scratch] =
                disjoint(arena, [first, second, third, x, y, keep, dy, scratch])?;
            let tape = gru::GruTape { x, y, keep, dy };
            gru::param_grad(backend, gru::GruSizes::new(&op, rows), factor, &tape, scratch, dw, dr, db);
        }
        Op::Norm(op) => {
            built_in!("Norm");
            let [dscale, dbias, dy, x] = disjoint(arena, [first, second, dy, x])?;
            norm::param_grad(&op, factor, x, dy, dscale, dbias);
        }
        Op::Standardize(op) => {
            built_in!("Standardize");
            let [dscale, dy, x] = disjoint(arena, [first, dy, x])?;
            norm::param_grad(&norm::of_standardize(&op), factor, x, dy, dscale, &mut []);
        }
        Op::BatchNorm { channels, inner, epsilon, .. } => {
            built_in!("BatchNorm");
            let sizes =
                batchnorm::BatchNormSizes { channels: channels as usize, inner: inner as usize, epsilon };
            let [dscale, dbias, dy, x] = disjoint(arena, [first, second, dy, x])?;
            batchnorm::param_grad(sizes, factor, x, dy, dscale, dbias);
        }
        Op::PRelu(op) => {
            built_in!("PRelu");
            let [dslope, dy, x] = disjoint(arena, [first, dy, x])?;
            prelu::param_grad(&op.spread, factor, x, dy, dslope);
        }
        Op::Recurrent(op) => {
            built_in!("Recurrent");
            let (y, keep) = (output(node, node.output, rows), kept(node, rows));
            let [dw, dr, db, x, y, keep] = disjoint(arena, [first, second, third, x, y, keep])?;
            let layer = recurrent::RecurrentLayer::new(&op, rows);
            recurrent::param_grad(backend, layer, factor, (x, y), keep, [dw, dr, db]);
        }
        Op::Activate { .. }
        | Op::Pool(_)
        | Op::Add { .. }
        | Op::Dropout { .. }
        | Op::Scale { .. }
        | Op::Last { .. }
        | Op::Arithmetic(_)
        | Op::Arrange(_)
        | Op::Gate(_) => {}
    }
    Ok(())
}

/// The gradients of the gates of a recurrent layer, which those of its input and parameters are made of.
fn gates<T: Float>(
    node: &Node,
    arena: &mut [T],
    rows: usize,
    dy: Range<usize>,
    backend: &mut (impl Backend<T> + ?Sized),
) -> Result<(), TrainError> {
    let [_, recurrent, _] = parameters(node, 0);
    let (x, y) = (input(node, node.input.at, rows), output(node, node.output, rows));
    let parts = [recurrent, x, y, kept(node, rows), dy, scratch(node, rows)];
    match node.op {
        Op::Gru(op) => {
            built_in!("Gru");
            let [recurrent, x, y, keep, dy, scratch] = disjoint(arena, parts)?;
            let tape = gru::GruTape { x, y, keep, dy };
            gru::gates(backend, gru::GruSizes::new(&op, rows), &tape, recurrent, scratch);
        }
        Op::Recurrent(op) => {
            built_in!("Recurrent");
            let [r, _, y, keep, dy, scratch] = disjoint(arena, parts)?;
            recurrent::gates(backend, recurrent::RecurrentLayer::new(&op, rows), (y, dy), r, keep, scratch);
        }
        _ => {}
    }
    Ok(())
}

/// Scratch memory of backward. `Plan::check` ensures that it exists where the op needs it.
fn scratch(node: &Node, rows: usize) -> Range<usize> {
    let len = rows.saturating_mul(node.op.scratch() as usize);
    debug_assert!(node.scratch.is_some() || len == 0);
    node.scratch.map_or(0..0, |at| span(at, len))
}
