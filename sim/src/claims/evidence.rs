//! Results of experiments, ready for lookup.

use std::path::Path;

use crate::results::{self, ExperimentResults, ResultsError};

/// All results of one directory.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Evidence {
    pub experiments: Vec<ExperimentResults>,
}

impl Evidence {
    /// Reads a directory of results.
    pub fn read(dir: &Path) -> Result<Self, ResultsError> {
        Ok(Self { experiments: results::read_all(dir)? })
    }

    /// Profiles of an experiment, `full` first. Runs with other keys (`--set`) are not among them.
    pub fn of<'a>(&'a self, experiment: &'a str) -> impl Iterator<Item = &'a ExperimentResults> {
        ["full", "quick"].into_iter().flat_map(move |profile| {
            self.experiments.iter().filter(move |results| {
                results.record.experiment == experiment && results.record.profile == profile
            })
        })
    }
}
