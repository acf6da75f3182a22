//! Computes one round again from its file.
//!
//! The file answers the exchanges that a strategy asks for. If it does not hold the answer to the next one, the result is what
//! devices would be told: the fair gradient, or a direction with the steps to try.

use common::{DeviceId, brief::Product, metrics::WeightFigures};
use serde_json::{Map, Value, json};

use super::{
    RecordedDevice, ReplayResult, RoundFile, RoundFileError,
    cohort::missing,
    file_updates::{FileUpdates, SentVector},
    result::BriefResult,
};
use crate::{
    cohort::Cohort,
    combine::{Outcome, combine, conflicts, direction, weighted_mean},
    error::StrategyError,
    method::Method,
    registry::Registry,
    strategy::{Ask, Exchange, FleetDevice, Kind, Strategy, Weights},
};

type Result<T> = std::result::Result<T, RoundFileError>;

/// More exchanges than any strategy asks for in a round.
const MAX_EXCHANGES: usize = 16;

/// Numbers that replace those of the file.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub struct Overrides {
    /// In place of `server_lr`.
    pub eta: Option<f64>,
    /// In place of `1 / lr`.
    pub l: Option<f64>,
}

/// Replays with the strategy that has this name in the registry. `params` may also hold `eta` and `L` for any strategy.
pub fn replay(registry: &Registry, file: &RoundFile, name: &str, params: Value) -> Result<ReplayResult> {
    let mut params = match params {
        Value::Null => Map::new(),
        Value::Object(params) => params,
        other => {
            return Err(RoundFileError::key("--params", format!("expected keys and values, not {other}")));
        }
    };
    let number = |key: &str, value: Option<Value>| {
        let Some(value) = value.filter(|value| !value.is_null()) else { return Ok(None) };
        let wrong =
            || RoundFileError::key(format!("--params {key}"), format!("expected a number, not {value}"));
        value.as_f64().map(Some).ok_or_else(wrong)
    };
    let overrides =
        Overrides { eta: number("eta", params.remove("eta"))?, l: number("L", params.remove("L"))? };
    if let Some(l) = overrides.l.filter(|&l| !(l > 0.0 && l.is_finite())) {
        return Err(RoundFileError::key("--params L", format!("must be above 0, not {l}")));
    }
    let known = file.lr.is_some() || overrides.l.is_some() || params.contains_key("lr");
    let mut method = registry.method(name, params.clone().into())?;
    let foreign = file.strategy.as_ref().is_some_and(|(own, _)| own != name);
    if let Some(fairness) = file.fairness.clone().filter(|_| !foreign) {
        // The target of another strategy may not be possible with this one, and its state would say nothing.
        method.aim(fairness, &params, &file.regions)?;
    }
    if !known && method.strategy.uses_lr() {
        return Err(RoundFileError::key("lr", format!("is missing; {name} needs it, or L in --params")));
    }
    replay_with(file, &mut method, overrides)
}

/// Replays with a method and updates its state.
pub fn replay_with(file: &RoundFile, method: &mut Method, overrides: Overrides) -> Result<ReplayResult> {
    method.fits(&file.regions)?;
    let lr = match overrides.l {
        Some(l) => Some(1.0 / l),
        None => file.lr,
    };
    let trained = match method.needs().product {
        Product::Gradient => SentVector::Gradient,
        _ => SentVector::Update,
    };
    // Without updates, this is the exchange before training.
    let has = |sent: SentVector| file.devices.iter().any(|device| sent.of(device).is_some());
    let sent = if has(trained) || !has(SentVector::Gradient) { trained } else { SentVector::Gradient };
    let ready = sent == trained && (has(trained) || file.devices.is_empty());

    let mut cohort = file.cohort(method, lr.unwrap_or(1.0), sent, ready)?;
    cohort.server_lr = overrides.eta.unwrap_or(file.server_lr);
    let foreign = start(file, method, &cohort)?;
    let mut notes = Map::new();
    if let Some(name) = foreign {
        notes.insert("state".into(), json!(format!("that of {name} in the file was left out")));
    }

    let mut vectors = FileUpdates::new(file, sent);
    let mut selected: Vec<DeviceId> = file.devices.iter().map(|device| device.id.clone()).collect();
    selected.sort_unstable();
    let mut made: Vec<Exchange> = Vec::new();
    while !cohort.participants().is_empty() && made.len() < MAX_EXCHANGES {
        let Some(ask) = method.strategy.next(&made, &selected) else { break };
        let kind = ask.kind();
        let brief = match ask {
            Ask::Alone { .. } | Ask::Losses => None,
            Ask::Gradients if ready || has(SentVector::Gradient) => None,
            Ask::Gradients => return Err(missing(0, "gradient", method)),
            Ask::Train { .. } if ready => None,
            Ask::Train { guide: Some(guide) } if has(SentVector::Gradient) => {
                Some(fair_gradient(&*method.strategy, &guide, &cohort, &mut vectors)?)
            }
            Ask::Train { guide: None } if has(SentVector::Gradient) && method.needs().guide => {
                notes.insert("guide".into(), json!("none is needed: losses are equal enough"));
                Some(BriefResult::default())
            }
            Ask::Train { .. } => return Err(missing(0, trained.key(), method)),
            Ask::Try { steps } if file.devices.iter().all(|device| device.trial_losses.is_none()) => {
                let direction = direction(&*method.strategy, &cohort, &mut vectors)?;
                Some(BriefResult { direction, steps, ..BriefResult::default() })
            }
            Ask::Try { steps } => {
                file.set_trials(&mut cohort, &steps)?;
                None
            }
        };
        if let Some(brief) = brief {
            let refused = ReplayResult::refusals(cohort.refused());
            return Ok(ReplayResult { brief, refused, diagnostics: notes, ..ReplayResult::default() });
        }
        made.push(Exchange { kind, cohort: cohort.clone() });
    }
    let earlier = made.iter().take_while(|exchange| exchange.kind != Kind::Train).count();
    let mut theta = file.parameters.clone();
    let outcome = combine(method, &cohort, &made[..earlier], &mut vectors, &mut theta)?;
    notes.extend(diagnostics(file, method, &cohort, &outcome, &theta, &mut vectors)?);
    Ok(ReplayResult {
        parameters: theta,
        weights: weights(method, &cohort, &outcome),
        regions: ReplayResult::regions(&outcome, &file.regions),
        brief: method.strategy.training_weights().into(),
        state: method.state(),
        refused: ReplayResult::refusals(&outcome.refused),
        fairness: outcome.fairness,
        diagnostics: notes,
    })
}

/// Sets the state of the file, or that of a first round. Returns the name of the strategy if the state belongs to another one.
fn start<'f>(file: &'f RoundFile, method: &mut Method, cohort: &Cohort) -> Result<Option<&'f str>> {
    let other = file.strategy.as_ref().filter(|(name, _)| name != method.name());
    let foreign = other.filter(|_| !file.state.is_null()).map(|(name, _)| name.as_str());
    if file.state.is_null() || foreign.is_some() {
        let admitted =
            |device: &&RecordedDevice| cohort.participants().iter().any(|other| other.device == device.id);
        let mut devices: Vec<_> = file.devices.iter().filter(admitted).collect();
        devices.sort_unstable_by(|a, b| a.id.cmp(&b.id));
        let member = |device: &&'f RecordedDevice| FleetDevice {
            device: &device.id,
            tier: device.tier,
            samples: f64::from(device.samples),
            groups: &device.group_counts,
        };
        method.strategy.begin(&devices.iter().map(member).collect::<Vec<_>>());
    } else {
        let fault = |error: StrategyError| RoundFileError::key("state", error.to_string());
        method.set_state(file.state.clone()).map_err(fault)?;
    }
    Ok(foreign)
}

fn fair_gradient(
    strategy: &dyn Strategy,
    guide: &Weights,
    cohort: &Cohort,
    vectors: &mut FileUpdates<'_>,
) -> Result<BriefResult> {
    let gfair = weighted_mean(strategy, guide, cohort, vectors)?;
    Ok(BriefResult { gfair, ..BriefResult::default() })
}

fn weights(method: &Method, cohort: &Cohort, outcome: &Outcome) -> std::collections::BTreeMap<DeviceId, f64> {
    // The coefficients of a direction differ between blocks; no single number states how much a device counts.
    let averaged = method.strategy.scope().is_none() && outcome.kept.is_none();
    let devices = cohort.participants().iter().map(|participant| participant.device.clone());
    if averaged { devices.zip(outcome.weights.iter().copied()).collect() } else { Default::default() }
}

fn diagnostics(
    file: &RoundFile,
    method: &Method,
    cohort: &Cohort,
    outcome: &Outcome,
    theta: &[f64],
    vectors: &mut FileUpdates<'_>,
) -> Result<Map<String, Value>> {
    let mut notes = outcome.notes.clone();
    if let Some(code) = outcome.kept {
        notes.insert("kept".into(), json!({ "code": code.number(), "why": code.text() }));
        return Ok(notes);
    }
    if method.strategy.scope().is_none() {
        let pairs: Vec<_> = outcome.weights.iter().copied().zip(cohort.data_shares()).collect();
        if let Some(figures) = WeightFigures::of(pairs.into_iter()) {
            notes.insert("weights".into(), json!(figures));
        }
    }
    // A gradient is not an update: its conflicts would have the wrong sign.
    if method.needs().product != Product::Gradient && !notes.contains_key("conflicts") {
        let found = conflicts(cohort, &file.parameters, theta, vectors)?;
        notes.insert("conflicts".into(), json!(found));
    }
    Ok(notes)
}
