//! Saved results in the form that reports show: means and deviations over seeds.

use std::collections::BTreeMap;

use common::metrics::Spread;
use serde::Serialize;

use super::curve::{self, CurvePoint};
use crate::{
    claims::{self, Assessment, CheckOutcome, ClaimVerdict, Evidence},
    experiment::{Price, data_of, prices, rounds_of},
    results::{ExperimentResults, Role, SettingRecord, UnitResult},
    statistics::Interval,
};
use plots::lorenz::gini;

/// Figures in the order of the report. A table has the figures that any of its settings has.
pub const FIGURES: &[&str] = &[
    "groups.accuracy",
    "groups.constant",
    "groups.dp",
    "groups.spd",
    "groups.eo",
    "groups.eodds",
    "loss.mean",
    "loss.variance",
    "loss.worst10",
    "loss.best10",
    "inter",
    "within",
    "accuracy.mean",
    "accuracy.variance",
    "accuracy.worst10",
    "accuracy.worst5",
    "accuracy.best5",
    "accuracy.angle",
    "accuracy.jain",
    "mae.mean",
    "mae.variance",
    "mae.worst10",
    "mae.best10",
    "r2",
    "fairness.target",
    "fairness.measured",
    "fairness.value",
    "gaps.max",
    "gaps.min",
    "gaps.variance",
    "gaps_valid.variance",
    "global.accuracy",
    "global.mae",
    "global.r2",
    "personal.accuracy.mean",
    "personal.accuracy.variance",
    "conflicts.model",
    "conflicts.layers",
    "cost.bytes",
    "cost.seconds",
];

#[derive(Clone, Debug, Serialize)]
pub struct Digest {
    pub sources: Vec<SourceDigest>,
    pub experiments: Vec<ExperimentDigest>,
}

/// Claims of a source.
#[derive(Clone, Debug, Serialize)]
pub struct SourceDigest {
    pub name: &'static str,
    pub section: &'static str,
    pub claims: Vec<Assessment>,
}

/// One experiment in one profile.
#[derive(Clone, Debug, Serialize)]
pub struct ExperimentDigest {
    pub experiment: String,
    pub profile: String,
    pub title: String,
    pub notes: String,
    /// Most rounds of training of a run.
    pub rounds: usize,
    /// Published values compared with ours.
    pub checks: Vec<CheckOutcome>,
    /// Names of the figures that any setting has.
    pub figures: Vec<&'static str>,
    pub settings: Vec<SettingDigest>,
    /// Settings with a fairness target against the same without fairness.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub prices: Vec<Price>,
}

#[derive(Clone, Debug, Serialize)]
pub struct SettingDigest {
    pub id: String,
    pub label: String,
    pub strategy: String,
    /// Parameters in use. If validation chose differently, one entry per seed.
    pub params: Vec<String>,
    pub role: Role,
    /// What it is trained and tested on; empty if the record does not say. Only settings with the same text are compared.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub data: String,
    pub seeds: Vec<u64>,
    pub missing: Vec<u64>,
    /// Seeds in which no candidate of `choose` was within the limit.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub over_limit: Vec<u64>,
    /// Seeds whose run diverged.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub diverged: Vec<u64>,
    pub figures: BTreeMap<&'static str, Spread>,
    /// 95 % intervals of the means, of two or more runs.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub intervals: BTreeMap<&'static str, Interval>,
    /// Gini index of the devices' accuracies.
    pub gini: Option<Spread>,
    pub tiers: Vec<TierDigest>,
    pub curve: Vec<CurvePoint>,
    /// Tier, loss and accuracy of every device in the first finished seed; predicted numbers have no accuracy.
    pub devices: Vec<(usize, f64, Option<f64>)>,
    /// Wall time of all its runs in seconds.
    pub seconds: f64,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TierDigest {
    pub devices: usize,
    pub loss: Spread,
    pub loss_variance: Spread,
    /// None of predicted numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<Spread>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accuracy_variance: Option<Spread>,
    /// Only of predicted numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mae: Option<Spread>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r2: Option<Spread>,
    pub bytes_up: Spread,
    pub bytes_down: Spread,
    /// Sum over devices of the time in which they worked and sent, in seconds.
    pub busy_s: Spread,
    pub joules: Spread,
    pub asked: Spread,
    pub answered: Spread,
}

impl Digest {
    /// Claims that no result speaks to are left to `fairtier sim reproduce`.
    pub fn new(evidence: &Evidence) -> Self {
        let run = |mut source: SourceDigest| {
            source.claims.retain(|claim| claim.verdict != ClaimVerdict::NotRun);
            (!source.claims.is_empty()).then_some(source)
        };
        let sources = SourceDigest::all(evidence);
        let claims: Vec<Assessment> = sources.iter().flat_map(|source| source.claims.clone()).collect();
        let experiments = evidence.experiments.iter().map(|results| ExperimentDigest::new(results, &claims));
        Self { experiments: experiments.collect(), sources: sources.into_iter().filter_map(run).collect() }
    }
}

impl SourceDigest {
    /// Every claim of every source, run or not.
    pub fn all(evidence: &Evidence) -> Vec<Self> {
        let source = |source: &'static claims::Source| Self {
            name: &source.name,
            section: &source.section,
            claims: claims::assess(source, evidence),
        };
        claims::ALL.iter().map(source).collect()
    }
}

impl ExperimentDigest {
    pub fn new(results: &ExperimentResults, claims: &[Assessment]) -> Self {
        let record = &results.record;
        let data = data_of(record);
        let settings: Vec<SettingDigest> = record
            .settings
            .iter()
            .map(|setting| {
                let data = data.get(&setting.id).cloned().unwrap_or_default();
                SettingDigest { data, ..SettingDigest::new(results, setting) }
            })
            .collect();
        let seen = results.units.iter().map(|unit| unit.round_count()).max().unwrap_or(0);
        let tiers = settings.iter().map(|setting| setting.tiers.len()).max().unwrap_or(0);
        let shown = |name: &&&str| {
            // With one tier there is no variance between or within tiers.
            let tells = tiers > 1 || !matches!(**name, "inter" | "within");
            tells && settings.iter().any(|setting| setting.figures.contains_key(**name))
        };
        Self {
            experiment: record.experiment.clone(),
            profile: record.profile.clone(),
            title: record.title.clone(),
            notes: record.notes.clone(),
            // The final scores of a run have the number of the round that would follow.
            rounds: rounds_of(record).map_or(seen, |stated| stated.min(seen)),
            checks: claims::outcomes_of(results, claims),
            figures: FIGURES.iter().filter(shown).copied().collect(),
            settings,
            prices: prices(record, &results.units),
        }
    }

    /// Settings with at least one run, and their index in the report.
    pub fn run(&self) -> impl Iterator<Item = (usize, &SettingDigest)> + Clone {
        self.settings.iter().enumerate().filter(|(_, setting)| !setting.seeds.is_empty())
    }

    /// A line for each setting with a diverged run.
    pub fn diverged(&self) -> Vec<String> {
        let say = |setting: &SettingDigest| {
            let seeds: Vec<String> = setting.diverged.iter().map(u64::to_string).collect();
            let word = if seeds.len() == 1 { "seed" } else { "seeds" };
            (!seeds.is_empty()).then(|| format!("{}: {word} {}", setting.label, seeds.join(", ")))
        };
        self.settings.iter().filter_map(say).collect()
    }

    /// Whether a setting determines scales and may be the best: it did not diverge, or all did.
    pub fn scales(&self, setting: &SettingDigest) -> bool {
        setting.diverged.is_empty() || self.run().all(|(_, other)| !other.diverged.is_empty())
    }

    /// Whether numbers are predicted, which have errors in place of an accuracy. Those of diverged runs are no figures.
    pub fn predicts_numbers(&self) -> bool {
        self.run().next().is_some() && !self.figures.contains(&"accuracy.mean")
    }

    pub fn tiers(&self) -> usize {
        self.settings.iter().map(|setting| setting.tiers.len()).max().unwrap_or(0)
    }

    /// Descriptions of the missing runs.
    pub fn missing(&self) -> Vec<String> {
        let say = |setting: &SettingDigest| {
            let seeds: Vec<String> = setting.missing.iter().map(u64::to_string).collect();
            match (setting.seeds.is_empty(), seeds.len()) {
                (true, 0) => Some(format!("{}: no run, and none was requested", setting.label)),
                (true, _) => Some(format!("{}: no run yet (seeds {})", setting.label, seeds.join(", "))),
                (_, 0) => None,
                (_, 1) => Some(format!("{}: no run with seed {}", setting.label, seeds.join(", "))),
                _ => Some(format!("{}: no runs with seeds {}", setting.label, seeds.join(", "))),
            }
        };
        self.settings.iter().filter_map(say).collect()
    }
}

impl SettingDigest {
    fn new(results: &ExperimentResults, setting: &SettingRecord) -> Self {
        let units: Vec<&UnitResult> = results.units(&setting.id).collect();
        let spread = |name: &&'static str| Some((*name, results.spread(&setting.id, name)?));
        let accuracies = |unit: &UnitResult| {
            unit.last.devices.iter().filter_map(|device| device.accuracy).collect::<Vec<_>>()
        };
        let ginis: Vec<f64> = units.iter().filter_map(|unit| gini(&accuracies(unit))).collect();
        let figures: BTreeMap<&str, Spread> = FIGURES.iter().filter_map(spread).collect();
        let first = units.first().map_or(&[][..], |unit| &unit.last.devices);
        Self {
            id: setting.id.clone(),
            label: setting.label.clone(),
            strategy: setting.strategy.clone(),
            params: params(setting, &units),
            role: setting.role,
            data: String::new(),
            seeds: units.iter().map(|unit| unit.unit.seed).collect(),
            diverged: units.iter().filter(|unit| unit.diverged()).map(|unit| unit.unit.seed).collect(),
            missing: results.missing(setting),
            over_limit: units
                .iter()
                .filter(|unit| unit.over_limit.is_some())
                .map(|unit| unit.unit.seed)
                .collect(),
            intervals: figures
                .iter()
                .filter_map(|(name, spread)| Some((*name, Interval::of(spread)?)))
                .collect(),
            figures,
            gini: (!ginis.is_empty()).then(|| Spread::of(&ginis)),
            tiers: tiers(&units),
            curve: curve::curve(&units),
            devices: first.iter().map(|device| (device.tier, device.loss, device.accuracy)).collect(),
            seconds: units.iter().map(|unit| unit.seconds).sum(),
        }
    }

    pub fn figure(&self, name: &str) -> Option<&Spread> {
        self.figures.get(name)
    }
}

/// One entry if all seeds agree.
fn params(setting: &SettingRecord, units: &[&UnitResult]) -> Vec<String> {
    let show = |params: &serde_json::Map<String, serde_json::Value>| {
        serde_json::Value::from(params.clone()).to_string()
    };
    let mut all: Vec<String> = units.iter().map(|unit| show(&unit.params)).collect();
    if all.is_empty() {
        all.push(show(&setting.params));
    }
    all.dedup();
    all
}

fn tiers(units: &[&UnitResult]) -> Vec<TierDigest> {
    let count = units.iter().map(|unit| unit.last.tiers.len()).max().unwrap_or(0);
    let of = |tier: usize| {
        let score = |name: &str| {
            let name = format!("tier.{tier}.{name}");
            let values: Vec<f64> = units.iter().filter_map(|unit| unit.figure(&name)).collect();
            (!values.is_empty()).then(|| Spread::of(&values))
        };
        let loss = |name: &str| score(name).unwrap_or_else(|| Spread::of(&[]));
        let cost = |of: fn(&crate::results::TierCost) -> f64| {
            let values: Vec<f64> =
                units.iter().filter_map(|unit| unit.account.tiers.get(tier).map(of)).collect();
            Spread::of(&values)
        };
        TierDigest {
            devices: units
                .iter()
                .filter_map(|unit| unit.last.tiers.get(tier))
                .map(|line| line.devices)
                .max()
                .unwrap_or(0),
            loss: loss("loss"),
            loss_variance: loss("loss_variance"),
            accuracy: score("accuracy"),
            accuracy_variance: score("accuracy_variance"),
            mae: score("mae"),
            r2: score("r2"),
            bytes_up: cost(|tier| tier.bytes_up as f64),
            bytes_down: cost(|tier| tier.bytes_down as f64),
            busy_s: cost(|tier| tier.busy_s),
            joules: cost(|tier| tier.joules),
            asked: cost(|tier| tier.asked as f64),
            answered: cost(|tier| tier.answered as f64),
        }
    };
    (0..count).map(of).collect()
}
