//! Checks before any work; each error states what to change.

use common::{
    brief::{Augment, Brief, GroupReport, MAX_GROUPS, Objective, Optimizer, Product},
    message::{Alone, Task},
    plan::{Loss, Node, Op, Pass, Plan},
};

use super::{PrivateState, subset::ValidationSamples};
use crate::{
    data::Shard,
    train::{
        Descent, TrainError,
        executor::{FULL, ROBUST_LOSS, full, is_trained, shares_parameters},
    },
};

/// Checks that the task is valid and that the Plan has what it needs.
pub(super) fn task(task: &Task, plan: Plan<'_>) -> Result<(), TrainError> {
    let small = match task {
        Task::Train(asked) => is_small(asked),
        Task::Evaluate(asked) => asked.is_none(),
        Task::Alone(_) | Task::Try(_) => false,
    };
    if !small {
        full()?;
    }
    match task {
        Task::Evaluate(_) if !FULL => Ok(()),
        Task::Train(asked) if !FULL => brief(plan, asked),
        _ if !FULL => Err(TrainError::LeftOut),
        Task::Train(asked) => {
            report(plan, asked.groups.as_ref())?;
            brief(plan, asked)
        }
        Task::Evaluate(asked) => report(plan, asked.as_ref()),
        Task::Alone(Alone { brief: asked, window, tolerance }) => {
            sound(*window > 0, "window of epochs must be above zero")?;
            sound(tolerance.is_finite() && *tolerance >= 0.0, "tolerance must be zero or more")?;
            brief(plan, asked)
        }
        Task::Try(steps) => {
            anchor(plan)?;
            needs(plan.info().segments.guide, true, "steps along a direction", "guide")?;
            sound(steps.iter().all(|step| step.is_finite()), "steps to try must be finite")
        }
    }
}

/// True for what a program without feature `full` can do: plain SGD, an update, losses over all samples.
fn is_small(brief: &Brief) -> bool {
    let Objective { robust, groups, .. } = &brief.objective;
    Descent::<f32>::of(brief).is_some()
        && robust.is_none()
        && groups.is_empty()
        && matches!(brief.product, Product::Update | Product::FirstStep)
        && brief.groups.is_none()
        && brief.personal.is_none()
        && brief.privacy.is_none()
        && !brief.gap
}

/// Checks that the device's samples and private state are enough for the task.
pub(super) fn samples(
    task: &Task,
    private: &PrivateState,
    shard: &(impl Shard + ?Sized),
) -> Result<(), TrainError> {
    if !FULL {
        return Ok(());
    }
    match task {
        Task::Train(brief) => {
            groups(brief.groups.is_some(), &brief.objective, shard)?;
            if brief.gap {
                validation(shard)?;
                private.baseline.ok_or(TrainError::NoBaseline)?;
            }
            Ok(())
        }
        Task::Evaluate(report) => groups(report.is_some(), &Objective::default(), shard),
        Task::Alone(alone) => {
            groups(false, &alone.brief.objective, shard)?;
            validation(shard)
        }
        Task::Try(_) => Ok(()),
    }
}

fn validation(shard: &(impl Shard + ?Sized)) -> Result<(), TrainError> {
    let samples = shard.train_len();
    if ValidationSamples::of(shard).len == 0 { Err(TrainError::NoValidation { samples }) } else { Ok(()) }
}

fn groups(reported: bool, objective: &Objective, shard: &(impl Shard + ?Sized)) -> Result<(), TrainError> {
    let groups = shard.groups() as usize;
    let told = (1..=MAX_GROUPS).contains(&groups);
    // A single weight applies to all samples, which need no attribute for that.
    let missing = objective.groups.len() > 1 && groups == 0;
    if missing || reported && !told { Err(TrainError::NoGroups) } else { Ok(()) }
}

fn report(plan: Plan<'_>, report: Option<&GroupReport>) -> Result<(), TrainError> {
    let Some(report) = report else { return Ok(()) };
    sound(report.cap > 0.0, "cap of a group's losses must be above zero")?;
    sound(plan.info().loss != Loss::Squared, "losses of groups need a classifier")
}

fn sound(ok: bool, what: &'static str) -> Result<(), TrainError> {
    if ok { Ok(()) } else { Err(TrainError::Objective(what)) }
}

fn needs(
    segment: Option<u32>,
    wanted: bool,
    what: &'static str,
    name: &'static str,
) -> Result<(), TrainError> {
    match segment {
        None if wanted => Err(TrainError::Segment { what, segment: name }),
        _ => Ok(()),
    }
}

pub(super) fn sizes(plan: Plan<'_>, have: usize, shard: &(impl Shard + ?Sized)) -> Result<(), TrainError> {
    let info = plan.info();
    let need = info.arena as usize;
    if have < need {
        return Err(TrainError::Arena { need, have });
    }
    if shard.train_len() == 0 {
        return Err(TrainError::EmptyShard);
    }
    if shard.inputs() != info.inputs {
        return Err(TrainError::Inputs { plan: info.inputs, shard: shard.inputs() });
    }
    if shard.targets() != info.targets() {
        return Err(TrainError::Targets { plan: info.targets(), shard: shard.targets() });
    }
    match info.loss {
        Loss::Softmax { classes } if shard.classes() > classes => {
            Err(TrainError::Classes { plan: classes, classes: shard.classes() })
        }
        _ => Ok(()),
    }
}

pub(super) fn anchor(plan: Plan<'_>) -> Result<usize, TrainError> {
    plan.info().segments.anchor.map(|at| at as usize).ok_or(TrainError::InferenceOnly)
}

fn brief(plan: Plan<'_>, brief: &Brief) -> Result<(), TrainError> {
    if brief.batch == 0 || !(brief.lr.is_finite() && brief.lr > 0.0) {
        return Err(TrainError::Brief { batch: brief.batch, lr: brief.lr });
    }
    anchor(plan)?;
    // Where activations are recomputed, a copy of the node may run backward in its place.
    let runs_back = |node: &Node| {
        let mut back = plan.backward().filter(|(_, pass)| *pass == Pass::Backward);
        back.any(|(other, _)| other.output_grad.is_some() && other.op == node.op)
    };
    let trains = |node: &Node| !is_trained(plan, node) || runs_back(node);
    let has_loss = plan.forward().last().is_some_and(|node| node.output_grad.is_some());
    if !has_loss || !plan.forward().iter().all(trains) {
        return Err(TrainError::InferenceOnly);
    }
    numbers(brief)?;
    private(plan, brief)?;
    robust(plan, &brief.objective)?;
    segments(plan, brief)
}

fn numbers(brief: &Brief) -> Result<(), TrainError> {
    let Objective { weight, prox, align, transform, groups, robust } = &brief.objective;
    let share = |x: f32| (0.0..1.0).contains(&x);
    match brief.optimizer {
        Optimizer::Sgd { momentum, decay, .. } => {
            sound(!FULL || share(momentum), "momentum must be in [0, 1)")?;
            sound(decay.is_finite(), "weight decay must be finite")?;
        }
        Optimizer::Adam { .. } if !FULL => {}
        Optimizer::Adam { beta1, beta2, epsilon, decay } => {
            sound(share(beta1) && share(beta2), "betas of Adam must be in [0, 1)")?;
            sound(epsilon.is_finite() && epsilon > 0.0, "epsilon of Adam must be above zero")?;
            sound(decay.is_finite(), "weight decay must be finite")?;
        }
    }
    sound(weight.is_finite(), "weight of the local gradient must be finite")?;
    sound(prox.is_finite() && *prox >= 0.0, "proximal pull must be zero or more")?;
    if let Some(transform) = transform {
        let fine = transform.m.is_finite() && transform.eps.is_finite() && transform.eps > 0.0;
        sound(fine, "transform needs a finite M and an epsilon above zero")?;
    }
    if !FULL {
        return Ok(());
    }
    sound(brief.clip.is_none_or(|clip| clip > 0.0), "largest norm of a gradient must be above zero")?;
    sound((0.0..=1.0).contains(align), "share of the received vector must be in [0, 1]")?;
    let fine = groups.iter().all(|weight| weight.is_finite() && *weight >= 0.0);
    sound(fine, "weights of groups must be finite and zero or more")?;
    if let Some(terms) = robust {
        let above = |x: f32| x.is_finite() && x > 0.0;
        let fine = above(terms.sharpen) && above(terms.soften);
        sound(fine, "temperatures of self-regularisation must be above zero")?;
        let fine = match terms.augment {
            Augment::Noise(noise) => noise.is_finite() && noise >= 0.0,
            Augment::Shift { .. } => true,
        };
        let fine = fine && terms.gamma.is_finite();
        sound(fine, "weight and noise of self-regularisation must be finite")?;
    }
    if brief.product == Product::Both {
        sound(*align == 0.0, "first step is stored in the guide segment, so alignment is not possible")?;
        sound(
            brief.privacy.is_none(),
            "noise is only defined for one vector, not for update and first step",
        )?;
    }
    if let Some(pull) = brief.personal {
        sound(pull.is_finite() && pull >= 0.0, "pull of the personal model must be zero or more")?;
        let whole = matches!(brief.product, Product::Update | Product::Both);
        sound(whole, "personal model needs whole training, not a single step or a gradient")?;
    }
    if let Some(laplace) = brief.privacy {
        let scale = |x: f32| x.is_finite() && x >= 0.0;
        sound(scale(laplace.sums) && scale(laplace.update), "scales of noise must be zero or more")?;
        sound(laplace.clip_l1 > 0.0, "norm to which updates are clipped must be above zero")?;
    }
    Ok(())
}

/// Refuses models in which a sample has effects that noise does not cover.
fn private(plan: Plan<'_>, brief: &Brief) -> Result<(), TrainError> {
    if !FULL || brief.privacy.is_none() {
        return Ok(());
    }
    // Through its statistics, every sample changes the losses of all others, and scores on test samples.
    sound(plan.info().stats == 0, "noise cannot hide samples from batch normalisation; use a model without")?;
    // A token beyond the table is an error, which reveals something about the sample.
    let tokens = plan.forward().iter().any(|node| matches!(node.op, Op::Embed { .. }));
    sound(!tokens, "noise cannot hide tokens; use a model without an embedding")
}

fn robust(plan: Plan<'_>, objective: &Objective) -> Result<(), TrainError> {
    let Some(terms) = objective.robust.as_ref().filter(|_| FULL) else { return Ok(()) };
    if !matches!(plan.info().loss, Loss::Softmax { .. }) {
        return Err(TrainError::Objective(ROBUST_LOSS));
    }
    if plan.forward().first().is_some_and(|node| matches!(node.op, Op::Embed { .. })) {
        return Err(TrainError::Objective(
            "self-regularisation changes samples, which is not possible for tokens",
        ));
    }
    if let Augment::Shift { channels, height, width, .. } = terms.augment {
        let image = u64::from(channels) * u64::from(height) * u64::from(width);
        if image != u64::from(plan.info().inputs) {
            return Err(TrainError::Objective(
                "images that self-regularisation shifts must have as many numbers as a sample",
            ));
        }
    }
    if plan.info().batch < 2 {
        return Err(TrainError::Batch { rows: 2, batch: plan.info().batch.into() });
    }
    Ok(())
}

/// Checks the segments that the brief needs, in the order in which the compiler adds them.
fn segments(plan: Plan<'_>, brief: &Brief) -> Result<(), TrainError> {
    let held = plan.info().segments;
    if held.grads.is_none() {
        if shares_parameters(plan) {
            return Err(TrainError::SharedParameters);
        }
        let double = if brief.objective.robust.is_some() { 2 } else { 1 };
        let rows = usize::from(brief.batch) * double;
        let whole = brief.product == Product::Gradient;
        needs(None, FULL && whole, "a gradient over all samples", "gradient")?;
        needs(None, FULL && Descent::<f32>::of(brief).is_none(), "more than plain SGD", "gradient")?;
        if rows > usize::from(plan.info().batch) {
            return Err(TrainError::Batch { rows, batch: plan.info().batch.into() });
        }
    }
    if !FULL {
        return Ok(());
    }
    let moments = brief.optimizer.moments();
    needs(held.moment1, moments > 0, "momentum or Adam", "first moment")?;
    needs(held.moment2, moments > 1, "Adam", "second moment")?;
    needs(held.guide, brief.objective.align > 0.0, "alignment with a received vector", "guide")?;
    needs(held.guide, brief.product == Product::Both, "its first step beside the update", "guide")?;
    needs(held.personal, brief.personal.is_some(), "a personal model", "personal")
}
