//! The model of a configuration under its tiers, and its strategy.

use std::path::PathBuf;

use common::{Codec, tier::Tier};
use models::{
    Graph, onnx,
    plan::{CompileError, PlanOptions},
    task::loss_of_task,
    zoo,
};
use strategies::{
    error::StrategyError,
    method::Method,
    registry::Registry,
    strategy::Needs,
    tiered::{ModelError, TieredModel},
};

use trainer::data::schema::METADATA_KEY;

use super::RunError;
use crate::config::{Config, Start};

/// The model of a configuration without tiers, and its initial parameters.
pub fn open_graph(config: &Config) -> Result<(Graph, Vec<f32>), RunError> {
    let source = &config.model.source;
    let (graph, mut parameters) = match zoo::build(source, config.model.seed) {
        Some(built) => built,
        None => {
            let path = PathBuf::from(source);
            if !path.exists() {
                let known = zoo::ALL.iter().map(|entry| entry.name).collect::<Vec<_>>().join(", ");
                return Err(RunError::UnknownModel { name: source.clone(), known });
            }
            let file = onnx::read(&path)
                .map_err(|source| RunError::ModelFile { path: path.clone(), source: source.into() })?;
            let (graph, parameters) =
                Graph::from_onnx(&file).map_err(|source| RunError::Import { path, source: source.into() })?;
            // What an earlier run says of its files does not hold for those of this one.
            let old = ["round", "tier", "widths", METADATA_KEY];
            (old.iter().fold(graph, |graph, key| graph.with_metadata(key, None)), parameters)
        }
    };
    if config.model.start == Start::Zero {
        match graph.layers().len() {
            0 | 1 => parameters.fill(0.0),
            layers => return Err(RunError::ZeroStart { layers }),
        }
    }
    Ok((graph, parameters))
}

/// The model under its tiers, and its initial parameters.
pub fn open_model(config: &Config, needs: Needs) -> Result<(TieredModel, Vec<f32>), RunError> {
    let (graph, parameters) = open_graph(config)?;
    let mask = |(tier, spec): (usize, &models::tiers::TierSpec)| {
        spec.mask(&graph).map_err(|source| ModelError::Mask { tier, source })
    };
    let masks: Vec<_> = config.model.tiers.iter().enumerate().map(mask).collect::<Result<_, _>>()?;
    let last: Vec<_> = config.model.tiers.iter().map(models::tiers::TierSpec::last).collect();
    let stated = config.task()?.map(|task| loss_of_task(&graph, task)).transpose()?;
    let options = PlanOptions { loss: stated, ..config.plan_options(needs) };
    let unfused = PlanOptions { fused: false, ..options };
    // Layers that share weights need their gradients summed before they are applied.
    let model = match TieredModel::training(graph.clone(), masks.clone(), &last, &options) {
        Err(ModelError::Plan { source: CompileError::Fused, .. }) => {
            TieredModel::training(graph, masks, &last, &unfused)?
        }
        other => other?,
    };
    check_messages(config, &model, needs)?;
    Ok((model, parameters))
}

/// Checks that the messages of every tier fit, in both directions.
fn check_messages(config: &Config, model: &TieredModel, needs: Needs) -> Result<(), RunError> {
    let max = config.server.max_message;
    for (tier, plan) in model.plans.iter().enumerate().filter_map(|(n, plan)| Some((Tier::new(n)?, plan))) {
        let (held, trained) = (plan.info.params as usize, model.regions.slice_len(tier));
        let rounds = config.wire.down.of(tier).is_some_and(|codec| codec != Codec::F32);
        if rounds && !model.graph.constants().is_empty() {
            return Err(RunError::RoundedConstants { tier: tier.index() });
        }
        let ways = [(&config.wire.down, held), (&config.wire.up, trained * needs.product.vectors())];
        for (codecs, numbers) in ways {
            let bytes = codecs.of(tier).and_then(|codec| codec.encoded_len(numbers));
            let need = bytes.map_or(u64::MAX, u64::from);
            if need > u64::from(max) {
                return Err(RunError::MaxMessage { tier: tier.index(), need, max });
            }
        }
    }
    Ok(())
}

/// The strategy of a configuration with its options.
pub fn open_method(registry: &Registry, config: &Config) -> Result<Method, StrategyError> {
    registry.method(&config.strategy.name, config.strategy.params.clone().into())
}

/// Checks that the columns of the schema are as many numbers as the model takes and gives.
pub(super) fn check_schema(config: &Config, model: &TieredModel) -> Result<(), RunError> {
    let Some(schema) = config.schema()? else { return Ok(()) };
    let sizes = [
        ("inputs", model.graph.inputs(), schema.inputs()),
        ("outputs", model.graph.outputs(), schema.outputs()),
    ];
    match sizes.into_iter().find(|(_, model, schema)| model != schema) {
        Some((what, model, schema)) => Err(RunError::Schema { what, model, schema }),
        None => Ok(()),
    }
}

pub(super) fn check_fixed_tiers(config: &Config, tiers: usize) -> Result<(), RunError> {
    match config.devices.iter().find(|(_, tier)| tier.index() >= tiers) {
        Some((device, tier)) => {
            Err(RunError::FixedTier { device: device.to_string(), tier: tier.index(), tiers })
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_of_one_layer_may_start_from_zero() {
        let open = |source: &str, start: &str| {
            let text = format!("[model]\nsource = \"{source}\"\nstart = \"{start}\"\ntiers = [1.0]");
            open_model(&Config::parse(&text).unwrap(), Needs::default())
        };
        assert!(open("mlp:3-1", "zero").unwrap().1.iter().all(|&weight| weight == 0.0));
        assert!(open("mlp:3-1", "model").unwrap().1.iter().all(|&weight| weight != 0.0));
        let error = open("mlp:3-4-1", "zero").unwrap_err().to_string();
        assert!(error.contains("model.start") && error.contains("2 layers"), "{error}");
    }
}
