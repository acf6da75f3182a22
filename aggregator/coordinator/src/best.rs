//! The best model so far, and whether training ends before its last round.
//!
//! In a round, devices report the loss of the model that they received: that of the round before. So a round measures the
//! model before it, and the scores after the last round measure the final one. Rounds with other devices measure other data,
//! so small differences mean little when `round.participation` is below 1.

use std::{collections::BTreeMap, fmt};

use common::metrics::{Better, Summary};
use serde::{Deserialize, Serialize};

/// What makes a model better than another one; lower is better.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BestBy {
    /// Mean loss over devices.
    #[default]
    Mean,
    /// Mean loss of the tier that has the highest.
    WorstTier,
    /// Variance of the loss over devices.
    Variance,
}

/// The losses that are compared.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measured {
    /// Of samples that devices do not train on, if the run asks for them.
    Validation,
    /// The loss of the report: of test samples, or of training samples where a device has no others.
    Loss,
}

/// How the best model is chosen.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct BestSettings {
    /// What is compared.
    pub by: BestBy,
    /// Training ends after this many measured models in a row that are not better; 0: never.
    pub stop_after: u32,
}

/// The best model so far.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct BestModel {
    /// The round that it is the result of; 0 is the initial model.
    pub round: u32,
    /// What was compared.
    pub by: BestBy,
    /// The losses that were compared.
    pub measured: Measured,
    /// Its figure.
    pub value: f64,
    /// Models that were measured since, none of them better. A final model after an early stop has the count of the stop.
    pub unimproved: u32,
}

/// Why training has ended before the last round.
#[derive(Clone, PartialEq, Debug)]
pub struct EarlyStop {
    /// Measured models in a row that were not better.
    pub unimproved: u32,
    /// The best one.
    pub best: BestModel,
}

impl BestSettings {
    /// The best model once the model of `round` is measured with these figures; `None` if it was not.
    pub fn update(
        &self,
        best: Option<BestModel>,
        round: u32,
        measured: Measured,
        value: Option<f64>,
    ) -> Option<BestModel> {
        let Some(value) = value else { return best };
        let new = BestModel { round, by: self.by, measured, value, unimproved: 0 };
        match best {
            // Figures of another kind cannot be compared.
            Some(best) if (best.by, best.measured) != (new.by, new.measured) => Some(new),
            // After a rollback, and when a run that is over is served again, a model is measured again.
            Some(best) if best.round == round => Some(BestModel { unimproved: best.unimproved, ..new }),
            Some(best) if best.value <= value => {
                Some(BestModel { unimproved: best.unimproved.saturating_add(1), ..best })
            }
            _ => Some(new),
        }
    }

    /// Why training ends now, if it does.
    pub fn stop(&self, best: Option<&BestModel>) -> Option<EarlyStop> {
        let best = best.filter(|best| self.stop_after > 0 && best.unimproved >= self.stop_after)?;
        Some(EarlyStop { unimproved: best.unimproved, best: best.clone() })
    }
}

impl BestBy {
    /// The figure of a round, from tier and loss of its devices; `None` if they do not determine it. `enrolled`: devices of
    /// each tier in the fleet.
    pub fn figure(self, losses: &[(usize, f64)], enrolled: &[usize]) -> Option<f64> {
        let all = Summary::of(&mut losses.iter().map(|(_, loss)| *loss).collect::<Vec<_>>(), Better::Low);
        let figure = match self {
            Self::Mean => (all.count > 0).then_some(all.mean),
            // One device does not vary.
            Self::Variance => (all.count > 1).then_some(all.variance),
            Self::WorstTier => {
                let mut tiers: BTreeMap<usize, (f64, f64)> = BTreeMap::new();
                for &(tier, loss) in losses {
                    let (sum, count) = tiers.entry(tier).or_default();
                    (*sum, *count) = (*sum + loss, *count + 1.0);
                }
                // A tier that is absent may be the worst one.
                let complete =
                    (0..).zip(enrolled).all(|(tier, &count)| count == 0 || tiers.contains_key(&tier));
                let means = tiers.values().map(|(sum, count)| sum / count);
                means.max_by(f64::total_cmp).filter(|_| complete)
            }
        };
        figure.filter(|figure| figure.is_finite())
    }

    /// As people say it.
    pub fn text(self) -> &'static str {
        match self {
            Self::Mean => "mean loss",
            Self::WorstTier => "mean loss of the worst tier",
            Self::Variance => "variance of the loss",
        }
    }
}

impl Measured {
    /// As people say it.
    pub fn text(self) -> &'static str {
        match self {
            Self::Validation => "validation samples",
            Self::Loss => "test samples, or training samples of devices without test samples",
        }
    }
}

impl fmt::Display for BestModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { round, by, measured, value, .. } = self;
        let signal = match measured {
            Measured::Validation => "validation",
            Measured::Loss => "reported losses",
        };
        write!(f, "that of round {round}, {} {value:.4} ({signal})", by.text())
    }
}

impl fmt::Display for EarlyStop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { unimproved, best } = self;
        write!(f, "stopped early: {unimproved} models in a row were not better; the best model is {best}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(settings: BestSettings, values: &[Option<f64>]) -> Vec<(Option<(u32, u32)>, bool)> {
        let mut best = None;
        let step = |(round, value): (u32, &Option<f64>)| {
            best = settings.update(best.take(), round, Measured::Loss, *value);
            let place = best.as_ref().map(|best| (best.round, best.unimproved));
            (place, settings.stop(best.as_ref()).is_some())
        };
        (0..).zip(values).map(step).collect()
    }

    #[test]
    fn a_plateau_ends_training_and_a_round_without_losses_does_not_count() {
        let settings = BestSettings { stop_after: 2, ..BestSettings::default() };
        let found = run(settings, &[None, Some(2.0), Some(1.0), None, Some(1.0), None, Some(1.5)]);
        let place = |round, unimproved| Some((round, unimproved));
        let expected = [None, place(1, 0), place(2, 0), place(2, 0), place(2, 1), place(2, 1), place(2, 2)];
        assert_eq!(found.iter().map(|(best, _)| *best).collect::<Vec<_>>(), expected);
        assert_eq!(
            found.iter().map(|(_, stop)| *stop).collect::<Vec<_>>(),
            [false, false, false, false, false, false, true]
        );
        let never = run(BestSettings::default(), &[Some(1.0); 50]);
        assert!(never.iter().all(|(_, stop)| !stop));
    }

    #[test]
    fn figures_of_another_kind_replace_the_best_and_the_same_model_is_measured_again() {
        let settings = BestSettings::default();
        let best = settings.update(None, 3, Measured::Loss, Some(1.0)).unwrap();
        let again = settings.update(Some(best.clone()), 3, Measured::Loss, Some(2.0)).unwrap();
        assert_eq!((again.round, again.value, again.unimproved), (3, 2.0, 0));
        let other = settings.update(Some(best.clone()), 4, Measured::Validation, Some(9.0)).unwrap();
        assert_eq!((other.round, other.measured), (4, Measured::Validation));
        let variance = BestSettings { by: BestBy::Variance, ..settings };
        assert_eq!(variance.update(Some(best), 5, Measured::Loss, Some(7.0)).unwrap().round, 5);
    }

    #[test]
    fn figures_need_the_devices_that_determine_them() {
        let losses = [(0, 1.0), (0, 3.0), (1, 5.0)];
        assert_eq!(BestBy::Mean.figure(&losses, &[2, 1]), Some(3.0));
        assert_eq!(BestBy::WorstTier.figure(&losses, &[2, 1, 0]), Some(5.0));
        assert_eq!(BestBy::WorstTier.figure(&losses[..2], &[2]), Some(2.0));
        assert_eq!(BestBy::WorstTier.figure(&losses, &[2, 1, 1]), None, "tier 2 has not answered");
        assert_eq!(BestBy::Variance.figure(&losses[..2], &[2]), Some(1.0));
        assert_eq!(BestBy::Variance.figure(&losses[..1], &[1]), None);
        assert_eq!(BestBy::Mean.figure(&[], &[1]), None);
        assert_eq!(BestBy::Mean.figure(&[(0, f64::NAN)], &[1]), None);
    }
}
