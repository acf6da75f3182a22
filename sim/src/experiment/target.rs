//! Which strategies follow a fairness target, the runs that are compared with them, and targets that depend on other results.
//!
//! A target of the whole experiment holds for the strategies that have a free parameter for it; the others are run without.
//! A target of one strategy is refused if the strategy cannot follow it.

use serde_json::{Map, Value};
use strategies::{
    Registry,
    error::{FairnessError, StrategyError},
    fairness::{Fairness, FairnessSettings},
};

use super::{ExperimentError, LoadedExperiment, Setting, baseline::Baseline};
use crate::results::UnitResult;

/// Targets that only measure count against this; it has no effect.
const MEASURED_ONLY: f64 = 1.0;

/// The experiment as it is run. `twin`: also with every driven parameter at its neutral end.
pub fn prepare(
    loaded: &LoadedExperiment,
    registry: &Registry,
    twin: bool,
) -> Result<LoadedExperiment, ExperimentError> {
    let mut loaded = loaded.clone();
    let mut refused = Vec::new();
    for setting in &mut loaded.settings {
        if !setting.has_target() {
            setting.base.fairness = FairnessSettings::default();
            continue;
        }
        match check(setting, registry) {
            Ok(()) => {}
            Err(error) if setting.has_own_target() || !is_about_the_strategy(&error) => {
                return Err(ExperimentError::Target { setting: setting.id.clone(), source: Box::new(error) });
            }
            Err(error) => {
                refused.push(format!("{}: {error}", setting.id));
                setting.base.fairness = FairnessSettings::default();
            }
        }
    }
    if !refused.is_empty() && !loaded.settings.iter().any(Setting::has_target) {
        return Err(ExperimentError::NobodyFollows(refused.join("; ")));
    }
    // The settings that a `reach` names are run as they are now.
    let known = loaded.settings.clone();
    for end in loaded.settings.iter_mut().flat_map(|setting| &mut setting.ends) {
        if let Some(now) = known.iter().find(|setting| setting.id == end.id) {
            *end = now.clone();
        }
    }
    if twin {
        add_twins(&mut loaded)?;
    }
    Ok(loaded)
}

/// Whether the strategy can follow its target.
fn check(setting: &Setting, registry: &Registry) -> Result<(), ExperimentError> {
    let strategy = &setting.strategy;
    if let Some(baseline) = Baseline::by_name(&strategy.name) {
        let none = FairnessError::NoKnob { strategy: baseline.name(), key: "target" };
        return Err(StrategyError::from(none).into());
    }
    let method = registry.method(&strategy.name, Value::Object(strategy.params.clone()))?;
    let mut settings = setting.base.fairness.clone();
    if setting.strategy.reach.is_some() {
        settings.target = MEASURED_ONLY;
    }
    let mut given: Map<String, Value> = strategy.params.clone();
    given.extend(strategy.choose.iter().flat_map(|choose| choose.grid.clone()));
    let tiers = setting.base.fleet.tiers.len().max(1);
    Fairness::new(settings, &*method.strategy, &given, tiers)?;
    Ok(())
}

/// Whether another strategy could follow the same target.
fn is_about_the_strategy(error: &ExperimentError) -> bool {
    use FairnessError::{BothPlaces, NoKnob, NotOfGaps, OnlySpread, Unusable};
    let ExperimentError::Strategy(StrategyError::Fairness(error)) = error else { return false };
    matches!(
        error,
        NoKnob { .. } | Unusable { .. } | BothPlaces { .. } | OnlySpread { .. } | NotOfGaps { .. }
    )
}

/// Adds each setting once more with its parameter at the neutral end. Settings that differ only in their targets share a twin.
fn add_twins(loaded: &mut LoadedExperiment) -> Result<(), ExperimentError> {
    let mut twins: Vec<Setting> = Vec::new();
    for setting in loaded.settings.iter_mut().filter(|setting| setting.has_target()) {
        let mut twin = setting.clone();
        twin.base.fairness = FairnessSettings {
            target: MEASURED_ONLY,
            warmup: u32::MAX,
            budget: 0.0,
            ..setting.base.fairness.clone()
        };
        twin.strategy.fairness.clear();
        (twin.strategy.reach, twin.ends) = (None, vec![]);
        twin.id = format!("{}-twin", setting.id);
        twin.label = format!("{}, without fairness", setting.label);
        let same = |other: &&Setting| {
            (&other.base, &other.strategy.name, &other.strategy.params, &other.strategy.choose)
                == (&twin.base, &twin.strategy.name, &twin.strategy.params, &twin.strategy.choose)
        };
        if let Some(other) = twins.iter().find(same) {
            setting.twin = Some(other.id.clone());
            continue;
        }
        setting.twin = Some(twin.id.clone());
        twins.push(twin);
    }
    if let Some(twin) = twins.iter().find(|twin| loaded.settings.iter().any(|setting| setting.id == twin.id))
    {
        return Err(ExperimentError::Twice(twin.id.clone()));
    }
    loaded.settings.extend(twins);
    Ok(())
}

impl Setting {
    /// Whether a target is set, here or by results.
    pub fn has_target(&self) -> bool {
        !self.base.fairness.is_off() || self.strategy.reach.is_some()
    }

    /// Whether the target is one of this strategy alone.
    fn has_own_target(&self) -> bool {
        let strategy = &self.strategy;
        strategy.reach.is_some() || !strategy.fairness.is_empty() || strategy.with.contains_key("fairness")
    }

    /// The target of a seed, from results of the same seed; `None`: it does not depend on results.
    pub fn reached_target(
        &self,
        find: impl Fn(&Setting) -> Option<UnitResult>,
    ) -> Result<Option<f64>, ExperimentError> {
        let (Some(reach), [from, to]) = (&self.strategy.reach, &self.ends[..]) else { return Ok(None) };
        let disparity = |end: &Setting| {
            let known = find(end).and_then(|unit| unit.last.validation_cv);
            known.ok_or_else(|| ExperimentError::NoDisparity(end.id.clone()))
        };
        let (from, to) = (disparity(from)?, disparity(to)?);
        Ok(Some(from + reach.share * (to - from)))
    }
}
