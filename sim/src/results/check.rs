//! Checks: comparisons of results with what was published, as claims and experiments state them.

use serde::{Deserialize, Serialize};

/// One comparison that a claim rests on.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// Which data, model or setting, for people.
    pub what: String,
    /// Name of the experiment that serves it; empty where none does, and in the file of the experiment itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub experiment: String,
    /// The profile whose results it is about; absent: the full one where it has the runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Absent where our experiments compute nothing of the kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measure: Option<Measure>,
    #[serde(default = "direction_only")]
    pub published: String,
    /// The published number of the kind that the measure yields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<f64>,
}

fn direction_only() -> String {
    "direction only".into()
}

/// What is computed. Distribution and settings go by their names.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "snake_case", deny_unknown_fields)]
pub enum Measure {
    /// Relative change of a figure from one setting to another.
    Change { figure: String, from: String, to: String, want: Want },
    /// Its difference.
    Difference { figure: String, from: String, to: String, want: Want },
    /// Relative change from one figure to another of the same setting.
    Between { of: String, from: String, to: String, want: Want },
    /// The figure itself.
    Level { figure: String, of: String, want: Want },
    /// The figure falls from each setting to the next; yields the relative change from first to last.
    Falls { figure: String, settings: Vec<String> },
    /// No other setting of the experiment is better; yields the difference to the best other.
    Best { figure: String, of: String },
}

/// When the direction is reached.
#[derive(Copy, Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Want {
    /// Below 0.
    Lower,
    /// Above 0.
    Higher,
    AtMost(f64),
    AtLeast(f64),
    /// No further from 0 than this.
    Within(f64),
}

impl Want {
    /// Whether a value lies on the wanted side.
    pub fn holds(self, value: f64) -> bool {
        match self {
            Self::Lower => value < 0.0,
            Self::Higher => value > 0.0,
            Self::AtMost(bound) => value <= bound,
            Self::AtLeast(bound) => value >= bound,
            Self::Within(bound) => value.abs() <= bound,
        }
    }
}
