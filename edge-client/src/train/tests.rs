//! Gradients of whole Plans against finite differences, backends against each other and against bits.

use common::{
    plan::{Node, Op, PlanInfo},
    rng::Rng,
};
use proptest::prelude::*;

use super::{
    Backend, Fast, Portable, Sizes, Target, TrainError, backward, descend, forward, loss_and_gradient, score,
    test_plan::{Options, PLAIN, TestPlan},
};
use crate::data::DataError;

fn labels(classes: u32) -> impl Fn(usize) -> Result<u32, DataError> {
    move |row| Ok((row as u32 * 7 + 1) % classes)
}

/// Mean loss as a function of the weights; the input stays in the arena.
fn mean_loss(plan: &TestPlan, arena: &mut [f64], rows: usize) -> f64 {
    forward(plan.plan(), arena, rows, &Portable).unwrap();
    score(plan.plan(), arena, rows, labels(plan.info.outputs)).unwrap().mean_loss()
}

#[test]
fn gradients_of_random_plans_match_finite_differences() {
    for seed in 0..48u64 {
        let mut rng = Rng::new(seed);
        let mut width = |limit| 1 + rng.below(limit) as u32;
        let layers = 1 + seed % 4;
        let widths: Vec<u32> = (0..layers).map(|_| width(11)).chain([2 + seed as u32 % 5]).collect();
        let options = Options { in_place: seed % 2 == 0, bias: seed % 3 != 0, ..PLAIN };
        let plan = TestPlan::new(&widths, 5, options);
        let rows = 1 + seed as usize % 5;
        assert_gradients(&plan, rows, seed);
    }
}

fn assert_gradients(plan: &TestPlan, rows: usize, seed: u64) {
    let mut arena = plan.arena(seed, |x| x);
    forward(plan.plan(), &mut arena, rows, &Portable).unwrap();
    let tally = loss_and_gradient(plan.plan(), &mut arena, rows, labels(plan.info.outputs)).unwrap();
    assert_eq!(tally.samples as usize, rows);
    backward(plan.plan(), &mut arena, rows, Target::Grads, &Portable).unwrap();
    assert!((mean_loss(plan, &mut arena, rows) - tally.mean_loss()).abs() < 1e-12);
    for at in 0..plan.info.params as usize {
        let (kept, h) = (arena[at], 1e-6);
        let mut loss_at = |value| {
            arena[at] = value;
            mean_loss(plan, &mut arena, rows)
        };
        let slope = (loss_at(kept + h) - loss_at(kept - h)) / (2.0 * h);
        loss_at(kept);
        let gradient = arena[plan.info.grads.unwrap() as usize + at];
        assert!((slope - gradient).abs() < 1e-7 * (1.0 + slope.abs()), "{seed} {at}: {slope} {gradient}");
    }
}

/// As the compiler writes it: no gradient reaches the first ReLU, which overwrites the input; the last
/// one needs its output, so the gradient of the logits has a place of its own.
#[test]
fn a_relu_at_either_end() {
    let mut plan = TestPlan::new(&[5, 4], 3, PLAIN);
    let dense = plan.nodes[0];
    let first = Node { op: Op::Relu { len: 5 }, output: dense.input, output_grad: None, ..dense };
    let (logits, gradient) = (plan.info.arena, plan.info.arena + 12);
    let last = Node {
        op: Op::Relu { len: 4 },
        input: dense.output,
        output: logits,
        input_grad: dense.output_grad,
        output_grad: Some(gradient),
    };
    plan.nodes = vec![first, dense, last];
    plan.info = PlanInfo { nodes: 3, logits, arena: gradient + 12, ..plan.info };
    assert_gradients(&plan, 3, 1);
}

/// One step from the same start; gives the weights.
fn one_step(options: Options, backend: &dyn Backend<f32>) -> Vec<f32> {
    let plan = TestPlan::new(&[30, 21, 13, 10], 9, options);
    // The same weights and inputs whatever the layout.
    let mut arena = plan.arena(3, |_| 0.5f32);
    let params = plan.info.params as usize;
    let mut rng = Rng::new(8);
    arena[..params].fill_with(|| 0.3 * rng.normal() as f32);
    arena[plan.info.input as usize..][..270].fill_with(|| rng.normal() as f32);
    let (plan, lr) = (plan.plan(), 0.1);
    forward(plan, &mut arena, 9, backend).unwrap();
    loss_and_gradient(plan, &mut arena, 9, labels(10)).unwrap();
    if let Some(grads) = plan.info.grads {
        backward(plan, &mut arena, 9, Target::Grads, backend).unwrap();
        let (weights, grads) = arena.split_at_mut(grads as usize);
        descend(lr, grads, &mut weights[..params]);
    } else {
        backward(plan, &mut arena, 9, Target::Weights { lr }, backend).unwrap();
    }
    arena.truncate(params);
    arena
}

#[test]
fn layout_and_fused_step_do_not_change_bits() {
    let plain = one_step(PLAIN, &Portable);
    assert_eq!(plain, one_step(Options { grads: false, ..PLAIN }, &Portable));
    assert_eq!(plain, one_step(Options { in_place: true, grads: false, ..PLAIN }, &Portable));
}

#[test]
fn backends_agree_after_one_step() {
    for grads in [true, false] {
        let options = Options { grads, ..PLAIN };
        for (portable, fast) in one_step(options, &Portable).iter().zip(one_step(options, &Fast)) {
            assert!((portable - fast).abs() <= 1e-5 * portable.abs().max(0.01), "{portable} {fast}");
        }
    }
}

#[test]
fn shared_parameters_need_a_gradient_segment() {
    let mut plan = TestPlan::new(&[4, 4, 4], 2, Options { grads: false, ..PLAIN });
    plan.nodes[2].op = plan.nodes[0].op;
    let mut arena = plan.arena(1, |x| x);
    let refused = backward(plan.plan(), &mut arena, 2, Target::Weights { lr: 0.1 }, &Portable);
    assert_eq!(refused, Err(TrainError::SharedParameters));
}

#[test]
fn bad_calls_end_in_errors() {
    let plan = TestPlan::new(&[3, 4, 2], 2, PLAIN);
    let mut arena = plan.arena(1, |x| x);
    let len = arena.len();
    let run = |arena: &mut [f64], rows| forward(plan.plan(), arena, rows, &Portable);
    assert_eq!(run(&mut arena, 3), Err(TrainError::Batch { rows: 3, batch: 2 }));
    assert_eq!(run(&mut arena, 0), Err(TrainError::Batch { rows: 0, batch: 2 }));
    assert_eq!(run(&mut arena[1..], 1), Err(TrainError::Arena { need: len, have: len - 1 }));
    let wrong = DataError::Label { index: 1, label: 2, classes: 2 };
    let label = |row: usize| Ok(2 * row as u32);
    assert_eq!(score(plan.plan(), &arena, 2, label), Err(wrong.into()));
    assert_eq!(loss_and_gradient(plan.plan(), &mut arena, 2, label), Err(wrong.into()));
}

#[test]
fn a_plan_that_overwrites_what_it_reads_is_refused() {
    // Passes the check of Plans, which does not compare a first layer's gradient with its input.
    let mut plan = TestPlan::new(&[3, 4, 2], 2, PLAIN);
    plan.nodes[0].output_grad = Some(plan.info.input);
    let mut arena = plan.arena(1, |x| x);
    forward(plan.plan(), &mut arena, 2, &Portable).unwrap();
    loss_and_gradient(plan.plan(), &mut arena, 2, labels(2)).unwrap();
    let refused = backward(plan.plan(), &mut arena, 2, Target::Grads, &Portable);
    assert_eq!(refused, Err(TrainError::Overlap(0)));
}

#[test]
#[should_panic(expected = "reaches outside its slices")]
fn fast_checks_lengths_before_it_uses_pointers() {
    let sizes = Sizes { rows: 2, inputs: 3, outputs: 4 };
    Fast.gemm_nn(sizes, &[0.0f32; 8], &[0.0; 11], &mut [0.0; 6]);
}

proptest! {
    /// Blocking must not show: one accumulator per output, ascending.
    #[test]
    fn portable_has_the_bits_of_plain_loops(
        rows in 1usize..6, inputs in 1usize..20, outputs in 1usize..14, seed: u64
    ) {
        let mut rng = Rng::new(seed);
        let mut random = |len: usize| (0..len).map(|_| rng.normal() as f32).collect::<Vec<_>>();
        let (x, w, b) = (random(rows * inputs), random(outputs * inputs), random(outputs));
        let (dy, mut dw) = (random(rows * outputs), random(outputs * inputs));
        let sizes = Sizes { rows, inputs, outputs };
        let sum = |count: usize, term: &dyn Fn(usize) -> f32| (0..count).fold(0.0f32, |sum, k| sum + term(k));

        let mut y = vec![f32::NAN; rows * outputs];
        Portable.gemm_nt(sizes, &x, &w, Some(&b), &mut y);
        let mut dx = vec![f32::NAN; rows * inputs];
        Portable.gemm_nn(sizes, &dy, &w, &mut dx);
        let before = dw.clone();
        Portable.gemm_tn(sizes, -0.7, &dy, &x, &mut dw);
        for r in 0..rows {
            for o in 0..outputs {
                let plain = sum(inputs, &|k| x[r * inputs + k] * w[o * inputs + k]) + b[o];
                prop_assert_eq!(y[r * outputs + o], plain);
            }
            for i in 0..inputs {
                let plain = sum(outputs, &|k| dy[r * outputs + k] * w[k * inputs + i]);
                prop_assert_eq!(dx[r * inputs + i], plain);
            }
        }
        for (at, (&dw, &before)) in dw.iter().zip(&before).enumerate() {
            let (o, i) = (at / inputs, at % inputs);
            prop_assert_eq!(dw, before + -0.7 * sum(rows, &|k| dy[k * outputs + o] * x[k * inputs + i]));
        }
    }
}
