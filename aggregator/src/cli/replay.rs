//! `fairtier fairness replay`: a fairness target over recorded sums, with any target.

use std::{fmt::Write as _, path::PathBuf};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use common::output::{COLUMNS, print, table, wrap};
use serde::Serialize;
use serde_json::{Map, Value};
use strategies::{
    Registry,
    fairness::{
        Fairness, FairnessLine, FairnessSettings, Measure, Most, RecordedReport, ScopeSetting, SignalKind,
    },
    strategy::{FairnessScope, PerTier},
};

use super::fairness::parse_target;
use crate::config::Config;

mod source;

use source::Source;

/// The strategy where nothing names one.
const STRATEGY: &str = "fairheterofl";

#[derive(clap::Args, Debug)]
pub struct Args {
    /// store/history.jsonl of a gateway, JSON or CSV with sums per tier; see the examples
    file: PathBuf,
    /// The target in all rounds; default: as the gateway had it in each round
    #[arg(long, value_name = "DISPARITY", value_parser = parse_target)]
    target: Option<f64>,
    /// Whose knobs are turned; default: those of the run, or fairheterofl
    #[arg(long, value_name = "NAME")]
    strategy: Option<String>,
    /// A configuration whose strategy and [fairness] apply; a history does not state warmup, budget and gains
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Strongest value of the knob
    #[arg(long, value_name = "VALUE")]
    most: Option<f64>,
    /// The mean loss may lie at most this share above its best
    #[arg(long, value_name = "SHARE")]
    budget: Option<f64>,
    /// Rounds that are only measured
    #[arg(long, value_name = "ROUNDS")]
    warmup: Option<u32>,
    /// The figure that is compared with the target
    #[arg(long)]
    measure: Option<MeasureArg>,
    /// Between whom it is measured
    #[arg(long)]
    scope: Option<ScopeArg>,
    #[arg(long, default_value = "table")]
    format: Format,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
enum Format {
    Table,
    Json,
    Csv,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
enum MeasureArg {
    Cv,
    Spread,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
enum ScopeArg {
    Tiers,
    Devices,
}

/// One knob in one round.
#[derive(Serialize)]
struct ReplayedLine {
    round: u32,
    #[serde(flatten)]
    line: FairnessLine,
}

pub(super) fn replay(registry: &Registry, args: &Args) -> Result<()> {
    let name = || args.file.display().to_string();
    let source = Source::read(&args.file).with_context(name)?;
    let config = args.config.as_deref().map(Config::load).transpose()?;
    let lines = replayed(registry, args, &source, config.as_ref()).with_context(name)?;
    Ok(print(&match args.format {
        Format::Table => shown(&lines),
        Format::Json => serde_json::to_string(&lines)? + "\n",
        Format::Csv => csv(&lines),
    })?)
}

fn replayed(
    registry: &Registry,
    args: &Args,
    source: &Source,
    config: Option<&Config>,
) -> Result<Vec<ReplayedLine>> {
    let recorded = source.rounds.iter().find_map(|round| round.fairness.first());
    let name = match (&args.strategy, config, recorded) {
        (Some(name), ..) => name,
        (None, Some(config), _) => &config.strategy.name,
        (None, None, Some(line)) => &line.strategy,
        (None, None, None) => STRATEGY,
    };
    let params = config.filter(|config| config.strategy.name == *name);
    let params = params.map_or(Value::Null, |config| config.strategy.params.clone().into());
    let strategy = registry.method(name, params)?.strategy;
    let settings = settings(args, source, config);
    let Some(mut fairness) = Fairness::new(settings, &*strategy, &Map::new(), source.tiers)? else {
        bail!("there is no target; give one with --target");
    };
    let mut lines = vec![];
    for report in &source.rounds {
        let replayed = fairness.follow(report, args.target.is_some())?;
        lines.extend(replayed.into_iter().map(|line| ReplayedLine { round: report.round, line }));
    }
    Ok(lines)
}

/// Those of the configuration, or of the recorded lines, with what the command line says.
fn settings(args: &Args, source: &Source, config: Option<&Config>) -> FairnessSettings {
    let mut settings = match config {
        Some(config) => config.fairness.clone(),
        None => recorded_settings(source),
    };
    if let Some(target) = source.rounds.iter().find_map(RecordedReport::target) {
        settings.target = target;
    }
    settings.target = args.target.unwrap_or(settings.target);
    settings.budget = args.budget.unwrap_or(settings.budget);
    settings.warmup = args.warmup.unwrap_or(settings.warmup);
    settings.most = args.most.map_or(settings.most, Most::Value);
    settings.measure = match args.measure {
        Some(MeasureArg::Cv) => Measure::Cv,
        Some(MeasureArg::Spread) => Measure::Spread,
        None => settings.measure,
    };
    settings.scope = match args.scope {
        Some(ScopeArg::Tiers) => ScopeSetting::Tiers,
        Some(ScopeArg::Devices) => ScopeSetting::Devices,
        None => settings.scope,
    };
    settings
}

/// What the lines of a report tell of the settings.
fn recorded_settings(source: &Source) -> FairnessSettings {
    let mut settings = FairnessSettings::default();
    let lines = source.rounds.iter().map(|round| &round.fairness).find(|lines| !lines.is_empty());
    let Some(lines) = lines else { return settings };
    if let Some(first) = lines.first() {
        settings.measure = first.measure;
        settings.most = Most::Value(first.most);
        if first.signal == SignalKind::Training {
            settings.signal = strategies::fairness::Signal::Training;
        }
        settings.scope = match first.scope {
            FairnessScope::Tiers => ScopeSetting::Tiers,
            FairnessScope::Devices => ScopeSetting::Devices,
            FairnessScope::Inside => ScopeSetting::Default,
        };
    }
    let mut inside = vec![0.0; source.tiers];
    for line in lines {
        if let Some(target) = line.tier.and_then(|tier| inside.get_mut(tier)) {
            *target = line.target;
        }
    }
    settings.inside = PerTier::Each(inside);
    settings
}

/// Columns of the table.
const HEAD: [&str; 8] = ["round", "knob", "measured", "target", "I", "u", "value", "status"];

fn shown(lines: &[ReplayedLine]) -> String {
    let knob = |line: &FairnessLine| match line.tier {
        Some(tier) => format!("{} {tier}", line.parameter),
        None => line.parameter.clone(),
    };
    let row = |ReplayedLine { round, line }: &ReplayedLine| {
        vec![
            round.to_string(),
            knob(line),
            line.measured.map_or("-".to_owned(), |measured| format!("{measured:.4}")),
            format!("{:.4}", line.target),
            format!("{:.4}", line.integrator),
            format!("{:.4}", line.position),
            format!("{:.4}", line.value),
            line.status_words(),
        ]
    };
    let mut rows = vec![HEAD.map(str::to_owned).to_vec()];
    rows.extend(lines.iter().map(row));
    let mut text = table(&rows, 2, COLUMNS);
    let last = lines.last().map(|line| line.round);
    for ReplayedLine { line, .. } in lines.iter().filter(|line| Some(line.round) == last) {
        let _ = writeln!(text, "{}", line.summary());
        for note in [line.advice()].into_iter().chain(line.notes()) {
            let _ = writeln!(text, "  {}", wrap(&note, 2, COLUMNS));
        }
    }
    text
}

fn csv(lines: &[ReplayedLine]) -> String {
    let mut text = String::from(
        "round,knob,tier,measured,squared,target,integrator,position,value,next_value,status,certified,bound,\
         resolution,within_noise\n",
    );
    let number = |number: Option<f64>| number.map_or(String::new(), |number| number.to_string());
    for ReplayedLine { round, line } in lines {
        let tier = line.tier.map_or(String::new(), |tier| tier.to_string());
        let (measured, squared, bound) = (number(line.measured), number(line.squared), number(line.bound));
        let FairnessLine { parameter, target, integrator, position, value, next_value, certified, .. } = line;
        let status = line.status.name();
        let (limit, within) = (number(line.resolution.map(|found| found.limit)), line.is_within_noise());
        let _ = writeln!(
            text,
            "{round},{parameter},{tier},{measured},{squared},{target},{integrator},{position},{value},{next_value},{status},\
             {certified},{bound},{limit},{within}"
        );
    }
    text
}
