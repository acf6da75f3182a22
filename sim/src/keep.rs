//! Results small enough to be kept with the source: every figure with six digits, curves with a few points.
//!
//! A kept directory is a directory of results, so reports and records read it like any other.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::results::{self, ExperimentRecord, ResultsError, RoundLine, UnitResult};

/// Points of a curve that are kept, at most.
const POINTS: usize = 12;

/// Writes what is finished under `from` to `to`, in place of what was kept of the same experiment and profile.
/// Gives the files.
pub fn keep(from: &Path, to: &Path) -> Result<Vec<PathBuf>, ResultsError> {
    let mut written = Vec::new();
    for (record, units) in results::read_all(from)? {
        let Some(first) = units.first() else { continue };
        let home = to.join(first.unit.dir());
        let path = home.join("experiment.json");
        let json = |source| ResultsError::Json { path: path.clone(), source };
        if home.is_dir() {
            fs::remove_dir_all(&home).map_err(|source| ResultsError::Io { path: home.clone(), source })?;
        }
        let record = only_kept(record, &units);
        results::write(&path, &(serde_json::to_string_pretty(&record).map_err(json)? + "\n"))?;
        written.push(path.clone());
        for unit in units {
            let path = to.join(unit.unit.file());
            let unit = UnitResult { rounds: thinned(unit.rounds), ..unit };
            let value = serde_json::to_value(unit).map_err(json)?;
            results::write(&path, &(rounded(value).to_string() + "\n"))?;
            written.push(path);
        }
    }
    Ok(written)
}

/// Without settings and seeds that nobody has run: a kept result is not waiting for anything.
fn only_kept(mut record: ExperimentRecord, units: &[UnitResult]) -> ExperimentRecord {
    for setting in &mut record.settings {
        let has =
            |seed: &u64| units.iter().any(|unit| unit.unit.setting == setting.id && unit.unit.seed == *seed);
        setting.seeds.retain(has);
    }
    record.settings.retain(|setting| !setting.seeds.is_empty());
    record
}

/// Evenly chosen, the first and the last among them.
fn thinned(rounds: Vec<RoundLine>) -> Vec<RoundLine> {
    let len = rounds.len();
    if len <= POINTS {
        return rounds;
    }
    let chosen = |at: usize| (0..POINTS).any(|point| point * (len - 1) / (POINTS - 1) == at);
    rounds.into_iter().enumerate().filter(|(at, _)| chosen(*at)).map(|(_, line)| line).collect()
}

/// Six digits say more than any seed does.
fn rounded(value: Value) -> Value {
    match value {
        Value::Number(number) if number.is_f64() => {
            let short = number.as_f64().and_then(|value| format!("{value:.5e}").parse::<f64>().ok());
            short.map_or(Value::Number(number), Value::from)
        }
        Value::Array(values) => values.into_iter().map(rounded).collect(),
        Value::Object(fields) => fields.into_iter().map(|(name, value)| (name, rounded(value))).collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_keep_their_ends() {
        let rounds = |len: u32| (1..=len).map(|round| RoundLine { round, ..Default::default() }).collect();
        let kept: Vec<u32> = thinned(rounds(301)).iter().map(|line| line.round).collect();
        assert_eq!((kept.len(), kept[0], kept[11]), (POINTS, 1, 301));
        assert_eq!(thinned(rounds(5)).len(), 5);
    }

    #[test]
    fn numbers_have_six_digits_and_counts_all_of_theirs() {
        let value = serde_json::json!({"a": [0.123456789, 1e-20], "n": 123456789u64, "t": "0.123456789"});
        let short = serde_json::json!({"a": [0.123457, 1e-20], "n": 123456789u64, "t": "0.123456789"});
        assert_eq!(rounded(value), short);
    }
}
