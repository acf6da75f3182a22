//! Whether kept results are those that an experiment file registers: its data, settings, grids, seeds and checks.
//!
//! Fewer rounds, seeds and settings are no other ones; the appendix states them. Title and notes may change.

use strategies::Registry;
use toml::{Table, Value};

use crate::{
    experiment::{LoadedExperiment, PROFILES, prepare},
    results::ExperimentResults,
};

/// Keys in which results may differ from the file, or that are compared in another way.
const APART: [&str; 7] = ["title", "notes", "only", "rounds", "seeds", "strategies", "check"];

/// What the results used that the file does not state; empty if nothing. An experiment without a file has registered nothing.
pub fn others(results: &ExperimentResults) -> Vec<String> {
    let record = &results.record;
    if !PROFILES.contains(&record.profile.as_str()) {
        return vec![];
    }
    let Ok(file) = LoadedExperiment::open(&record.experiment, &record.profile, &[]) else {
        return vec!["there is no such experiment".into()];
    };
    let Ok(used) = record.toml.parse::<Table>() else { return vec!["its record is no TOML".into()] };
    let mut found: Vec<String> = used
        .keys()
        .chain(file.table.keys())
        .filter(|key| !APART.contains(&key.as_str()) && used.get(*key) != file.table.get(*key))
        .map(|key| format!("`{key}`"))
        .collect();
    let rounds = |table: &Table| table.get("rounds").and_then(Value::as_integer);
    if rounds(&used) > rounds(&file.table) {
        found.push("more rounds".into());
    }
    // Only strategies that were run.
    for (key, name) in [("strategies", "id"), ("check", "what")] {
        for entry in entries(&used, key) {
            let id = entry.get(name).and_then(Value::as_str).unwrap_or_default();
            let ran = || {
                record
                    .settings
                    .iter()
                    .any(|setting| setting.id == id || setting.id.ends_with(&format!("-{id}")))
            };
            let same = || entries(&file.table, key).any(|other| other == entry);
            if (key == "check" || ran()) && !same() {
                found.push(format!("`{key}`: {id}"));
            }
        }
    }
    let as_used = LoadedExperiment::of(&record.experiment, &record.profile, used.clone());
    // As a run takes up fairness targets.
    let as_used = as_used.and_then(|loaded| prepare(&loaded, &Registry::standard(), false)).ok();
    for unit in &results.units {
        let (id, seed) = (&unit.unit.setting, unit.unit.seed);
        if !file.experiment.seeds.contains(&seed) {
            found.push(format!("seed {seed}"));
        }
        let of = |loaded: &'_ LoadedExperiment| loaded.settings.iter().any(|setting| setting.id == *id);
        if !of(&file) && !id.ends_with(TWIN) {
            found.push(format!("setting {id}"));
        }
        // The record states what the unit was run with, but only the fingerprint proves it.
        let own = as_used.iter().flat_map(|loaded| &loaded.settings).find(|setting| setting.id == *id);
        if own.is_some_and(|setting| setting.fingerprint(seed) != unit.fingerprint) {
            found.push(format!("setting {id} with seed {seed} was run with other keys"));
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// What the setting at the neutral end of a fairness target is called after it.
const TWIN: &str = "-twin";

fn entries<'a>(table: &'a Table, key: &str) -> impl Iterator<Item = &'a Table> {
    table.get(key).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_table)
}
