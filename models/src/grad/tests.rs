use common::plan::Activation;
use trainer::train::Fast;

use super::*;
use crate::{
    graph::{Builder, Param, ValueId},
    npy::{Array, Data},
    plan::default_loss,
    zoo,
};

fn largest(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |largest, x| largest.max(x.abs()))
}

#[test]
fn several_passes_give_the_result_of_one() {
    let (graph, parameters) = zoo::by_name("digits-mlp").unwrap().build(3);
    let samples = ModelSamples::random(&graph, default_loss(&graph), 23, 1).unwrap();
    let runner =
        |rows| Runner::new(&graph, &parameters, graph.full(), samples.loss(), rows, Portable::plain());
    let (loss, one): (f64, Vec<f32>) = runner(23).unwrap().flat_gradients(&samples).unwrap();
    let mut several = runner(5).unwrap();
    assert_eq!(several.info().batch, 5);
    let (split_loss, split) = several.flat_gradients(&samples).unwrap();
    assert!((loss - split_loss).abs() < 1e-9, "{loss} {split_loss}");
    assert!((several.loss(&samples).unwrap() - loss).abs() < 1e-9);
    let worst = one.iter().zip(&split).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(worst <= 1e-6 * largest(&one), "{worst}");
}

#[test]
fn a_tier_has_the_gradients_of_its_slice() {
    let (graph, parameters) = zoo::by_name("motion-cnn").unwrap().build(3);
    let mask = graph.full().at_rate(0.5).unwrap();
    let samples = ModelSamples::random(&graph, default_loss(&graph), 3, 1).unwrap();
    let tier = gradients(&graph, &parameters, Some(&mask), &samples).unwrap();
    let (slice, packed) = (graph.slice(&mask).unwrap(), graph.gather(&mask, &parameters).unwrap());
    assert_eq!(tier, gradients(&slice, &packed, None, &samples).unwrap());
    let count: usize = tier.tensors.iter().map(|tensor| tensor.values.len()).sum();
    assert_eq!(count, packed.len());
    assert!(gradients(&slice, &parameters, None, &samples).is_err(), "too many parameters");
}

#[test]
fn dropout_is_left_out_and_weights_stay_transposed() {
    let model = |rate: Option<f32>| {
        let mut builder = Builder::new("net", "x", &[3]).unwrap();
        let hidden = builder.dense("a", ValueId::INPUT, 3, 4, Param::transposed("a.w"), None).unwrap();
        let mut value = builder.activate("tanh", hidden, Activation::Tanh);
        if let Some(rate) = rate {
            value = builder.dropout("drop", value, rate).unwrap();
        }
        let logits = builder.dense("b", value, 4, 2, Param::plain("b.w"), None).unwrap();
        builder.finish("y", logits, None).unwrap()
    };
    let (plain, dropping) = (model(None), model(Some(0.5)));
    let parameters = zoo::initial(&plain, 1);
    let samples = ModelSamples::random(&plain, default_loss(&plain), 4, 2).unwrap();
    let expected = gradients(&plain, &parameters, None, &samples).unwrap();
    let got = gradients(&dropping, &parameters, None, &samples).unwrap();
    assert_eq!((got.loss, &got.tensors), (expected.loss, &expected.tensors));
    assert_eq!((got.notes.len(), expected.notes.len()), (1, 0));
    assert_eq!((&got.tensors[0].shape[..], &got.tensors[1].shape[..]), (&[3, 4][..], &[2, 4][..]));
    let mut runner =
        Runner::<f32, _>::new(&plain, &parameters, plain.full(), samples.loss(), 4, Fast::new()).unwrap();
    let ours = runner.flat_gradients(&samples).unwrap().1;
    assert!((got.tensors[0].values[1] - ours[3]).abs() < 1e-6, "[in][out] is not [out][in]");
}

/// Our parameter is `factor` times that of the file, and a bias may be one number in the file.
#[test]
fn gradients_are_those_of_the_file() {
    let model = |factor: f32, spread: Option<Vec<usize>>| {
        let mut builder = Builder::new("net", "x", &[3]).unwrap();
        let weight = Param { factor, ..Param::plain("w") };
        let bias = Param { factor: 2.0 * factor, spread, ..Param::plain("b") };
        let logits = builder.dense("a", ValueId::INPUT, 3, 2, weight, Some(bias)).unwrap();
        builder.finish("y", logits, None).unwrap()
    };
    let plain = model(1.0, None);
    let parameters = zoo::initial(&plain, 1);
    let samples = ModelSamples::random(&plain, Loss::Squared, 4, 2).unwrap();
    let plain = gradients(&plain, &parameters, None, &samples).unwrap();
    let scaled = gradients(&model(-3.0, Some(vec![1, 1])), &parameters, None, &samples).unwrap();
    assert_eq!(scaled.loss, plain.loss);
    let [weight, bias] = &scaled.tensors[..] else { panic!("two tensors") };
    assert!(weight.values.iter().zip(&plain.tensors[0].values).all(|(a, b)| *a == -3.0 * b));
    let [first, second] = plain.tensors[1].values[..] else { panic!("two numbers") };
    assert_eq!((&bias.shape[..], &bias.values[..]), (&[1, 1][..], &[-3.0 * (first + second)][..]));
}

#[test]
fn samples_that_do_not_fit_the_model_are_refused() {
    let (graph, _) = zoo::by_name("digits-mlp").unwrap().build(0);
    let softmax = default_loss(&graph);
    let inputs =
        |shape: &[usize], x: f32| Array::new(shape, Data::F32(vec![x; shape.iter().product()])).unwrap();
    let labels = |labels: &[i64]| Array::new(&[labels.len()], Data::I64(labels.to_vec())).unwrap();
    let (good, two) = (inputs(&[2, 64], 0.5), labels(&[0, 9]));
    let read = |x: &Array, y: &Array| ModelSamples::from_arrays(&graph, softmax, x, y);
    assert_eq!(read(&good, &two).unwrap().rows(), 2);
    let refused = |x: &Array, y: &Array, expected: &str| {
        let text = read(x, y).unwrap_err().to_string();
        assert!(text.contains(expected), "{text}");
    };
    refused(&inputs(&[2, 8, 8], 0.5), &two, "[2, 8, 8], but the model takes [N, 64]");
    refused(&inputs(&[], 0.5), &two, "takes [N, 64]");
    refused(&good, &labels(&[0, 10]), "label 10 of sample 1 is none of the model's 10 classes (0 to 9)");
    refused(&good, &labels(&[-1, 0]), "label -1 of sample 0");
    refused(&good, &labels(&[1]), "need [2]");
    refused(&good, &inputs(&[2], 1.0), "type '<f4'");
    refused(&inputs(&[2, 64], f32::NAN), &two, "number 0 of sample 0 is NaN");
    refused(&inputs(&[0, 64], 0.0), &labels(&[]), "no samples");
    let shares = Array::new(&[2, 10], Data::F64(vec![1.5; 20])).unwrap();
    let text = ModelSamples::from_arrays(&graph, Loss::Sigmoid, &good, &shares).unwrap_err().to_string();
    assert!(text.contains("not in [0, 1]"), "{text}");
    assert!(ModelSamples::from_arrays(&graph, Loss::Squared, &good, &shares).is_ok());

    let (words, _) = zoo::by_name("shakespeare-gru").unwrap().build(0);
    let steps = words.inputs();
    let wrong = Array::new(&[1, steps], Data::I64(vec![100_000; steps])).unwrap();
    let labels = Array::new(&[1, steps], Data::I64(vec![0; steps])).unwrap();
    let text =
        ModelSamples::from_arrays(&words, default_loss(&words), &wrong, &labels).unwrap_err().to_string();
    assert!(text.contains("number 0 of sample 0 is 100000, but the model looks up"), "{text}");
}
