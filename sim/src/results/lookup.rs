//! Figures by name.
//!
//! In addition to the figures of [`FinalScores::figure`], a unit has `cost.bytes`, `cost.bytes_up`,
//! `cost.bytes_down`, `cost.seconds` (virtual), `cost.busy_s` and `cost.joules`. With a fairness target it has `fairness.*`, the
//! fields of [`TargetFigures`](super::TargetFigures) of its first knob.

use common::metrics::TierSplit;
use serde::Serialize;

use super::{Distribution, FinalScores, RoundScores, TierCost, TierScores, UnitResult};

/// Most evaluations of which a figure is the mean.
pub(crate) const EVALUATIONS: usize = 5;

impl UnitResult {
    /// True if training made the model useless: its loss is not finite, or more than twice that of the start; or if no round
    /// had an update, because none was finite.
    pub fn diverged(&self) -> bool {
        // The last line has the final scores.
        let heard = |line: &&RoundScores| line.is_heard();
        let trained = self.rounds.split_last().map_or(&[][..], |(_, trained)| trained);
        let end = self.last.loss.mean;
        let start = self.rounds.iter().find(heard).map_or(0.0, |line| line.loss.mean);
        let none = !trained.is_empty() && !trained.iter().any(|line| heard(&line));
        none || !end.is_finite() || (start > 0.0 && end > 2.0 * start)
    }

    /// The mean of a figure over the last evaluations: those of all devices in the last tenth of the rounds, at most
    /// five. A single evaluation swings with the devices that the last round asked. Figures that only the end has
    /// are those of the end.
    pub fn settled(&self, name: &str) -> Option<f64> {
        let end = self.figure(name)?;
        let earlier = self.evaluations().rev().filter_map(|line| line.figure(name));
        let values: Vec<f64> = [end].into_iter().chain(earlier.take(EVALUATIONS - 1)).collect();
        Some(values.iter().sum::<f64>() / values.len() as f64)
    }

    /// The evaluations of all devices in the last tenth of the rounds, without that of the end.
    pub(crate) fn evaluations(&self) -> impl DoubleEndedIterator<Item = &RoundScores> {
        let rounds = self.round_count();
        let all = tested(&self.last.tiers);
        let late = move |line: &&RoundScores| 10 * line.round as usize > 9 * rounds;
        let whole = move |line: &&RoundScores| (line.round as usize) < rounds && tested(&line.tiers) == all;
        self.rounds.iter().filter(late).filter(whole)
    }

    /// A figure by its name; `None` if the unit has no such figure or its value is not finite.
    pub fn figure(&self, name: &str) -> Option<f64> {
        let sum = |of: fn(&TierCost) -> f64| {
            let tiers = &self.account.tiers;
            (!tiers.is_empty()).then(|| tiers.iter().map(of).sum::<f64>())
        };
        let value = match name {
            "cost.bytes" => sum(|tier| (tier.bytes_up + tier.bytes_down) as f64),
            "cost.bytes_up" => sum(|tier| tier.bytes_up as f64),
            "cost.bytes_down" => sum(|tier| tier.bytes_down as f64),
            "cost.busy_s" => sum(|tier| tier.busy_s),
            "cost.joules" => sum(|tier| tier.joules),
            "cost.seconds" => Some(self.account.seconds),
            _ => match name.strip_prefix("fairness.") {
                Some(rest) => self.fairness.first().and_then(|target| field(&target.figures, rest)),
                None => self.last.figure(name),
            },
        };
        value.filter(|value| value.is_finite())
    }
}

/// Number of devices that were scored.
fn tested(tiers: &[TierScores]) -> usize {
    tiers.iter().map(|tier| tier.devices).sum()
}

impl RoundScores {
    /// A figure that both a round and the end have; `None` for the others.
    fn figure(&self, name: &str) -> Option<f64> {
        let of_round = ["loss", "accuracy", "mae", "r2", "inter", "within", "tier", "tiers"];
        if !of_round.contains(&name.split('.').next()?) {
            return None;
        }
        let split = self.tiers.iter().map(|tier| (tier.devices, tier.loss, tier.loss_variance));
        let within = TierSplit::of(split).within;
        let scores = FinalScores {
            loss: self.loss,
            accuracy: self.accuracy,
            mae: self.mae,
            r2: self.r2,
            tiers: self.tiers.clone(),
            inter: self.inter,
            within,
            ..FinalScores::default()
        };
        scores.figure(name).filter(|value| value.is_finite())
    }
}

impl FinalScores {
    /// A figure by its name; `None` if the name is unknown or the unit lacks the figure.
    ///
    /// `loss.*`, `accuracy.*` and `mae.*` (fields of [`Distribution`]), `r2`, `within`, `inter`,
    /// `tier.N.loss|accuracy|loss_variance|accuracy_variance|mae|r2`, `tiers.ratio` (loss of the narrowest tier divided
    /// by that of the widest), `tiers.cv` (standard deviation over mean of the tiers' losses), `tiers.worst` (the largest of
    /// them), `validation.cv` (as `tiers.cv` on validation samples), `device.N.loss|accuracy|mae|r2|gap`, `global.loss|accuracy|mae|r2`, `gaps.*`, `gaps_valid.*`,
    /// `groups.*`, `personal.loss.*`, `personal.accuracy.*`, `conflicts.model`, `conflicts.layers` (their mean),
    /// `weights.*`.
    pub fn figure(&self, name: &str) -> Option<f64> {
        let mut parts = name.splitn(2, '.');
        let (head, rest) = (parts.next()?, parts.next());
        match (head, rest) {
            ("within", None) => Some(self.within),
            ("inter", None) => Some(self.inter),
            ("loss", Some(rest)) => self.loss.figure(rest),
            ("accuracy", Some(rest)) => self.accuracy?.figure(rest),
            ("mae", Some(rest)) => self.mae?.figure(rest),
            ("r2", None) => self.r2,
            ("tiers", Some("ratio")) => Some(self.tiers.last()?.loss / self.tiers.first()?.loss),
            ("tiers", Some("cv")) => cv(&self.tiers),
            ("tiers", Some("worst")) => worst(&self.tiers),
            ("validation", Some("cv")) => self.validation_cv,
            ("tier", Some(rest)) => {
                let (tier, rest) = rest.split_once('.')?;
                field(self.tiers.get(tier.parse::<usize>().ok()?)?, rest)
            }
            ("device", Some(rest)) => {
                let (device, rest) = rest.split_once('.')?;
                let score = self.devices.get(device.parse::<usize>().ok()?)?;
                if rest == "gap" { Some(score.loss - score.alone?) } else { field(score, rest) }
            }
            ("global", Some(rest)) => field(self.global.first()?, rest),
            ("gaps", Some(rest)) => field(&self.gaps?, rest),
            ("gaps_valid", Some(rest)) => field(&self.gaps_valid?, rest),
            ("groups", Some(rest)) => field(&self.groups?, rest),
            ("weights", Some(rest)) => field(&self.weights?, rest),
            ("personal", Some(rest)) => {
                let (kind, rest) = rest.split_once('.')?;
                let personal = self.personal?;
                if kind == "loss" { Some(personal.loss) } else { personal.accuracy }?.figure(rest)
            }
            ("conflicts", Some("model")) => Some(self.conflicts.as_ref()?.model),
            ("conflicts", Some("layers")) => {
                let layers = &self.conflicts.as_ref()?.layers;
                Some(layers.iter().sum::<f64>() / layers.len().max(1) as f64)
            }
            _ => None,
        }
    }
}

/// Standard deviation over mean of the losses of the tiers that were scored; `None` for fewer than two.
pub(crate) fn cv(tiers: &[TierScores]) -> Option<f64> {
    let losses: Vec<f64> = tiers.iter().filter(|tier| tier.devices > 0).map(|tier| tier.loss).collect();
    let (mean, variance) = common::metrics::mean_variance(&losses);
    (losses.len() > 1 && mean > 0.0).then(|| variance.max(0.0).sqrt() / mean)
}

/// The largest mean loss of a tier that was scored; not finite if one of them is not.
fn worst(tiers: &[TierScores]) -> Option<f64> {
    let losses = tiers.iter().filter(|tier| tier.devices > 0).map(|tier| tier.loss);
    losses.reduce(|a, b| if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) })
}

impl Distribution {
    fn figure(&self, name: &str) -> Option<f64> {
        field(self, name)
    }
}

/// Names of fields are names of figures.
fn field(value: &impl Serialize, name: &str) -> Option<f64> {
    serde_json::to_value(value).ok()?.get(name)?.as_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        claims::tests::unit,
        results::{ConflictCounts, DeviceScore, TierScores},
    };

    /// A run whose first rounds had no finite update began with a loss of 0, and passed for sound whatever became of it.
    #[test]
    fn a_run_without_finite_updates_has_diverged() {
        let run = |losses: &[(usize, f64)], end: f64| {
            let line = |&(devices, mean): &(usize, f64)| RoundScores {
                devices,
                loss: Distribution { mean, ..Default::default() },
                ..Default::default()
            };
            let mut unit = unit("a", 1, &[("loss.mean", end)]);
            unit.rounds = losses.iter().map(line).collect();
            unit.diverged()
        };
        assert!(run(&[(0, 0.0), (1, 1.1), (2, 700.0), (3, 700.0)], 700.0));
        assert!(run(&[(0, 0.0), (0, 0.0), (3, 1.1)], 1.1), "no round had an update");
        assert!(run(&[(3, 1.1), (3, f64::NAN)], f64::NAN));
        assert!(!run(&[(0, 0.0), (3, 1.1), (3, 0.2)], 0.2) && !run(&[(3, 1.1)], 1.1) && !run(&[], 1.1));
    }

    #[test]
    fn figures_have_names() {
        let device = DeviceScore { loss: 0.5, alone: Some(0.2), ..Default::default() };
        let last = FinalScores {
            devices: vec![device],
            loss: Distribution { variance: 0.25, ..Default::default() },
            tiers: vec![TierScores { loss: 3.0, ..Default::default() }],
            conflicts: Some(ConflictCounts { model: 1.0, layers: vec![2.0, 4.0] }),
            ..Default::default()
        };
        assert_eq!(last.figure("loss.variance"), Some(0.25));
        assert_eq!(last.figure("tier.0.loss"), Some(3.0));
        assert_eq!(last.figure("device.0.gap"), Some(0.3));
        assert_eq!(last.figure("conflicts.layers"), Some(3.0));
        for absent in ["gaps.max", "tier.1.loss", "loss", "loss.median", ""] {
            assert_eq!(last.figure(absent), None, "{absent}");
        }
    }

    #[test]
    fn figures_settle_over_the_last_evaluations_of_all_devices() {
        let mut unit = unit("a", 1, &[("accuracy.mean", 0.9)]);
        unit.last.tiers = vec![TierScores { devices: 4, ..Default::default() }];
        let line = |round, devices, accuracy| RoundScores {
            round,
            tiers: vec![TierScores { devices, ..Default::default() }],
            accuracy: Some(Distribution { mean: accuracy, ..Default::default() }),
            ..Default::default()
        };
        // Round 90 is too early, round 96 has two of four devices, round 101 repeats the end.
        let lines = [(90, 4, 0.1), (91, 4, 0.7), (96, 2, 0.2), (98, 4, 0.8), (101, 4, 0.9)];
        unit.rounds = lines.map(|(round, devices, accuracy)| line(round, devices, accuracy)).into();
        assert!((unit.settled("accuracy.mean").unwrap() - 0.8).abs() < 1e-12);
        assert_eq!(unit.figure("accuracy.mean"), Some(0.9));
        // At most five evaluations, the end among them.
        unit.rounds = (190..=200).map(|round| line(round, 4, f64::from(round) / 1000.0)).collect();
        let expected = (0.9 + 0.199 + 0.198 + 0.197 + 0.196) / 5.0;
        assert!((unit.settled("accuracy.mean").unwrap() - expected).abs() < 1e-12);
        assert_eq!(unit.settled("gaps.max"), None);
    }

    #[test]
    fn costs_are_sums_over_tiers() {
        let mut unit = unit("a", 1, &[]);
        assert_eq!(unit.figure("cost.bytes"), None);
        let tier = TierCost { bytes_up: 3, bytes_down: 4, busy_s: 0.5, ..Default::default() };
        unit.account.tiers = vec![tier; 2];
        assert_eq!(unit.figure("cost.bytes"), Some(14.0));
        assert_eq!(unit.figure("cost.busy_s"), Some(1.0));
    }
}
