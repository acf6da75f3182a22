//! Runs all units of an experiment, one after the other. Finished units are not run again.

use strategies::Registry;
use trainer::data::schema::nearest::hint;

use std::{collections::HashSet, path::PathBuf, sync::Arc, time::Instant};

use super::{
    Arrangement, ExperimentError, LoadedExperiment, Setting, arrange,
    baseline::Baseline,
    choose::combinations,
    spec::StrategySpec,
    target,
    unit::{self, AloneLosses, UnitContext},
};
use crate::{
    data::{DataDirs, DataSet},
    results::{self, Distribution, ExperimentRecord, KnobPoint, RoundScores, UnitId, UnitResult},
};

/// How and where experiments are run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Directory for the results.
    pub out: PathBuf,
    /// First directory to look for data sets, before `$FAIRTIER_DATA` and `../shared/data`.
    pub data: Option<PathBuf>,
    /// Number of training threads.
    pub threads: usize,
    /// Strategies that experiments may use.
    pub registry: Registry,
    /// Also run every setting with a fairness target at the neutral end of its parameter.
    pub twin: bool,
    /// Also write the reports of each new unit to a directory in this one, which `fairtier gateway dashboard` shows.
    pub runs: Option<PathBuf>,
}

/// Progress of a run.
#[derive(Clone, PartialEq, Debug)]
#[expect(missing_docs, reason = "the line of a variant explains its fields")]
pub enum RunEvent {
    /// Number of finished units, of units to run, and of their rounds.
    Begin { there: usize, units: usize, rounds: u64 },
    /// What a person should know of how files of their own were read. Each is told once.
    Note(String),
    /// A unit starts: label of its setting, and its seed.
    Unit { label: String, seed: u64 },
    /// A round of the unit is over; the final scores count as a round.
    Round,
    /// The result of a unit is in this file.
    Written(PathBuf),
}

/// A part of an experiment: some of its settings, until some time.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Part {
    /// Only settings of these variants; empty means all.
    pub variants: Vec<String>,
    /// No unit begins after this moment.
    pub until: Option<Instant>,
}

impl Part {
    fn has(&self, setting: &Setting) -> bool {
        self.variants.is_empty() || self.variants.contains(&setting.variant)
    }
}

/// A finished experiment.
#[derive(Clone, PartialEq, Debug)]
pub struct RunOutcome {
    /// Settings and checks of the experiment.
    pub record: ExperimentRecord,
    /// Results by setting, then by seed.
    pub units: Vec<UnitResult>,
    /// Units that were already finished.
    pub there: usize,
}

/// Runs the units that are not finished and writes each result to a file. `observe` is called on every event.
pub fn run(
    loaded: &LoadedExperiment,
    options: &RunOptions,
    observe: &mut dyn FnMut(RunEvent),
) -> Result<RunOutcome, ExperimentError> {
    run_part(loaded, options, &Part::default(), observe)
}

/// Runs those of the part. The outcome has all units that are finished.
pub(crate) fn run_part(
    loaded: &LoadedExperiment,
    options: &RunOptions,
    part: &Part,
    observe: &mut dyn FnMut(RunEvent),
) -> Result<RunOutcome, ExperimentError> {
    let loaded = &target::prepare(loaded, &options.registry, options.twin)?;
    loaded.settings.iter().try_for_each(|setting| check_parameters(setting, &options.registry))?;
    let places = DataDirs::usual(options.data.as_deref());
    let seeds = &loaded.experiment.seeds;
    let all: Vec<(&Setting, u64)> =
        seeds.iter().flat_map(|&seed| loaded.settings.iter().map(move |setting| (setting, seed))).collect();
    let all: Vec<_> = all.into_iter().filter(|(setting, _)| part.has(setting)).collect();
    let (mut missing, mut rounds) = (Vec::new(), 0);
    for (setting, seed) in &all {
        if finished(loaded, options, setting, *seed).is_none() {
            missing.push((*setting, *seed));
            rounds += ticks(setting)?;
        }
    }
    let there = all.len() - missing.len();
    let place = |setting: &Setting, seed, source| {
        let source = Box::new(source);
        ExperimentError::Unit { setting: setting.id.clone(), seed, source }
    };
    // Data that cannot be read shall leave no results.
    let mut cache = Cache::default();
    if let Some(&(setting, seed)) = missing.first() {
        cache.arranged(setting, &places, seed).map_err(|source| place(setting, seed, source))?;
    }
    let record = loaded.record();
    let home = options.out.join(&loaded.name).join(&loaded.profile);
    results::write(&home.join(results::RECORD), &serde_json::to_string_pretty(&record)?)?;
    observe(RunEvent::Begin { there, units: missing.len(), rounds });
    for (setting, seed) in missing {
        if part.until.is_some_and(|until| Instant::now() >= until) {
            break;
        }
        observe(RunEvent::Unit { label: setting.label.clone(), seed });
        let result = one(loaded, options, &places, &mut cache, setting, seed, observe)
            .map_err(|source| place(setting, seed, source))?;
        let path = options.out.join(result.unit.file());
        results::write(&path.with_extension("csv"), &csv(&result.rounds, result.last.accuracy.is_some()))?;
        results::write(&path, &serde_json::to_string(&result)?)?;
        observe(RunEvent::Written(path));
    }
    let units = results::read_units(&home, &record)?;
    Ok(RunOutcome { record, units, there })
}

/// Checks strategy and parameters of a setting, with every candidate of `choose`. A mistake in the last setting is then found
/// before the first one trains.
fn check_parameters(setting: &Setting, registry: &Registry) -> Result<(), ExperimentError> {
    let StrategySpec { name, params, choose, .. } = &setting.strategy;
    let place = |source| ExperimentError::Setting { setting: setting.id.clone(), source: Box::new(source) };
    let candidates = match choose {
        Some(choose) => combinations(params, &choose.grid).map_err(place)?,
        None => vec![params.clone()],
    };
    candidates.iter().try_for_each(|params| {
        let checked = match Baseline::by_name(name) {
            Some(baseline) => baseline.check(params),
            None if registry.names().any(|known| known == name) => {
                registry.method(name, params.clone().into()).map(drop).map_err(ExperimentError::from)
            }
            None => {
                let known = || registry.names().chain(Baseline::ALL.map(Baseline::name));
                let (hint, known) = (hint(name, known()), known().collect::<Vec<_>>().join(", "));
                Err(ExperimentError::NoMethod { name: name.clone(), hint, known })
            }
        };
        checked.map_err(place)
    })
}

fn one(
    loaded: &LoadedExperiment,
    options: &RunOptions,
    places: &DataDirs,
    cache: &mut Cache,
    setting: &Setting,
    seed: u64,
    observe: &mut dyn FnMut(RunEvent),
) -> Result<UnitResult, ExperimentError> {
    let arranged = cache.arranged(setting, places, seed)?;
    for note in &arranged.data.notes {
        if cache.told.insert(note.clone()) {
            observe(RunEvent::Note(note.clone()));
        }
    }
    arranged.check_model(&setting.base)?;
    let alone = cache.alone(setting, &arranged, options.threads)?;
    // The reference is usually another setting that was run before.
    let reference = setting.reference.as_ref().and_then(|reference| {
        let same = |other: &&Setting| other.strategy == *reference && other.base == setting.base;
        let other = loaded.settings.iter().find(same)?;
        finished(loaded, options, other, seed)?.last.validation_loss
    });
    let target = setting.reached_target(|end| finished(loaded, options, end, seed))?;
    let context = UnitContext {
        target,
        registry: &options.registry,
        arranged: &arranged,
        alone: alone.as_deref(),
        reference,
        threads: options.threads,
        pages: options.runs.as_ref().map(|runs| runs.join(format!("{}-{seed}", setting.id))),
        tick: &mut || observe(RunEvent::Round),
    };
    unit::run(setting, id(loaded, setting, seed), context)
}

fn id(loaded: &LoadedExperiment, setting: &Setting, seed: u64) -> UnitId {
    UnitId {
        experiment: loaded.name.clone(),
        profile: loaded.profile.clone(),
        setting: setting.id.clone(),
        seed,
    }
}

/// The result of a finished unit, if its fingerprint matches the setting.
fn finished(
    loaded: &LoadedExperiment,
    options: &RunOptions,
    setting: &Setting,
    seed: u64,
) -> Option<UnitResult> {
    let path = options.out.join(id(loaded, setting, seed).file());
    let unit: UnitResult = results::read(&path).ok()?;
    (unit.fingerprint == setting.fingerprint(seed)).then_some(unit)
}

/// Number of progress ticks of a unit.
fn ticks(setting: &Setting) -> Result<u64, ExperimentError> {
    let runs = match &setting.strategy.choose {
        Some(choose) => combinations(&setting.strategy.params, &choose.grid)?.len() as u64,
        None => 1,
    };
    // One more for the final scores.
    Ok(runs * (u64::from(setting.base.rounds) + 1))
}

/// Data that successive units share; the last one of each kind.
#[derive(Default)]
struct Cache {
    data: Option<(String, Arc<DataSet>)>,
    arranged: Option<(String, Arc<Arrangement>)>,
    alone: Option<(String, Arc<AloneLosses>)>,
    /// Notes that the observer knows.
    told: HashSet<String>,
}

impl Cache {
    fn arranged(
        &mut self,
        setting: &Setting,
        places: &DataDirs,
        seed: u64,
    ) -> Result<Arc<Arrangement>, ExperimentError> {
        let base = &setting.base;
        let spec = &base.data;
        let of_data = match spec.file()? {
            Some(_) => serde_json::json!([spec, seed]),
            None => serde_json::json!([
                spec.set,
                spec.noise,
                spec.samples,
                spec.test_samples,
                spec.pool,
                spec.files(),
                seed
            ]),
        }
        .to_string();
        let data = match &self.data {
            Some((key, data)) if *key == of_data => data.clone(),
            _ => arrange::load(base, places, seed)?,
        };
        self.data = Some((of_data, data.clone()));
        let key = serde_json::json!([spec, base.fleet, seed]).to_string();
        let arranged = match &self.arranged {
            Some((known, arranged)) if *known == key => arranged.clone(),
            _ => Arc::new(Arrangement::new(base, data, seed)?),
        };
        self.arranged = Some((key, arranged.clone()));
        Ok(arranged)
    }

    fn alone(
        &mut self,
        setting: &Setting,
        arranged: &Arrangement,
        threads: usize,
    ) -> Result<Option<Arc<AloneLosses>>, ExperimentError> {
        let base = &setting.base;
        let Some(spec) = &base.alone else { return Ok(None) };
        // Training alone follows `alone`, not the training settings of the strategy.
        let mut training = base.training.clone();
        if spec.lr.is_some() {
            training.lr = 0.0;
        }
        training.epochs = 0;
        let key =
            serde_json::json!([base.data, base.fleet, base.model, base.start, training, spec, arranged.seed]);
        let key = key.to_string();
        let alone = match &self.alone {
            Some((known, alone)) if *known == key => alone.clone(),
            _ => Arc::new(unit::alone_losses(base, arranged, threads)?),
        };
        self.alone = Some((key, alone.clone()));
        Ok(Some(alone))
    }
}

/// Writes rounds as CSV, one line each. Predicted numbers (no `classes`) have errors in place of an accuracy.
fn csv(rounds: &[RoundScores], classes: bool) -> String {
    let tiers = rounds.iter().map(|line| line.tiers.len()).max().unwrap_or(0);
    let layers = rounds.iter().filter_map(|line| Some(line.conflicts.as_ref()?.layers.len())).max();
    let (all, of_tier) = match classes {
        true => ("accuracy_mean,accuracy_variance,accuracy_worst5,accuracy_best5", &["accuracy"][..]),
        false => ("mae_mean,mae_variance,mae_worst10,mae_best10,r2", &["mae", "r2"][..]),
    };
    let mut out = format!(
        "round,seconds,devices,loss_mean,loss_variance,loss_worst10,loss_best10,{all},inter,bytes_up,bytes_down"
    );
    for tier in 0..tiers {
        out += &format!(",tier{tier}_loss,tier{tier}_loss_variance");
        of_tier.iter().for_each(|name| out += &format!(",tier{tier}_{name}"));
        out += &format!(",tier{tier}_delivered");
    }
    if let Some(layers) = layers {
        out += ",conflicts_model";
        (0..layers).for_each(|layer| out += &format!(",conflicts_layer{layer}"));
    }
    let knobs = rounds.iter().map(|line| line.fairness.len()).max().unwrap_or(0);
    out += &target_columns(knobs);
    out += "\n";
    for line in rounds {
        let RoundScores { round, seconds, devices, loss, inter, bytes_up, bytes_down, .. } = line;
        let losses = [loss.mean, loss.variance, loss.worst10, loss.best10].map(|loss| loss.to_string());
        let quality = match classes {
            true => {
                let of = |read: fn(&Distribution) -> f64| shown(line.accuracy.as_ref().map(read));
                [of(|all| all.mean), of(|all| all.variance), of(|all| all.worst5), of(|all| all.best5)]
                    .join(",")
            }
            false => {
                let of = |read: fn(&Distribution) -> f64| shown(line.mae.as_ref().map(read));
                let mae =
                    [of(|all| all.mean), of(|all| all.variance), of(|all| all.worst10), of(|all| all.best10)];
                format!("{},{}", mae.join(","), shown(line.r2))
            }
        };
        out += &format!(
            "{round},{seconds},{devices},{},{quality},{inter},{bytes_up},{bytes_down}",
            losses.join(",")
        );
        for tier in &line.tiers {
            out += &format!(",{},{},", tier.loss, tier.loss_variance);
            out += &match classes {
                true => shown(tier.accuracy),
                false => format!("{},{}", shown(tier.mae), shown(tier.r2)),
            };
            out += &format!(",{}", tier.delivered);
        }
        if let Some(layers) = layers {
            match &line.conflicts {
                Some(conflicts) => {
                    out += &format!(",{}", conflicts.model);
                    conflicts.layers.iter().for_each(|count| out += &format!(",{count}"));
                }
                None => out += &",".repeat(layers + 1),
            }
        }
        (0..knobs).for_each(|knob| out += &target_cells(line.fairness.get(knob)));
        out += "\n";
    }
    out
}

/// Empty for a figure that does not exist.
fn shown(figure: Option<f64>) -> String {
    figure.map_or_else(String::new, |figure| figure.to_string())
}

/// Columns of the first knob, then of those inside tiers with a number.
fn target_columns(knobs: usize) -> String {
    let name = |knob: usize| if knob == 0 { String::new() } else { format!("_{knob}") };
    let columns = |knob: usize| {
        let end = name(knob);
        format!(",fairness_measured{end},fairness_target{end},knob{end},fairness_status{end}")
    };
    (0..knobs).map(columns).collect()
}

fn target_cells(point: Option<&KnobPoint>) -> String {
    let Some(KnobPoint { measured, target, value, status, .. }) = point else { return ",".repeat(4) };
    let measured = shown(*measured);
    format!(",{measured},{target},{value},{}", status.name())
}
