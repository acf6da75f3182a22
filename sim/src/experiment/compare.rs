//! Two settings, or all settings of two directories, figure by figure.
//!
//! Differences are taken seed by seed where both sides have the seed, so that what the seeds have in common
//! (data, start) does not hide them.

use std::path::{Path, PathBuf};

use common::metrics::Spread;
use serde::Serialize;

use super::{
    ExperimentError,
    summary::{FIGURES, grid, text},
};
use crate::{
    report::number,
    results::{self, ExperimentRecord, UnitResult},
};

/// `DIR` or `DIR:SETTING`, where DIR holds an `experiment.json` or is a kept file.
#[derive(Clone, PartialEq, Debug)]
pub struct Side {
    pub dir: PathBuf,
    pub setting: Option<String>,
}

/// One setting against another.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Comparison {
    pub a: String,
    pub b: String,
    pub differences: Vec<Difference>,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Difference {
    pub figure: &'static str,
    pub a: Spread,
    pub b: Spread,
    /// B - A over common seeds.
    pub difference: Spread,
    /// Mean of B / mean of A - 1.
    pub change: f64,
}

impl Side {
    /// `text` is a directory, `DIR:SETTING`, or, with `dir`, the id of a setting in it.
    pub fn parse(text: &str, dir: Option<&Path>) -> Self {
        match (dir, text.rsplit_once(':')) {
            _ if results::is_experiment(Path::new(text)) => Self { dir: text.into(), setting: None },
            (Some(dir), _) => Self { dir: dir.into(), setting: Some(text.into()) },
            (None, Some((dir, setting))) => Self { dir: dir.into(), setting: Some(setting.into()) },
            (None, None) => Self { dir: text.into(), setting: None },
        }
    }

    fn read(&self) -> Result<(ExperimentRecord, Vec<UnitResult>), ExperimentError> {
        let (record, units) = results::read_experiment(&self.dir)?;
        if let Some(setting) = &self.setting
            && record.settings.iter().all(|known| known.id != *setting)
        {
            let known = record.settings.iter().map(|known| known.id.as_str()).collect::<Vec<_>>().join(", ");
            return Err(ExperimentError::NoSetting {
                setting: setting.clone(),
                dir: self.dir.clone(),
                known,
            });
        }
        Ok((record, units))
    }
}

/// Compares; two whole directories setting by setting, by their ids.
pub fn compare(a: &Side, b: &Side) -> Result<Vec<Comparison>, ExperimentError> {
    let ((record_a, units_a), (record_b, units_b)) = (a.read()?, b.read()?);
    let pairs: Vec<(String, String)> = match (&a.setting, &b.setting) {
        (Some(a), Some(b)) => vec![(a.clone(), b.clone())],
        (Some(a), None) => vec![(a.clone(), a.clone())],
        (None, Some(b)) => vec![(b.clone(), b.clone())],
        (None, None) => {
            let there = |id: &String| record_b.settings.iter().any(|other| other.id == *id);
            let ids = record_a.settings.iter().map(|setting| setting.id.clone()).filter(there);
            ids.map(|id| (id.clone(), id)).collect()
        }
    };
    let of = |(id_a, id_b): &(String, String)| Comparison {
        a: name(&record_a, id_a),
        b: name(&record_b, id_b),
        differences: differences(&own(&units_a, id_a), &own(&units_b, id_b)),
    };
    let all: Vec<Comparison> = pairs.iter().map(of).filter(|pair| !pair.differences.is_empty()).collect();
    if all.is_empty() {
        let dirs =
            format!("no finished unit of one setting in both {} and {}", a.dir.display(), b.dir.display());
        return Err(ExperimentError::Nothing(dirs));
    }
    Ok(all)
}

fn name(record: &ExperimentRecord, id: &str) -> String {
    format!("{}/{}:{id}", record.experiment, record.profile)
}

fn own<'a>(units: &'a [UnitResult], id: &str) -> Vec<&'a UnitResult> {
    units.iter().filter(|unit| unit.unit.setting == id).collect()
}

fn differences(a: &[&UnitResult], b: &[&UnitResult]) -> Vec<Difference> {
    let values = |units: &[&UnitResult], figure: &str| -> Vec<(u64, f64)> {
        units.iter().filter_map(|unit| Some((unit.unit.seed, unit.last.figure(figure)?))).collect()
    };
    let spread =
        |values: &[(u64, f64)]| Spread::of(&values.iter().map(|(_, value)| *value).collect::<Vec<_>>());
    let of = |(figure, _): &(&'static str, &str)| {
        let (left, right) = (values(a, figure), values(b, figure));
        if left.is_empty() || right.is_empty() {
            return None;
        }
        let common = right.iter().filter_map(|(seed, value)| {
            let (_, other) = left.iter().find(|(other, _)| other == seed)?;
            Some(value - other)
        });
        let common: Vec<f64> = common.collect();
        let (a, b) = (spread(&left), spread(&right));
        let difference = if common.is_empty() {
            Spread { runs: 0, mean: b.mean - a.mean, std: 0.0 }
        } else {
            Spread::of(&common)
        };
        let change = if a.mean == 0.0 { 0.0 } else { b.mean / a.mean - 1.0 };
        Some(Difference { figure, a, b, difference, change })
    };
    FIGURES.iter().filter_map(of).collect()
}

impl std::fmt::Display for Comparison {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut rows = vec![["", "A", "B", "B - A", "change"].map(String::from).to_vec()];
        for Difference { figure, a, b, difference, change } in &self.differences {
            let change = number::change(*change);
            rows.push(vec![(*figure).into(), text(*a), text(*b), text(*difference), change]);
        }
        write!(f, "A {}\nB {}\n{}", self.a, self.b, grid(&rows))
    }
}
