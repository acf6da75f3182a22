//! The keys of experiment files, read from the types that parse them: names, defaults, and the comments on the fields.

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::Value;

use super::spec::{AloneSpec, Choose, DataSpec, Experiment, FleetSpec, Reach, StrategySpec, Variant};
use crate::{
    engine::{Chances, Hardware},
    results::Check,
};

/// A table of an experiment file.
#[derive(Clone, PartialEq, Debug)]
pub struct KeyTable {
    /// As in the file; empty for the keys at the top.
    pub name: &'static str,
    /// Its keys by name.
    pub keys: Vec<ExperimentKey>,
}

/// One key.
#[derive(Clone, PartialEq, Debug)]
pub struct ExperimentKey {
    /// As in the file.
    pub key: String,
    /// As JSON; `None` without a default.
    pub default: Option<String>,
    /// The comment on its field.
    pub about: String,
}

/// Every key of an experiment file. Keys of `training`, `wire`, `guard` and `fairness` are those of `fairtier.toml`.
pub fn keys() -> Vec<KeyTable> {
    vec![
        of::<Experiment>(""),
        of::<DataSpec>("data"),
        of::<FleetSpec>("fleet"),
        of::<Chances>("fleet.chances"),
        of::<Hardware>("fleet.hardware"),
        of::<AloneSpec>("alone"),
        of::<StrategySpec>("strategies"),
        of::<Choose>("strategies.choose"),
        of::<Reach>("strategies.reach"),
        of::<Variant>("variants"),
        of::<Check>("check"),
    ]
}

fn of<T: JsonSchema>(name: &'static str) -> KeyTable {
    let settings = SchemaSettings::default().with(|settings| settings.inline_subschemas = true);
    let schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    let key = |(key, property): (&String, &Value)| ExperimentKey {
        key: key.clone(),
        // An empty default says no more than none.
        default: property.get("default").filter(|value| !is_empty(value)).map(Value::to_string),
        about: property["description"].as_str().unwrap_or_default().replace('\n', " "),
    };
    KeyTable { name, keys: schema["properties"].as_object().into_iter().flatten().map(key).collect() }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::LoadedExperiment;

    #[test]
    fn every_key_has_a_comment() {
        for KeyTable { name, keys } in keys() {
            assert!(!keys.is_empty(), "{name}");
            for key in keys {
                assert!(!key.about.is_empty(), "[{name}] {}", key.key);
            }
        }
    }

    /// Keys of every experiment that comes with the program are in the reference.
    #[test]
    fn known_experiments_use_only_listed_keys() {
        let tables = keys();
        let listed = |table: &str, key: &str| {
            tables.iter().any(|known| known.name == table && known.keys.iter().any(|known| known.key == key))
        };
        for (name, _) in super::super::ALL {
            let loaded = LoadedExperiment::open(name, "full", &[]).unwrap();
            for (key, value) in &loaded.table {
                assert!(listed("", key), "{name}: {key}");
                for (inner, _) in value.as_table().into_iter().flatten() {
                    let known = ["training", "wire", "guard", "fairness"].contains(&key.as_str());
                    assert!(known || listed(key, inner), "{name}: {key}.{inner}");
                }
            }
        }
    }

    #[test]
    fn defaults_are_those_of_the_parser() {
        let tables = keys();
        let default = |table: &str, key: &str| {
            let table = tables.iter().find(|known| known.name == table).unwrap();
            table.keys.iter().find(|known| known.key == key).unwrap().default.clone()
        };
        assert_eq!(default("data", "testing").as_deref(), Some("0.1"));
        assert_eq!(default("data", "partition").as_deref(), Some("\"iid\""));
        assert_eq!(default("fleet", "quorum").as_deref(), Some("0.5"));
        assert_eq!(default("data", "clients"), None);
    }
}
