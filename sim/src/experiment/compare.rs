//! Compares two settings, or all settings of two directories, figure by figure.
//!
//! Differences are taken seed by seed if both sides have the seed. This removes the variation that both share (data,
//! initial model).

use std::path::{Path, PathBuf};

use common::{metrics::Spread, output::table};
use serde::Serialize;

use super::{
    ExperimentError,
    summary::{FIGURES, text},
};
use crate::{
    results::{self, ExperimentResults},
    statistics::{Interval, one_side},
};
use plots::number;
use trainer::data::schema::nearest::hint;

/// `DIR` or `DIR:SETTING`, where DIR holds an `experiment.json` or is a kept file.
#[derive(Clone, PartialEq, Debug)]
pub struct ResultsPath {
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
    /// The 95 % interval of its mean; absent for fewer than two common seeds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
    /// Two-sided p of a difference of 0, for this figure alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p: Option<f64>,
    /// Mean of B / mean of A - 1.
    pub change: f64,
}

impl ResultsPath {
    /// `text` is a directory, `DIR:SETTING`, or, with `dir`, the id of a setting in it.
    pub fn parse(text: &str, dir: Option<&Path>) -> Self {
        match (dir, text.rsplit_once(':')) {
            _ if results::is_experiment(Path::new(text)) => Self { dir: text.into(), setting: None },
            (Some(dir), _) => Self { dir: dir.into(), setting: Some(text.into()) },
            (None, Some((dir, setting))) => Self { dir: dir.into(), setting: Some(setting.into()) },
            (None, None) => Self { dir: text.into(), setting: None },
        }
    }

    fn read(&self) -> Result<ExperimentResults, ExperimentError> {
        let results = results::read_experiment(&self.dir)?;
        if let Some(setting) = &self.setting
            && results.setting(setting).is_none()
        {
            let known: Vec<&str> = results.record.settings.iter().map(|known| known.id.as_str()).collect();
            return Err(ExperimentError::NoSetting {
                setting: setting.clone(),
                dir: self.dir.clone(),
                hint: hint(setting, known.iter().copied()),
                known: known.join(", "),
            });
        }
        Ok(results)
    }
}

/// Compares two settings. Two whole directories are compared setting by setting, by id.
pub fn compare(a: &ResultsPath, b: &ResultsPath) -> Result<Vec<Comparison>, ExperimentError> {
    let (results_a, results_b) = (a.read()?, b.read()?);
    let pairs: Vec<(String, String)> = match (&a.setting, &b.setting) {
        (Some(a), Some(b)) => vec![(a.clone(), b.clone())],
        (Some(a), None) => vec![(a.clone(), a.clone())],
        (None, Some(b)) => vec![(b.clone(), b.clone())],
        (None, None) => {
            let in_both = |id: &String| results_b.setting(id).is_some();
            let ids = results_a.record.settings.iter().map(|setting| setting.id.clone()).filter(in_both);
            ids.map(|id| (id.clone(), id)).collect()
        }
    };
    let of = |(id_a, id_b): &(String, String)| Comparison {
        a: name(&results_a, id_a),
        b: name(&results_b, id_b),
        differences: differences((&results_a, id_a), (&results_b, id_b)),
    };
    let all: Vec<Comparison> = pairs.iter().map(of).filter(|pair| !pair.differences.is_empty()).collect();
    if all.is_empty() {
        let dirs =
            format!("no finished unit of one setting in both {} and {}", a.dir.display(), b.dir.display());
        return Err(ExperimentError::Nothing(dirs));
    }
    Ok(all)
}

fn name(results: &ExperimentResults, id: &str) -> String {
    format!("{}/{}:{id}", results.record.experiment, results.record.profile)
}

/// Differences of two settings, each with the results it belongs to.
fn differences(a: (&ExperimentResults, &str), b: (&ExperimentResults, &str)) -> Vec<Difference> {
    let values = |(results, id): (&ExperimentResults, &str), figure: &str| -> Vec<(u64, f64)> {
        results.units(id).filter_map(|unit| Some((unit.unit.seed, unit.last.figure(figure)?))).collect()
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
        let interval = Interval::of(&difference);
        let p = one_side(&difference, 0.0, true, false).map(|odds| odds.least());
        Some(Difference { figure, a, b, difference, interval, p, change })
    };
    FIGURES.iter().filter_map(of).collect()
}

impl Comparison {
    /// A table that fits this many columns of a terminal.
    pub fn table(&self, columns: usize) -> String {
        let mut rows = vec![["", "A", "B", "B - A", "95 %", "p", "change"].map(String::from).to_vec()];
        for Difference { figure, a, b, difference, interval, p, change } in &self.differences {
            let change = number::change(*change);
            let show = |Interval { low, high }: &Interval| {
                format!("[{}, {}]", number::figure(*low), number::figure(*high))
            };
            let interval = interval.as_ref().map_or_else(|| "-".into(), show);
            let p = p.map_or_else(|| "-".into(), |p| format!("{p:.3}"));
            let difference = number::figure(difference.mean);
            rows.push(vec![(*figure).into(), text(*a), text(*b), difference, interval, p, change]);
        }
        format!("A {}\nB {}\n{}", self.a, self.b, table(&rows, 1, columns))
    }
}
