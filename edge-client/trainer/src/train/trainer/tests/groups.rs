//! Groups: their losses under the received model, and the effect of their weights on training.

use common::brief::{GroupReport, Signal};

use super::*;

const ZERO_ONE: GroupReport = GroupReport { signal: Signal::ZeroOne, cap: 5.0 };

/// Groups 0, 3, 2, 1, in this order.
fn four() -> Samples {
    let samples = Samples::new(vec![-1.0, 2.0, 0.5, 3.0], vec![0, 1, 1, 0], 1).unwrap();
    samples.with_attributes(&[0, 1, 0, 1], 2).unwrap()
}

fn weighted(weights: &[f32]) -> Brief {
    let groups = heapless::Vec::from_slice(weights).unwrap();
    Brief { objective: Objective { groups, ..Objective::default() }, ..Brief::sgd(1, 4, 0.5, 3) }
}

fn losses(plan: &TestPlan, model: &[f32], report: GroupReport) -> Scalars {
    let mut arena = plan.arena(1, |x| x as f32);
    arena[..model.len()].copy_from_slice(model);
    let evaluate = Task::Evaluate(Some(report));
    let scalars = run(&evaluate, plan, &mut arena, &shard(four()), &mut Portable::plain()).unwrap();
    assert_eq!(arena[..model.len()], *model);
    // The same during training, and with self-regularisation where there is a softmax.
    let train = Brief { groups: Some(report), ..Brief::sgd(1, 2, 0.1, 1) };
    let mut trained =
        run(&Task::Train(train.clone()), plan, &mut arena, &shard(four()), &mut Portable::plain()).unwrap();
    assert_eq!(trained.group_losses, scalars.group_losses);
    if plan.info.loss != Loss::Sigmoid {
        arena[..model.len()].copy_from_slice(model);
        let terms = SelfRegular {
            sharpen: 0.5,
            soften: 3.0,
            gamma: 0.4,
            augment: common::brief::Augment::Noise(0.05),
        };
        let objective = Objective { robust: Some(terms), ..Objective::default() };
        let robust = Task::Train(Brief { objective, batch: 1, ..train });
        trained = run(&robust, plan, &mut arena, &shard(four()), &mut Portable::plain()).unwrap();
        assert_ne!(trained.loss_before, scalars.loss_before);
        assert_eq!(trained.group_losses, scalars.group_losses);
    }
    scalars
}

#[test]
fn losses_of_groups_with_one_logit_and_with_two() {
    let l = |z: f64, label| entropy(z, label);
    // Group 1 is predicted wrong; groups 0, 2 and 3 right.
    let mine = [l(-1.0, 0), l(3.0, 0), l(0.5, 1), l(2.0, 1)];
    for (plan, model) in [(logistic(3, PLAIN), &[1.0, 0.0][..]), (softmax(3), &[0.0, 1.0, 0.0, 0.0])] {
        let scalars = losses(&plan, model, ZERO_ONE);
        assert_eq!(scalars.group_losses, [0.0, 1.0, 0.0, 0.0]);
        assert_eq!(scalars.group_counts, [1, 1, 1, 1]);
        assert!((scalars.loss_before - mine.iter().sum::<f64>() / 4.0).abs() < 1e-6);
        for cap in [5.0f32, 0.4] {
            let report = GroupReport { signal: Signal::CrossEntropy, cap };
            for (got, want) in losses(&plan, model, report).group_losses.iter().zip(mine) {
                assert!((got - want.min(cap.into())).abs() < 1e-6, "{got} {want} {cap}");
            }
        }
    }
    // A logit of 0 is not positive.
    let scalars = losses(&logistic(3, PLAIN), &[0.0, 0.0], ZERO_ONE);
    assert_eq!(scalars.group_losses, [0.0, 0.0, 1.0, 1.0]);
}

#[test]
fn weights_are_divided_by_their_mean() {
    let (plan, weights) = (logistic(4, PLAIN), [0.5f32, 2.0, 4.0, 1.5]);
    // In the order of the samples, whose groups are 0, 3, 2, 1.
    let (_, grad) = reference([0.3, -0.2], &four(), &[0.5, 1.5, 4.0, 2.0]);
    let mut arena = plan.arena(1, |x| x as f32);
    for product in [Product::Gradient, Product::FirstStep] {
        arena[..2].copy_from_slice(&[0.3, -0.2]);
        let task = Task::Train(Brief { product, ..weighted(&weights) });
        let (scalars, work) =
            run_as(PrivateState::default(), &task, &plan, &mut arena, &shard(four()), &mut Portable::plain())
                .unwrap();
        work.finish(plan.plan(), &mut arena).unwrap();
        let rate = if product == Product::Gradient { 1.0 } else { -0.5 };
        assert_close(&arena[segment(&plan, plan.info.segments.anchor)], &grad.map(|grad| rate * grad));
        assert_eq!(scalars.mass, Some(8.0));
    }
    // Only ratios of weights matter, for every batch size.
    let trained = |weights: &[f32], batch| {
        let mut arena = plan.arena(1, |x| x as f32);
        let task = Task::Train(Brief { epochs: 3, batch, ..weighted(weights) });
        run(&task, &plan, &mut arena, &shard(four()), &mut Portable::plain()).unwrap();
        arena[..2].to_vec()
    };
    assert_eq!(trained(&[1.0; 4], 2), trained(&[4.0; 4], 2));
    assert_eq!(trained(&[1.0; 4], 3), trained(&[], 3));
    assert_ne!(trained(&[1.0, 1.0, 1.0, 2.0], 2), trained(&[1.0; 4], 2));
}

#[test]
fn samples_of_weight_zero_make_no_step() {
    let momentum = Optimizer::Sgd { momentum: 0.9, nesterov: false, decay: 0.1 };
    let plan = logistic(4, Options { moments: 1, ..PLAIN });
    let trained = |weights: &[f32], brief: Brief| {
        let mut arena = plan.arena(1, |x| x as f32);
        let objective = weighted(weights).objective;
        let task = Task::Train(Brief { objective, loss_after: true, ..brief });
        let (scalars, work) =
            run_as(PrivateState::default(), &task, &plan, &mut arena, &shard(four()), &mut Portable::plain())
                .unwrap();
        work.finish(plan.plan(), &mut arena).unwrap();
        (arena[segment(&plan, plan.info.segments.anchor)].to_vec(), scalars)
    };
    let single = Brief { batch: 1, epochs: 2, optimizer: momentum, ..weighted(&[]) };
    let (update, scalars) = trained(&[0.0, 1.0, 0.0, 1.0], single.clone());
    assert_eq!((scalars.steps, scalars.mass), (4, Some(2.0)));
    assert!(update.iter().any(|&update| update != 0.0));
    for product in [Product::Update, Product::FirstStep, Product::Gradient] {
        let (update, scalars) = trained(&[0.0; 4], Brief { product, ..single.clone() });
        assert_eq!((update, scalars.steps, scalars.mass), (vec![0.0; 2], 0, Some(0.0)));
        assert_eq!(scalars.loss_after, Some(scalars.loss_before));
    }
}

#[test]
fn tasks_with_groups_need_samples_with_groups() {
    let plan = logistic(4, PLAIN);
    let refused = |task: Task, samples: Samples| {
        let mut arena = plan.arena(1, |x| x as f32);
        let error = Work::begin(&task, plan.plan(), &mut arena, &shard(samples)).unwrap_err();
        (error, error.code())
    };
    let none = (TrainError::NoGroups, Code::NoGroups);
    assert_eq!(refused(Task::Evaluate(Some(ZERO_ONE)), ten()), none);
    assert_eq!(refused(Task::Train(Brief { groups: Some(ZERO_ONE), ..brief() }), ten()), none);
    assert_eq!(refused(Task::Train(weighted(&[1.0, 1.0])), ten()), none);
    let many = ten().with_attributes(&[8; 10], 9).unwrap();
    assert_eq!(refused(Task::Evaluate(Some(ZERO_ONE)), many), none);
    let wrong = crate::data::DataError::Group { index: 1, group: 3, groups: 3 };
    assert_eq!(refused(Task::Train(weighted(&[1.0; 3])), four()).0, wrong.into());
    assert_eq!(refused(Task::Train(weighted(&[1.0, -1.0])), four()).1, Code::BadConfig);
    let uncapped = GroupReport { cap: f32::NAN, ..ZERO_ONE };
    assert_eq!(refused(Task::Evaluate(Some(uncapped)), four()).1, Code::BadConfig);
    // One weight for all (client parity) needs no groups.
    let mut arena = plan.arena(1, |x| x as f32);
    let task = Task::Train(weighted(&[0.25]));
    let scalars = run(&task, &plan, &mut arena, &shard(ten()), &mut Portable::plain()).unwrap();
    assert_eq!(scalars.mass, Some(2.5));
}
