//! The fields of a report that pages show. Reports of earlier versions lack some.

use serde::{Deserialize, Deserializer};
use serde_json::Value;
use strategies::fairness::FairnessLine;

/// A report as it was committed.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Report {
    pub round: u32,
    pub purpose: String,
    pub seconds: Option<f64>,
    pub lr: Option<f64>,
    pub loss: Figures,
    pub loss_by_tier: Vec<Figures>,
    pub accuracy: Figures,
    pub accuracy_by_tier: Vec<Figures>,
    pub participation: Vec<Participation>,
    pub weights: Option<Weights>,
    pub weight_by_tier: Vec<Option<f64>>,
    pub traffic: Option<Traffic>,
    pub traffic_by_tier: Vec<Traffic>,
    pub devices: Vec<Heard>,
    pub refused: Vec<Refused>,
    pub silent: Vec<Named>,
    pub guard: Vec<Finding>,
    #[serde(deserialize_with = "fairness")]
    pub fairness: Vec<FairnessLine>,
    /// Why the model was left unchanged.
    pub kept: Option<u16>,
}

/// Figures over devices; all but the count are absent if there are none.
#[derive(Copy, Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Figures {
    pub count: u64,
    pub mean: Option<f64>,
    pub variance: Option<f64>,
    pub std: Option<f64>,
    pub worst10: Option<f64>,
    pub best10: Option<f64>,
}

impl Figures {
    /// The mean, unless there are no devices: earlier reports then state 0.
    pub fn shown_mean(&self) -> Option<f64> {
        self.mean.filter(|_| self.count > 0)
    }
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Participation {
    pub asked: u64,
    pub delivered: u64,
    pub refused: u64,
    pub silent: u64,
    pub late: u64,
}

#[derive(Copy, Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Weights {
    pub effective: Option<f64>,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Traffic {
    pub up: u64,
    pub down: u64,
}

/// A device that has delivered.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Heard {
    pub device: String,
    pub tier: usize,
    pub samples: u64,
    pub loss_before: Option<f64>,
    pub test_loss: Option<f64>,
    pub test_accuracy: Option<f64>,
    pub weight: Option<f64>,
}

impl Heard {
    /// The loss that reports summarise.
    pub fn loss(&self) -> Option<f64> {
        self.test_loss.or(self.loss_before)
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Refused {
    pub device: String,
    pub tier: usize,
    pub code: u16,
    pub why: String,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Named {
    pub device: String,
    pub tier: usize,
}

#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Finding {
    pub device: String,
    pub tier: usize,
    pub what: String,
    pub said: Option<f64>,
    pub counted: Option<f64>,
    pub why: String,
}

/// Lines of another version are left out.
fn fairness<'de, D: Deserializer<'de>>(source: D) -> Result<Vec<FairnessLine>, D::Error> {
    let lines = Option::<Vec<Value>>::deserialize(source)?;
    Ok(lines.unwrap_or_default().into_iter().filter_map(|line| serde_json::from_value(line).ok()).collect())
}
