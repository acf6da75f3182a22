//! A personal model in addition to the common one.

use super::*;

const PERSONAL: Options = Options { personal: true, ..PLAIN };

fn with_test() -> VecShard {
    VecShard::new(ten(), ten().select(&[0, 1, 2, 3, 4]).unwrap()).unwrap()
}

/// `v -= lr * (grad F(v) + lambda * (v - theta))`, as many steps as the common model, continued from round to round.
#[test]
fn the_personal_model_follows_its_formula_over_rounds() {
    let (lr, lambda) = (0.3f32, 0.7f32);
    for options in [PERSONAL, Options { grads: false, ..PERSONAL }] {
        let plan = logistic(10, options);
        let mut arena = plan.arena(1, |x| x as f32);
        let brief = Brief { personal: Some(lambda), epochs: 3, batch: 10, lr, ..brief() };
        let (mut private, mut v) = (PrivateState::default(), [0.0; 2]);
        for (round, theta) in [[0.4f32, -0.1], [0.9, 0.3]].into_iter().enumerate() {
            arena[..2].copy_from_slice(&theta);
            let theta = theta.map(f64::from);
            if round == 0 {
                v = theta;
            }
            for _ in 0..3 {
                let (_, grad) = reference(v, &ten(), &[1.0; 10]);
                let pulled = |k: usize| grad[k] + f64::from(lambda) * (v[k] - theta[k]);
                v = [v[0] - f64::from(lr) * pulled(0), v[1] - f64::from(lr) * pulled(1)];
            }
            let task = Task::Train(brief.clone());
            let (scalars, work) =
                run_as(private, &task, &plan, &mut arena, &with_test(), &mut Portable::plain()).unwrap();
            private = work.private_state();
            assert!(private.personal);
            let personal = arena[segment(&plan, plan.info.segments.personal)].to_vec();
            assert_close(&personal, &v);
            assert_eq!(scalars.steps, 3);

            let mut copy = arena.clone();
            copy[..2].copy_from_slice(&personal);
            let task = Task::Evaluate(None);
            let plain = run(&task, &plan, &mut copy, &with_test(), &mut Portable::plain()).unwrap();
            assert_eq!(scalars.personal, plain.test);
            assert_ne!(scalars.personal, scalars.test);
        }
    }
}

/// Also with shuffled batches, dropout, batch statistics and moments.
#[test]
fn a_personal_model_does_not_change_the_update() {
    let build = |personal: bool| {
        let (mut b, x) = Builder::new(64, 8);
        let x = b.dense(x, 1, 12);
        let x = b.batchnorm(x, 12);
        let x = b.dropout(x, 0.3, 1);
        let _ = b.dense(x, 1, 10);
        b.finish(Loss::Softmax { classes: 10 }, Options { personal, moments: 2, ..PLAIN })
    };
    let trained = |pull: Option<f32>| {
        let plan = build(pull.is_some());
        let mut arena = build(false).arena(1, |x| x as f32);
        arena.resize(plan.info.arena as usize, 0.0);
        let terms = SelfRegular {
            sharpen: 0.5,
            soften: 3.0,
            gamma: 0.4,
            augment: common::brief::Augment::Noise(0.05),
        };
        let objective = Objective { robust: Some(terms), weight: 0.5, ..Objective::default() };
        let optimizer = Optimizer::ADAM;
        let task = Task::Train(Brief { personal: pull, optimizer, objective, lr: 0.01, batch: 4, ..brief() });
        let scalars = run(&task, &plan, &mut arena, &small(), &mut Portable::plain()).unwrap();
        let personal = pull.map(|_| arena[segment(&plan, plan.info.segments.personal)].to_vec());
        (arena[..plan.info.params as usize].to_vec(), scalars, personal)
    };
    let (plain, alone, _) = trained(None);
    let (beside, scalars, personal) = trained(Some(0.1));
    assert_eq!(plain, beside);
    assert_eq!(Scalars { personal: None, ..scalars.clone() }, alone);
    assert_eq!(scalars.personal.unwrap().samples, 9);
    // Its loss does not have the weight that the strategy gives this device.
    assert_ne!(personal, Some(beside));
}

#[test]
fn a_personal_model_needs_its_segment_and_whole_training() {
    let refused = |brief: Brief, options: Options| {
        Work::check(&Task::Train(brief), logistic(4, options).plan()).unwrap_err().code()
    };
    let asked = Brief { personal: Some(0.5), ..brief() };
    assert_eq!(refused(asked.clone(), PLAIN), Code::BadPlan);
    assert_eq!(refused(Brief { personal: Some(-1.0), ..brief() }, PERSONAL), Code::BadConfig);
    for product in [Product::Gradient, Product::FirstStep] {
        assert_eq!(refused(Brief { product, ..asked.clone() }, PERSONAL), Code::BadConfig);
    }
}
