//! Results of experiments, ready to be asked.

use std::path::Path;

use common::metrics::Spread;

use super::figure;
use crate::results::{self, ExperimentRecord, ResultsError, SettingRecord, UnitResult};

/// Everything under one directory of results.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Evidence {
    pub benches: Vec<Bench>,
}

/// One experiment in one profile.
#[derive(Clone, PartialEq, Debug)]
pub struct Bench {
    pub record: ExperimentRecord,
    pub units: Vec<UnitResult>,
}

impl Evidence {
    pub fn read(dir: &Path) -> Result<Self, ResultsError> {
        let all = results::read_all(dir)?;
        Ok(Self { benches: all.into_iter().map(|(record, units)| Bench { record, units }).collect() })
    }

    /// Profiles of an experiment, `full` first.
    pub fn of<'a>(&'a self, experiment: &'a str) -> impl Iterator<Item = &'a Bench> {
        let of = move |full: bool| {
            self.benches.iter().filter(move |bench| {
                bench.record.experiment == experiment && (bench.record.profile == "full") == full
            })
        };
        of(true).chain(of(false))
    }
}

impl Bench {
    /// Finished runs of a setting, by seed.
    pub fn units<'a>(&'a self, setting: &'a str) -> impl Iterator<Item = &'a UnitResult> + Clone {
        self.units.iter().filter(move |unit| unit.unit.setting == setting)
    }

    pub fn setting(&self, id: &str) -> Option<&SettingRecord> {
        self.record.settings.iter().find(|setting| setting.id == id)
    }

    pub fn label<'a>(&'a self, id: &'a str) -> &'a str {
        self.setting(id).map_or(id, |setting| &setting.label)
    }

    /// Over the seeds that have the figure.
    pub fn spread(&self, setting: &str, name: &str) -> Option<Spread> {
        let values: Vec<f64> = self.units(setting).filter_map(|unit| figure::read(unit, name)).collect();
        (!values.is_empty()).then(|| Spread::of(&values))
    }

    /// Seeds of a setting that are wanted and not there.
    pub fn missing(&self, setting: &SettingRecord) -> Vec<u64> {
        let done = |seed: &u64| self.units(&setting.id).any(|unit| unit.unit.seed == *seed);
        setting.seeds.iter().copied().filter(|seed| !done(seed)).collect()
    }
}
