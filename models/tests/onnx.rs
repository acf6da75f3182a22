//! Files of real exporters, checked against what the exporting framework computed.

extern crate fairtier_models as models;

use models::{
    Graph,
    graph::{Classes, Tail},
    onnx::{ExportOptions, export, import},
    zoo,
};

mod support;
use support::{bytes, floats, forward, labels, loss, npy, npz_scalar, softmax};

#[test]
fn the_loss_is_that_of_pytorch() {
    let (graph, parameters) = Graph::from_onnx(&bytes("mlp.graph.onnx")).unwrap();
    let logits = forward(&graph, &parameters, &floats("mlp.x.npy"));
    let expected = npz_scalar(&bytes("mlp.grads.npz"), "loss");
    let got = loss(&logits, &labels("mlp.y.npy"));
    assert!((got - expected).abs() < 1e-6, "{got} {expected}");
}

#[test]
fn the_probabilities_are_those_of_scikit_learn() {
    let import = import(&bytes("sklearn-mlp.onnx")).unwrap();
    assert_eq!(import.graph.output().name, "probabilities");
    assert_eq!(import.graph.output().tail, Some(Tail::Softmax));
    assert_eq!(import.graph.full().widths(), [16]);
    let labels = import.graph.output().labels.as_ref().unwrap();
    assert_eq!(labels.output.as_deref(), Some("label"));
    assert_eq!(labels.classes, Classes::Numbers((0..10).collect()));
    assert!(!import.graph.params()[0].layout.is_plain());

    let logits = forward(&import.graph, &import.parameters, &floats("sklearn-mlp.x.npy"));
    let expected = npy(&bytes("sklearn-mlp.proba.npy"));
    assert_eq!(logits.len(), expected.len());
    for (row, expected) in logits.chunks(10).zip(expected.chunks(10)) {
        assert!(softmax(row).iter().zip(expected).all(|(p, q)| (p - q).abs() < 1e-5));
    }
}

#[test]
fn real_files_survive_export_and_import() {
    for name in ["mlp.graph.onnx", "mlp.torchscript.onnx"] {
        let (graph, parameters) = Graph::from_onnx(&bytes(name)).unwrap();
        let exported = export(&graph, &parameters, &ExportOptions::default()).unwrap();
        assert_eq!(Graph::from_onnx(&exported).unwrap(), (graph, parameters), "{name}");
    }
    // Export writes weights in our order, so they are no longer transposed.
    let (graph, parameters) = Graph::from_onnx(&bytes("sklearn-mlp.onnx")).unwrap();
    let exported = export(&graph, &parameters, &ExportOptions::default()).unwrap();
    let (again, same) = Graph::from_onnx(&exported).unwrap();
    assert_eq!((again.output(), again.nodes(), same), (graph.output(), graph.nodes(), parameters));
    assert!(again.params().iter().all(|param| param.layout.is_plain()));
}

#[test]
fn every_prefix_of_a_file_is_refused() {
    let file = bytes("mlp.torchscript.onnx");
    for len in 0..file.len() {
        let cut = import(&file[..len]);
        assert!(cut.is_err(), "{len} of {} bytes are accepted", file.len());
    }
}

#[test]
fn the_zoo_files_are_what_the_generator_writes() {
    for name in ["digits-mlp", "motion-cnn"] {
        let (graph, parameters) = zoo::by_name(name).unwrap().build(0);
        let expected = export(&graph, &parameters, &ExportOptions::default()).unwrap();
        let path = format!("{}/zoo/{name}.onnx", env!("CARGO_MANIFEST_DIR"));
        let again = format!(
            "write it again with `fairtier model slice {name} --tier 1 --out models/zoo/{name}.onnx`"
        );
        assert!(std::fs::read(path).unwrap() == expected, "{again}");
    }
}
