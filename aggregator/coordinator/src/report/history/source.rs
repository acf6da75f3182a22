//! The fields of a report that a row shows; the others are skipped without a copy. Reports of earlier versions lack some.

use std::{borrow::Cow, fmt};

use crate::{best::BestModel, report::ConfigChange};
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, SeqAccess, Visitor},
};
use strategies::fairness::{FairnessStatus, Resolution};

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct ReportFields<'a> {
    pub round: Option<f64>,
    pub lr: Option<f64>,
    pub devices: Option<ListLen>,
    pub refused: Option<ListLen>,
    pub silent: Option<ListLen>,
    pub participation: Option<Vec<TierFields>>,
    #[serde(borrow)]
    pub guard: Option<Vec<GuardFields<'a>>>,
    pub loss: Option<SummaryFields>,
    pub loss_split: Option<SplitFields>,
    pub loss_by_tier: Option<Vec<SummaryFields>>,
    pub accuracy: Option<SummaryFields>,
    pub accuracy_by_tier: Option<Vec<SummaryFields>>,
    pub weights: Option<WeightFields>,
    pub traffic: Option<TrafficFields>,
    pub fairness: Option<Vec<FairnessFields>>,
    pub began: Option<String>,
    pub ended: Option<String>,
    pub strategy: Option<String>,
    pub changes: Option<Vec<ConfigChange>>,
    pub best: Option<BestModel>,
    pub stopped: Option<String>,
    pub errors: Option<ErrorFields>,
    pub kept: Option<f64>,
}

/// Errors of predicted numbers.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct ErrorFields {
    pub mae: Option<SummaryFields>,
    pub r2: Option<f64>,
}

/// Of one tier.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct TierFields {
    pub stragglers: Option<f64>,
    pub late: Option<f64>,
}

/// An entry of the guard.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct GuardFields<'a> {
    #[serde(borrow)]
    pub device: Option<Cow<'a, str>>,
    pub tier: Option<f64>,
    #[serde(borrow)]
    pub action: Option<Cow<'a, str>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct SummaryFields {
    pub count: Option<f64>,
    pub mean: Option<f64>,
    pub variance: Option<f64>,
    pub worst10: Option<f64>,
    pub best10: Option<f64>,
    pub angle: Option<f64>,
    pub jain: Option<f64>,
}

impl SummaryFields {
    /// Whether it summarizes any device.
    pub fn has_devices(&self) -> bool {
        self.count.is_some_and(|count| count > 0.0)
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct SplitFields {
    pub inter: Option<f64>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct WeightFields {
    pub effective: Option<f64>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct TrafficFields {
    pub up: Option<f64>,
    pub down: Option<f64>,
}

/// One knob of a fairness target.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct FairnessFields {
    pub measured: Option<f64>,
    pub target: Option<f64>,
    /// Of the parameter.
    pub value: Option<f64>,
    pub status: Option<FairnessStatus>,
    pub resolution: Option<Resolution>,
}

/// The length of a list.
#[derive(Copy, Clone)]
pub(super) struct ListLen(pub usize);

impl<'de> Deserialize<'de> for ListLen {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Counter;

        impl<'de> Visitor<'de> for Counter {
            type Value = ListLen;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<ListLen, A::Error> {
                let mut count = 0;
                while list.next_element::<IgnoredAny>()?.is_some() {
                    count += 1;
                }
                Ok(ListLen(count))
            }
        }
        deserializer.deserialize_seq(Counter)
    }
}
