//! A small form of results for the repository: every figure with six digits, and curves with a few points.
//!
//! An experiment is kept as one file with a line for its record and one for every unit. Reports and records read it
//! like a directory of results.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::results::{
    self, EVALUATIONS, ExperimentRecord, ExperimentResults, ResultsError, RoundScores, UnitResult, pack,
};

/// Most points of a kept curve.
const POINTS: usize = 12;
/// Fewest points, and the number of runs from which on curves have fewer than [`POINTS`], so that large experiments stay small.
const LEAST_POINTS: usize = 3;
const MANY_RUNS: usize = 100;

/// Writes the finished results under `from` to `to`, and replaces kept results of the same experiment and profile.
/// Returns the written files.
pub fn keep(from: &Path, to: &Path) -> Result<Vec<PathBuf>, ResultsError> {
    keep_some(|_| true, from, to)
}

/// The same for one experiment.
pub fn keep_only(experiment: &str, from: &Path, to: &Path) -> Result<Vec<PathBuf>, ResultsError> {
    keep_some(|record| record.experiment == experiment, from, to)
}

fn keep_some(
    which: impl Fn(&ExperimentRecord) -> bool,
    from: &Path,
    to: &Path,
) -> Result<Vec<PathBuf>, ResultsError> {
    let mut written = Vec::new();
    let all = results::read_all(from)?;
    let wanted = |results: &ExperimentResults| which(&results.record) && !results.units.is_empty();
    for results in all.into_iter().filter(wanted) {
        let path = to.join(results.record.kept_file());
        let text = lines(results).map_err(|source| ResultsError::Json { path: path.clone(), source })?;
        results::write(&path, &text)?;
        written.push(path);
    }
    Ok(written)
}

fn lines(results: ExperimentResults) -> Result<String, serde_json::Error> {
    let ExperimentResults { record, units } = results;
    let mut text = serde_json::to_string(&only_kept(record, &units))? + "\n";
    let points = (POINTS * MANY_RUNS / units.len().max(1)).clamp(LEAST_POINTS, POINTS);
    for unit in units {
        let unit = UnitResult { rounds: thinned(&unit, points), ..unit };
        text += &(pack(rounded(serde_json::to_value(unit)?)).to_string() + "\n");
    }
    Ok(text)
}

/// Removes settings and seeds without runs, so that kept results are not reported as incomplete.
fn only_kept(mut record: ExperimentRecord, units: &[UnitResult]) -> ExperimentRecord {
    for setting in &mut record.settings {
        let has =
            |seed: &u64| units.iter().any(|unit| unit.unit.setting == setting.id && unit.unit.seed == *seed);
        setting.seeds.retain(has);
    }
    record.settings.retain(|setting| !setting.seeds.is_empty());
    record
}

/// Evenly spaced rounds, including the first and the last, and the last evaluations, whose mean is judged.
fn thinned(unit: &UnitResult, points: usize) -> Vec<RoundScores> {
    let len = unit.rounds.len();
    let late: Vec<u32> = unit.evaluations().rev().take(EVALUATIONS - 1).map(|line| line.round).collect();
    let spaced = |at: usize| len <= points || (0..points).any(|point| point * (len - 1) / (points - 1) == at);
    let chosen = |(at, line): &(usize, &RoundScores)| spaced(*at) || late.contains(&line.round);
    unit.rounds.iter().enumerate().filter(chosen).map(|(_, line)| line.clone()).collect()
}

/// Rounds to six digits, which is finer than the variation over seeds.
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
    use crate::{claims::tests, experiment::ResultsPath, results::TierScores};

    #[test]
    fn a_kept_file_is_read_like_its_directory() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("run");
        let finished = |name: &str, seeds: &[u64]| {
            let units = seeds.iter().map(|&seed| tests::unit("a", seed, &[("loss.mean", 0.123456)]));
            let ExperimentResults { mut record, units } = tests::results(name, "quick", units.collect());
            record.settings.iter_mut().for_each(|setting| setting.seeds = seeds.into());
            let home = run.join(name).join("quick");
            results::write(&home.join(results::RECORD), &serde_json::to_string(&record).unwrap()).unwrap();
            for unit in &units {
                let file = format!("a-s{}.json", unit.unit.seed);
                results::write(&home.join(file), &serde_json::to_string(unit).unwrap()).unwrap();
            }
            ExperimentResults { record, units }
        };
        let mut all = vec![finished("e", &[1, 2]), finished("e-f", &[3])];
        finished("empty", &[]);
        let kept = dir.path().join("kept");
        let files = keep(&run, &kept).unwrap();
        assert_eq!(files, ["e.quick.jsonl", "e-f.quick.jsonl"].map(|name| kept.join(name)));
        assert_eq!(results::read_all(&kept).unwrap(), all);
        let path = files[0].to_str().unwrap();
        assert_eq!(
            ResultsPath::parse(&format!("{path}:a"), None),
            ResultsPath { dir: path.into(), setting: Some("a".into()) }
        );
        assert_eq!(ResultsPath::parse(path, None), ResultsPath { dir: path.into(), setting: None });

        // Keeping again, or beside the directory, does not duplicate it.
        keep(&kept, &kept).unwrap();
        assert_eq!(results::read_all(&kept).unwrap(), all);
        keep(&kept, &run).unwrap();
        all.push(ExperimentResults { units: vec![], ..all[0].clone() });
        assert_eq!(results::read_all(&run).unwrap().len(), all.len());

        let text = std::fs::read_to_string(path).unwrap();
        results::write(&files[0], &text[..text.len() - 9]).unwrap();
        let error = results::read_all(&kept).unwrap_err().to_string();
        assert!(error.contains("e.quick.jsonl") && error.contains("line 3"), "{error}");
    }

    #[test]
    fn curves_keep_their_ends() {
        // Only every 20th round scores the device.
        let device = |round: u32| TierScores { devices: usize::from(round % 20 == 1), ..Default::default() };
        let kept = |len: u32, points: usize| -> Vec<u32> {
            let mut unit = tests::unit("a", 1, &[]);
            unit.last.tiers = vec![device(1)];
            let line = |round| RoundScores { round, tiers: vec![device(round)], ..Default::default() };
            unit.rounds = (1..=len).map(line).collect();
            thinned(&unit, points).iter().map(|line| line.round).collect()
        };
        let many = kept(301, POINTS);
        assert_eq!((many.len(), many[0], many[12]), (POINTS + 1, 1, 301));
        assert_eq!(kept(5, POINTS).len(), 5);
        assert_eq!(kept(301, LEAST_POINTS), [1, 151, 281, 301]);
    }

    #[test]
    fn numbers_have_six_digits_and_counts_stay_exact() {
        let value = serde_json::json!({"a": [0.123456789, 1e-20], "n": 123456789u64, "t": "0.123456789"});
        let short = serde_json::json!({"a": [0.123457, 1e-20], "n": 123456789u64, "t": "0.123456789"});
        assert_eq!(rounded(value), short);
    }
}
