//! Losses along a direction, and the first step in addition to the update.

use super::*;

const GUIDED: Options = Options { guide: true, ..PLAIN };

fn trials(steps: &[f32]) -> Task {
    Task::Try(heapless::Vec::from_slice(steps).unwrap())
}

#[test]
fn losses_at_steps_along_the_guide() {
    let plan = logistic(4, GUIDED);
    let mut arena = plan.arena(1, |x| x as f32);
    let (model, guide) = ([0.7f32, -0.3], [-0.5f32, 0.25]);
    arena[..2].copy_from_slice(&model);
    arena[segment(&plan, plan.info.segments.guide)].copy_from_slice(&guide);
    let steps = [1.0f32, 0.5, -2.0, 0.0];
    let scalars = run(&trials(&steps), &plan, &mut arena, &shard(ten()), &mut Portable::plain()).unwrap();
    let loss = |step: f32| {
        let at = |k: usize| f64::from(model[k]) - f64::from(step) * f64::from(guide[k]);
        reference([at(0), at(1)], &ten(), &[1.0; 10]).0
    };
    assert_eq!(scalars.trials.len(), 4);
    for (got, &step) in scalars.trials.iter().zip(&steps) {
        assert!((got - loss(step)).abs() < 1e-6, "{got} {step}");
    }
    assert_eq!(scalars.trials[3], scalars.loss_before);
    assert_eq!((scalars.steps, scalars.samples, scalars.test), (0, 10, None));
    assert_eq!(arena[..2], model);
    assert_eq!(arena[segment(&plan, plan.info.segments.guide)], guide);
    let none = run(&trials(&[]), &plan, &mut arena, &shard(ten()), &mut Portable::plain()).unwrap();
    assert_eq!((none.loss_before, none.trials.len()), (scalars.loss_before, 0));
}

/// Statistics of batch normalisation are those of the tried model.
#[test]
fn a_trial_is_an_evaluation_of_the_tried_model() {
    let (mut b, x) = Builder::new(64, 8);
    let x = b.dense(x, 1, 6);
    let x = b.batchnorm(x, 6);
    let x = b.relu(x);
    let _ = b.dense(x, 1, 10);
    let plan = b.finish(Loss::Softmax { classes: 10 }, GUIDED);
    let start = plan.arena(1, |x| x as f32);
    let (params, guide) = (plan.info.params as usize, segment(&plan, plan.info.segments.guide));
    let mut arena = start.clone();
    let scalars = run(&trials(&[0.25, 0.125]), &plan, &mut arena, &small(), &mut Portable::plain()).unwrap();
    for (&got, step) in scalars.trials.iter().zip([0.25, 0.125]) {
        let mut moved = start.clone();
        for at in 0..params {
            moved[at] = start[at] - step * start[guide.start + at];
        }
        let task = Task::Evaluate(None);
        let plain = run(&task, &plan, &mut moved, &small(), &mut Portable::plain()).unwrap();
        assert_eq!(got, plain.loss_before);
        assert_ne!(got, scalars.loss_before);
    }
    assert_eq!(arena[..params], start[..params]);
}

#[test]
fn a_diverging_step_has_the_largest_loss() {
    let plan = logistic(4, GUIDED);
    let mut arena = plan.arena(1, |x| x as f32);
    arena[segment(&plan, plan.info.segments.guide)].fill(3e38);
    let scalars =
        run(&trials(&[1e30, 0.0]), &plan, &mut arena, &shard(ten()), &mut Portable::plain()).unwrap();
    assert_eq!(scalars.trials, [crate::train::LOSS_CAP, scalars.loss_before]);
}

#[test]
fn both_are_an_update_and_the_first_step() {
    let adam = Options { moments: 2, ..GUIDED };
    for (options, optimizer) in [(GUIDED, Optimizer::default()), (adam, Optimizer::ADAM)] {
        let plan = small_plan(options);
        let sent = |product: Product, epochs: u16| {
            let mut arena = plan.arena(1, |x| x as f32);
            let task = Task::Train(Brief { product, optimizer, epochs, ..brief() });
            let (scalars, work) =
                run_as(PrivateState::default(), &task, &plan, &mut arena, &small(), &mut Portable::plain())
                    .unwrap();
            work.finish(plan.plan(), &mut arena).unwrap();
            let from = segment(&plan, plan.info.segments.anchor).start;
            (arena[from..][..product.vectors() * plan.info.params as usize].to_vec(), scalars)
        };
        let (both, scalars) = sent(Product::Both, 2);
        let (update, plain) = sent(Product::Update, 2);
        let (first, _) = sent(Product::FirstStep, 2);
        assert_eq!(both, [update, first].concat());
        assert_eq!(scalars, plain);
        assert!(sent(Product::Both, 0).0.iter().all(|&value| value == 0.0));
    }
}

#[test]
fn tasks_with_a_guide_need_its_segment() {
    let guided = logistic(4, GUIDED);
    let refused = |task: &Task, plan: &TestPlan| {
        let error = Work::check(task, plan.plan()).unwrap_err();
        let mut arena = plan.arena(1, |x| x as f32);
        assert_eq!(Work::begin(task, plan.plan(), &mut arena, &shard(ten())).unwrap_err(), error);
        error.code()
    };
    let both = Brief { product: Product::Both, ..brief() };
    assert_eq!(refused(&trials(&[1.0]), &logistic(4, PLAIN)), Code::BadPlan);
    assert_eq!(refused(&Task::Train(both.clone()), &logistic(4, PLAIN)), Code::BadPlan);
    assert_eq!(refused(&trials(&[f32::NAN]), &guided), Code::BadConfig);
    let aligned = Objective { align: 0.5, ..Objective::default() };
    assert_eq!(refused(&Task::Train(Brief { objective: aligned, ..both }), &guided), Code::BadConfig);
}
