//! The validation loss of the received model, and training without the samples that are kept for it.

use common::{brief::Laplace, message::Validation};

use super::*;

fn select(indices: &[u32]) -> VecShard {
    shard(ten().select(indices).unwrap())
}

fn validating(brief: Brief) -> Task {
    Task::Train(Brief { validate: true, ..brief })
}

/// Mean and squared standard error, in two passes.
fn moments(losses: &[f64]) -> Validation {
    let n = losses.len() as f64;
    let loss = losses.iter().sum::<f64>() / n;
    let squares: f64 = losses.iter().map(|value| (value - loss).powi(2)).sum();
    Validation { loss, error: if losses.len() < 2 { 0.0 } else { squares / (n - 1.0) / n } }
}

fn assert_alike(found: Option<Validation>, expected: Validation, tolerance: f64) {
    let found = found.unwrap();
    assert!((found.loss - expected.loss).abs() <= tolerance, "{found:?} {expected:?}");
    assert!((found.error - expected.error).abs() <= tolerance, "{found:?} {expected:?}");
}

/// Losses of `z = w x + b` on some of the ten samples.
fn losses(model: &[f32], indices: &[u32]) -> Vec<f64> {
    let (w, b, samples) = (f64::from(model[0]), f64::from(model[1]), ten());
    let loss = |&index: &u32| {
        let at = index as usize;
        entropy(w * f64::from(samples.features()[at]) + b, samples.labels()[at])
    };
    indices.iter().map(loss).collect()
}

#[test]
fn mean_and_error_are_those_of_the_samples_kept_and_training_ignores_them() {
    for options in [PLAIN, Options { grads: false, ..PLAIN }] {
        for running in [false, true] {
            let plan = logistic(4, options);
            let start = plan.arena(1, |x| x as f32);
            let settings = Brief { epochs: 6, batch: 3, running, ..brief() };
            let mut apart = start.clone();
            let kept = select(&[0, 1, 2, 3, 5, 6, 7, 8]);
            let plain = run(&Task::Train(settings.clone()), &plan, &mut apart, &kept, &mut Portable::plain());
            let plain = plain.unwrap();
            assert_eq!(plain.validation, None);

            let mut arena = start.clone();
            let all = shard(ten());
            let scalars =
                run(&validating(settings), &plan, &mut arena, &all, &mut Portable::plain()).unwrap();
            assert_alike(scalars.validation, moments(&losses(&start, &[4, 9])), 1e-6);
            assert_eq!(Scalars { validation: None, ..scalars }, plain);
            assert_eq!(arena[..2], apart[..2]);
        }
    }
}

/// Ten validation samples in passes of eight, one by one with plain evaluations, on both back ends.
#[test]
fn several_passes_give_the_same_as_sample_after_sample() {
    let (plan, shard) = (small_plan(PLAIN), small());
    let start = plan.arena(1, |x| x as f32);
    let all = Samples::of(&shard, DataSplit::Train).unwrap();
    let single = |index: u32| {
        let one = VecShard::new(all.select(&[index]).unwrap(), Samples::default()).unwrap();
        run(&Task::Evaluate(None), &plan, &mut start.clone(), &one, &mut Portable::plain())
            .unwrap()
            .loss_before
    };
    let expected = moments(&(0..10).map(|number| single(5 * number + 4)).collect::<Vec<_>>());
    assert!(expected.error > 0.0);
    let (mut portable, mut fast) = (Portable::plain(), Fast::new());
    let backends: [&mut dyn Backend<f32>; 2] = [&mut portable, &mut fast];
    for (backend, tolerance) in backends.into_iter().zip([1e-12, 1e-5]) {
        let scalars = run(&validating(brief()), &plan, &mut start.clone(), &shard, backend).unwrap();
        assert_alike(scalars.validation, expected, tolerance);
        assert_eq!((scalars.samples, scalars.test.unwrap().samples), (40, 9));
    }
}

#[test]
fn a_device_with_few_samples_trains_on_all_and_reports_nothing() {
    let plan = logistic(4, PLAIN);
    let start = plan.arena(1, |x| x as f32);
    for samples in 1..12 {
        let shard = select(&(0..10).cycle().take(samples).collect::<Vec<_>>());
        let (mut plain, mut arena) = (start.clone(), start.clone());
        let scalars = run(&validating(brief()), &plan, &mut arena, &shard, &mut Portable::plain()).unwrap();
        let expected = run(&Task::Train(brief()), &plan, &mut plain, &shard, &mut Portable::plain()).unwrap();
        let few = samples < VALIDATION_EVERY as usize;
        assert_eq!(scalars.validation.is_none(), few);
        assert_eq!(scalars.samples as usize, samples - samples / 5);
        assert_eq!(scalars == expected && arena == plain, few);
        // One sample has no variance.
        assert_eq!(scalars.validation.is_some_and(|found| found.error == 0.0), (5..10).contains(&samples));
    }
}

#[test]
fn a_device_with_validation_samples_of_its_own_holds_nothing_back() {
    let plan = logistic(4, PLAIN);
    let start = plan.arena(1, |x| x as f32);
    let apart = [1, 4, 6];
    for (kept, own) in [(vec![0, 2, 3, 5, 7, 8, 9], &apart[..]), (vec![0, 2], &apart[..1])] {
        let without = select(&kept);
        let with = without.clone().with_validation(ten().select(own).unwrap()).unwrap();
        assert_eq!((with.validation_len() as usize, with.len(DataSplit::Test)), (own.len(), 0));
        let (mut plain, mut arena) = (start.clone(), start.clone());
        let expected =
            run(&Task::Train(brief()), &plan, &mut plain, &without, &mut Portable::plain()).unwrap();
        let scalars = run(&validating(brief()), &plan, &mut arena, &with, &mut Portable::plain()).unwrap();
        assert_alike(scalars.validation, moments(&losses(&start, own)), 1e-6);
        assert_eq!(Scalars { validation: None, ..scalars }, expected);
        assert_eq!(arena, plain);
        let unasked = run(&Task::Train(brief()), &plan, &mut start.clone(), &with, &mut Portable::plain());
        assert_eq!(unasked.unwrap(), expected);
    }
    let wide = Samples::new(vec![0.0; 4], vec![0, 1], 2).unwrap();
    assert!(shard(ten()).with_validation(wide).is_err());
}

#[test]
fn the_samples_of_a_gap_serve_for_both() {
    let plan = logistic(4, PLAIN);
    let start = plan.arena(1, |x| x as f32);
    let answer = |gap, validate| {
        let private = PrivateState { baseline: Some(0.125), ..PrivateState::default() };
        let task = Task::Train(Brief { gap, validate, ..brief() });
        let mut arena = start.clone();
        let (scalars, work) =
            run_as(private, &task, &plan, &mut arena, &shard(ten()), &mut Portable::plain()).unwrap();
        (scalars, arena, work.steps)
    };
    let (both, both_arena, both_steps) = answer(true, true);
    let (gap, gap_arena, gap_steps) = answer(true, false);
    let (validated, arena, steps) = answer(false, true);
    assert_eq!((both.gap, both.validation), (gap.gap, validated.validation));
    assert_eq!(both.gap.unwrap(), both.validation.unwrap().loss - 0.125);
    // A baseline of an earlier strategy gives no gap that was not asked for.
    assert_eq!((gap.validation, validated.gap), (None, None));
    assert_eq!((&both_arena, &both_arena), (&gap_arena, &arena));
    assert_eq!([both_steps, gap_steps], [steps; 2], "one pass serves both");
}

#[test]
fn other_tasks_and_answers_with_noise_validate_nothing() {
    let plan = logistic(4, PLAIN);
    let start = plan.arena(1, |x| x as f32);
    let private = PrivateState { secret: Some(Secret::simulated(7)), ..PrivateState::default() };
    let noise = Brief { privacy: Some(Laplace { sums: 0.0, clip_l1: 1e6, update: 0.0 }), ..brief() };
    let answer = |task: &Task, shard: &VecShard| {
        let mut arena = start.clone();
        let (scalars, _) = run_as(private, task, &plan, &mut arena, shard, &mut Portable::plain()).unwrap();
        (scalars, arena)
    };
    let (all, own) = (shard(ten()), shard(ten()).with_validation(ten()).unwrap());
    for shard in [&all, &own] {
        assert_eq!(answer(&validating(noise.clone()), shard), answer(&Task::Train(noise.clone()), shard));
    }
    let alone =
        common::message::Alone { brief: Brief { validate: true, ..brief() }, window: 9, tolerance: 0.0 };
    for task in [Task::Alone(alone), Task::Evaluate(None)] {
        assert_eq!(answer(&task, &all).0.validation, None);
    }
}
