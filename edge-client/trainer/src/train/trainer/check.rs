//! What must hold before any work: each refusal says what to change.

use common::{
    brief::{Brief, Objective, Optimizer, Product},
    plan::{Loss, Node, Op, Pass, Plan},
};

use crate::{
    data::Shard,
    train::{
        Descent, TrainError,
        executor::{ROBUST_LOSS, full, has_parameters, shares_parameters},
    },
};

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

pub(super) fn brief(plan: Plan<'_>, brief: &Brief) -> Result<(), TrainError> {
    if brief.batch == 0 || !(brief.lr.is_finite() && brief.lr > 0.0) {
        return Err(TrainError::Brief { batch: brief.batch, lr: brief.lr });
    }
    anchor(plan)?;
    // Where activations are computed again, a copy of the node may run backward in its place.
    let runs_back = |node: &Node| {
        let mut back = plan.backward().filter(|(_, pass)| *pass == Pass::Backward);
        back.any(|(other, _)| other.output_grad.is_some() && other.op == node.op)
    };
    let trains = |node: &Node| !has_parameters(node) || runs_back(node);
    let has_loss = plan.forward().last().is_some_and(|node| node.output_grad.is_some());
    if !has_loss || !plan.forward().iter().all(trains) {
        return Err(TrainError::InferenceOnly);
    }
    numbers(brief)?;
    robust(plan, &brief.objective)?;
    segments(plan, brief)
}

fn numbers(brief: &Brief) -> Result<(), TrainError> {
    let Objective { weight, prox, align, transform, groups, robust } = &brief.objective;
    let sound = |ok: bool, what: &'static str| if ok { Ok(()) } else { Err(TrainError::Objective(what)) };
    let share = |x: f32| (0.0..1.0).contains(&x);
    match brief.optimizer {
        Optimizer::Sgd { momentum, decay, .. } => {
            sound(share(momentum), "momentum must be in [0, 1)")?;
            sound(decay.is_finite(), "weight decay must be finite")?;
        }
        Optimizer::Adam { beta1, beta2, epsilon, decay } => {
            sound(share(beta1) && share(beta2), "betas of Adam must be in [0, 1)")?;
            sound(epsilon.is_finite() && epsilon > 0.0, "epsilon of Adam must be above zero")?;
            sound(decay.is_finite(), "weight decay must be finite")?;
        }
    }
    sound(brief.clip.is_none_or(|clip| clip > 0.0), "largest norm of a gradient must be above zero")?;
    sound(weight.is_finite(), "weight of the local gradient must be finite")?;
    sound(prox.is_finite() && *prox >= 0.0, "proximal pull must be zero or more")?;
    sound((0.0..=1.0).contains(align), "share of the received vector must be in [0, 1]")?;
    sound(groups.iter().all(|weight| weight.is_finite()), "weights of groups must be finite")?;
    if let Some(transform) = transform {
        let fine = transform.m.is_finite() && transform.eps.is_finite() && transform.eps > 0.0;
        sound(fine, "transform needs a finite M and an epsilon above zero")?;
    }
    if let Some(terms) = robust {
        let above = |x: f32| x.is_finite() && x > 0.0;
        let fine = above(terms.sharpen) && above(terms.soften);
        sound(fine, "temperatures of self-regularisation must be above zero")?;
        let fine = terms.gamma.is_finite() && terms.noise.is_finite() && terms.noise >= 0.0;
        sound(fine, "weight and noise of self-regularisation must be finite")?;
    }
    Ok(())
}

fn robust(plan: Plan<'_>, objective: &Objective) -> Result<(), TrainError> {
    if objective.robust.is_none() {
        return Ok(());
    }
    full()?;
    if !matches!(plan.info().loss, Loss::Softmax { .. }) {
        return Err(TrainError::Objective(ROBUST_LOSS));
    }
    if plan.forward().first().is_some_and(|node| matches!(node.op, Op::Embed { .. })) {
        return Err(TrainError::Objective("self-regularisation adds noise, which tokens can not take"));
    }
    if plan.info().batch < 2 {
        return Err(TrainError::Batch { rows: 2, batch: plan.info().batch.into() });
    }
    Ok(())
}

/// Segments that the brief needs, in the order in which a plan would be widened.
fn segments(plan: Plan<'_>, brief: &Brief) -> Result<(), TrainError> {
    let held = plan.info().segments;
    let needs = |segment: Option<u32>, wanted: bool, what, name| match segment {
        None if wanted => Err(TrainError::Segment { what, segment: name }),
        _ => Ok(()),
    };
    if held.grads.is_none() {
        if shares_parameters(plan) {
            return Err(TrainError::SharedParameters);
        }
        let double = if brief.objective.robust.is_some() { 2 } else { 1 };
        let rows = usize::from(brief.batch) * double;
        let whole = brief.product == Product::Gradient;
        needs(None, whole, "a gradient over all samples", "gradient")?;
        needs(None, Descent::<f32>::of(brief).is_none(), "more than plain SGD", "gradient")?;
        if rows > usize::from(plan.info().batch) {
            return Err(TrainError::Batch { rows, batch: plan.info().batch.into() });
        }
    }
    let moments = brief.optimizer.moments();
    needs(held.moment1, moments > 0, "momentum or Adam", "first moment")?;
    needs(held.moment2, moments > 1, "Adam", "second moment")?;
    needs(held.guide, brief.objective.align > 0.0, "alignment with a received vector", "guide")
}
