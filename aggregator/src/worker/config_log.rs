//! What changes in the configuration between rounds, for the reports.
//!
//! Compared are the keys that decide what a run computes. The model cannot change during a run, and where the gateway listens
//! or how much it keeps changes no model.

use std::path::Path;

use coordinator::report::ConfigChange;
use toml::{Table, Value};

use crate::config::{Config, ConfigError};

/// Tables that decide nothing of the result, or cannot change.
const OTHER: [&str; 5] = ["model", "server", "store", "report", "cluster"];

/// The configuration of the last committed round, and the present one.
#[derive(Debug, Default)]
pub struct ConfigLog {
    /// Absent before the first round, and in the store of an older version.
    recorded: Option<Table>,
    present: Table,
}

impl ConfigLog {
    /// `recorded`: what [`ConfigLog::text`] gave for the last committed round. A text that is damaged is as none.
    pub fn new(recorded: Option<&str>, config: &Config) -> Result<Self, ConfigError> {
        let mut present = Table::try_from(config)?;
        OTHER.iter().for_each(|table| _ = present.remove(*table));
        // The same file may be named from another directory.
        if let Some(Value::String(probe)) = present.get_mut("guard").and_then(|guard| guard.get_mut("probe"))
        {
            *probe = Path::new(probe)
                .file_name()
                .map_or(String::new(), |name| name.to_string_lossy().into_owned());
        }
        Ok(Self { recorded: recorded.and_then(|text| text.parse().ok()), present })
    }

    /// The fairness target is another one from now on.
    pub fn set_target(&mut self, target: f64) {
        if let Some(Value::Table(fairness)) = self.present.get_mut("fairness") {
            fairness.insert("target".to_owned(), target.into());
        }
    }

    /// The present configuration, if it must be recorded.
    pub fn text(&self) -> Option<String> {
        (self.recorded.as_ref() != Some(&self.present)).then(|| self.present.to_string())
    }

    /// Keys that have another value than in the last committed round, by name.
    pub fn changes(&self) -> Vec<ConfigChange> {
        let Some(recorded) = self.recorded.as_ref().filter(|recorded| **recorded != self.present) else {
            return vec![];
        };
        let (before, now) = (flat(recorded), flat(&self.present));
        let value = |list: &[(String, String)], key: &str| {
            let found = list.binary_search_by(|(other, _)| other.as_str().cmp(key));
            found.map_or(String::new(), |at| list[at].1.clone())
        };
        let mut keys: Vec<&String> = before.iter().chain(&now).map(|(key, _)| key).collect();
        keys.sort_unstable();
        keys.dedup();
        let changes = keys.into_iter().map(|key| ConfigChange {
            key: key.clone(),
            from: value(&before, key),
            to: value(&now, key),
        });
        changes.filter(|change| change.from != change.to).collect()
    }

    /// A round with the present configuration is committed.
    pub fn note_committed(&mut self) {
        if self.recorded.as_ref() != Some(&self.present) {
            self.recorded = Some(self.present.clone());
        }
    }
}

/// Keys as in `training.lr` with their values, by key.
fn flat(table: &Table) -> Vec<(String, String)> {
    fn add(prefix: &str, table: &Table, list: &mut Vec<(String, String)>) {
        for (key, value) in table {
            let key = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
            match value {
                Value::Table(inner) => add(&key, inner, list),
                value => list.push((key, value.to_string())),
            }
        }
    }
    let mut list = vec![];
    add("", table, &mut list);
    list.sort_unstable();
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        Config::parse(text).unwrap()
    }

    fn shown(log: &ConfigLog) -> Vec<String> {
        log.changes().iter().map(|ConfigChange { key, from, to }| format!("{key}: {from} -> {to}")).collect()
    }

    #[test]
    fn changes_are_told_once_and_only_those_that_matter() {
        let mut log = ConfigLog::new(None, &config("run.rounds = 3")).unwrap();
        assert_eq!(shown(&log), [""; 0], "the first round has nothing to be compared with");
        let first = log.text().unwrap();
        log.note_committed();
        assert_eq!(log.text(), None);
        let text = "strategy = { name = \"qffl\", params = { q = 2 } }\nrun.rounds = 5\nserver.listen = \"0.0.0.0:1\"";
        let mut log = ConfigLog::new(Some(&first), &config(text)).unwrap();
        let expected =
            ["run.rounds: 3 -> 5", "strategy.name: \"fairheterofl\" -> \"qffl\"", "strategy.params.q:  -> 2"];
        assert_eq!(shown(&log), expected);
        assert!(log.text().is_some());
        log.note_committed();
        assert_eq!(shown(&log), [""; 0]);
        log.set_target(0.25);
        assert_eq!(shown(&log), ["fairness.target: 0.0 -> 0.25"]);
    }

    #[test]
    fn a_file_named_from_another_directory_is_the_same() {
        let mut config = config("guard.probe = \"probe.csv\"");
        let first = ConfigLog::new(None, &config).unwrap().text().unwrap();
        config.guard.probe = "/somewhere/probe.csv".into();
        assert_eq!(ConfigLog::new(Some(&first), &config).unwrap().text(), None);
        assert!(ConfigLog::new(Some("what = "), &config).unwrap().changes().is_empty());
    }
}
