//! Executes the nodes of a Plan in its arena.
//!
//! The steps of one batch are: samples into the input buffer, [`forward`], then either [`score`], or [`loss_and_gradient`] and
//! [`backward`]. A batch may have fewer rows than the Plan's; buffers are then used up to the last row. Parts of the arena are
//! borrowed with `get_disjoint_mut`, so a node that would overwrite its own input gives an error.

use core::ops::Range;

use common::{
    brief::SelfRegular,
    plan::{Loss, Node, Pass, Plan, PlanError},
};

use super::{
    Backend, Descent, Float, LossTally, TrainError, Truth,
    loss::{self, robust},
    part::{disjoint, part},
};

mod back;
mod forth;

/// True with feature `full`. Firmware of small boards is built without it, to save flash.
pub const FULL: bool = cfg!(feature = "full");

/// An error in builds without feature `full`; the compiler then removes the code that follows.
#[inline(always)]
pub(super) fn full() -> Result<(), TrainError> {
    if FULL { Ok(()) } else { Err(TrainError::LeftOut) }
}

/// The same for one op, by its name in `common::plan`. The condition is a constant, so the compiler removes the code that
/// follows.
macro_rules! built_in {
    ($name:literal) => {
        if const { common::plan::is_without($name) } {
            return Err(TrainError::LeftOut);
        }
    };
}
use built_in;

/// What a pass over the nodes is for.
#[derive(Copy, Clone, PartialEq, Debug)]
#[expect(missing_docs, reason = "the line of a variant explains its fields")]
pub enum PassMode {
    /// Dropout is active, determined by `seed` and `step`. Batch normalisation uses the statistics of the batch.
    Train { seed: u64, step: u32 },
    /// Batch normalisation uses the statistics of the batch and adds them to the stored ones with this weight.
    Statistics { share: f32 },
    /// No dropout. Batch normalisation uses the stored statistics.
    Evaluate,
}

/// Where parameter gradients go.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum GradTarget<T> {
    /// Into the Plan's gradient segment, replacing its content.
    Grads,
    /// Added to the Plan's gradient segment.
    MoreGrads,
    /// Directly into the weights, which saves a quarter of the RAM and one pass. The bits are those of
    /// [`apply`](super::apply), except for `Norm` and `Standardize`, whose gradients are rounded sample by sample. No two nodes may share
    /// parameters.
    Weights(Descent<T>),
}

/// Computes the logits from the input buffer.
pub fn forward<T: Float>(
    plan: Plan<'_>,
    arena: &mut [T],
    rows: usize,
    mode: PassMode,
    backend: &mut (impl Backend<T> + ?Sized),
) -> Result<(), TrainError> {
    check(plan, arena.len(), rows)?;
    for node in plan.forward() {
        forth::node(plan, node, arena, rows, mode, backend)?;
    }
    Ok(())
}

/// Losses of the logits that [`forward`] has computed; every sample has weight 1.
pub fn score<T: Float>(
    plan: Plan<'_>,
    arena: &[T],
    rows: usize,
    truth: &(impl Truth + ?Sized),
) -> Result<LossTally, TrainError> {
    check(plan, arena.len(), rows)?;
    let logits = span(plan.info().logits, outputs(plan, rows));
    Ok(loss::score(plan.info(), part(arena, logits), truth)?)
}

/// The outputs of the first `rows` samples.
pub(super) fn predictions<'a, T: Float>(
    plan: Plan<'_>,
    arena: &'a [T],
    rows: usize,
) -> Result<&'a [T], TrainError> {
    check(plan, arena.len(), rows)?;
    Ok(part(arena, span(plan.info().logits, outputs(plan, rows))))
}

/// Like [`score`] for one row.
pub(super) fn score_row<T: Float>(
    plan: Plan<'_>,
    arena: &[T],
    row: usize,
    truth: &(impl Truth + ?Sized),
) -> Result<LossTally, TrainError> {
    check(plan, arena.len(), row.saturating_add(1))?;
    let logits = plan.info().logits as usize;
    let logits = logits + outputs(plan, row)..logits + outputs(plan, row + 1);
    let mut tally = LossTally::default();
    loss::score_row(plan.info(), row, part(arena, logits), truth, &mut tally)?;
    Ok(tally)
}

/// Computes the loss of the batch, weighted by sample, and writes its gradient to where [`backward`] reads it.
///
/// The loss of a batch is `sum / targets`; `targets` may exceed those of these rows where gradients are
/// summed over several passes.
pub fn loss_and_gradient<T: Float>(
    plan: Plan<'_>,
    arena: &mut [T],
    rows: usize,
    targets: u32,
    truth: &(impl Truth + ?Sized),
) -> Result<LossTally, TrainError> {
    let gradient = gradient_of_logits(plan, arena, rows)?;
    let scale = T::ONE / T::from_f64(targets.max(1).into());
    Ok(loss::gradient(plan.info(), gradient, scale, truth)?)
}

/// Like [`score`] for self-regularisation: the second half of `rows` are the noisy copies of the first,
/// and `mix` is the share of the first in the mixture.
pub fn robust_score<T: Float>(
    plan: Plan<'_>,
    arena: &[T],
    rows: usize,
    terms: &SelfRegular,
    mix: f64,
    truth: &(impl Truth + ?Sized),
) -> Result<LossTally, TrainError> {
    check(plan, arena.len(), rows)?;
    let logits = part(arena, span(plan.info().logits, outputs(plan, rows)));
    let (clean, noisy) = logits.split_at(logits.len() / 2);
    let classes = classes(plan)?;
    Ok(robust::score(plan.info(), classes, terms, mix, clean, noisy, truth)?)
}

/// Like [`loss_and_gradient`] for self-regularisation; both halves get their gradient.
pub fn robust_gradient<T: Float>(
    plan: Plan<'_>,
    arena: &mut [T],
    rows: usize,
    targets: u32,
    (terms, mix): (&SelfRegular, f64),
    truth: &(impl Truth + ?Sized),
) -> Result<LossTally, TrainError> {
    let classes = classes(plan)?;
    let gradient = gradient_of_logits(plan, arena, rows)?;
    let (clean, noisy) = gradient.split_at_mut(gradient.len() / 2);
    let scale = T::ONE / T::from_f64(targets.max(1).into());
    Ok(robust::gradient(plan.info(), classes, terms, mix, scale, clean, noisy, truth)?)
}

/// Multiplies the gradient that [`loss_and_gradient`] has written.
pub(super) fn scale_gradient<T: Float>(
    plan: Plan<'_>,
    arena: &mut [T],
    rows: usize,
    factor: T,
) -> Result<(), TrainError> {
    let [gradient] = disjoint(arena, [gradient_range(plan, rows)?])?;
    gradient.iter_mut().for_each(|value| *value *= factor);
    Ok(())
}

/// Computes the gradients of all parameters from the gradient of the logits.
pub fn backward<T: Float>(
    plan: Plan<'_>,
    arena: &mut [T],
    rows: usize,
    mode: PassMode,
    target: GradTarget<T>,
    backend: &mut (impl Backend<T> + ?Sized),
) -> Result<(), TrainError> {
    check(plan, arena.len(), rows)?;
    let grads = plan.info().segments.grads;
    let missing = TrainError::Segment { what: "gradients", segment: "gradient" };
    match target {
        GradTarget::Grads => {
            let [grads] = disjoint(arena, [span(grads.ok_or(missing)?, plan.trained())])?;
            grads.fill(T::ZERO);
        }
        GradTarget::MoreGrads => {
            grads.ok_or(missing)?;
        }
        GradTarget::Weights(_) if shares_parameters(plan) => return Err(TrainError::SharedParameters),
        GradTarget::Weights(_) => {}
    }
    for (node, pass) in plan.backward() {
        match pass {
            Pass::Forward => forth::node(plan, node, arena, rows, mode, backend)?,
            Pass::Backward => back::node(plan, node, arena, rows, mode, target, backend)?,
        }
    }
    Ok(())
}

/// True if some parameter belongs to two nodes of the backward pass.
pub(super) fn shares_parameters(plan: Plan<'_>) -> bool {
    let nodes = || plan.backward().filter(|(_, pass)| *pass == Pass::Backward).map(|(node, _)| node);
    let held = |node: &Node| node.op.parameters().map(|part| part.map_or(0..0, stretch));
    let overlap = |a: &Range<usize>, b: &Range<usize>| a.start < b.end && b.start < a.end;
    nodes().enumerate().any(|(index, node)| {
        let mine = held(node);
        nodes().skip(index + 1).flat_map(held).any(|theirs| mine.iter().any(|mine| overlap(mine, &theirs)))
    })
}

/// True if the node has parameters outside the frozen prefix.
pub(super) fn is_trained(plan: Plan<'_>, node: &Node) -> bool {
    node.op.parameters().iter().flatten().any(|(at, _)| *at >= plan.frozen())
}

pub(super) fn has_parameters(node: &Node) -> bool {
    node.op.parameters().iter().any(Option::is_some)
}

fn gradient_of_logits<'a, T: Float>(
    plan: Plan<'_>,
    arena: &'a mut [T],
    rows: usize,
) -> Result<&'a mut [T], TrainError> {
    check(plan, arena.len(), rows)?;
    let gradient = gradient_range(plan, rows)?;
    let logits = span(plan.info().logits, outputs(plan, rows));
    if gradient.end > arena.len() || logits.end > arena.len() {
        return Err(TrainError::Overlap);
    }
    if gradient != logits {
        arena.copy_within(logits, gradient.start);
    }
    let [gradient] = disjoint(arena, [gradient])?;
    Ok(gradient)
}

fn gradient_range(plan: Plan<'_>, rows: usize) -> Result<Range<usize>, TrainError> {
    let at = plan.forward().last().and_then(|node| node.output_grad).ok_or(TrainError::InferenceOnly)?;
    Ok(span(at, outputs(plan, rows)))
}

fn classes(plan: Plan<'_>) -> Result<usize, TrainError> {
    match plan.info().loss {
        Loss::Softmax { classes } => Ok(classes as usize),
        Loss::Sigmoid | Loss::Squared => Err(TrainError::Objective(ROBUST_LOSS)),
    }
}

pub(super) const ROBUST_LOSS: &str = "self-regularisation needs a softmax loss";

fn check(plan: Plan<'_>, have: usize, rows: usize) -> Result<(), TrainError> {
    let (need, batch) = (plan.info().arena as usize, usize::from(plan.info().batch));
    if have < need {
        return Err(TrainError::Arena { need, have });
    }
    if rows == 0 || rows > batch {
        return Err(TrainError::Batch { rows, batch });
    }
    Ok(())
}

fn outputs(plan: Plan<'_>, rows: usize) -> usize {
    rows.saturating_mul(plan.info().outputs as usize)
}

fn input(node: &Node, at: u32, rows: usize) -> Range<usize> {
    span(at, rows.saturating_mul(node.op.sizes().0 as usize))
}

/// The place of the second operand; an error if there is none.
fn second_operand(node: &Node, rows: usize) -> Result<Range<usize>, TrainError> {
    let operand = node.second.ok_or(PlanError::Inconsistent)?;
    Ok(second(node, operand.at, rows))
}

fn second(node: &Node, at: u32, rows: usize) -> Range<usize> {
    span(at, rows.saturating_mul(node.op.second().unwrap_or(0) as usize))
}

fn output(node: &Node, at: u32, rows: usize) -> Range<usize> {
    span(at, rows.saturating_mul(node.op.sizes().1 as usize))
}

fn span(at: u32, len: usize) -> Range<usize> {
    at as usize..(at as usize).saturating_add(len)
}

fn stretch((at, len): (u32, u64)) -> Range<usize> {
    span(at, usize::try_from(len).unwrap_or(usize::MAX))
}

/// The node's parameters, from `base` on.
fn parameters(node: &Node, base: u32) -> [Range<usize>; 3] {
    let part = |(at, len): (u32, u64)| stretch((base.saturating_add(at), len));
    node.op.parameters().map(|stretch| stretch.map_or(0..0, part))
}
