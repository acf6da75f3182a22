//! `fairtier device predict`: the device's sub-model on the device's data.

use std::path::PathBuf;

use crate::host::args::DataArgs;
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use models::{infer::TractModel, onnx};
use serde_json::json;

use super::print;

#[derive(clap::Args, Debug)]
pub(crate) struct PredictArgs {
    /// ONNX file, as saved by `run --save-model`
    #[arg(long, default_value = "model.onnx")]
    model: PathBuf,
    #[command(flatten)]
    data: DataArgs,
    /// Print the predicted class of this many samples; the score covers all
    #[arg(long, default_value_t = 10)]
    show: usize,
    #[arg(long, default_value = "table")]
    format: Format,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
enum Format {
    Table,
    Json,
}

pub(crate) fn predict(args: &PredictArgs) -> Result<()> {
    let file = onnx::read(&args.model).with_context(|| args.model.display().to_string())?;
    let model = TractModel::load(&file).with_context(|| args.model.display().to_string())?;
    let samples = args.data.samples()?;
    if samples.inputs() != model.inputs() {
        bail!("the model takes {} numbers per sample, the data has {}", model.inputs(), samples.inputs());
    }
    let score = model.score(samples.features(), samples.labels())?;
    let shown = args.show.min(samples.len());
    let logits = model.logits(&samples.features()[..shown * samples.inputs()])?;
    let predictions: Vec<usize> = logits.chunks(model.outputs()).map(class).collect();
    if args.format == Format::Json {
        let score = json!({
            "samples": score.samples, "loss": score.loss, "accuracy": score.accuracy(), "predictions": predictions,
        });
        return Ok(print(&format!("{score}\n"))?);
    }
    let mut text = String::new();
    for (index, (predicted, label)) in predictions.iter().zip(samples.labels()).enumerate() {
        text += &format!("sample {index}: predicted {predicted}, label {label}\n");
    }
    let (samples, accuracy) = (score.samples, score.accuracy());
    text += &format!("{samples} samples: loss {:.6}, accuracy {accuracy:.4}\n", score.loss);
    Ok(print(&text)?)
}

/// The most likely class. A single number is the logit of the second of two classes.
fn class(logits: &[f32]) -> usize {
    if let [logit] = logits {
        return usize::from(*logit > 0.0);
    }
    let best = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
    best.map_or(0, |(class, _)| class)
}
