//! Training the last layers only: trained parameters get the same step as in a whole Plan, the others do not change, and less
//! memory is needed.
#![allow(clippy::unwrap_used, reason = "a panic is a failed test")]

use fairtier_models::{
    plan::{CompileError, CompiledPlan, PlanOptions, compile},
    zoo,
};
use trainer::train::{
    Descent, GradTarget, PassMode, Portable, TargetLabels, apply, backward, forward, loss_and_gradient,
};

const BATCH: u16 = 4;

/// Weights after one step of SGD.
fn step(plan: &CompiledPlan, parameters: &[f32], fused: bool) -> Vec<f32> {
    let checked = plan.plan().unwrap();
    let mut arena = vec![0.0f32; plan.info.arena as usize];
    arena[..parameters.len()].copy_from_slice(parameters);
    let anchor = plan.info.segments.anchor.unwrap() as usize;
    let frozen = checked.frozen() as usize;
    arena[anchor..][..checked.trained()].copy_from_slice(&parameters[frozen..]);
    let (input, inputs) = (plan.info.input as usize, plan.info.inputs as usize);
    for (index, value) in arena[input..][..inputs * usize::from(BATCH)].iter_mut().enumerate() {
        *value = ((index * 37 % 101) as f32 / 101.0).powi(2);
    }
    let (rows, mode, backend) =
        (usize::from(BATCH), PassMode::Train { seed: 1, step: 0 }, &mut Portable::plain());
    forward(checked, &mut arena, rows, mode, backend).unwrap();
    let truth = TargetLabels { labels: &[3, 1, 4, 1], per_row: 1 };
    loss_and_gradient(checked, &mut arena, rows, BATCH.into(), &truth).unwrap();
    // Decay and pull apply to trained parameters only.
    let brief = common::brief::Brief {
        optimizer: common::brief::Optimizer::Sgd { momentum: 0.0, nesterov: false, decay: 0.01 },
        ..common::brief::Brief::sgd(1, BATCH, 0.5, 1)
    };
    if fused {
        let descent = Descent { decay: 0.01, ..Descent::new(0.5) };
        backward(checked, &mut arena, rows, mode, GradTarget::Weights(descent), backend).unwrap();
    } else {
        backward(checked, &mut arena, rows, mode, GradTarget::Grads, backend).unwrap();
        apply(checked, &mut arena, &brief, 1, 1.0).unwrap();
    }
    arena.truncate(parameters.len());
    arena
}

#[test]
fn only_the_last_layers_change() {
    for (model, last, trained) in [
        ("digits-mlp", 1, 330),
        ("mnist-mlp", 2, 21_110),
        ("cnn:28-4-8-10", 1, 3_930),
        ("cnn:28-4-8-10", 2, 4_226),
        ("digits-mlp", 9, 2_410),
    ] {
        let (graph, parameters) = zoo::build(model, 1).unwrap();
        for fused in [false, true] {
            let all = PlanOptions { fused, ..PlanOptions::train(BATCH) };
            let whole = compile(&graph, graph.full(), &all).unwrap();
            let part = compile(&graph, graph.full(), &PlanOptions { last: Some(last), ..all }).unwrap();
            let frozen = parameters.len() - trained;
            assert_eq!(part.plan().unwrap().trained(), trained, "{model} {last}");
            assert_eq!(part.plan().unwrap().frozen() as usize, frozen);
            assert!(frozen == 0 || part.info.arena < whole.info.arena, "{model} {last}");
            let (whole, part) = (step(&whole, &parameters, fused), step(&part, &parameters, fused));
            assert_eq!(part[..frozen], parameters[..frozen], "{model} {last}");
            assert_eq!(part[frozen..], whole[frozen..], "{model} {last}");
            assert_ne!(part[frozen..], parameters[frozen..]);
        }
    }
}

#[test]
fn a_micro_bit_holds_the_last_layer_of_the_half_tier() {
    let (graph, _) = zoo::build("digits-mlp", 0).unwrap();
    let half = graph.full().at_rate(0.5).unwrap();
    let options = PlanOptions { fused: true, ..PlanOptions::train(BATCH) };
    let bytes = |last| compile(&graph, &half, &PlanOptions { last, ..options }).unwrap().info.arena_bytes();
    assert!(bytes(Some(1)) <= 7_728 && bytes(None) > 7_728, "{} {}", bytes(Some(1)), bytes(None));
}

#[test]
fn nothing_to_train_is_refused() {
    let (graph, _) = zoo::build("digits-mlp", 0).unwrap();
    let options = PlanOptions { last: Some(0), ..PlanOptions::train(1) };
    assert_eq!(compile(&graph, graph.full(), &options).unwrap_err(), CompileError::Last);
}
