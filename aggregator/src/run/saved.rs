//! The run in a store, or a new one.

use std::hash::{BuildHasher, RandomState};

use common::{RunId, tier::Tier};
use strategies::{fairness::RecordedReport, tiered::TieredModel};

use super::RunError;
use crate::{
    config::{ClusterConfig, Config, ConfigError},
    store::{ModelFingerprint, RunRecord, SavedRun, Store, weights_digest},
};

/// What identifies this model in a store.
pub fn fingerprint(model: &TieredModel) -> ModelFingerprint {
    let slices =
        (0..model.plans.len()).filter_map(Tier::new).map(|tier| model.regions.slice_len(tier) as u64);
    ModelFingerprint {
        digest: model.graph.digest(model.graph.full()),
        parameters: model.regions.parameters() as u64,
        tiers: slices.collect(),
    }
}

/// What the reports of all rounds say of a fairness target. One that cannot be parsed counts as a round without a target.
pub(super) fn reports(store: &dyn Store) -> Result<Vec<RecordedReport>, RunError> {
    let read = |(round, text): (u32, String)| {
        let none = RecordedReport { round, ..RecordedReport::default() };
        serde_json::from_str(&text).unwrap_or(none)
    };
    Ok(store.history()?.into_iter().map(read).collect())
}

/// Fails if the configuration is of another run than the stored one, although the model has the same structure.
pub(crate) fn expect_same(saved: &SavedRun, config: &Config, weights: u32) -> Result<(), RunError> {
    if saved.weights.is_some_and(|stored| stored != weights) {
        return Err(RunError::OtherWeights { source_name: config.model.source.clone() });
    }
    // Devices that read their files in another way would undo what the run has learned.
    let stored = Config::parse(&saved.run.config).ok().and_then(|stored| stored.data);
    if stored == config.data { Ok(()) } else { Err(RunError::OtherSchema) }
}

/// The run in the store, or a new one.
pub(super) fn load_or_begin(
    store: &mut dyn Store,
    model: &TieredModel,
    config: &Config,
    parameters: Vec<f32>,
) -> Result<SavedRun, RunError> {
    let model = fingerprint(model);
    let weights = weights_digest(&parameters);
    if let Some(saved) = store.load(&model)? {
        expect_same(&saved, config, weights)?;
        return Ok(saved);
    }
    // Each gateway of a cluster has its own, which may hold a password.
    let recorded = Config { cluster: ClusterConfig::default(), ..config.clone() };
    let run = RunRecord {
        run: RunId(RandomState::new().hash_one(std::time::SystemTime::now())),
        model,
        config: toml::to_string(&recorded).map_err(ConfigError::from)?,
    };
    store.begin_run(&run, &parameters)?;
    Ok(SavedRun {
        run,
        next_round: 1,
        attempt: 0,
        parameters,
        strategy_state: vec![],
        devices: vec![],
        open: None,
        best: None,
        config: None,
        weights: Some(weights),
    })
}
