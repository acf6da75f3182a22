//! Invalid calls give errors that state what is wrong.

use common::plan::{Loss, PlanError};

use super::plans::anything;
use crate::{
    data::DataError,
    train::{
        Descent, GradTarget, PassMode, Portable, TargetLabels, TargetValues, TrainError, backward, forward,
        loss_and_gradient, score,
        test_plan::{Builder, Options, PLAIN, TestPlan},
    },
};

const MODE: PassMode = PassMode::Evaluate;

#[test]
fn shared_parameters_need_a_gradient_segment() {
    let mut plan = TestPlan::new(&[4, 4, 4], 2, Options { grads: false, ..PLAIN });
    plan.nodes[2].op = plan.nodes[0].op;
    let mut arena = plan.arena(1, |x| x);
    let target = GradTarget::Weights(Descent::new(0.1));
    let refused = backward(plan.plan(), &mut arena, 2, MODE, target, &mut Portable::plain());
    assert_eq!(refused, Err(TrainError::SharedParameters));
    let refused = backward(plan.plan(), &mut arena, 2, MODE, GradTarget::Grads, &mut Portable::plain());
    assert!(matches!(refused, Err(TrainError::Segment { .. })));
}

#[test]
fn wrong_sizes_and_labels() {
    let plan = TestPlan::new(&[3, 4, 2], 2, PLAIN);
    let mut arena = plan.arena(1, |x| x);
    let len = arena.len();
    let run = |arena: &mut [f64], rows| forward(plan.plan(), arena, rows, MODE, &mut Portable::plain());
    assert_eq!(run(&mut arena, 3), Err(TrainError::Batch { rows: 3, batch: 2 }));
    assert_eq!(run(&mut arena, 0), Err(TrainError::Batch { rows: 0, batch: 2 }));
    assert_eq!(run(&mut arena[1..], 1), Err(TrainError::Arena { need: len, have: len - 1 }));
    let wrong = DataError::Label { index: 1, label: 2, classes: 2 };
    let truth = TargetLabels { labels: &[0, 2], per_row: 1 };
    assert_eq!(score(plan.plan(), &arena, 2, &truth), Err(wrong.into()));
    assert_eq!(loss_and_gradient(plan.plan(), &mut arena, 2, 2, &truth), Err(wrong.into()));
    let few = TargetLabels { labels: &[0], per_row: 1 };
    let missing = DataError::NoTarget { index: 1, position: 0, targets: 1 };
    assert_eq!(score(plan.plan(), &arena, 2, &few), Err(missing.into()));
}

#[test]
fn numbers_to_predict_must_be_finite() {
    let mut plan = TestPlan::new(&[3, 1], 1, PLAIN);
    plan.info.loss = Loss::Squared;
    let mut arena = plan.arena(1, |x| x);
    let truth = TargetValues { values: &[f32::NAN], per_row: 1 };
    let wrong = DataError::NonFinite { index: 0, feature: 0 };
    assert_eq!(loss_and_gradient(plan.plan(), &mut arena, 1, 1, &truth), Err(wrong.into()));
}

#[test]
fn tokens_must_be_whole_numbers_of_the_table() {
    let (mut b, x) = Builder::new(2, 2);
    let x = b.embed(x, 5, 3);
    let _ = b.dense(x, 1, 2);
    let plan = b.finish(Loss::Softmax { classes: 2 }, PLAIN);
    let mut arena = plan.arena(1, |x| x as f32);
    for (token, fine) in [(4.0, true), (5.0, false), (-1.0, false), (1.5, false), (f32::NAN, false)] {
        arena[plan.info.input as usize + 3] = token;
        let result = forward(plan.plan(), &mut arena, 2, MODE, &mut Portable::plain());
        let wrong = DataError::Token { index: 1, position: 1, entries: 5 };
        assert_eq!(result, if fine { Ok(()) } else { Err(wrong.into()) }, "{token}");
    }
}

#[test]
fn a_plan_that_overwrites_what_it_reads_does_not_pass() {
    let mut plan = TestPlan::new(&[3, 4, 2], 2, PLAIN);
    plan.nodes[0].output_grad = Some(plan.info.input);
    let refused = common::plan::Plan::check(&plan.info, &plan.nodes, &[]).unwrap_err();
    assert_eq!(refused, PlanError::Overlap(0));
    let fine = TestPlan::new(&[3, 4, 2], 2, PLAIN);
    let mut arena = fine.arena(1, |x| x);
    assert!(score(fine.plan(), &arena, 2, &anything(&fine)).is_ok());
    arena[fine.info.logits as usize] = f64::NAN;
    assert!(score(fine.plan(), &arena, 2, &anything(&fine)).unwrap().loss.is_nan());
}
