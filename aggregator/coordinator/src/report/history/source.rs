//! The parts of a report that a row shows; the rest is passed over without a copy.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, SeqAccess, Visitor},
};

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Source<'a> {
    pub round: Option<f64>,
    pub lr: Option<f64>,
    pub devices: Option<Count>,
    pub refused: Option<Count>,
    pub silent: Option<Count>,
    pub participation: Option<Vec<Part>>,
    #[serde(borrow)]
    pub guard: Option<Vec<Held<'a>>>,
    pub loss: Option<Figures>,
    pub loss_split: Option<Split>,
    pub loss_by_tier: Option<Vec<Figures>>,
    pub accuracy: Option<Figures>,
    pub accuracy_by_tier: Option<Vec<Figures>>,
    pub weights: Option<Weights>,
    pub traffic: Option<Traffic>,
}

/// Of one tier.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Part {
    pub stragglers: Option<f64>,
    pub late: Option<f64>,
}

/// A line of the guard.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Held<'a> {
    #[serde(borrow)]
    pub device: Option<Cow<'a, str>>,
    pub tier: Option<f64>,
    #[serde(borrow)]
    pub action: Option<Cow<'a, str>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Figures {
    pub count: Option<f64>,
    pub mean: Option<f64>,
    pub variance: Option<f64>,
    pub worst10: Option<f64>,
    pub best10: Option<f64>,
    pub angle: Option<f64>,
    pub jain: Option<f64>,
}

impl Figures {
    /// Whether there were devices.
    pub fn of_some(&self) -> bool {
        self.count.is_some_and(|count| count > 0.0)
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Split {
    pub inter: Option<f64>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Weights {
    pub effective: Option<f64>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Traffic {
    pub up: Option<f64>,
    pub down: Option<f64>,
}

/// How long a list is.
#[derive(Copy, Clone)]
pub(super) struct Count(pub usize);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Counter;

        impl<'de> Visitor<'de> for Counter {
            type Value = Count;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Count, A::Error> {
                let mut count = 0;
                while list.next_element::<IgnoredAny>()?.is_some() {
                    count += 1;
                }
                Ok(Count(count))
            }
        }
        deserializer.deserialize_seq(Counter)
    }
}
