//! The trainer's forward pass on exported files, against a plain forward pass.
#![allow(clippy::unwrap_used, reason = "tests")]
#![cfg(feature = "tools")]

extern crate fairtier_models as models;

use common::{plan::Activation, rng::Rng};
use models::{
    Graph,
    forward::{ForwardError, ForwardModel},
    graph::Op,
    onnx::{ExportOptions, export},
    zoo,
};

mod support;
use support::forward;

fn agrees(graph: &Graph, parameters: &[f32], count: usize) {
    let mut rng = Rng::new(9);
    let len = count * graph.inputs();
    let samples: Vec<f32> = match graph.tokens() {
        Some(entries) => (0..len).map(|_| rng.below(entries as u64) as f32).collect(),
        None => (0..len).map(|_| rng.unit_f32()).collect(),
    };
    let file = export(graph, parameters, &ExportOptions::default()).unwrap();
    let got = ForwardModel::load(&file).unwrap().logits(&samples).unwrap();
    let expected = forward(graph, parameters, &samples);
    assert_eq!(got.len(), expected.len());
    for (got, expected) in got.iter().zip(&expected) {
        let error = (f64::from(*got) - expected).abs() / expected.abs().max(1.0);
        assert!(error < 1e-4, "{got} instead of {expected}: {graph:?}");
    }
}

#[test]
fn random_models_among_them_celu() {
    let mut celu = 0;
    for seed in 0..200 {
        let (graph, parameters) = zoo::random(seed);
        let is_celu = |op: Op| matches!(op, Op::Activate(Activation::Celu { .. }));
        celu += usize::from(graph.nodes().iter().any(|node| is_celu(node.op)));
        agrees(&graph, &parameters, 3);
    }
    assert!(celu > 0);
}

#[test]
fn more_samples_than_one_pass_takes() {
    let (graph, parameters) = zoo::build("mlp:4-8-3", 1).unwrap();
    agrees(&graph, &parameters, 600);
    let mut model = ForwardModel::new(graph, &parameters).unwrap();
    assert!(matches!(model.logits(&[0.0; 5]), Err(ForwardError::Inputs { sample: 4, got: 5 })));
}
