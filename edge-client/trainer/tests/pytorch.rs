//! Loss and gradients against PyTorch's, on a model that PyTorch made (see `fixtures/extract.py`).
#![cfg(feature = "host")]
#![expect(clippy::unwrap_used, reason = "a test may panic")]

extern crate fairtier_trainer as trainer;

use std::collections::HashMap;

use trainer::train::{
    Backend, Fast, GradTarget, PassMode, Portable, TargetLabels, backward, forward, loss_and_gradient,
};

use crate::plan::{Options, PLAIN, TestPlan};

#[path = "support/npy.rs"]
mod npy;
#[path = "support/plan.rs"]
mod plan;

const ROWS: usize = 7;
const NAMES: [&str; 6] = ["1.weight", "1.bias", "3.weight", "3.bias", "5.weight", "5.bias"];

#[test]
fn portable_agrees_with_pytorch() {
    for in_place in [false, true] {
        agrees(Options { in_place, ..PLAIN }, &mut Portable::plain());
    }
}

#[test]
fn fast_agrees_with_pytorch() {
    for in_place in [false, true] {
        agrees(Options { in_place, ..PLAIN }, &mut Fast::new());
    }
}

fn agrees(options: Options, backend: &mut dyn Backend<f32>) {
    let plan = TestPlan::new(&[36, 20, 12, 5], ROWS as u16, options);
    let weights = npy::archive(include_bytes!("fixtures/mlp.weights.npz"));
    let expected = npy::archive(include_bytes!("fixtures/mlp.grads.npz"));
    let x = npy::array(include_bytes!("fixtures/mlp.x.npy")).0;
    let labels = npy::array(include_bytes!("fixtures/mlp.y.npy")).0;
    assert_eq!((x.len(), labels.len()), (ROWS * 36, ROWS));

    let mut arena = plan.arena(1, |x| x as f32);
    write(&mut arena, 0, &in_order(&weights));
    write(&mut arena, plan.info.input as usize, &x);
    let plan = plan.plan();
    let mode = PassMode::Evaluate;
    forward(plan, &mut arena, ROWS, mode, backend).unwrap();
    let labels: Vec<u32> = labels.iter().map(|&label| label as u32).collect();
    let truth = TargetLabels { labels: &labels, per_row: 1 };
    let tally = loss_and_gradient(plan, &mut arena, ROWS, ROWS as u32, &truth).unwrap();
    backward(plan, &mut arena, ROWS, mode, GradTarget::Grads, backend).unwrap();

    let loss = expected["loss"][0];
    assert!((tally.mean_loss() - loss).abs() <= 1e-5 * loss, "{} {loss}", tally.mean_loss());
    let grads = &arena[plan.info().segments.grads.unwrap() as usize..];
    let expected = in_order(&expected);
    assert_eq!(expected.len(), plan.info().params as usize);
    let largest = expected.iter().fold(0.0, |largest: f64, value| largest.max(value.abs()));
    for (at, (&got, want)) in grads.iter().zip(expected).enumerate() {
        assert!((f64::from(got) - want).abs() <= 1e-5 * largest, "parameter {at}: {got} {want}");
    }
}

fn in_order(arrays: &HashMap<String, Vec<f64>>) -> Vec<f64> {
    NAMES.iter().flat_map(|&name| arrays[name].iter().copied()).collect()
}

fn write(arena: &mut [f32], at: usize, values: &[f64]) {
    for (place, &value) in arena[at..].iter_mut().zip(values) {
        *place = value as f32;
    }
}
