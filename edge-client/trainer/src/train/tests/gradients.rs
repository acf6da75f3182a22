//! Whole Plans in `f64`: every parameter's gradient against central differences.

use common::{
    brief::{Augment, SelfRegular},
    plan::{BackwardStep, Loss, Pass},
    rng::Rng,
};

use super::plans::{ALL, BATCH, anything};
use crate::train::{
    Fast, GradTarget, PassMode, Portable, backward, forward, loss_and_gradient, robust_gradient,
    test_plan::{Options, PLAIN, TestPlan},
};

const MODE: PassMode = PassMode::Train { seed: 4, step: 2 };

/// Weighted mean loss as a function of the weights; the input stays in the arena.
fn loss(plan: &TestPlan, arena: &mut [f64], rows: usize, robust: Option<&SelfRegular>) -> f64 {
    forward(plan.plan(), arena, rows, MODE, &mut Portable::plain()).unwrap();
    let targets = rows as u32 * plan.info.targets();
    let truth = anything(plan);
    let tally = match robust {
        None => loss_and_gradient(plan.plan(), arena, rows, targets, &truth),
        Some(terms) => robust_gradient(plan.plan(), arena, rows, targets / 2, (terms, 0.3), &truth),
    };
    tally.unwrap().loss / f64::from(if robust.is_some() { targets / 2 } else { targets })
}

fn assert_gradients(name: &str, plan: &TestPlan, rows: usize, robust: Option<&SelfRegular>) {
    assert_gradients_at(name, plan, rows, robust, plan.arena(9, |x| x));
}

fn assert_gradients_at(
    name: &str,
    plan: &TestPlan,
    rows: usize,
    robust: Option<&SelfRegular>,
    mut arena: Vec<f64>,
) {
    loss(plan, &mut arena, rows, robust);
    backward(plan.plan(), &mut arena, rows, MODE, GradTarget::Grads, &mut Portable::plain()).unwrap();
    let params = plan.info.params as usize;
    let grads = arena[plan.info.segments.grads.unwrap() as usize..][..params].to_vec();
    for at in 0..params {
        let (kept, h) = (arena[at], 1e-6);
        let mut at_value = |value| {
            arena[at] = value;
            loss(plan, &mut arena, rows, robust)
        };
        let slope = (at_value(kept + h) - at_value(kept - h)) / (2.0 * h);
        at_value(kept);
        let got = grads[at];
        assert!((slope - got).abs() < 2e-7 * (1.0 + slope.abs()), "{name} {at}: {slope} {got}");
    }
    assert!(grads.iter().filter(|&&grad| grad != 0.0).count() * 3 > params, "{name}: mostly zeros");
}

#[test]
fn gradients_of_every_operation_match_finite_differences() {
    for (name, build) in ALL {
        for in_place in [false, true] {
            let plan = build(Options { in_place, ..PLAIN });
            for rows in [usize::from(BATCH), 2] {
                assert_gradients(name, &plan, rows, None);
            }
        }
    }
}

#[test]
fn gradients_without_biases_match_finite_differences() {
    let plan = TestPlan::new(&[5, 4, 3], BATCH, Options { bias: false, ..PLAIN });
    assert_gradients("no bias", &plan, 3, None);
}

#[test]
fn self_regularisation_gives_both_branches_their_gradient() {
    let terms = SelfRegular { sharpen: 0.5, soften: 3.0, gamma: 0.4, augment: Augment::Noise(0.05) };
    for (name, build) in ALL {
        let plan = build(PLAIN);
        if matches!(plan.info.loss, Loss::Softmax { .. }) {
            assert_gradients(name, &plan, 2, Some(&terms));
        }
    }
}

#[test]
fn gradients_are_right_where_the_copy_is_a_shifted_image() {
    let augment = Augment::Shift { channels: 2, height: 9, width: 8, pixels: 2, flip: true };
    let terms = SelfRegular { sharpen: 0.5, soften: 3.0, gamma: 0.4, augment };
    let plan = ALL[1].1(PLAIN);
    let (input, width) = (plan.info.input as usize, plan.info.inputs as usize);
    for seed in 0..3 {
        let mut arena = plan.arena(9, |x| x);
        let sample: Vec<f32> = arena[input..][..width].iter().map(|&x| x as f32).collect();
        let mut copy = vec![0.0; width];
        crate::train::trainer::augment::augment(augment, &sample, &mut copy, &mut Rng::new(seed));
        assert_ne!(sample, copy);
        for (place, &x) in arena[input..].iter_mut().zip(sample.iter().chain(&copy)) {
            *place = x.into();
        }
        assert_gradients_at("shifted image", &plan, 2, Some(&terms), arena);
    }
}

#[test]
fn the_fast_backend_has_the_same_gradients_in_f64() {
    for (name, build) in ALL {
        let plan = build(PLAIN);
        let rows = usize::from(BATCH);
        let start = plan.arena(9, |x| x);
        let (mut a, mut b) = (start.clone(), start);
        loss(&plan, &mut a, rows, None);
        backward(plan.plan(), &mut a, rows, MODE, GradTarget::Grads, &mut Portable::fused()).unwrap();
        let fast = &mut Fast::<f64>::new();
        forward(plan.plan(), &mut b, rows, MODE, fast).unwrap();
        let targets = rows as u32 * plan.info.targets();
        loss_and_gradient(plan.plan(), &mut b, rows, targets, &anything(&plan)).unwrap();
        backward(plan.plan(), &mut b, rows, MODE, GradTarget::Grads, fast).unwrap();
        let grads = plan.info.segments.grads.unwrap() as usize;
        for at in grads..grads + plan.info.params as usize {
            assert!((a[at] - b[at]).abs() < 1e-12, "{name} {at}: {} {}", a[at], b[at]);
        }
    }
}

/// The first layer's output is discarded after the forward pass and recomputed for the second layer's gradient.
#[test]
fn a_schedule_with_recomputation_gives_the_same_gradients() {
    let mut plan = TestPlan::new(&[5, 4, 3], BATCH, PLAIN);
    let rows = usize::from(BATCH);
    let start = plan.arena(9, |x| x);
    let gradients = |plan: &TestPlan, spoil: Option<u32>| {
        let mut arena = start.clone();
        loss(plan, &mut arena, rows, None);
        if let Some(at) = spoil {
            arena[at as usize..][..4 * rows].fill(f64::NAN);
        }
        backward(plan.plan(), &mut arena, rows, MODE, GradTarget::Grads, &mut Portable::plain()).unwrap();
        arena[plan.info.segments.grads.unwrap() as usize..][..plan.info.params as usize].to_vec()
    };
    let plain = gradients(&plan, None);
    let (dense, relu) = (plan.nodes[0], plan.nodes[1]);
    plan.nodes.extend([dense, relu]);
    let steps = [
        (3, Pass::Forward),
        (4, Pass::Forward),
        (2, Pass::Backward),
        (1, Pass::Backward),
        (0, Pass::Backward),
    ];
    plan.schedule = steps.map(|(node, pass)| BackwardStep { node, pass }).to_vec();
    (plan.info.nodes, plan.info.schedule) = (5, 5);
    assert_eq!(plain, gradients(&plan, Some(relu.output)));
}
