//! Assigns samples and hardware to devices, for one seed.

use std::sync::Arc;

use aggregator::{
    config::{Config, ModelConfig, ReportConfig, RoundConfig, RunConfig, StrategyConfig, TaskName},
    run::open_graph,
};
use common::{
    DeviceId, Tier,
    rng::{Rng, derive},
};
use strategies::strategy::PerTier;
use trainer::data::Shard;

use super::{
    ExperimentError,
    spec::{Base, ValidationSpec},
};
use crate::{
    data::{DataDirs, DataSet, DeviceShard, TestSource},
    engine::{Chances, DeviceSpec, Hardware},
    partition::{Partition, Split},
};

/// Streams derived from the seed.
const TIERS: u64 = 10;
const SAMPLES: u64 = 11;
const CHANCES: u64 = 12;

/// The devices of one experiment and seed, with their data.
#[derive(Clone, Debug)]
pub struct Arrangement {
    pub data: Arc<DataSet>,
    pub devices: Vec<PlacedDevice>,
    /// The set's whole test part.
    pub common: Option<DeviceShard>,
    pub seed: u64,
}

/// One client on its device.
#[derive(Clone, Debug)]
pub struct PlacedDevice {
    pub device: DeviceId,
    pub tier: Tier,
    pub hardware: Hardware,
    /// Samples of the device; its test part is used for reports.
    pub shard: Arc<DeviceShard>,
    /// All samples including the validation part, for strategies whose devices hold it out themselves.
    pub whole: Option<Arc<DeviceShard>>,
    /// The same training samples, with validation samples in place of test samples.
    pub valid: DeviceShard,
}

/// Loads or generates a set with this seed, with label noise and size as configured.
pub fn load(base: &Base, places: &DataDirs, seed: u64) -> Result<Arc<DataSet>, ExperimentError> {
    let spec = &base.data;
    let mut set = spec.load_set(&base.dir, places, seed)?.with_label_noise(spec.noise, seed)?;
    for (part, wanted) in [(&mut set.train, spec.samples), (&mut set.test, spec.test_samples)] {
        if let Some(wanted) = wanted.filter(|&wanted| wanted < part.len()) {
            let mut order: Vec<u32> = (0..part.len() as u32).collect();
            Rng::new(derive(seed, SAMPLES)).shuffle(&mut order);
            order.truncate(wanted);
            order.sort_unstable();
            *part = part.select(&order)?;
        }
    }
    Ok(Arc::new(set.pooled(spec.pool)?))
}

impl Arrangement {
    pub fn new(base: &Base, data: Arc<DataSet>, seed: u64) -> Result<Self, ExperimentError> {
        let spec = &base.data;
        let split = spec.partition.split(&data, spec.clients, spec.testing(), seed)?;
        let (split, whole) = match spec.validation {
            ValidationSpec::Share(share) => (split.with_validation(share, seed)?, vec![]),
            ValidationSpec::Word(_) => {
                let whole = split.shards(&data)?.into_iter().map(Arc::new).collect();
                (split.with_kept_fifth(), whole)
            }
        };
        let names = device_names(&spec.partition, &split);
        let (shards, valid) = (split.shards(&data)?, split.validation_shards(&data)?);
        let (count, tiers) = (shards.len(), base.fleet.tiers.len().max(1));
        let mut order: Vec<usize> = (0..count).collect();
        Rng::new(derive(seed, TIERS)).shuffle(&mut order);
        let mut tier_of = vec![0; count];
        for (place, &client) in order.iter().enumerate() {
            tier_of[client] = place * tiers / count;
        }
        let hardware = hardware(&base.fleet.hardware, tiers)?;
        let mut devices = Vec::with_capacity(count);
        for (client, ((shard, valid), tier)) in shards.into_iter().zip(valid).zip(tier_of).enumerate() {
            let device = names[client].clone();
            let hardware = hardware[tier];
            let tier = Tier::new(tier).ok_or(ExperimentError::Tiers(tiers))?;
            let whole = whole.get(client).cloned();
            devices.push(PlacedDevice { device, tier, hardware, shard: Arc::new(shard), whole, valid });
        }
        let all: Vec<u32> = (0..data.test.len() as u32).collect();
        let common = (spec.global && !all.is_empty())
            .then(|| DeviceShard::new(data.clone(), [].into(), all.into(), TestSource::Test))
            .transpose()?;
        Ok(Self { data, devices, common, seed })
    }

    /// The devices for the engine. `keep`: devices hold out validation samples themselves. `own`: they have validation samples of
    /// their own where the experiment sets a share apart.
    pub fn members(&self, keep: bool, own: bool) -> Result<Vec<DeviceSpec>, ExperimentError> {
        let member = |placed: &PlacedDevice| {
            let shard = match &placed.whole {
                Some(whole) if keep || own => whole.clone(),
                None if own => {
                    let valid = placed.valid.test_indices().into();
                    Arc::new(DeviceShard::clone(&placed.shard).with_validation(valid)?)
                }
                _ => placed.shard.clone(),
            };
            let &PlacedDevice { tier, hardware, .. } = placed;
            Ok(DeviceSpec { device: placed.device.clone(), tier, hardware, shard })
        };
        self.devices.iter().map(member).collect()
    }

    /// The configuration of an aggregator for this strategy.
    pub fn config(
        &self,
        base: &Base,
        name: &str,
        params: &serde_json::Map<String, serde_json::Value>,
    ) -> Config {
        let source = self.model_source(base);
        Config {
            model: ModelConfig {
                source,
                seed: self.seed,
                start: base.start,
                task: if self.data.is_regression() { TaskName::Regression } else { TaskName::Auto },
                tiers: base.fleet.tiers.clone(),
            },
            strategy: StrategyConfig { name: name.into(), params: params.clone() },
            run: RunConfig {
                rounds: base.rounds,
                min_devices: self.devices.len(),
                seed: self.seed,
                // Experiments compare strategies that may diverge; their figures show it.
                divergence: 0.0,
                ..RunConfig::default()
            },
            round: RoundConfig {
                participation: base.fleet.participation,
                deadline_s: PerTier::All(base.fleet.deadline_s),
                quorum: PerTier::All(base.fleet.quorum),
                ..RoundConfig::default()
            },
            fairness: base.fairness.clone(),
            training: base.training.clone(),
            wire: base.wire.clone(),
            report: ReportConfig { conflicts: base.conflicts },
            guard: base.guard.config(),
            devices: self.devices.iter().map(|placed| (placed.device.clone(), placed.tier)).collect(),
            ..Config::default()
        }
    }

    /// The model of the experiment: a file beside it, or a name with `in` and `out` for the sizes of the data.
    fn model_source(&self, base: &Base) -> String {
        let outputs =
            if self.data.is_regression() { self.data.targets() } else { self.data.classes as usize };
        let (inputs, outputs) = (self.data.inputs().to_string(), outputs.to_string());
        match (base.model.strip_prefix("mlp:"), base.model_file()) {
            (Some(widths), _) => {
                let width = |width| match width {
                    "in" => &inputs,
                    "out" => &outputs,
                    width => width,
                };
                format!("mlp:{}", widths.split('-').map(width).collect::<Vec<_>>().join("-"))
            }
            (None, Some(path)) => path.to_string_lossy().into_owned(),
            (None, None) => base.model.clone(),
        }
    }

    /// Checks that the model has an output for every class or number to predict, and takes the samples of files of one's own.
    /// Models of known sets may have more outputs, such as one for each class at every place of a text.
    pub fn check_model(&self, base: &Base) -> Result<(), ExperimentError> {
        let own = base.data.file()?.is_some();
        let (graph, _) = open_graph(&self.config(base, "", &serde_json::Map::new()))?;
        let (inputs, outputs) = (self.data.inputs(), self.data.outputs());
        let wrong = |what, takes, has| ExperimentError::Model {
            model: base.model.clone(),
            data: self.data.name.clone(),
            what,
            takes,
            has,
        };
        match (graph.inputs(), graph.outputs()) {
            (takes, _) if own && takes != inputs => Err(wrong("inputs", takes, inputs)),
            // The logit of the second class.
            (_, 1) if outputs == 2 && !self.data.is_regression() => Ok(()),
            (_, gives) if gives < outputs || (own && gives != outputs) => {
                Err(wrong("outputs", gives, outputs))
            }
            _ => Ok(()),
        }
    }

    pub fn chances(&self, base: &Base) -> Chances {
        Chances { seed: derive(self.seed, CHANCES), ..base.fleet.chances }
    }

    /// The training samples of all devices in one shard.
    pub fn pooled(&self) -> Result<DeviceShard, ExperimentError> {
        let mut train = Vec::new();
        for placed in &self.devices {
            train.extend_from_slice(placed.shard.train_indices());
        }
        train.sort_unstable();
        Ok(DeviceShard::new(self.data.clone(), train.into(), [].into(), TestSource::Train)?)
    }

    /// Whether any samples are held out for validation.
    pub fn has_validation(&self) -> bool {
        self.devices.iter().any(|placed| placed.valid.test_len() > 0)
    }
}

/// Devices are called as the values of a column or as a file says, where these can be names; otherwise by number.
fn device_names(partition: &Partition, split: &Split) -> Vec<DeviceId> {
    let named = matches!(partition, Partition::Column { .. } | Partition::File { .. });
    let names = split.clients.iter().map(|client| client.name.parse().ok().filter(|_| named));
    names.collect::<Option<Vec<DeviceId>>>().unwrap_or_else(|| {
        let number = |client| format!("c{client:04}").parse().expect("a name of this form is valid");
        (0..split.clients.len()).map(number).collect()
    })
}

fn hardware(given: &[Hardware], tiers: usize) -> Result<Vec<Hardware>, ExperimentError> {
    match given {
        [] => Ok(vec![Hardware::default(); tiers]),
        [one] => Ok(vec![*one; tiers]),
        given if given.len() == tiers => Ok(given.to_vec()),
        given => Err(ExperimentError::Hardware { got: given.len(), tiers }),
    }
}
