//! Which step of a line search is taken.
//!
//! ```text
//! 1. the first with  F_i(theta - step d) <= F_i - step 1e-4 g_i.d  for all i
//!    and, where guidance was used, losses closer to being equal
//! 2. otherwise the first with a lower sum of losses
//! 3. otherwise the one with the lowest sum
//! ```
//! Devices without trials are ignored.

use crate::{algebra::Guidance, cohort::Cohort, gram::Gram, kernel::sum};

/// Share of the predicted descent that must be reached.
const ARMIJO: f64 = 1e-4;

#[derive(Debug)]
pub struct LineSearch<'a> {
    cohort: &'a Cohort,
    /// By participant: `g_i.d` over all regions; `None` if its gradient is too short in each.
    along: Vec<Option<f64>>,
    pub guided: bool,
}

impl<'a> LineSearch<'a> {
    pub fn new(cohort: &'a Cohort) -> Self {
        Self { cohort, along: vec![None; cohort.participants().len()], guided: false }
    }

    /// Adds the values of a region.
    pub fn add(&mut self, gram: &Gram, along: &[Option<f64>], guided: bool) {
        for (&row, along) in gram.rows.iter().zip(along) {
            if let (Some(all), Some(along)) = (self.along.get_mut(row), along) {
                *all.get_or_insert(0.0) += along;
            }
        }
        self.guided |= guided;
    }

    /// `None` if nothing was tried.
    pub fn accept(&self, steps: &[f64]) -> Option<f64> {
        let heard: Vec<_> = self
            .cohort
            .participants()
            .iter()
            .zip(&self.along)
            .filter_map(|(participant, along)| Some((participant, (*along)?)))
            .filter(|(participant, _)| !participant.trials().is_empty())
            .collect();
        let tried = heard.iter().map(|(participant, _)| participant.trials().len()).min()?;
        let before: Vec<f64> = heard.iter().map(|(participant, _)| participant.loss()).collect();
        let angle = Guidance::of(&before).angle;
        let trials: Vec<(f64, Vec<f64>)> = steps
            .iter()
            .take(tried)
            .enumerate()
            .map(|(at, &step)| {
                (step, heard.iter().map(|(participant, _)| participant.trials()[at]).collect())
            })
            .collect();
        let good = |(step, losses): &&(f64, Vec<f64>)| {
            let descends = heard
                .iter()
                .zip(losses)
                .all(|((participant, along), loss)| *loss <= participant.loss() - step * ARMIJO * along);
            descends && (!self.guided || Guidance::of(losses).angle < angle)
        };
        let total = |losses: &[f64]| sum(losses.iter().copied());
        let lower = |(_, losses): &&(f64, Vec<f64>)| total(losses) < total(&before);
        let lowest = || trials.iter().min_by(|a, b| total(&a.1).total_cmp(&total(&b.1)));
        let found = trials.iter().find(good).or_else(|| trials.iter().find(lower)).or_else(lowest);
        found.map(|(step, _)| *step)
    }
}
