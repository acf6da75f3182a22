//! The gateway's own samples, which updates are compared with: see [`strategies::guard::probe`].

use std::path::PathBuf;

use common::{
    Tier,
    brief::{Brief, Product},
    message::Task,
    plan::{Loss, Plan},
};
use coordinator::conductor::Probe;
use trainer::{
    data::{
        DataError, Samples, VecShard,
        load::{self, CsvOptions, LoadError},
    },
    train::{Fast, TrainError, Work, WorkProgress},
};

use strategies::{guard::GuardConfig, tiered::TieredModel};

/// Why the samples of `guard.probe` cannot be used.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each variant has its message")]
#[non_exhaustive]
pub enum ProbeError {
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error("{path}: {source}", path = .path.display())]
    Samples { path: PathBuf, source: DataError },
    #[error(
        "{path}: samples of {got} numbers in {classes} classes do not fit the model, which takes {inputs} numbers",
        path = .path.display()
    )]
    Shape { path: PathBuf, got: usize, inputs: u32, classes: u32 },
    #[error("the probe cannot be trained: {0}")]
    Train(#[from] TrainError),
}

/// Labelled samples that the operator vouches for.
#[derive(Clone, Debug)]
pub struct ProbeSamples {
    shard: VecShard,
}

impl ProbeSamples {
    /// The probe of a configuration, if it names one: a CSV file with the label in the last column.
    pub fn open(config: &GuardConfig, model: &TieredModel) -> Result<Option<Self>, ProbeError> {
        let path = &config.probe;
        if path.as_os_str().is_empty() {
            return Ok(None);
        }
        let options = CsvOptions { scale: config.probe_scale, ..CsvOptions::default() };
        let samples = load::csv(path, &options)?;
        let widest = &model.plans[0].info;
        let inputs = widest.inputs;
        let labels_fit = match widest.loss {
            Loss::Softmax { classes } => samples.classes() <= classes,
            Loss::Sigmoid => samples.classes() <= 2,
            Loss::Squared => true,
        };
        if samples.inputs() != inputs as usize || !labels_fit {
            let (got, classes) = (samples.inputs(), samples.classes());
            return Err(ProbeError::Shape { path: path.clone(), got, inputs, classes });
        }
        let test = Samples::new(vec![], vec![], samples.inputs());
        let shard = test.and_then(|test| VecShard::new(samples, test));
        let shard = shard.map_err(|source| ProbeError::Samples { path: path.clone(), source })?;
        Ok(Some(Self { shard }))
    }

    fn train(&self, model: &TieredModel, parameters: &[f32], brief: &Brief) -> Result<Vec<f64>, ProbeError> {
        let mut change = vec![0.0; parameters.len()];
        let tier = Tier::new(0).expect("there is always a tier 0");
        let widest = &model.plans[tier.index()];
        let missing = || TrainError::Arena { need: widest.info.arena as usize, have: 0 };
        let plan = Plan::check(&widest.info, &widest.nodes, &widest.schedule).map_err(|_| missing())?;
        let before = model.slice(tier, parameters);
        let mut arena = vec![0.0; widest.info.arena as usize];
        arena.get_mut(..before.len()).ok_or_else(missing)?.copy_from_slice(&before);
        let brief = Brief {
            epochs: 1,
            product: Product::default(),
            loss_after: false,
            gap: false,
            personal: None,
            groups: None,
            privacy: None,
            ..brief.clone()
        };
        let mut backend = Fast::default();
        let mut work = Work::begin(&Task::Train(brief), plan, &mut arena, &self.shard)?;
        while let WorkProgress::Busy { .. } = work.step(plan, &mut arena, &self.shard, &mut backend)? {}
        let moved: Vec<f32> = arena.iter().zip(&before).map(|(after, before)| after - before).collect();
        model.spread(tier, &moved, &mut change);
        Ok(change)
    }
}

impl Probe for ProbeSamples {
    /// Of the widest tier.
    fn update(&self, model: &TieredModel, parameters: &[f32], brief: &Brief) -> Result<Vec<f64>, String> {
        self.train(model, parameters, brief).map_err(|error| error.to_string())
    }
}
