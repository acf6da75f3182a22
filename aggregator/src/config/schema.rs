//! The JSON schema of `fairtier.toml`: its types, with the comments of `default.toml`.

use std::collections::{BTreeMap, BTreeSet};

use schemars::{JsonSchema, generate::SchemaSettings};
use serde::Serialize;
use serde_json::Value;
use strategies::guard::{Bonus, GuardConfig, Mode};

use super::{Config, keys};

/// The schema as indented JSON.
pub fn schema_text() -> Result<String, serde_json::Error> {
    Ok(serde_json::to_string_pretty(&schema())? + "\n")
}

/// The schema. It states types and names; ranges are in the descriptions, and `fairtier gateway check` checks them.
pub fn schema() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<Config>().to_value();
    schema["title"] = "fairtier.toml".into();
    schema["description"] = "Configuration of a FairTier gateway. Every key is optional.".into();
    for key in keys() {
        let property = &mut schema["properties"][key.table.as_str()]["properties"][key.key.as_str()];
        if let Some(property) = property.as_object_mut() {
            property.insert("description".to_owned(), key.about.into());
        }
    }
    schema
}

/// As `models::tiers::TierSpec` is written.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) enum TierText {
    /// The share of every hidden layer that the tier keeps, in (0, 1].
    Rate(f64),
    Widths(WidthsText),
    Partly(PartlyText),
}

#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WidthsText {
    /// Units kept of each hidden layer.
    widths: Vec<u32>,
    /// Only this many of the last layers are trained.
    #[serde(skip_serializing_if = "Option::is_none")]
    last: Option<u16>,
}

#[derive(Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PartlyText {
    /// The share of every hidden layer that the tier keeps, in (0, 1].
    rate: f64,
    /// Layers that cannot be cut stay whole.
    #[serde(default)]
    keep_whole: bool,
    /// Only this many of the last layers are trained.
    #[serde(skip_serializing_if = "Option::is_none")]
    last: Option<u16>,
}

/// As [`common::Codec`] is written.
#[derive(Serialize, JsonSchema, Default)]
#[serde(rename_all = "lowercase")]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) enum CodecText {
    #[default]
    F32,
    F16,
    Int8,
}

/// As `coordinator::best::BestBy` is written.
#[derive(Serialize, JsonSchema, Default)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) enum BestText {
    #[default]
    Mean,
    WorstTier,
    Variance,
}

/// The present keys of [`GuardConfig`], which also reads those of an older version.
#[derive(Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct GuardText {
    mode: Mode,
    loss: f64,
    share: f64,
    fifth: f64,
    counts: f64,
    floor: f64,
    length: f64,
    trusted_counts: BTreeSet<String>,
    bonus: Bonus,
    probe: String,
    probe_scale: f32,
}

impl Default for GuardText {
    fn default() -> Self {
        let GuardConfig { mode, loss, share, fifth, counts, floor, length, bonus, probe_scale, .. } =
            GuardConfig::default();
        let (trusted_counts, probe) = (BTreeSet::new(), String::new());
        Self { mode, loss, share, fifth, counts, floor, length, trusted_counts, bonus, probe, probe_scale }
    }
}

/// Numbers of tiers by device.
pub(super) type DevicesText = BTreeMap<String, u8>;
/// The table of a schema; `fairtier data check` checks it.
pub(super) type DataText = serde_json::Map<String, Value>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::DEFAULT;

    /// Whether a value fits a schema with the keywords that `schema` uses; panics at any other one.
    fn fits(schema: &Value, value: &Value) -> bool {
        let Some(schema) = schema.as_object() else { return schema.as_bool().unwrap() };
        schema.iter().all(|(keyword, rule)| match keyword.as_str() {
            "$schema" | "title" | "description" | "default" | "format" | "properties" => {
                match keyword.as_str() {
                    "properties" => rule
                        .as_object()
                        .unwrap()
                        .iter()
                        .all(|(key, rule)| value.get(key).is_none_or(|value| fits(rule, value))),
                    _ => true,
                }
            }
            "type" => match rule {
                Value::Array(kinds) => kinds.iter().any(|kind| is(kind.as_str().unwrap(), value)),
                kind => is(kind.as_str().unwrap(), value),
            },
            "enum" => rule.as_array().unwrap().contains(value),
            "const" => rule == value,
            "anyOf" => rule.as_array().unwrap().iter().any(|rule| fits(rule, value)),
            "oneOf" => rule.as_array().unwrap().iter().filter(|rule| fits(rule, value)).count() == 1,
            "items" => value.as_array().is_none_or(|list| list.iter().all(|item| fits(rule, item))),
            "minimum" => value.as_f64().is_none_or(|number| number >= rule.as_f64().unwrap()),
            "maximum" => value.as_f64().is_none_or(|number| number <= rule.as_f64().unwrap()),
            "minItems" => value.as_array().is_none_or(|list| list.len() as u64 >= rule.as_u64().unwrap()),
            "maxItems" => value.as_array().is_none_or(|list| list.len() as u64 <= rule.as_u64().unwrap()),
            "uniqueItems" => true,
            "required" => {
                rule.as_array().unwrap().iter().all(|key| value.get(key.as_str().unwrap()).is_some())
            }
            "additionalProperties" => value.as_object().is_none_or(|object| {
                let known = schema.get("properties").and_then(Value::as_object);
                object
                    .iter()
                    .filter(|(key, _)| known.is_none_or(|known| !known.contains_key(*key)))
                    .all(|(_, value)| fits(rule, value))
            }),
            other => panic!("the schema uses {other}, which this test does not know"),
        })
    }

    fn is(kind: &str, value: &Value) -> bool {
        match kind {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "null" => value.is_null(),
            "number" => value.is_number(),
            "integer" => value.is_i64() || value.is_u64(),
            other => panic!("type {other}"),
        }
    }

    fn fits_text(text: &str) -> bool {
        let table: toml::Table = text.parse().unwrap();
        fits(&schema(), &serde_json::to_value(table).unwrap())
    }

    #[test]
    fn every_key_is_in_the_schema_with_its_comment_and_no_other() {
        let schema = schema();
        let documented: BTreeSet<_> = keys().into_iter().map(|key| (key.table, key.key)).collect();
        let mut found = BTreeSet::new();
        for (table, section) in schema["properties"].as_object().unwrap() {
            for (key, property) in section["properties"].as_object().into_iter().flatten() {
                assert!(property["description"].as_str().is_some_and(|text| text.len() > 3), "{table}.{key}");
                found.insert((table.clone(), key.clone()));
            }
        }
        assert_eq!(found, documented);
    }

    #[test]
    fn the_schema_takes_what_the_gateway_takes() {
        assert!(fits_text(DEFAULT));
        for text in [
            "[model]\ntiers = [1.0, 0.5, { widths = [16] }, { rate = 0.25, keep_whole = true }, { rate = 0.5, last = 1 }]",
            "[wire]\nup = [\"f32\", \"int8\"]\ndown = \"f16\"\n[model]\ntiers = [1.0, 0.5]",
            "[round]\ndeadline_s = [60, 300.0]\nquorum = 1\n[model]\ntiers = [1.0, 0.5]",
            "[devices]\n\"cam-1\" = 0\n[strategy]\nname = \"qffl\"\nparams = { q = 2 }",
            "[fairness]\ntarget = 0.3\nscope = \"tiers\"\n[guard]\nbonus = \"agreeing\"\ntrusted_counts = [\"a\"]",
            "[training]\noptimizer = \"adam\"\nloss = \"running\"\n[model]\nstart = \"zero\"",
        ] {
            Config::parse(text).unwrap();
            assert!(fits_text(text), "{text}");
        }
        for text in [
            "[model]\nsource = 3",
            "[modle]\nsource = \"cnn\"",
            "[model]\ntiers = [\"half\"]",
            "[model]\ntiers = 0.5",
            "[wire]\nup = \"int4\"",
            "[run]\nrounds = -1",
            "[run]\nrounds = 1.5",
            "[guard]\nbonus = \"some\"",
            "[devices]\ncam-1 = \"first\"",
            "[log]\nlevel = 3",
            "[training]\nlearning_rate = 0.1",
        ] {
            assert!(Config::parse(text).is_err(), "{text}");
            assert!(!fits_text(text), "{text}");
        }
    }

    #[test]
    fn codecs_are_those_of_the_wire() {
        for codec in common::Codec::ALL {
            assert!(fits_text(&format!("[wire]\nup = \"{}\"", codec.name())), "{}", codec.name());
        }
    }
}
