//! Training of a device without an aggregator.

use common::{
    brief::Brief,
    message::{Alone, Scalars, Task},
    plan::Plan,
    rng::derive,
};
use strategies::tiered::TierPlan;
use trainer::train::{Fast, Plateau, TrainError, Work, WorkProgress};

use crate::data::DeviceShard;

/// Trains `weights` as `brief` says; returns the reported scalars.
pub fn train(
    tier: &TierPlan,
    weights: &mut [f32],
    brief: Brief,
    shard: &DeviceShard,
    backend: &mut Fast,
) -> Result<Scalars, TrainError> {
    let info = &tier.info;
    let missing = || TrainError::Arena { need: info.arena as usize, have: weights.len() };
    let Ok(plan) = Plan::check(info, &tier.nodes, &tier.schedule) else { return Err(missing()) };
    let mut arena = vec![0.0; info.arena as usize];
    let count = weights.len();
    match arena.get_mut(..count) {
        Some(room) => room.copy_from_slice(weights),
        None => return Err(missing()),
    }
    let mut work = Work::begin(&Task::Train(brief), plan, &mut arena, shard)?;
    loop {
        if let WorkProgress::Done(scalars) = work.step(plan, &mut arena, shard, backend)? {
            weights.copy_from_slice(&arena[..count]);
            return Ok(scalars);
        }
    }
}

/// Trains until the loss is flat, like a device that trains alone and keeps its model.
pub fn train_until_flat(
    tier: &TierPlan,
    weights: &mut [f32],
    task: &Alone,
    shard: &DeviceShard,
    backend: &mut Fast,
) -> Result<(), TrainError> {
    let mut flat = Plateau::new(task);
    for epoch in 0..task.brief.epochs {
        let seed = derive(task.brief.seed, epoch.into());
        let brief = Brief { epochs: 1, seed, ..task.brief.clone() };
        flat.note(train(tier, weights, brief, shard, backend)?.loss_before);
        if flat.is_reached() {
            break;
        }
    }
    Ok(())
}
