//! Loss and all gradients of every model that PyTorch exported, against those that PyTorch computed
//! (`fixtures/generate.py`). Errors are relative to the largest gradient of the whole model.
#![cfg(feature = "tools")]

extern crate fairtier_models as models;

use std::collections::BTreeMap;

use models::{
    Graph,
    grad::{Gradient, ModelSamples, Runner, gradients},
    npy::{Array, Data, read_archive},
    plan::default_loss,
};
use trainer::train::Fast;

mod support;
use support::{bytes, recurrent_as_onnx, torch_files};

const LIMIT: f64 = 1e-4;

#[test]
fn all_gradients_are_those_of_pytorch() {
    for (name, file) in torch_files() {
        let expected = recurrent_as_onnx(read_archive(&bytes(&format!("{name}.grads.npz"))).unwrap());
        let (graph, parameters) = Graph::from_onnx(&bytes(&file)).unwrap();
        let samples = samples(&name, &graph);
        let single =
            gradients(&graph, &parameters, None, &samples).unwrap_or_else(|error| panic!("{file}: {error}"));
        agree(&file, single.loss, &single.tensors, &expected);
        let rows = samples.rows();
        let double = Runner::new(&graph, &parameters, graph.full(), samples.loss(), rows, Fast::new());
        let double = double.unwrap().gradients(&samples).unwrap();
        let tensors: Vec<Gradient<f64>> = double.tensors;
        agree(&file, double.loss, &tensors, &expected);
    }
}

fn samples(name: &str, graph: &Graph) -> ModelSamples {
    let array = |part: &str| Array::read(&bytes(&format!("{name}.{part}.npy"))).expect("an array");
    ModelSamples::from_arrays(graph, default_loss(graph), &array("x"), &array("y")).expect("samples")
}

/// Exporters rename what they precompute (a transposed weight, gates of a recurrent layer). A gradient without a counterpart of the same
/// name must match one of the remaining ones, and every one must be found.
fn agree<T: Copy + Into<f64>>(
    title: &str,
    loss: f64,
    got: &[Gradient<T>],
    expected: &BTreeMap<String, Array>,
) {
    let wanted = expected["loss"].data.to_f64()[0];
    assert!((loss - wanted).abs() <= 1e-5 * wanted, "{title}: loss {loss}, expected {wanted}");
    let mut left: BTreeMap<&str, (&[usize], Vec<f64>)> = expected
        .iter()
        .filter(|(name, _)| !matches!(name.as_str(), "loss" | "logits"))
        .map(|(name, array)| (name.as_str(), (&array.shape[..], array.data.to_f64())))
        .collect();
    let largest = left.values().flat_map(|(_, values)| values).fold(0.0, |max: f64, x| max.max(x.abs()));
    let (named, renamed): (Vec<_>, Vec<_>) = got.iter().partition(|tensor| left.contains_key(&*tensor.name));
    for tensor in named.into_iter().chain(renamed) {
        let values: Vec<f64> = tensor.values.iter().map(|&x| x.into()).collect();
        assert_eq!(values.len(), tensor.shape.iter().product::<usize>(), "{title}");
        let fits = |(shape, wanted): &(&[usize], Vec<f64>)| {
            values.len() == wanted.len()
                && difference(&tensor.shape, &values, shape, wanted) <= LIMIT * largest
        };
        let found = match left.get(&*tensor.name) {
            Some(wanted) => fits(wanted).then_some(&*tensor.name),
            None => left.iter().find(|(_, wanted)| fits(wanted)).map(|(name, _)| *name),
        };
        let found = found
            .unwrap_or_else(|| panic!("{title}: {} {:?} {values:?}\n{left:?}", tensor.name, tensor.shape));
        left.remove(found);
    }
    assert!(left.is_empty(), "{title}: {:?} were not found", left.keys());
}

/// The largest difference, where `got` may be the transposed of `wanted`.
fn difference(shape: &[usize], got: &[f64], wanted_shape: &[usize], wanted: &[f64]) -> f64 {
    let turned: Vec<f64>;
    let without_ones = |shape: &[usize]| shape.iter().copied().filter(|&size| size != 1).collect::<Vec<_>>();
    let wanted = match (without_ones(shape)[..].to_vec(), without_ones(wanted_shape)) {
        (a, b) if a == b => wanted,
        (a, b) if a.len() == 2 && b.len() == 2 && a[0] == b[1] && a[1] == b[0] => {
            turned = (0..wanted.len()).map(|at| wanted[at % a[1] * b[1] + at / a[1]]).collect();
            &turned
        }
        _ => return f64::INFINITY,
    };
    got.iter().zip(wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
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
