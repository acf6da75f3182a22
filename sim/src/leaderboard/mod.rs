//! The leaderboard: every strategy on the same fleets, from the kept results of the experiment `leaderboard`.
//!
//! A cell is a setting with a seed. Only results of the very settings that the experiment file states are read: their
//! fingerprints must be equal. So the file registers grids, seeds, data and the figure that chooses.
//!
//! | part | file |
//! |---|---|
//! | ranks over data sets and seeds | `ranks` |
//! | runs what is missing | `fill` |
//! | docs/leaderboard.md | `page` |

mod fill;
mod page;
mod ranks;

use std::{collections::BTreeMap, path::Path};

use common::metrics::Spread;
use plots::pareto::{ParetoPoint, front};
use serde::Serialize;
use serde_json::{Map, Value};
use strategies::Registry;

pub use fill::{Fill, FillError, fill};
pub use page::page;
pub use ranks::Ranks;

use crate::{
    experiment::{ExperimentError, LoadedExperiment, Setting},
    results::{self, ExperimentResults, ResultsError, Role, UnitResult},
    statistics::Interval,
};

/// Name of the experiment.
pub const NAME: &str = "leaderboard";
const PROFILE: &str = "full";
/// What a variant with the guard is called after its data set.
const GUARD: &str = "-guard";
/// Id of the strategy that others are compared with.
const REFERENCE: &str = "fedavg";

/// Figures of a row, in the order of its values.
pub const FIGURES: [&str; 8] = [
    "loss.mean",
    "loss.worst10",
    "within",
    "inter",
    "tiers.worst",
    "accuracy.mean",
    "cost.seconds",
    "cost.bytes",
];
/// The figure by which validation chooses, and by which rows are ordered.
pub const WORST: usize = 1;
const ACCURACY: usize = 5;

/// All tables.
#[derive(Clone, Debug, Serialize)]
pub struct Board {
    /// One for each data set and state of the guard, in the order of the file.
    pub tables: Vec<BoardTable>,
    /// Without the guard, then with it; only where all strategies have run.
    pub ranks: Vec<Ranks>,
    /// Machine time of the kept results in seconds.
    pub seconds: f64,
}

/// A data set with or without the guard.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct BoardTable {
    /// Id of the variant.
    pub variant: String,
    /// Text of the variant.
    pub label: String,
    /// As the gateway ships it.
    pub guard: bool,
    /// Cells of the file, and those that were run.
    pub planned: usize,
    pub run: usize,
    /// Best first; strategies that were not run are last.
    pub rows: Vec<Row>,
}

/// A strategy on a data set.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// Id of the strategy in the file.
    pub id: String,
    pub label: String,
    /// `ours`: the default.
    pub role: Role,
    /// It finds a direction instead of averaging.
    pub direction: bool,
    /// The values of the grid that validation has chosen, with how often.
    pub chosen: String,
    pub seeds: usize,
    /// Seeds with which training diverged.
    pub diverged: usize,
    /// One for each of [`FIGURES`], over the seeds that have it.
    pub values: Vec<Option<Spread>>,
    /// Loss of the worst tenth less that of FedAvg, paired by seed.
    pub against: Option<Difference>,
    /// No other strategy has both a higher accuracy and a lower loss of the worst tenth.
    pub front: bool,
}

/// A mean of paired differences.
#[derive(Copy, Clone, PartialEq, Debug, Serialize)]
pub struct Difference {
    pub mean: f64,
    pub interval: Option<Interval>,
}

/// The results that belong to the file, by setting and seed.
#[derive(Debug, Default)]
struct Cells<'a>(BTreeMap<(&'a str, u64), &'a UnitResult>);

/// The experiment as the program has it.
pub fn registered() -> Result<LoadedExperiment, ExperimentError> {
    LoadedExperiment::open(NAME, PROFILE, &[])
}

/// The kept or saved results in a directory; `None` if there are none yet.
pub fn read(dir: &Path, loaded: &LoadedExperiment) -> Result<Option<ExperimentResults>, ResultsError> {
    let of = |results: &ExperimentResults| {
        results.record.experiment == loaded.name && results.record.profile == loaded.profile
    };
    let all = if dir.is_dir() { results::read_all(dir)? } else { vec![] };
    Ok(all.into_iter().find(of))
}

impl Board {
    /// The tables of an experiment and its results.
    pub fn new(loaded: &LoadedExperiment, results: Option<&ExperimentResults>) -> Self {
        let cells = Cells::of(loaded, results);
        let mut variants: Vec<&str> =
            loaded.settings.iter().map(|setting| setting.variant.as_str()).collect();
        variants.dedup();
        let tables: Vec<BoardTable> = variants.iter().map(|variant| table(loaded, variant, &cells)).collect();
        let ranks = [false, true].into_iter().filter_map(|guard| ranks::ranks(loaded, guard, &cells));
        let ranks = ranks.collect();
        // The sum of nothing is -0.
        let seconds = cells.0.values().map(|unit| unit.seconds).sum::<f64>() + 0.0;
        Self { tables, ranks, seconds }
    }
}

impl<'a> Cells<'a> {
    fn of(loaded: &'a LoadedExperiment, results: Option<&'a ExperimentResults>) -> Self {
        let mut cells = BTreeMap::new();
        for unit in results.iter().flat_map(|results| &results.units) {
            let id = &unit.unit;
            let setting = loaded.settings.iter().find(|setting| setting.id == id.setting);
            let registered = loaded.experiment.seeds.contains(&id.seed);
            if let Some(setting) =
                setting.filter(|setting| registered && setting.fingerprint(id.seed) == unit.fingerprint)
            {
                cells.insert((setting.id.as_str(), id.seed), unit);
            }
        }
        Self(cells)
    }

    fn get(&self, setting: &Setting, seed: u64) -> Option<&'a UnitResult> {
        self.0.get(&(setting.id.as_str(), seed)).copied()
    }
}

/// A figure of a run; `None` where it does not exist, as after divergence.
fn figure(unit: &UnitResult, name: &str) -> Option<f64> {
    if unit.diverged() { None } else { unit.settled(name) }
}

fn has_guard(variant: &str) -> bool {
    variant.ends_with(GUARD)
}

fn table(loaded: &LoadedExperiment, variant: &str, cells: &Cells<'_>) -> BoardTable {
    let settings: Vec<&Setting> =
        loaded.settings.iter().filter(|setting| setting.variant == variant).collect();
    let seeds = &loaded.experiment.seeds;
    let units = |setting: &Setting| -> Vec<&UnitResult> {
        seeds.iter().filter_map(|&seed| cells.get(setting, seed)).collect()
    };
    let reference =
        settings.iter().find(|setting| setting.strategy.id == REFERENCE).map(|setting| units(setting));
    let reference = reference.unwrap_or_default();
    let mut rows: Vec<Row> =
        settings.iter().map(|setting| row(setting, &units(setting), &reference)).collect();
    mark_front(&mut rows);
    let order = |row: &Row| row.values[WORST].map_or(f64::INFINITY, |value| value.mean);
    rows.sort_by(|a, b| order(a).total_cmp(&order(b)).then(b.seeds.cmp(&a.seeds)));
    let about = loaded.experiment.variants.iter().find(|about| about.id == variant);
    BoardTable {
        variant: variant.into(),
        label: about.map_or_else(|| variant.into(), |about| about.label.clone()),
        guard: has_guard(variant),
        planned: settings.len() * seeds.len(),
        run: rows.iter().map(|row| row.seeds).sum(),
        rows,
    }
}

fn row(setting: &Setting, units: &[&UnitResult], reference: &[&UnitResult]) -> Row {
    let values = FIGURES.map(|name| {
        let values: Vec<f64> = units.iter().filter_map(|unit| figure(unit, name)).collect();
        (!values.is_empty()).then(|| Spread::of(&values))
    });
    let difference = |unit: &&UnitResult| {
        let other = reference.iter().find(|other| other.unit.seed == unit.unit.seed)?;
        Some(figure(unit, FIGURES[WORST])? - figure(other, FIGURES[WORST])?)
    };
    let differences: Vec<f64> = units.iter().filter_map(difference).collect();
    let compared = setting.strategy.id != REFERENCE && !differences.is_empty();
    let against = compared.then(|| Spread::of(&differences));
    Row {
        id: setting.strategy.id.clone(),
        label: setting.strategy.label.clone().unwrap_or_else(|| setting.strategy.id.clone()),
        role: setting.strategy.role,
        direction: is_direction(&setting.strategy.name, &setting.strategy.params),
        chosen: chosen(setting, units),
        seeds: units.len(),
        diverged: units.iter().filter(|unit| unit.diverged()).count(),
        values: values.into(),
        against: against.map(|spread| Difference { mean: spread.mean, interval: Interval::of(&spread) }),
        front: false,
    }
}

fn is_direction(name: &str, params: &Map<String, Value>) -> bool {
    let method = Registry::standard().method(name, params.clone().into());
    method.is_ok_and(|method| method.strategy.scope().is_some())
}

/// `q = 1, 2 (4 of 5)`: how often validation chose which value.
fn chosen(setting: &Setting, units: &[&UnitResult]) -> String {
    let keys: Vec<&String> = setting.strategy.choose.iter().flat_map(|choose| choose.grid.keys()).collect();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for unit in units {
        let value = |key: &&String| unit.params.get(*key).map(|value| format!("{key} = {}", plain(value)));
        let text: Vec<String> = keys.iter().filter_map(value).collect();
        *counts.entry(text.join(", ")).or_default() += 1;
    }
    let mut counts: Vec<(String, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let text: Vec<String> = counts.iter().map(|(value, count)| format!("{value} ({count})")).collect();
    text.join("; ")
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), Into::into)
}

fn mark_front(rows: &mut [Row]) {
    let points: Vec<ParetoPoint<'_>> = rows
        .iter()
        .enumerate()
        .filter_map(|(index, row)| {
            let (worst, accuracy) = (row.values[WORST]?, row.values[ACCURACY]?);
            let (unfair, good) = ((worst.mean, worst.std), (accuracy.mean, accuracy.std));
            Some(ParetoPoint { index, name: &row.id, unfair, good, data: "" })
        })
        .collect();
    let best: Vec<usize> = front(&points).iter().map(|point| point.index).collect();
    best.into_iter().for_each(|index| rows[index].front = true);
}
