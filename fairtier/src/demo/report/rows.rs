//! The compared figures: by tier and over the fleet.

use common::metrics::Summary;
use plots::number;

use crate::demo::{BaselineChange, DemoResult, StrategyRun, change};

/// Columns of the comparison: the name, and whether the values are shares shown in percent.
pub const COLUMNS: [(&str, bool); 5] = [
    ("mean loss", false),
    ("worst 10 %", false),
    ("best 10 %", false),
    ("variance", false),
    ("accuracy", true),
];

/// A tier, or the whole fleet, under every strategy.
#[derive(Clone, PartialEq, Debug)]
pub struct ComparedGroup {
    /// Name of the tier, or `All`.
    pub name: String,
    /// Description of the tier.
    pub detail: String,
    /// Figures by strategy, the baseline first.
    pub lines: Vec<[f64; 5]>,
}

/// One figure of the whole fleet under every strategy.
#[derive(Clone, PartialEq, Debug)]
pub struct FleetFigure {
    /// Name of the figure.
    pub name: &'static str,
    /// Values by strategy, the baseline first.
    pub values: Vec<f64>,
}

/// What was compared, in sentences.
pub fn about(result: &DemoResult) -> Vec<String> {
    let setup = &result.setup;
    let mut lines = vec!["Losses are on test samples, which devices have not trained on.".to_owned()];
    if let Some(target) = result.runs.last().and_then(|run| run.target.as_ref()) {
        lines.push(format!(
            "FairTier drives {} to keep the disparity at {}.",
            target.parameter, target.target
        ));
        lines.push(format!(
            "Both runs hold out the same fifth of the training samples ({}) to measure it.",
            setup.held_out
        ));
    }
    if let Some(minority) = setup.minority {
        let rare: Vec<String> = setup.rare.iter().map(u32::to_string).collect();
        lines.push(format!("Only device {minority} has classes {}; it has no others.", rare.join(" and ")));
    }
    lines
}

/// Tiers with a lower mean loss than under the baseline, and tiers with a higher one.
pub fn gain_and_pay(change: &BaselineChange) -> [String; 2] {
    let tiers = |wanted: fn(f64) -> bool| {
        let found = change.mean_by_tier.iter().enumerate().filter(|&(_, &by)| wanted(by));
        let named: Vec<String> =
            found.map(|(tier, &by)| format!("tier {tier} {}", number::change(by))).collect();
        if named.is_empty() { "none".into() } else { named.join(", ") }
    };
    [tiers(|by| by <= -0.0005), tiers(|by| by >= 0.0005)]
}

/// All tiers, widest first, then the fleet.
pub fn groups(result: &DemoResult) -> Vec<ComparedGroup> {
    let tier = |(tier, setup): (usize, &crate::demo::TierSetup)| ComparedGroup {
        name: format!("Tier {tier}"),
        detail: format!("{} units", setup.widths.iter().sum::<u32>()),
        lines: result.runs.iter().map(|run| of_tier(run, tier)).collect(),
    };
    let all = ComparedGroup {
        name: "All".into(),
        detail: format!("{} devices", result.setup.devices),
        lines: result.runs.iter().map(|run| figures(&run.loss, &run.accuracy)).collect(),
    };
    result.setup.tiers.iter().enumerate().map(tier).chain([all]).collect()
}

/// The parts of the variance over devices.
pub fn split(result: &DemoResult) -> [FleetFigure; 2] {
    let of = |read: fn(&StrategyRun) -> f64| result.runs.iter().map(read).collect();
    [
        FleetFigure { name: "variance within tiers", values: of(|run| run.loss_split.within) },
        FleetFigure { name: "variance of tier means", values: of(|run| run.loss_split.inter) },
    ]
}

/// Relative changes against the baseline. Shares give differences instead.
pub fn changes(base: &[f64; 5], line: &[f64; 5]) -> [f64; 5] {
    let mut out = [0.0; 5];
    for (((out, old), new), (_, share)) in out.iter_mut().zip(base).zip(line).zip(COLUMNS) {
        *out = if share { new - old } else { change(*old, *new) };
    }
    out
}

fn of_tier(run: &StrategyRun, tier: usize) -> [f64; 5] {
    figures(&run.loss_by_tier[tier], &run.accuracy_by_tier[tier])
}

fn figures(loss: &Summary, accuracy: &Summary) -> [f64; 5] {
    [loss.mean, loss.worst10, loss.best10, loss.variance, accuracy.mean]
}
