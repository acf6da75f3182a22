//! Copies models between segments of the arena.

use common::{
    brief::{Brief, Product},
    message::Task,
    plan::Plan,
};

use super::finish::segment;
use crate::train::{
    FULL,
    part::{disjoint, part_mut},
};

/// Keeps the received model as anchor, and clears the state of the optimiser.
pub(super) fn prepare(task: &Task, plan: Plan<'_>, arena: &mut [f32]) {
    if matches!(task, Task::Evaluate(_)) {
        return;
    }
    copy(plan, arena, Some(plan.frozen()), plan.info().segments.anchor);
    if !FULL {
        return;
    }
    clear_moments(plan, arena);
    // If training makes no step, the first step is zero.
    if matches!(task, Task::Train(Brief { product: Product::Both, .. })) {
        fill(plan, arena, plan.info().segments.guide);
    }
}

/// Copies the received model into the weights.
pub(super) fn restore(plan: Plan<'_>, arena: &mut [f32]) {
    copy(plan, arena, plan.info().segments.anchor, Some(plan.frozen()));
}

pub(super) fn take_personal(plan: Plan<'_>, arena: &mut [f32]) {
    copy(plan, arena, plan.info().segments.personal, Some(plan.frozen()));
}

pub(super) fn keep_personal(plan: Plan<'_>, arena: &mut [f32]) {
    copy(plan, arena, Some(plan.frozen()), plan.info().segments.personal);
}

/// `weights = anchor - step * guide`.
pub(super) fn try_step(plan: Plan<'_>, arena: &mut [f32], step: f32) {
    let [weights, anchor, guide] = three(plan, arena);
    for ((weight, &anchor), &guide) in weights.iter_mut().zip(&*anchor).zip(&*guide) {
        *weight = anchor - step * guide;
    }
}

/// `guide = weights - anchor`.
pub(super) fn keep_first_step(plan: Plan<'_>, arena: &mut [f32]) {
    let [weights, anchor, guide] = three(plan, arena);
    for ((&mut weight, &anchor), guide) in weights.iter_mut().zip(&*anchor).zip(guide) {
        *guide = weight - anchor;
    }
}

pub(super) fn clear_moments(plan: Plan<'_>, arena: &mut [f32]) {
    fill(plan, arena, plan.info().segments.moment1);
    fill(plan, arena, plan.info().segments.moment2);
}

pub(super) fn clear_residual(plan: Plan<'_>, arena: &mut [f32]) {
    fill(plan, arena, plan.info().segments.residual);
}

pub(super) fn clear_gradient(plan: Plan<'_>, arena: &mut [f32]) {
    fill(plan, arena, plan.info().segments.grads);
}

pub(super) fn scale_gradient(plan: Plan<'_>, arena: &mut [f32], factor: f32) {
    let grads = plan.info().segments.grads.map_or(0..0, |at| segment(plan, at));
    part_mut(arena, grads).iter_mut().for_each(|grad| *grad *= factor);
}

pub(super) fn clear_statistics(plan: Plan<'_>, arena: &mut [f32]) {
    if let Some(at) = plan.info().segments.stats {
        let stats = at as usize..at as usize + plan.info().stats as usize;
        part_mut(arena, stats).fill(0.0);
    }
}

/// Weights, anchor and guide. The arena is long enough, and the segments of a checked Plan do not overlap.
fn three<'a>(plan: Plan<'_>, arena: &'a mut [f32]) -> [&'a mut [f32]; 3] {
    let segments = plan.info().segments;
    let of = |at: Option<u32>| {
        debug_assert!(at.is_some(), "the task was checked against the Plan");
        at.map_or(0..0, |at| segment(plan, at))
    };
    let three = disjoint(arena, [segment(plan, plan.frozen()), of(segments.anchor), of(segments.guide)]);
    debug_assert!(three.is_ok());
    three.unwrap_or_default()
}

/// Does nothing where one of the two is absent.
fn copy(plan: Plan<'_>, arena: &mut [f32], from: Option<u32>, to: Option<u32>) {
    if let (Some(from), Some(to)) = (from, to)
        && segment(plan, from.max(to)).end <= arena.len()
    {
        arena.copy_within(segment(plan, from), to as usize);
    }
}

fn fill(plan: Plan<'_>, arena: &mut [f32], at: Option<u32>) {
    let place = at.map_or(0..0, |at| segment(plan, at));
    part_mut(arena, place).fill(0.0);
}
