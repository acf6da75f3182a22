//! All numbers of all runs: by experiment, arm, seed and metric.

use std::collections::BTreeMap;

use common::metrics::Spread;

use super::Metric;

/// What claims are decided on.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Numbers {
    arms: BTreeMap<(String, String), ArmNumbers>,
}

/// One arm of an experiment: the same strategy with the same parameters, with several seeds.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ArmNumbers {
    /// `quick` or `full`.
    pub profile: String,
    pub runs: Vec<RunNumbers>,
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct RunNumbers {
    pub seed: u64,
    pub rounds: u32,
    pub values: BTreeMap<Metric, f64>,
}

impl Numbers {
    /// Runs of an arm replace those it had.
    pub fn insert(&mut self, experiment: &str, arm: &str, numbers: ArmNumbers) {
        self.arms.insert((experiment.into(), arm.into()), numbers);
    }

    pub fn arm(&self, experiment: &str, arm: &str) -> Option<&ArmNumbers> {
        self.arms.get(&(experiment.into(), arm.into()))
    }

    /// Names of the arms of an experiment.
    pub fn arms(&self, experiment: &str) -> impl Iterator<Item = &str> {
        self.arms.keys().filter(move |(name, _)| name == experiment).map(|(_, arm)| arm.as_str())
    }
}

impl ArmNumbers {
    /// Mean and deviation over the seeds that have the metric.
    pub fn spread(&self, metric: Metric) -> Option<Spread> {
        let values: Vec<f64> = self.runs.iter().filter_map(|run| run.value(metric)).collect();
        (!values.is_empty()).then(|| Spread::of(&values))
    }
}

impl RunNumbers {
    /// Finite, or not there.
    pub fn value(&self, metric: Metric) -> Option<f64> {
        self.values.get(&metric).copied().filter(|value| value.is_finite())
    }
}
