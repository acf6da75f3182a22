//! One experiment with several values of some keys: every combination becomes an experiment.

use toml::Value;

use super::{ExperimentError, LoadedExperiment, text};

/// `keys` are `KEY=VALUE,VALUE,...`. If all of them belong to certain strategies, only these are run.
pub fn sweep(loaded: &LoadedExperiment, keys: &[String]) -> Result<Vec<LoadedExperiment>, ExperimentError> {
    let keys: Vec<(String, Vec<Value>)> =
        keys.iter().map(|key| text::alternatives(key)).collect::<Result<_, _>>()?;
    let mut tables = vec![(String::new(), loaded.table.clone())];
    for (key, values) in &keys {
        let short = key.rsplit('.').next().unwrap_or(key);
        let mut next = Vec::new();
        for (name, table) in &tables {
            for value in values {
                let mut table = table.clone();
                text::set(&mut table, key, value.clone())?;
                next.push((format!("{name}+{short}={}", text::plain(value)), table));
            }
        }
        tables = next;
    }
    let only: Option<Vec<Value>> = keys.iter().map(|(key, _)| strategy(loaded, key)).collect();
    let mut all = Vec::new();
    for (suffix, mut table) in tables {
        if let Some(only) = &only {
            table.insert("only".into(), Value::Array(only.clone()));
        }
        let name = format!("{}{suffix}", loaded.name);
        all.push(LoadedExperiment::of(&name, &loaded.profile, table)?.with_dir(loaded.dir.clone())?);
    }
    Ok(all)
}

/// Id of the strategy that a key belongs to.
fn strategy(loaded: &LoadedExperiment, key: &str) -> Option<Value> {
    let part = key.strip_prefix("strategies.")?.split('.').next()?;
    let strategies = &loaded.experiment.strategies;
    let by_number = part.parse::<usize>().ok().and_then(|at| strategies.get(at));
    let found = by_number.or_else(|| strategies.iter().find(|strategy| strategy.id == part))?;
    Some(Value::String(found.id.clone()))
}
