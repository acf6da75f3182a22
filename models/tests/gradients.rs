//! Loss and all gradients of every model that PyTorch exported, against those that PyTorch computed
//! (`fixtures/generate.py`). Errors are relative to the largest gradient of the whole model.
#![cfg(feature = "tools")]

extern crate fairtier_models as models;

use models::{
    Graph,
    grad::{Gradients, ModelSamples, Runner, gradients},
    npy::{Array, Data, read_archive},
    plan::default_loss,
};
use trainer::train::Fast;

#[path = "support/agree.rs"]
mod agree;
mod support;
use agree::agree;
use support::{bytes, recurrent_as_onnx, torch_files};

#[test]
fn all_gradients_are_those_of_pytorch() {
    for (name, file) in torch_files() {
        let expected = recurrent_as_onnx(read_archive(&bytes(&format!("{name}.grads.npz"))).unwrap());
        let (graph, parameters) = Graph::from_onnx(&bytes(&file)).unwrap();
        let samples = samples(&name, &graph);
        let single =
            gradients(&graph, &parameters, None, &samples).unwrap_or_else(|error| panic!("{file}: {error}"));
        agree(&single, &expected).unwrap_or_else(|problem| panic!("{file}: {problem}"));
        let rows = samples.rows();
        let double = Runner::new(&graph, &parameters, graph.full(), samples.loss(), rows, Fast::new());
        let double: Gradients<f64> = double.unwrap().gradients(&samples).unwrap();
        agree(&double, &expected).unwrap_or_else(|problem| panic!("{file}: {problem}"));
    }
}

fn samples(name: &str, graph: &Graph) -> ModelSamples {
    let array = |part: &str| Array::read(&bytes(&format!("{name}.{part}.npy"))).expect("an array");
    ModelSamples::from_arrays(graph, default_loss(graph), &array("x"), &array("y")).expect("samples")
}

#[test]
fn a_wrong_gradient_is_detected() {
    let expected = read_archive(&bytes("mlp.grads.npz")).unwrap();
    let (graph, mut parameters) = Graph::from_onnx(&bytes("mlp.graph.onnx")).unwrap();
    parameters[7] += 0.5;
    let off = gradients(&graph, &parameters, None, &samples("mlp", &graph)).unwrap();
    let Data::F32(wanted) = &expected["1.weight"].data else { panic!("f32") };
    let worst = off.tensors[0].values.iter().zip(wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(worst > 1e-3, "{worst}");
}
