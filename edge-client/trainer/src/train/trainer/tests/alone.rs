//! Training alone, and the gap between the received model and the result.

use common::message::Alone;

use super::*;

fn alone(brief: Brief) -> Task {
    Task::Alone(Alone { brief, window: 100, tolerance: 0.0 })
}

fn select(indices: &[u32]) -> VecShard {
    shard(ten().select(indices).unwrap())
}

/// Compared with training on a shard without the validation samples, and evaluating on a shard of only these.
#[test]
fn the_baseline_is_the_loss_on_validation_samples() {
    let (kept, held) = (select(&[0, 1, 2, 3, 5, 6, 7, 8]), select(&[4, 9]));
    for options in [PLAIN, Options { grads: false, ..PLAIN }] {
        let plan = logistic(4, options);
        let start = plan.arena(1, |x| x as f32);
        let settings = Brief { epochs: 6, batch: 3, loss_after: true, ..brief() };
        let evaluate = |arena: &[f32], shard: &VecShard| {
            let mut arena = arena.to_vec();
            run(&Task::Evaluate(None), &plan, &mut arena, shard, &mut Portable::plain()).unwrap().loss_before
        };

        let mut apart = start.clone();
        let plain =
            run(&Task::Train(settings.clone()), &plan, &mut apart, &kept, &mut Portable::plain()).unwrap();
        let mut arena = start.clone();
        let (private, shard) =
            (PrivateState { secret: Some(Secret::simulated(7)), ..PrivateState::default() }, shard(ten()));
        let (scalars, work) =
            run_as(private, &alone(settings.clone()), &plan, &mut arena, &shard, &mut Portable::plain())
                .unwrap();
        assert_eq!((scalars.samples, scalars.steps, scalars.test), (8, 18, None));
        assert_eq!((scalars.loss_before, scalars.loss_after), (plain.loss_before, plain.loss_after));
        let baseline = evaluate(&apart, &held);
        assert_eq!(work.private_state(), PrivateState { baseline: Some(baseline), ..private });
        assert_eq!(arena[..2], start[..2], "the received model is back");

        // From then on, gaps are reported; training leaves out the same samples.
        let task = Task::Train(Brief { gap: true, ..settings });
        let (scalars, work) =
            run_as(work.private_state(), &task, &plan, &mut arena, &shard, &mut Portable::plain()).unwrap();
        assert_eq!(scalars.gap, Some(evaluate(&start, &held) - baseline));
        assert!(scalars.gap.unwrap() > 0.0);
        assert_eq!((scalars.samples, scalars.loss_after), (8, plain.loss_after));
        assert_eq!(arena[..2], apart[..2]);
        assert_eq!(work.private_state().baseline, Some(baseline));
    }
}

#[test]
fn a_gradient_leaves_validation_samples_out() {
    let plan = logistic(4, PLAIN);
    let gradient = |brief: Brief, shard: &VecShard| {
        let mut arena = plan.arena(1, |x| x as f32);
        let private = PrivateState { baseline: Some(0.5), ..PrivateState::default() };
        let task = Task::Train(Brief { product: Product::Gradient, ..brief });
        run_as(private, &task, &plan, &mut arena, shard, &mut Portable::plain()).unwrap();
        arena[segment(&plan, plan.info.segments.grads)].to_vec()
    };
    let kept = select(&[0, 1, 2, 3, 5, 6, 7, 8]);
    let with_gap = gradient(Brief { gap: true, ..brief() }, &shard(ten()));
    assert_eq!(with_gap, gradient(brief(), &kept));
    assert_ne!(with_gap, gradient(brief(), &shard(ten())));
}

#[test]
fn training_alone_ends_when_the_loss_is_flat() {
    let plan = logistic(4, PLAIN);
    let steps = |lr: f32, window, tolerance| {
        let mut arena = plan.arena(1, |x| x as f32);
        let brief = Brief { epochs: 400, batch: 2, lr, ..brief() };
        let task = Task::Alone(Alone { brief, window, tolerance });
        run(&task, &plan, &mut arena, &shard(ten()), &mut Portable::plain()).unwrap().steps
    };
    // Four steps per epoch; after the first epoch, a whole window brings no improvement.
    assert_eq!(steps(1e-9, 10, 1e-4), 4 * 11);
    assert_eq!(steps(1e-9, 3, 1e-4), 4 * 4);
    let some = steps(0.05, 10, 1e-4);
    assert!(4 * 11 < some && some < 4 * 400, "{some}");
    assert_eq!(steps(0.05, 400, 1e-4), 4 * 400);
}

#[test]
fn without_samples_or_a_baseline_there_is_no_gap() {
    let plan = logistic(4, PLAIN);
    let refused = |private, task: &Task, shard: &VecShard| {
        let mut arena = plan.arena(1, |x| x as f32);
        let error = Work::begin_as(private, TICKET, task, plan.plan(), &mut arena, shard).unwrap_err();
        (error, error.code())
    };
    let four = select(&[0, 1, 2, 3]);
    let known = PrivateState { baseline: Some(0.1), ..PrivateState::default() };
    let few = (TrainError::NoValidation { samples: 4 }, Code::NoValidation);
    let gap = Task::Train(Brief { gap: true, ..brief() });
    assert_eq!(refused(known, &alone(brief()), &four), few);
    assert_eq!(refused(known, &gap, &four), few);
    assert_eq!(
        refused(PrivateState::default(), &gap, &shard(ten())),
        (TrainError::NoBaseline, Code::NoBaseline)
    );
    let endless = Task::Alone(Alone { brief: brief(), window: 0, tolerance: 0.0 });
    assert_eq!(refused(known, &endless, &shard(ten())).1, Code::BadConfig);
}
