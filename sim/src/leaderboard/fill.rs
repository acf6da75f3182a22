//! Runs cells of the leaderboard that are missing, and keeps their results.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use super::{Cells, read};
use crate::{
    experiment::{ExperimentError, LoadedExperiment, Part, RunEvent, RunOptions, Variant, run_part},
    keep::keep_only,
    results::{self, ResultsError},
};

/// Why cells cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum FillError {
    #[error(transparent)]
    Experiment(#[from] ExperimentError),
    #[error(transparent)]
    Results(#[from] ResultsError),
    #[error("there is no data set `{set}` on the leaderboard; there are {known}, or all")]
    Set { set: String, known: String },
}

/// What to run.
#[derive(Clone, Debug)]
pub struct Fill<'a> {
    /// Data sets, or `all`.
    pub sets: &'a [String],
    /// No cell begins later than this.
    pub limit: Option<Duration>,
    /// Where results are kept.
    pub kept: &'a Path,
}

/// Runs what is missing, seed by seed. Results that are kept already are not run again. Each process keeps its results when it
/// ends; those of one that was killed are still under `options.out`.
pub fn fill(
    loaded: &LoadedExperiment,
    what: &Fill<'_>,
    options: &RunOptions,
    observe: &mut dyn FnMut(RunEvent),
) -> Result<(), FillError> {
    let part = Part { variants: variants(&loaded.experiment.variants, what.sets)?, until: None };
    let kept = read(what.kept, loaded)?;
    unpack(&Cells::of(loaded, kept.as_ref()), &options.out)?;
    let part = Part { until: what.limit.map(|limit| Instant::now() + limit), ..part };
    let ran = run_part(loaded, options, &part, observe);
    // Also what was finished before an error.
    if options.out.is_dir() {
        keep_only(&loaded.name, &options.out, what.kept)?;
    }
    ran?;
    Ok(())
}

/// Variants of these data sets, each without and with the guard.
fn variants(all: &[Variant], sets: &[String]) -> Result<Vec<String>, FillError> {
    let plain = || all.iter().map(|variant| variant.id.as_str()).filter(|id| !super::has_guard(id));
    let mut chosen = Vec::new();
    for set in sets {
        if set != "all" && !plain().any(|id| id == set.as_str()) {
            let known = plain().collect::<Vec<_>>().join(", ");
            return Err(FillError::Set { set: set.clone(), known });
        }
        let of = |id: &&str| set == "all" || id.strip_suffix(super::GUARD).unwrap_or(*id) == set.as_str();
        chosen.extend(all.iter().map(|variant| variant.id.as_str()).filter(of).map(str::to_owned));
    }
    Ok(chosen)
}

/// Writes kept results to where a run looks for finished ones.
fn unpack(cells: &Cells<'_>, out: &Path) -> Result<(), ResultsError> {
    for unit in cells.0.values() {
        let path = out.join(unit.unit.file());
        let there = results::read::<results::UnitResult>(&path);
        if there.is_ok_and(|there| there.fingerprint == unit.fingerprint) {
            continue;
        }
        let text = serde_json::to_string(unit);
        let text = text.map_err(|source| ResultsError::Json { path: path.clone(), source })?;
        results::write(&path, &text)?;
    }
    Ok(())
}
