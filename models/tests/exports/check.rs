//! What becomes of one export: it loads, computes what its framework computes, is cut, trained and exported again.

use std::collections::BTreeMap;

use common::{WidthMask, plan::Loss};
use models::{
    Graph, TierSpec,
    grad::{ModelSamples, Runner},
    graph::Tail,
    npy::{Array, read_archive},
    onnx::{self, ExportOptions, export},
    plan::default_loss,
};
use trainer::train::Portable;

use super::manifest::{Entry, LossName, folder};
use crate::{
    agree::agree,
    support::{softmax, worst},
};

/// Largest error of outputs, relative where they are above 1.
const LIMIT: f64 = 1e-4;
/// Of outputs after export and import.
const SAME: f64 = 1e-6;
const RATE: f64 = 0.5;
const STEP: f32 = 0.01;

#[derive(Debug)]
pub enum Found {
    Trains(Trained),
    /// The model is not loaded, for this reason.
    Refused(String),
    /// It loads, but something is wrong.
    Wrong(String),
}

#[derive(Debug)]
#[allow(dead_code, reason = "the test and the table use a part")]
pub struct Trained {
    /// Largest error of the outputs.
    pub outputs: f64,
    /// Largest error of loss and gradients.
    pub gradients: f64,
    /// Why the model cannot be cut at a rate.
    pub uncut: Option<String>,
}

pub fn check(entry: &Entry) -> Found {
    let file = match onnx::read(&folder().join(&entry.file)) {
        Ok(file) => file,
        Err(error) => return Found::Refused(error.to_string()),
    };
    match Graph::from_onnx(&file) {
        Err(error) => Found::Refused(error.to_string()),
        Ok((graph, parameters)) => match train(entry, &graph, &parameters) {
            Ok(trained) => Found::Trains(trained),
            Err(problem) => Found::Wrong(problem),
        },
    }
}

/// Everything that is done with a model that loads.
pub fn train(entry: &Entry, graph: &Graph, parameters: &[f32]) -> Result<Trained, String> {
    let reference = std::fs::read(folder().join(&entry.reference)).map_err(text)?;
    let mut reference = read_archive(&reference).map_err(text)?;
    for name in &entry.constants {
        reference.remove(name).ok_or_else(|| format!("the reference has no '{name}'"))?;
    }
    let loss = loss(entry.loss, graph)?;
    let samples = ModelSamples::from_arrays(graph, loss, &reference["x"], &reference["y"]).map_err(text)?;
    let mut whole = runner(graph, parameters, graph.full(), &samples)?;
    let logits = whole.logits(&samples).map_err(text)?;
    let outputs = output_error(graph, &logits, &reference);
    if outputs.is_nan() || outputs > LIMIT {
        return Err(format!("outputs differ by {outputs:.1e}"));
    }
    let gradients = agree(&whole.gradients(&samples).map_err(text)?, &reference)?;
    again(graph, parameters, &samples, &logits)?;
    let (mask, uncut) = half(graph)?;
    learn(graph, parameters, &mask, &samples)?;
    Ok(Trained { outputs, gradients, uncut })
}

/// The loss of the reference; all but the squared error is what the model gets by default.
fn loss(name: LossName, graph: &Graph) -> Result<Loss, String> {
    let loss = match name {
        LossName::Squared => return Ok(Loss::Squared),
        LossName::Sigmoid => Loss::Sigmoid,
        LossName::Softmax => {
            let classes =
                graph.shape(graph.output().value).dims.last().map_or(0, |dim| dim.size(graph.full()));
            Loss::Softmax { classes: classes as u32 }
        }
    };
    match default_loss(graph) {
        default if default == loss => Ok(loss),
        default => Err(format!("the loss is {default:?}, expected {loss:?}")),
    }
}

/// Logits against those of the framework, or its outputs where it gives only these.
fn output_error(graph: &Graph, logits: &[f32], reference: &BTreeMap<String, Array>) -> f64 {
    let single = |values: &[f64]| values.iter().map(|&x| x as f32).collect::<Vec<f32>>();
    if let Some(expected) = reference.get("logits") {
        let expected = single(&expected.data.to_f64());
        return if expected.len() == logits.len() { worst(logits, &expected) } else { f64::INFINITY };
    }
    let expected = reference["outputs"].data.to_f64();
    let double: Vec<f64> = logits.iter().map(|&x| x.into()).collect();
    let classes = graph.shape(graph.output().value).dims.last().map_or(1, |dim| dim.size(graph.full()));
    let mut outputs: Vec<f64> = match graph.output().tail {
        Some(Tail::Sigmoid | Tail::TwoClasses) => double.iter().map(|x| 1.0 / (1.0 + (-x).exp())).collect(),
        Some(Tail::Softmax) => double.chunks(classes).flat_map(softmax).collect(),
        Some(Tail::LogSoftmax) => double.chunks(classes).flat_map(softmax).map(f64::ln).collect(),
        None => double,
    };
    if graph.output().tail == Some(Tail::TwoClasses) {
        outputs = outputs.iter().flat_map(|&p| [1.0 - p, p]).collect();
    }
    if expected.len() == outputs.len() { worst(&single(&outputs), &single(&expected)) } else { f64::INFINITY }
}

/// Export and import give the same model.
fn again(graph: &Graph, parameters: &[f32], samples: &ModelSamples, logits: &[f32]) -> Result<(), String> {
    let file = export(graph, parameters, &ExportOptions::default()).map_err(text)?;
    let (copy, parameters) =
        Graph::from_onnx(&file).map_err(|error| format!("is not read again: {error}"))?;
    let other = runner(&copy, &parameters, copy.full(), samples)?.logits(samples).map_err(text)?;
    match other.len() == logits.len() && worst(&other, logits) <= SAME {
        true => Ok(()),
        false => Err("outputs differ after export and import".to_owned()),
    }
}

/// The slice at the rate, and why some axes of it stay whole.
fn half(graph: &Graph) -> Result<(WidthMask, Option<String>), String> {
    match TierSpec::Rate(RATE).mask(graph) {
        // A group normalisation may not divide the channels that are left.
        Ok(mask) if graph.check_mask(&mask).is_err() => {
            let refused = graph.check_mask(&mask).err().map(|error| error.to_string());
            Ok((graph.full().clone(), refused))
        }
        Ok(mask) if graph.layout().slice_len(&mask) < graph.layout().len() => Ok((mask, None)),
        Ok(_) => Err("the slice is not smaller than the model".to_owned()),
        Err(refused) => {
            let partly = TierSpec::rate(RATE, true).mask(graph);
            Ok((partly.unwrap_or_else(|_| graph.full().clone()), Some(refused.to_string())))
        }
    }
}

/// One step of training lowers the loss of the slice, which is then written and read again.
fn learn(graph: &Graph, parameters: &[f32], mask: &WidthMask, samples: &ModelSamples) -> Result<(), String> {
    let mut slice = runner(graph, parameters, mask, samples)?;
    let (before, gradient) = slice.flat_gradients(samples).map_err(text)?;
    slice.weights().iter_mut().zip(gradient).for_each(|(weight, grad)| *weight -= STEP * grad);
    let after = slice.loss(samples).map_err(text)?;
    if after.is_nan() || after >= before {
        return Err(format!("a step of training changes the loss of the slice from {before} to {after}"));
    }
    let logits = slice.logits(samples).map_err(text)?;
    let trained = slice.weights().to_vec();
    again(&graph.slice(mask).map_err(text)?, &trained, samples, &logits)
        .map_err(|problem| format!("slice: {problem}"))
}

fn runner(
    graph: &Graph,
    parameters: &[f32],
    mask: &WidthMask,
    samples: &ModelSamples,
) -> Result<Runner<f32, Portable>, String> {
    Runner::new(graph, parameters, mask, samples.loss(), samples.rows(), Portable::plain()).map_err(text)
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` gives it")]
fn text(error: impl ToString) -> String {
    error.to_string()
}
