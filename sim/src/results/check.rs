//! Checks: comparisons of results with published values, as stated by claims and experiments.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One comparison that a claim rests on.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// Data, model or setting of the check, as text.
    pub what: String,
    /// Name of the experiment that provides the results. Empty if there is none, and in the experiment's own file.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub experiment: String,
    /// Profile of the results, unless it is the full one where that has the runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// What is computed; absent if our experiments do not compute such a figure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Value>")]
    pub measure: Option<Measure>,
    /// The published value in words, as its source prints it. Default: `direction only`.
    #[serde(default = "direction_only")]
    pub published: String,
    /// The published value of the measure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<f64>,
    /// It holds whatever the data are, because of how the method or the figure is defined. Shown, but not counted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_construction: bool,
    /// The check that stands for its claim in the record: of the method `published`, or `improved`; at most one of each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub headline: Option<Form>,
}

/// The form of a method that a result is about.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// As its paper prints it.
    Published,
    /// With parameters or settings of ours.
    Improved,
}

fn direction_only() -> String {
    "direction only".into()
}

/// What is computed. Figures and settings are given by name.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "snake_case", deny_unknown_fields)]
#[expect(missing_docs, reason = "the line of a variant explains its fields")]
pub enum Measure {
    /// Relative change of a figure from one setting to another.
    Change { figure: String, from: String, to: String, want: Want },
    /// Difference of a figure from one setting to another.
    Difference { figure: String, from: String, to: String, want: Want },
    /// Relative change from one figure to another of the same setting.
    Between { of: String, from: String, to: String, want: Want },
    /// The figure itself.
    Level { figure: String, of: String, want: Want },
    /// The figure over all runs of several settings.
    Pooled { figure: String, of: Vec<String>, take: Take, want: Want },
    /// The figure falls from each setting to the next; yields the relative change from first to last.
    Falls { figure: String, settings: Vec<String> },
    /// No other setting of the experiment is better; yields the difference to the best other.
    Best { figure: String, of: String },
}

/// What is taken of many runs.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Take {
    /// Arithmetic mean.
    Mean,
    /// Total over all runs.
    Sum,
    /// The highest value.
    Largest,
    /// The lowest value.
    Least,
}

impl Take {
    /// As in a description.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::Sum => "sum",
            Self::Largest => "largest",
            Self::Least => "least",
        }
    }

    /// `None` without values.
    pub(crate) fn of(self, values: &[f64]) -> Option<f64> {
        let sum = values.iter().sum::<f64>();
        let all = values.iter().copied();
        match self {
            _ if values.is_empty() => None,
            Self::Mean => Some(sum / values.len() as f64),
            Self::Sum => Some(sum),
            Self::Largest => all.reduce(f64::max),
            Self::Least => all.reduce(f64::min),
        }
    }
}

/// When the direction is reached.
#[derive(Copy, Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Want {
    /// Below 0.
    Lower,
    /// Above 0.
    Higher,
    /// Not above this bound.
    AtMost(f64),
    /// Not below this bound.
    AtLeast(f64),
    /// At most this far from 0.
    Within(f64),
}

impl Want {
    /// The bar in words.
    pub(crate) fn words(self) -> String {
        match self {
            Self::Lower => "below 0".into(),
            Self::Higher => "above 0".into(),
            Self::AtMost(bound) => format!("at most {bound}"),
            Self::AtLeast(bound) => format!("at least {bound}"),
            Self::Within(bound) => format!("within {bound} of 0"),
        }
    }

    /// Whether a value is on the wanted side.
    pub(crate) fn holds(self, value: f64) -> bool {
        match self {
            Self::Lower => value < 0.0,
            Self::Higher => value > 0.0,
            Self::AtMost(bound) => value <= bound,
            Self::AtLeast(bound) => value >= bound,
            Self::Within(bound) => value.abs() <= bound,
        }
    }
}
