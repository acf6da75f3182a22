//! Parameters of strategies: their documentation, and checks whose errors name the key.

use schemars::{JsonSchema, generate::SchemaSettings};
use serde::Serialize;
use serde_json::Value;

/// One parameter, for documentation.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Parameter {
    /// As in `strategy.params`.
    pub key: String,
    /// Null: no default.
    pub default: Value,
    /// Allowed values, if these are names.
    pub values: Vec<String>,
    /// The comment on its field.
    pub about: String,
}

/// The parameters of a type, by key, from its default and the comments on its fields.
pub(crate) fn describe<P: Default + Serialize + JsonSchema>() -> Result<Vec<Parameter>, serde_json::Error> {
    let schema = SchemaSettings::default().with(|settings| settings.inline_subschemas = true);
    let schema = schema.into_generator().into_root_schema_for::<P>().to_value();
    let defaults = serde_json::to_value(P::default())?;
    // Types without fields have no properties.
    let properties = schema["properties"].as_object().into_iter().flatten();
    let parameter = |(key, property): (&String, &Value)| Parameter {
        key: key.clone(),
        // A default of none may be left out.
        default: defaults.get(key).cloned().unwrap_or(Value::Null),
        values: names(property),
        about: property["description"].as_str().map_or_else(String::new, |about| about.replace('\n', " ")),
    };
    Ok(properties.map(parameter).collect())
}

/// The names that a property allows as its value.
fn names(property: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    if let Some(values) = property["enum"].as_array() {
        return values.iter().filter_map(text).collect();
    }
    let variants = property["oneOf"].as_array().or(property["anyOf"].as_array()).into_iter().flatten();
    variants
        .flat_map(|variant| text(&variant["const"]).map_or_else(|| names(variant), |name| vec![name]))
        .collect()
}

/// A parameter that must be finite and not negative.
pub fn not_negative(key: &str, value: f64) -> Result<f64, String> {
    if value.is_finite() && value >= 0.0 {
        Ok(value)
    } else {
        Err(format!("`{key}` must be 0 or more, not {value}"))
    }
}

/// A parameter that must be finite and above 0.
pub fn positive(key: &str, value: f64) -> Result<f64, String> {
    if value.is_finite() && value > 0.0 {
        Ok(value)
    } else {
        Err(format!("`{key}` must be above 0, not {value}"))
    }
}

/// A parameter that is a share.
pub fn share(key: &str, value: f64) -> Result<f64, String> {
    if (0.0..=1.0).contains(&value) {
        Ok(value)
    } else {
        Err(format!("`{key}` must lie in [0, 1], not {value}"))
    }
}
