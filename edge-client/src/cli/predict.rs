//! `fairtier device predict`: what a model says of rows, and how right it is where labels are there.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use models::{Graph, forward::ForwardModel, onnx};

use super::print;
use crate::{
    data::schema::{METADATA_KEY, Schema},
    host::args::{DataArgs, DataArgsError},
};

mod outcome;
mod show;

use outcome::Outcome;

#[derive(clap::Args, Debug)]
pub(crate) struct PredictArgs {
    /// ONNX file, as saved by `run --save-model` or `fairtier gateway export`
    #[arg(long, default_value = "model.onnx")]
    model: PathBuf,
    #[command(flatten)]
    data: DataArgs,
    /// Print this many samples; the score covers all [default: 10 in a table, all as CSV or JSON]
    #[arg(long)]
    show: Option<usize>,
    /// trainer (built in) or tract (in builds with the feature `infer`)
    #[arg(long, default_value = "trainer")]
    engine: Engine,
    /// CSV goes to standard output; where labels are there, its scores go to standard error
    #[arg(long, default_value = "table")]
    format: Format,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
enum Format {
    Table,
    Csv,
    Json,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
enum Engine {
    Trainer,
    Tract,
}

pub(crate) fn predict(args: &PredictArgs) -> Result<()> {
    let named = || args.model.display().to_string();
    let file = onnx::read(&args.model).with_context(named)?;
    let mut model = ForwardModel::load(&file).with_context(named)?;
    let schema = match args.data.local_schema()? {
        Some(schema) => Some(schema),
        None => schema_inside(model.graph()).with_context(named)?,
    };
    if let Some(schema) = &schema {
        check(schema, model.graph()).with_context(named)?;
    }
    let inputs = model.graph().inputs();
    let rows = args.data.rows_to_predict(schema.as_ref(), inputs)?;
    if rows.inputs != inputs {
        bail!("the model takes {inputs} numbers per sample, the data has {}", rows.inputs);
    }
    let logits = match args.engine {
        Engine::Trainer => model.logits(&rows.features)?,
        Engine::Tract => tract(&file, &rows.features).with_context(named)?,
    };
    let outcome = Outcome::new(model.graph(), schema.as_ref(), &rows, &logits)?;
    let shown = args.show.unwrap_or(if args.format == Format::Table { 10 } else { usize::MAX });
    let text = match args.format {
        Format::Table => outcome.table(shown),
        Format::Csv => outcome.csv(shown)?,
        Format::Json => format!("{}\n", outcome.json(shown)),
    };
    print(&text)?;
    if let (Format::Csv, Some(scores)) = (args.format, outcome.scores()) {
        eprintln!("{scores}");
    }
    Ok(())
}

/// The schema that the gateway has written into the file.
fn schema_inside(graph: &Graph) -> Result<Option<Schema>> {
    let Some(text) = graph.metadata_of(METADATA_KEY) else { return Ok(None) };
    let schema = Schema::from_toml(text).with_context(|| format!("metadata `{METADATA_KEY}`"))?;
    if let Some(column) = schema.fleet_columns().next() {
        return Err(DataArgsError::FleetScale(column.to_owned()).into());
    }
    Ok(Some(schema))
}

fn check(schema: &Schema, graph: &Graph) -> Result<()> {
    let sizes = [("inputs", graph.inputs(), schema.inputs()), ("outputs", graph.outputs(), schema.outputs())];
    match sizes.into_iter().find(|(_, model, schema)| model != schema) {
        Some((what, model, schema)) => {
            bail!(
                "the model has {model} {what}, the schema {schema}; use the schema that it was trained with"
            )
        }
        None => Ok(()),
    }
}

#[cfg(feature = "infer")]
fn tract(file: &[u8], features: &[f32]) -> Result<Vec<f32>> {
    Ok(models::infer::TractModel::load(file)?.logits(features)?)
}

#[cfg(not(feature = "infer"))]
fn tract(_: &[u8], _: &[f32]) -> Result<Vec<f32>> {
    bail!("this program was built without tract; use `--engine trainer`, or build with `--features infer`")
}
