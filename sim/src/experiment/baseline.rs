//! Baselines of the papers that run without an aggregator.
//!
//! ```text
//! local        every device trains alone from the initial model, for `alone.epochs` or until its loss is flat
//! ufl          every client runs its own FairBatch (own counts and lambda); scored as a mixture that picks one
//!              client's model at random
//! ffl_fedavg   the same, but after each round the models are averaged by samples; lambda stays local
//! cfl          FairBatch on the pooled samples of all clients
//! ```
//! A round has the epochs of `training`. Lambda is updated with the losses of the model at the start of the round, as
//! in `fedfb`.

use aggregator::{config::Config, run::open_model};
use common::{
    Tier,
    brief::{Brief, GroupReport, Signal},
    message::Alone,
    rng::derive,
};
use strategies::{
    methods::{
        Eagle,
        fedfb::{Cells, FairBatch, FedFbParams, Notion, Parity, StepSize},
    },
    strategy::Needs,
    tiered::TieredModel,
};
use trainer::{
    data::Shard,
    train::{Fast, LOSS_CAP},
};

use super::{
    Arrangement, ExperimentError,
    lines::{distribution, rescore},
    local_training,
    score::{TierWeights, score_all},
    spec::Base,
    unit::TrainedFleet,
};
use crate::{
    data::DeviceShard,
    results::{RoundScores, TierScores},
};

/// Which baseline.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Baseline {
    Local,
    Ufl,
    FflFedAvg,
    Cfl,
}

impl Baseline {
    pub const ALL: [Self; 4] = [Self::Local, Self::Ufl, Self::FflFedAvg, Self::Cfl];

    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Ufl => "ufl",
            Self::FflFedAvg => "ffl_fedavg",
            Self::Cfl => "cfl",
        }
    }

    pub fn train(
        self,
        base: &Base,
        params: &serde_json::Map<String, serde_json::Value>,
        arranged: &Arrangement,
        threads: usize,
        tick: &mut dyn FnMut(),
    ) -> Result<TrainedFleet, ExperimentError> {
        let config = arranged.config(base, "fedavg", &Default::default());
        match self {
            Self::Local => {
                let (model, weights) = alone(base, arranged)?;
                tick();
                Ok(TrainedFleet::of(model, weights, None))
            }
            _ => self.fair(base, &config, params, arranged, threads, tick),
        }
    }

    /// Checks parameters as training does.
    pub fn check(self, params: &serde_json::Map<String, serde_json::Value>) -> Result<(), ExperimentError> {
        match self {
            Self::Local => Ok(()),
            Self::Ufl | Self::FflFedAvg | Self::Cfl => self.parameters(params).map(drop),
        }
    }

    fn parameters(
        self,
        params: &serde_json::Map<String, serde_json::Value>,
    ) -> Result<FedFbParams, ExperimentError> {
        let fault = |source| ExperimentError::Parameters { name: self.name(), source };
        serde_json::from_value(params.clone().into()).map_err(fault)
    }

    fn fair(
        self,
        base: &Base,
        config: &Config,
        params: &serde_json::Map<String, serde_json::Value>,
        arranged: &Arrangement,
        threads: usize,
        tick: &mut dyn FnMut(),
    ) -> Result<TrainedFleet, ExperimentError> {
        let params = self.parameters(params)?;
        let parity = match params.notion {
            Notion::Eo => Parity::Opportunity,
            Notion::Eodds => Parity::Odds,
            Notion::Dp | Notion::Cp => Parity::Demographic,
        };
        let signal = match (params.signal, parity) {
            (Some(signal), _) => signal,
            (None, Parity::Demographic) => Signal::ZeroOne,
            (None, _) => Signal::CrossEntropy,
        };
        let step_size = StepSize { alpha: params.alpha, decay: params.decay, normalize: params.normalize_mu };
        let (model, initial) = open_model(config, Needs::default())?;
        let pooled = arranged.pooled()?;
        let shards: Vec<&DeviceShard> = match self {
            Self::Cfl => vec![&pooled],
            _ => arranged.devices.iter().map(|placed| &*placed.shard).collect(),
        };
        let no_groups = || ExperimentError::NoGroups { name: self.name(), set: arranged.data.name.clone() };
        let mut batches = Vec::new();
        for shard in &shards {
            let counts = Cells::counts(&shard.summary().groups).ok_or_else(no_groups)?;
            batches.push(FairBatch::new(parity, counts));
        }
        let plan = model.plans.first().ok_or_else(no_groups)?;
        let mut models = vec![initial.clone(); shards.len()];
        let mut backend = Fast::new();
        let mut lines = Vec::new();
        let place = |models: &[Vec<f32>]| place(self, arranged, models);
        for round in 1..=base.rounds {
            let lr = base.training.lr * base.training.lr_decay.powi(round as i32 - 1);
            lines.push(self.line(round, &model, arranged, &place(&models), threads)?);
            for (client, ((shard, batch), weights)) in
                shards.iter().zip(&mut batches).zip(&mut models).enumerate()
            {
                let seed = derive(derive(arranged.seed, u64::from(round)), client as u64);
                let mut brief = brief(base, lr, seed);
                brief.groups = Some(GroupReport { signal, cap: LOSS_CAP as f32 });
                brief.objective.groups =
                    batch.sample_weights().values().iter().map(|&weight| weight as f32).collect();
                let scalars = local_training::train(plan, weights, brief, shard, &mut backend)?;
                let losses = Cells::new(scalars.group_losses.to_vec()).ok_or_else(no_groups)?;
                let counts = Cells::counts(&scalars.group_counts).ok_or_else(no_groups)?;
                batch.step(&losses, &counts, step_size, round);
            }
            if self == Self::FflFedAvg {
                let samples: Vec<f64> = shards.iter().map(|shard| f64::from(shard.train_len())).collect();
                let mean = average(&models, &samples);
                models.fill(mean);
            }
            tick();
        }
        lines.push(self.line(base.rounds + 1, &model, arranged, &place(&models), threads)?);
        let weights = place(&models);
        let whole = (self != Self::Ufl).then(|| weights.iter().take(1).cloned().collect());
        Ok(TrainedFleet {
            rounds: lines,
            mixture: self == Self::Ufl,
            ..TrainedFleet::of(model, weights, whole)
        })
    }

    fn line(
        self,
        round: u32,
        model: &TieredModel,
        arranged: &Arrangement,
        weights: &[TierWeights],
        threads: usize,
    ) -> Result<RoundScores, ExperimentError> {
        let jobs: Vec<_> =
            weights.iter().zip(&arranged.devices).map(|(w, placed)| (w, &*placed.shard)).collect();
        let scored = score_all(&model.plans, &jobs, threads)?;
        let tiers = vec![0; scored.len()];
        let mut line = RoundScores {
            round,
            devices: distribution(&tiers, &scored, 1).tiers[0].devices,
            tiers: vec![TierScores::default()],
            ..RoundScores::default()
        };
        rescore(&mut line, &tiers, &scored);
        Ok(line)
    }
}

/// Trains every device's own model from its slice of the initial one.
pub fn alone(
    base: &Base,
    arranged: &Arrangement,
) -> Result<(TieredModel, Vec<TierWeights>), ExperimentError> {
    let config = arranged.config(base, "fedavg", &Default::default());
    let (model, initial) = open_model(&config, Needs::default())?;
    let epochs = base.alone.as_ref().map_or(base.training.epochs, |alone| alone.epochs);
    let lr = base.alone.as_ref().and_then(|alone| alone.lr).unwrap_or(base.training.lr);
    let mut backend = Fast::new();
    let mut all = Vec::new();
    for (number, placed) in (0..).zip(&arranged.devices) {
        let mut weights = Vec::new();
        model.gather(placed.tier, &initial, &mut weights);
        let brief = Brief { epochs, ..brief(base, lr, derive(arranged.seed, number)) };
        let plan = &model.plans[placed.tier.index()];
        if base.alone.as_ref().is_some_and(|alone| alone.flat) {
            let task = Alone { brief, ..Eagle::alone() };
            local_training::train_until_flat(plan, &mut weights, &task, &placed.shard, &mut backend)?;
        } else {
            local_training::train(plan, &mut weights, brief, &placed.shard, &mut backend)?;
        }
        all.push(TierWeights { tier: placed.tier, values: weights.into() });
    }
    Ok((model, all))
}

fn brief(base: &Base, lr: f64, seed: u64) -> Brief {
    let training = &base.training;
    Brief {
        optimizer: training.optimizer(),
        clip: (training.clip > 0.0).then_some(training.clip),
        ..Brief::sgd(training.epochs, training.batch, lr as f32, seed)
    }
}

/// The model of each device.
fn place(baseline: Baseline, arranged: &Arrangement, models: &[Vec<f32>]) -> Vec<TierWeights> {
    let tier = Tier::new(0).expect("a model has a tier");
    let whole = |values: &Vec<f32>| TierWeights { tier, values: values.as_slice().into() };
    let all: Vec<TierWeights> = models.iter().map(whole).collect();
    match (baseline, all.first()) {
        (Baseline::Cfl, Some(one)) => vec![one.clone(); arranged.devices.len()],
        _ => all,
    }
}

fn average(models: &[Vec<f32>], samples: &[f64]) -> Vec<f32> {
    let all: f64 = samples.iter().sum();
    let mut sums = vec![0.0f64; models.first().map_or(0, Vec::len)];
    for (model, &samples) in models.iter().zip(samples) {
        sums.iter_mut().zip(model).for_each(|(sum, &value)| *sum += samples * f64::from(value));
    }
    sums.iter().map(|sum| (sum / all.max(1.0)) as f32).collect()
}
