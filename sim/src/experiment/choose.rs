//! Chooses parameters on validation data.
//!
//! Every combination of a grid is trained once. The winner has the best figure on validation samples, among the
//! candidates whose mean validation loss is low enough. Validation samples are used neither for training nor for
//! reports.

use serde_json::{Map, Value};

use super::{
    ExperimentError, Setting,
    spec::Choose,
    unit::{TrainedFleet, UnitContext, train, validate},
};
use crate::results::Candidate;

/// Parameters that were chosen.
pub struct Chosen {
    pub params: Map<String, Value>,
    pub trained: TrainedFleet,
    pub tried: Vec<Candidate>,
    /// The limit of the mean loss, if no candidate was within it; then the one with the lowest mean loss is taken.
    pub over_limit: Option<f64>,
}

pub fn choose(
    setting: &Setting,
    choose: &Choose,
    context: &mut UnitContext<'_>,
) -> Result<Chosen, ExperimentError> {
    let limit = limit(setting, choose, context)?;
    let mut tried: Vec<(Candidate, TrainedFleet)> = Vec::new();
    let mut failed = String::new();
    for params in combinations(&setting.strategy.params, &choose.grid)? {
        let trained = match train(&setting.base, &setting.strategy.name, &params, context) {
            Ok(trained) => trained,
            Err(error) => {
                failed = error.to_string();
                continue;
            }
        };
        let figures = validate(&trained, context)?;
        let score = figures.figure(&choose.by).ok_or_else(|| ExperimentError::Figure(choose.by.clone()))?;
        let candidate = Candidate { params, score, mean_loss: figures.loss.mean, chosen: false };
        tried.push((candidate, trained));
        drop_losers(&mut tried, choose, limit);
    }
    let Some(winner) = winner(&tried, choose, limit) else {
        return Err(ExperimentError::NoCandidate(setting.id.clone(), failed));
    };
    tried[winner].0.chosen = true;
    let all = tried.iter().map(|(candidate, _)| candidate.clone()).collect();
    let (candidate, trained) = tried.swap_remove(winner);
    let over_limit = limit.filter(|limit| candidate.mean_loss > *limit);
    Ok(Chosen { params: candidate.params, trained, tried: all, over_limit })
}

/// The largest mean loss with which a candidate can win.
fn limit(
    setting: &Setting,
    choose: &Choose,
    context: &mut UnitContext<'_>,
) -> Result<Option<f64>, ExperimentError> {
    let Some(slack) = choose.slack else { return Ok(None) };
    let mean = match (&setting.reference, context.reference) {
        (None, _) => return Ok(None),
        (Some(_), Some(mean)) => mean,
        (Some(reference), None) => {
            let trained = train(&setting.base, &reference.name, &reference.params, context)?;
            validate(&trained, context)?.loss.mean
        }
    };
    Ok(Some(mean * (1.0 + slack)))
}

/// Index of the best candidate within the limit; if there is none, of the one with the lowest mean loss.
fn winner(tried: &[(Candidate, TrainedFleet)], choose: &Choose, limit: Option<f64>) -> Option<usize> {
    let lowest = |of: &dyn Fn(&Candidate) -> f64, allowed: &dyn Fn(&Candidate) -> bool| {
        let allowed = tried.iter().enumerate().filter(|(_, (candidate, _))| allowed(candidate));
        allowed.min_by(|(_, (a, _)), (_, (b, _))| of(a).total_cmp(&of(b))).map(|(index, _)| index)
    };
    let best = lowest(&|candidate| candidate.mean_loss, &|_| true)?;
    let limit = limit.or_else(|| Some(tried.get(best)?.0.mean_loss * (1.0 + choose.slack?)));
    let high = choose.by.contains("accuracy") && !choose.by.ends_with("variance");
    let sign = if high || choose.by == "r2" || choose.by.ends_with(".r2") { -1.0 } else { 1.0 };
    let allowed = |candidate: &Candidate| limit.is_none_or(|limit| candidate.mean_loss <= limit);
    Some(lowest(&|candidate| sign * candidate.score, &allowed).unwrap_or(best))
}

/// Frees the models of candidates that cannot win any more, to save memory.
fn drop_losers(tried: &mut [(Candidate, TrainedFleet)], choose: &Choose, limit: Option<f64>) {
    // If the limit is not known yet, any candidate may still win.
    if limit.is_none() && choose.slack.is_some() {
        return;
    }
    let Some(winner) = winner(tried, choose, limit) else { return };
    for (index, (_, trained)) in tried.iter_mut().enumerate() {
        if index != winner {
            trained.weights.clear();
            trained.whole = None;
            trained.rounds.clear();
        }
    }
}

/// The strategy's parameters with every combination of the grid; the last key changes fastest.
pub fn combinations(
    params: &Map<String, Value>,
    grid: &Map<String, Value>,
) -> Result<Vec<Map<String, Value>>, ExperimentError> {
    let mut all = vec![params.clone()];
    for (key, values) in grid {
        let values = values.as_array().ok_or_else(|| ExperimentError::Grid(key.clone()))?;
        let with = |params: &Map<String, Value>, value: &Value| {
            let mut params = params.clone();
            params.insert(key.clone(), value.clone());
            params
        };
        all = all.iter().flat_map(|params| values.iter().map(move |value| with(params, value))).collect();
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combinations_keep_the_fixed_parameters() {
        let object = |text: &str| serde_json::from_str::<Map<String, Value>>(text).unwrap();
        let all =
            combinations(&object(r#"{"step": "x"}"#), &object(r#"{"q": [1, 2], "q_m": [0, 1, 2]}"#)).unwrap();
        assert_eq!(all.len(), 6);
        assert_eq!(all[4], object(r#"{"step": "x", "q": 2, "q_m": 1}"#));
        assert!(combinations(&object("{}"), &object(r#"{"q": 1}"#)).is_err());
    }
}
