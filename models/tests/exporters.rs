//! Every file that a real exporter wrote (`fixtures/generate.py`): both of PyTorch's exporters give the same
//! model, and its logits are those that the framework computed.

extern crate fairtier_models as models;

use common::plan::Loss;
use models::{
    Graph, TierSpec,
    graph::Tail,
    onnx::{ExportOptions, export},
    plan::default_loss,
};

mod support;
use support::{bytes, floats, forward, npy, npz, torch_files, torch_models};

fn read(name: &str) -> (Graph, Vec<f32>) {
    Graph::from_onnx(&bytes(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn both_exporters_of_pytorch_give_the_same_model() {
    for name in torch_models() {
        let (old, old_parameters) = read(&format!("{name}.torchscript.onnx"));
        let (new, new_parameters) = read(&format!("{name}.graph.onnx"));
        assert_eq!(old.digest(old.full()), new.digest(new.full()), "{name}: {old:#?} {new:#?}");
        assert_eq!(old_parameters.len(), new_parameters.len(), "{name}");
        let near = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-6;
        assert!(old_parameters.iter().zip(&new_parameters).all(near), "{name}");
        assert_eq!(old.stats(), new.stats(), "{name}");
    }
}

#[test]
fn the_logits_are_those_of_pytorch() {
    for (name, file) in torch_files() {
        let grads = bytes(&format!("{name}.grads.npz"));
        if !grads.windows(10).any(|w| w == b"logits.npy") {
            continue;
        }
        let expected = npz(&grads, "logits");
        let (graph, parameters) = read(&file);
        let logits = forward(&graph, &parameters, &floats(&format!("{name}.x.npy")));
        assert_eq!(logits.len(), expected.len(), "{name}");
        let worst = logits.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(worst < 1e-5, "{file} differs by {worst}");
    }
}

#[test]
fn the_outputs_are_those_of_keras() {
    for name in ["keras-mlp", "keras-cnn", "keras-rgb", "keras-rgb.nhwc", "keras-binary", "keras-labels"] {
        let (graph, parameters) = read(&format!("{name}.onnx"));
        let samples = match name {
            "keras-rgb.nhwc" => channels_last(&floats("keras-rgb.x.npy"), 3, 6 * 6),
            _ => floats(&format!("{name}.x.npy")),
        };
        let logits = forward(&graph, &parameters, &samples);
        let expected = npy(&bytes(&format!("{}.out.npy", name.trim_end_matches(".nhwc"))));
        let outputs: Vec<f64> = match graph.output().tail {
            Some(Tail::Sigmoid) => logits.iter().map(|x| 1.0 / (1.0 + (-x).exp())).collect(),
            Some(_) => logits.chunks(3).flat_map(support::softmax).collect(),
            None => logits,
        };
        let worst = outputs.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(worst < 1e-5 && outputs.len() == expected.len(), "{name} differs by {worst}");
    }
    for (name, tail, loss) in [
        ("keras-mlp", Tail::Softmax, Loss::Softmax { classes: 3 }),
        ("keras-binary", Tail::Sigmoid, Loss::Sigmoid),
        ("keras-labels", Tail::Sigmoid, Loss::Sigmoid),
    ] {
        let graph = read(&format!("{name}.onnx")).0;
        assert_eq!((graph.output().tail, default_loss(&graph)), (Some(tail), loss), "{name}");
    }
}

/// Images of `[channels][pixels]` as `[pixels][channels]`.
fn channels_last(images: &[f32], channels: usize, pixels: usize) -> Vec<f32> {
    images
        .chunks(channels * pixels)
        .flat_map(|image| {
            (0..pixels)
                .flat_map(move |pixel| (0..channels).map(move |channel| image[channel * pixels + pixel]))
        })
        .collect()
}

/// Only grouped convolutions and layers tied to the input cannot be cut at all.
#[test]
fn real_models_can_be_cut() {
    let others = ["keras-mlp", "keras-cnn", "keras-rgb", "keras-binary", "keras-labels", "sklearn-mlp"];
    let torch = torch_models().into_iter().map(|name| format!("{name}.graph"));
    let mut refused = Vec::new();
    for name in torch.chain(others.map(str::to_owned)) {
        let (graph, _) = read(&format!("{name}.onnx"));
        match TierSpec::Rate(0.5).mask(&graph) {
            Ok(mask) => assert!(graph.layout().slice_len(&mask) < graph.layout().len(), "{name}"),
            Err(error) => refused.push((name, error.to_string())),
        }
    }
    let names: Vec<&str> = refused.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["conv-groups.graph", "tied.graph"], "{refused:?}");
}

#[test]
fn real_files_survive_export_and_import() {
    for (name, file) in torch_files() {
        let (graph, parameters) = read(&file);
        let exported = export(&graph, &parameters, &ExportOptions::default()).unwrap();
        let (again, same) = Graph::from_onnx(&exported).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(again.digest(again.full()), graph.digest(graph.full()), "{name}");
        assert_eq!(
            (again.nodes(), again.output(), again.stats()),
            (graph.nodes(), graph.output(), graph.stats())
        );
        assert_eq!(same, parameters, "{name}");
    }
}
