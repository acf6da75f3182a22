//! The present model as ONNX, whole and for every tier, from the file that the gateway writes.

use std::path::Path;

use anyhow::{Context, Result};
use common::WidthMask;
use models::{Graph, onnx};
#[cfg(feature = "dashboard")]
use strategies::strategy::Needs;

#[cfg(feature = "dashboard")]
use crate::{config::Config, run::open_model};

/// The present model, in the run's directory.
pub(crate) const MODEL: &str = "model.onnx";

/// The present model as the gateway has written it.
pub(crate) fn read_model(dir: &Path) -> Result<(Graph, Vec<f32>)> {
    let path = dir.join(MODEL);
    let file = onnx::read(&path).with_context(|| format!("{}: serve first", path.display()))?;
    Graph::from_onnx(&file).with_context(|| path.display().to_string())
}

/// The parameters of a tier, and its sub-model as ONNX.
pub(crate) fn slice(
    graph: &Graph,
    mask: &WidthMask,
    parameters: &[f32],
    options: &onnx::ExportOptions<'_>,
) -> Result<(Vec<f32>, Vec<u8>)> {
    let slice = graph.gather(mask, parameters)?;
    let bytes = onnx::export(&graph.slice(mask)?, &slice, options)?;
    Ok((slice, bytes))
}

/// The present model of a tier as ONNX, or the whole one.
#[cfg(feature = "dashboard")]
pub(crate) fn part(dir: &Path, config: &Config, tier: Option<usize>) -> Result<Vec<u8>> {
    let Some(tier) = tier else {
        let path = dir.join(MODEL);
        return std::fs::read(&path).with_context(|| path.display().to_string());
    };
    let (graph, parameters) = read_model(dir)?;
    let (model, _) = open_model(config, Needs::default())?;
    let tiers = model.masks.len();
    let mask = model
        .masks
        .get(tier)
        .with_context(|| format!("there is no tier {tier}; the model has {tiers} tiers"))?;
    Ok(slice(&graph, mask, &parameters, &onnx::ExportOptions::default())?.1)
}
