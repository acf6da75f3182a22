//! The plots of an experiment and their data.

use common::metrics::Spread;

use super::{
    curve::CurvePoint,
    digest::{ExperimentDigest, SettingDigest, TierDigest},
};
use crate::results::figure;
use plots::{
    columns::{ColumnSeries, Columns},
    lines::{Level, LineSeries, Lines, Point},
    lorenz::{self, Lorenz},
    markup::Element,
    pareto::{self, Axes, ParetoPoint},
    spread::{self, SpreadRow},
};

/// Names of the figures for fairness and quality of this experiment: of groups, gaps or devices.
pub fn judged(experiment: &ExperimentDigest) -> (&'static str, &'static str) {
    let has = |name: &str| experiment.figures.contains(&name);
    match experiment.tiers() {
        _ if experiment.predicts_numbers() => ("mae.variance", "r2"),
        _ if has("groups.dp") => ("groups.dp", "groups.accuracy"),
        _ if has("gaps.variance") => ("gaps.variance", "accuracy.mean"),
        0 | 1 => ("accuracy.variance", "accuracy.mean"),
        _ => ("loss.variance", "accuracy.mean"),
    }
}

pub fn pareto(experiment: &ExperimentDigest) -> Element {
    let (unfair, good) = judged(experiment);
    let factor = |name: &str| match name {
        "accuracy.variance" => 1e4,
        _ if figure::is_share(name) => 100.0,
        _ => 1.0,
    };
    let scaled = |spread: &Spread, name| (spread.mean * factor(name), spread.std * factor(name));
    let point = |(index, setting): (usize, &'_ SettingDigest)| -> Option<ParetoPoint<'_>> {
        let (x, y) = (setting.figure(unfair)?, setting.figure(good)?);
        Some(ParetoPoint {
            index,
            name: label(experiment, index),
            unfair: scaled(x, unfair),
            good: scaled(y, good),
            data: &experiment.settings[index].data,
        })
    };
    let shown = |(_, setting): &(usize, &SettingDigest)| experiment.scales(setting);
    let points: Vec<ParetoPoint<'_>> = experiment.run().filter(shown).filter_map(point).collect();
    let unit = if figure::is_share(good) { ", percent" } else { "" };
    let axes = Axes { unfair: &figure::title(unfair), good: &format!("{}{unit}", figure::title(good)) };
    pareto::pareto(axes, &points)
}

pub fn losses(experiment: &ExperimentDigest) -> Element {
    let row = |(index, setting): (usize, &SettingDigest)| SpreadRow {
        index,
        name: label(experiment, index),
        devices: setting.devices.iter().map(|&(tier, loss, _)| (tier, loss)).collect(),
        scales: experiment.scales(setting),
    };
    let rows: Vec<SpreadRow<'_>> = experiment.run().map(row).collect();
    let title = match experiment.predicts_numbers() {
        true => "test loss of a device (squared error of scaled numbers)",
        false => "test loss of a device (nats)",
    };
    spread::spread(title, &rows)
}

/// Curves of every tier with equal axes, then of all devices.
pub fn curves(experiment: &ExperimentDigest) -> Vec<Element> {
    let tiers = experiment.tiers();
    let numbers = experiment.predicts_numbers();
    let mut panels = vec![];
    if tiers > 1 {
        let of = |what, log, read: &dyn Fn(&CurvePoint, usize) -> Option<Spread>| -> Vec<Element> {
            let panels: Vec<Lines<'_>> = (0..tiers)
                .map(|tier| {
                    panel(experiment, format!("Tier {tier}: {what}"), what, log, &|point| read(point, tier))
                })
                .collect();
            let hull = panels.iter().filter_map(Lines::domain).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
            panels.iter().map(|panel| panel.draw(hull)).collect()
        };
        panels.extend(of("mean loss", true, &|point, tier| Some(point.tiers.get(tier)?.loss)));
        panels.extend(match numbers {
            true => of("R2", false, &|point, tier| point.tiers.get(tier)?.r2),
            false => {
                of("accuracy, percent", false, &|point, tier| Some(percent(point.tiers.get(tier)?.accuracy?)))
            }
        });
    }
    let all = |what: &'static str, log, read: &dyn Fn(&CurvePoint) -> Option<Spread>| {
        panel(experiment, format!("All: {what}"), what, log, read).draw(None)
    };
    panels.push(all("mean loss", true, &|point| Some(point.loss)));
    if numbers {
        panels.push(all("mean absolute error", true, &|point| point.mae));
        panels.push(all("R2", false, &|point| point.r2));
    } else {
        panels.push(all("accuracy, percent", false, &|point| Some(percent(point.accuracy?))));
    }
    panels.push(all("variance of loss", true, &|point| Some(point.variance)));
    panels
}

fn panel<'a>(
    experiment: &'a ExperimentDigest,
    title: String,
    what: &'static str,
    log: bool,
    read: &dyn Fn(&CurvePoint) -> Option<Spread>,
) -> Lines<'a> {
    let line = |(index, setting): (usize, &SettingDigest)| LineSeries {
        index,
        name: label(experiment, index),
        scales: experiment.scales(setting),
        points: setting
            .curve
            .iter()
            .filter_map(|point| {
                let spread = read(point).filter(|spread| spread.runs > 0)?;
                Some(Point { x: point.rounds.into(), mean: spread.mean, std: spread.std })
            })
            .collect(),
    };
    Lines { title, what, log, lines: experiment.run().map(line).collect(), levels: vec![] }
}

/// Disparity with its target, and the parameter that is driven; empty without fairness targets.
pub fn targets(experiment: &ExperimentDigest) -> Vec<Element> {
    let target = |(index, setting): (usize, &SettingDigest)| {
        let value = setting.curve.iter().rev().find_map(|point| point.target)?.target.mean;
        Some(Level { index, name: label(experiment, index), value })
    };
    let levels: Vec<Level<'_>> = experiment.run().filter_map(target).collect();
    if levels.is_empty() {
        return vec![];
    }
    let with_points = |mut panel: Lines<'_>, levels| {
        panel.lines.retain(|line| !line.points.is_empty());
        Lines { levels, ..panel }.draw(None)
    };
    let disparity = panel(experiment, "Disparity as measured".into(), "disparity", false, &|point| {
        Some(point.target?.measured)
    });
    let knob =
        panel(experiment, "Driven parameter".into(), "parameter", false, &|point| Some(point.target?.value));
    vec![with_points(disparity, levels), with_points(knob, vec![])]
}

fn percent(spread: Spread) -> Spread {
    Spread { mean: 100.0 * spread.mean, std: 100.0 * spread.std, ..spread }
}

pub fn lorenz(experiment: &ExperimentDigest) -> Element {
    let line = |(index, setting): (usize, &SettingDigest)| {
        let accuracies: Vec<f64> = setting.devices.iter().filter_map(|device| device.2).collect();
        Lorenz { index, name: label(experiment, index), curve: lorenz::curve(&accuracies) }
    };
    let lines: Vec<Lorenz<'_>> = experiment.run().map(line).collect();
    lorenz::lorenz("accuracy", &lines)
}

/// Participation, bytes and time by tier.
pub fn costs(experiment: &ExperimentDigest) -> Vec<Element> {
    let columns = |title, unit, top, read: fn(&TierDigest) -> f64| {
        let series = experiment.run().map(|(index, setting)| ColumnSeries {
            index,
            name: label(experiment, index),
            values: setting.tiers.iter().map(read).collect(),
        });
        Columns { title, unit, top, series: series.collect() }.draw()
    };
    vec![
        columns("Participation", "percent of requests answered", Some(100.0), |tier| {
            100.0 * tier.answered.mean / tier.asked.mean
        }),
        columns("Traffic, both ways", "MB in a run", None, |tier| {
            (tier.bytes_up.mean + tier.bytes_down.mean) / 1e6
        }),
        columns("Time of devices", "virtual seconds in a run, sum of devices", None, |tier| tier.busy_s.mean),
    ]
}

fn label(experiment: &ExperimentDigest, index: usize) -> &str {
    &experiment.settings[index].label
}
