//! One run, and the scores of its final model on honest devices.

use std::fmt::Write as _;

use aggregator::config::Config;
use common::metrics::{Better, Summary};
use coordinator::report::DeviceLine;
use serde::Serialize;

use super::{
    AttackData, AttackError, AttackOptions, AttackRun, GuardRow, PROBE, digits, fleet::AttackFleet, liar,
};
use sim::engine::{Chances, Engine};
use strategies::Registry;

/// Scores that a device reported for the final model on its own test samples.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct FinalScore {
    index: usize,
    loss: f64,
    accuracy: f64,
}

pub(super) fn once(
    registry: &Registry,
    options: &AttackOptions,
    fleet: &AttackFleet,
    unit: &AttackRun,
) -> Result<Vec<FinalScore>, AttackError> {
    let probe = match unit.guard.1.as_str() {
        PROBE => Some(digits::probe(unit.seed)?),
        _ => None,
    };
    let guard = match &probe {
        Some(file) => format!("probe = \"{}\"", file.path().display()),
        None => unit.guard.1.clone(),
    };
    let mut config = Config::parse(&config(options, fleet, unit.seed, &guard))?;
    // The damage of an attack is measured to the end.
    config.run.divergence = 0.0;
    let mut engine = Engine::new(registry, &config, fleet.members.clone(), Chances::default(), 1)?;
    if let Some(attack) = unit.row.attack() {
        engine = engine.with_tamper(liar::tamper(attack, fleet.liars.clone(), unit.seed));
    }
    let reports = engine.run(|_, _| {})?;
    let last = reports.last().ok_or(AttackError::NoScores)?;
    // A guarded report may show a smaller loss than the device reported. Such devices count with the reported one.
    let said = |name: &str| {
        let mut cut = last.guard.iter().filter(|line| line.what == "shown_test_loss");
        cut.find(|line| line.device == name).map(|line| line.said)
    };
    let score = |line: &DeviceLine| {
        let index = fleet.members.iter().position(|member| member.device.as_str() == line.device)?;
        let loss = said(&line.device).or(line.test_loss)?;
        Some(FinalScore { index, loss, accuracy: line.test_accuracy? })
    };
    Ok(last.devices.iter().filter_map(score).collect())
}

/// The configuration that `init` writes, with the changes that the options ask for.
fn config(options: &AttackOptions, fleet: &AttackFleet, seed: u64, guard: &str) -> String {
    let tiers: Vec<String> = options.tiers.iter().map(f64::to_string).collect();
    let mut text = format!("[model]\ntiers = [{}]\nseed = {seed}\n", tiers.join(", "));
    if let Some(model) = &fleet.model {
        let _ = writeln!(text, "source = \"{model}\"");
    }
    let _ = writeln!(text, "[run]\nrounds = {}\nseed = {seed}", options.rounds);
    let _ = writeln!(text, "[round]\nparticipation = {}", options.participation);
    let _ = writeln!(text, "[strategy]");
    if !options.strategy.is_empty() {
        let _ = writeln!(text, "name = \"{}\"", options.strategy);
    }
    if !options.params.is_empty() {
        let _ = writeln!(text, "params = {{ {} }}", options.params);
    }
    let _ = writeln!(text, "[guard]\n{guard}");
    text
}

/// Figures of the final model over the devices that are honest in a row.
#[derive(Copy, Clone, PartialEq, Debug, Serialize)]
pub struct FleetFigures {
    /// Mean over the honest devices.
    pub loss: f64,
    /// Variance of the loss over the honest devices.
    pub variance: f64,
    /// Mean loss of the tenth with the highest losses.
    pub worst10: f64,
    /// Mean over the honest devices, from 0 to 1.
    pub accuracy: f64,
    /// Accuracy of the device with the lowest accuracy.
    pub worst: f64,
    /// Mean accuracy of the devices that an honest row is about, or of the worst tenth if it is about none.
    pub subject: f64,
}

impl FleetFigures {
    /// Figures of a model that gives no finite scores.
    const LOST: Self = Self {
        loss: f64::NAN,
        variance: f64::NAN,
        worst10: f64::NAN,
        accuracy: 0.0,
        worst: 0.0,
        subject: 0.0,
    };

    /// Figures over the devices that are honest in `row`. For a reference, `row` differs from the row that was run.
    pub(super) fn of(scores: &[FinalScore], options: &AttackOptions, row: GuardRow, seed: u64) -> Self {
        let Ok(fleet) = AttackFleet::new(options, row, seed) else { return Self::LOST };
        let honest = |score: &&FinalScore| {
            fleet.members.get(score.index).is_some_and(|member| !fleet.liars.contains(&member.device))
        };
        // Devices with scores that are not finite are refused, so fewer scores mean that the model is lost.
        if scores.iter().filter(honest).count() < fleet.members.len() - fleet.liars.len() {
            return Self::LOST;
        }
        let mut losses: Vec<f64> = scores.iter().filter(honest).map(|score| score.loss).collect();
        let mut accuracies: Vec<f64> = scores.iter().filter(honest).map(|score| score.accuracy).collect();
        let subjects = match options.data {
            AttackData::Digits => digits::subjects(row.honest(), options.devices),
            AttackData::Wisdm => 0,
        };
        let subject = scores.iter().filter(|score| score.index < subjects).map(|score| score.accuracy);
        let worst = accuracies.iter().copied().fold(f64::INFINITY, f64::min);
        let loss = Summary::of(&mut losses, Better::Low);
        let accuracy = Summary::of(&mut accuracies, Better::High);
        Self {
            loss: loss.mean,
            variance: loss.variance,
            worst10: loss.worst10,
            accuracy: accuracy.mean,
            worst,
            subject: if subjects > 0 { subject.sum::<f64>() / subjects as f64 } else { accuracy.worst10 },
        }
    }

    pub(super) fn mean(all: &[Self]) -> Self {
        let count = all.len() as f64;
        let mean = |of: fn(&Self) -> f64| all.iter().map(of).sum::<f64>() / count;
        Self {
            loss: mean(|figures| figures.loss),
            variance: mean(|figures| figures.variance),
            worst10: mean(|figures| figures.worst10),
            accuracy: mean(|figures| figures.accuracy),
            worst: mean(|figures| figures.worst),
            subject: mean(|figures| figures.subject),
        }
    }
}
