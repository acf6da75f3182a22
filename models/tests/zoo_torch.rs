//! Loss and gradients of every tier of every zoo model against PyTorch (`fixtures/generate_zoo.py`), which implements the models
//! and their slices independently. Both sides draw the same parameters and samples, so the fixtures hold results only.
//! Errors are relative to the norm of the parameter's gradient.
#![cfg(feature = "tools")]
#![allow(clippy::unwrap_used, reason = "a panic is a failed test")]

extern crate fairtier_models as models;

use common::{
    TensorShape, WidthMask,
    rng::{Rng, derive},
};
use models::{
    Graph,
    grad::{ModelSamples, Runner},
    npy::{Array, Data},
    plan::default_loss,
    zoo,
};
use serde_json::Value;
use trainer::train::{Backend, Fast, Float, Portable};

mod support;
use support::bytes;

const SEED: u64 = 77;
/// Parts of the seed; a parameter takes its place in the model.
const SAMPLES: u64 = 1 << 20;
const LABELS: u64 = 2 << 20;
const PROBE: u64 = 3 << 20;
const PLACES: u64 = 4 << 20;
const BATCH: usize = 3;
const LOSS_LIMIT: f64 = 1e-5;
const LIMIT: f64 = 1e-4;
/// Norms below this share of the whole gradient's count as zero, such as that of a bias before a normalisation.
const FLOOR: f64 = 1e-3;

#[test]
fn every_tier_has_the_gradients_of_pytorch() {
    for entry in zoo::ALL {
        let (graph, _) = entry.build(0);
        let (parameters, samples) = (parameters(&graph), samples(&graph));
        let tiers = fixture(entry.name);
        assert_eq!(tiers.len(), entry.rates.len(), "{}", entry.name);
        for (tier, &rate) in tiers.iter().zip(entry.rates) {
            assert_eq!(tier["rate"].as_f64(), Some(rate), "{}", entry.name);
            let mask = graph.full().at_rate(rate).unwrap();
            let title = format!("{} at {rate}", entry.name);
            let model = (&graph, &parameters[..], &mask);
            agrees::<f32, _>(&title, model, &samples, tier, Portable::plain());
            agrees::<f32, _>(&title, model, &samples, tier, Fast::new());
            agrees::<f64, _>(&title, model, &samples, tier, Fast::new());
        }
    }
}

#[test]
fn a_wrong_gradient_is_detected() {
    let (graph, _) = zoo::by_name("digits-cnn").unwrap().build(0);
    let (mut parameters, samples) = (parameters(&graph), samples(&graph));
    parameters[3] += 0.01;
    let full = graph.full();
    let runner =
        Runner::<f64, _>::new(&graph, &parameters, full, samples.loss(), BATCH, Fast::new()).unwrap();
    let tier = &fixture("digits-cnn")[0];
    assert!(worst(runner, &samples, tier).0 > 10.0 * LIMIT);
}

fn agrees<T: Float, B: Backend<T>>(
    title: &str,
    (graph, parameters, mask): (&Graph, &[f32], &WidthMask),
    samples: &ModelSamples,
    tier: &Value,
    backend: B,
) {
    let runner = Runner::<T, B>::new(graph, parameters, mask, samples.loss(), BATCH, backend).unwrap();
    let (error, at) = worst(runner, samples, tier);
    assert!(error <= LIMIT, "{title}: {at} is off by {error:.1e}");
}

/// The largest error, in units where [`LIMIT`] is the limit, and what has it.
fn worst<T: Float, B: Backend<T>>(
    mut runner: Runner<T, B>,
    samples: &ModelSamples,
    tier: &Value,
) -> (f64, String) {
    let (loss, flat) = runner.flat_gradients(samples).unwrap();
    let number = |value: &Value| value.as_f64().unwrap();
    let mut worst = (relative(loss, number(&tier["loss"])) * LIMIT / LOSS_LIMIT, "loss".to_owned());
    let params = runner.params();
    let tensors = tier["tensors"].as_array().unwrap();
    assert_eq!(params.len(), tensors.len());
    let whole = tensors.iter().map(|wanted| number(&wanted["norm"]).powi(2)).sum::<f64>().sqrt();
    for (at, ((name, range), wanted)) in (0..).zip(params.into_iter().zip(tensors)) {
        let grads: Vec<f64> = flat[range].iter().map(|x| x.to_f64()).collect();
        assert_eq!(
            (name.as_str(), Some(grads.len() as u64)),
            (wanted["name"].as_str().unwrap(), wanted["len"].as_u64())
        );
        let norm = number(&wanted["norm"]).max(FLOOR * whole);
        let mut note = |what: &str, got: f64, expected: &Value| {
            let error = (got - number(expected)).abs() / norm;
            if error.is_nan() || error > worst.0 {
                worst = (if error.is_nan() { f64::INFINITY } else { error }, format!("{what} of {name}"));
            }
        };
        note("norm", grads.iter().map(|x| x * x).sum::<f64>().sqrt(), &wanted["norm"]);
        note("sum", grads.iter().sum(), &wanted["sum"]);
        let probe = uniform(PROBE + at, grads.len());
        note("product", grads.iter().zip(probe).map(|(x, p)| x * p).sum(), &wanted["product"]);
        let mut places = Rng::new(derive(SEED, PLACES + at));
        for expected in wanted["shown"].as_array().unwrap() {
            let place = places.below(grads.len() as u64) as usize;
            note(&format!("number {place}"), grads[place], expected);
        }
    }
    worst
}

fn relative(got: f64, expected: f64) -> f64 {
    (got - expected).abs() / expected.abs()
}

fn fixture(name: &str) -> Vec<Value> {
    serde_json::from_slice(&bytes(&format!("zoo/{name}.json"))).unwrap()
}

fn uniform(part: u64, count: usize) -> Vec<f64> {
    let mut rng = Rng::new(derive(SEED, part));
    (0..count).map(|_| 2.0 * rng.unit_f64() - 1.0).collect()
}

fn parameters(graph: &Graph) -> Vec<f32> {
    let sizes = |shape: &TensorShape| shape.dims.iter().map(|dim| dim.size(graph.full())).collect::<Vec<_>>();
    let draw = |(at, (param, shape)): (u64, (&models::graph::Param, &TensorShape))| {
        let sizes = sizes(shape);
        let (around, bound) = match (param.name.as_str(), &sizes[1..]) {
            ("embed.weight", _) => (0.0, 1.0),
            (name, _) if name.contains("norm") => (if name.ends_with("weight") { 1.0 } else { 0.0 }, 0.5),
            (_, []) => (0.0, 0.1),
            (_, inputs) => (0.0, 1.0 / (inputs.iter().product::<usize>() as f64).sqrt()),
        };
        let numbers = uniform(at, sizes.iter().product()).into_iter();
        numbers.map(|x| (around + bound * x) as f32).collect::<Vec<_>>()
    };
    (0..).zip(graph.params().iter().zip(graph.param_shapes())).flat_map(draw).collect()
}

fn samples(graph: &Graph) -> ModelSamples {
    let sizes = |shape: &TensorShape| shape.dims.iter().map(|dim| dim.size(graph.full())).collect::<Vec<_>>();
    let count = BATCH * graph.inputs();
    let inputs = match graph.tokens() {
        Some(entries) => {
            let mut rng = Rng::new(derive(SEED, SAMPLES));
            Data::I64((0..count).map(|_| rng.below(entries as u64) as i64).collect())
        }
        None => Data::F32(uniform(SAMPLES, count).into_iter().map(|x| x as f32).collect()),
    };
    let inputs = Array::new(&[vec![BATCH], sizes(&graph.input().shape)].concat(), inputs).unwrap();
    let (classes, steps) = match sizes(graph.shape(graph.output().value))[..] {
        [classes] => (classes, None),
        [steps, classes] => (classes, Some(steps)),
        _ => panic!("logits or logits per step"),
    };
    let mut rng = Rng::new(derive(SEED, LABELS));
    let count = BATCH * steps.unwrap_or(1);
    let labels = (0..count).map(|_| rng.below(classes.max(2) as u64) as i64).collect();
    let shape = [Some(BATCH), steps].into_iter().flatten().collect::<Vec<_>>();
    let labels = Array::new(&shape, Data::I64(labels)).unwrap();
    ModelSamples::from_arrays(graph, default_loss(graph), &inputs, &labels).unwrap()
}
