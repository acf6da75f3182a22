//! The state from round to round, in the form of a round file.
//!
//! ```text
//! dp      {"lambda": [a], "counts": [[n_{0,a}], [n_{1,a}]]}
//! eo      {"lambda": [a >= 1], "counts": ..}
//! eodds   {"lambda": [[a >= 1] of y = 0, [..] of y = 1], "counts": ..}
//! cp      {"lambda": {id: ..}, "counts": {id: n}, "losses": {id: last known loss}}
//! ```
//! Without lambda, no round has been made.

use std::collections::BTreeMap;

use common::{DeviceId, brief::MAX_GROUPS};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::methods::fedfb::{Cells, Notion};

#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct GroupState {
    pub counts: Option<Cells>,
    pub lambda: Option<Vec<f64>>,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ClientState {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lambda: Option<BTreeMap<DeviceId, f64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counts: Option<BTreeMap<DeviceId, f64>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub losses: BTreeMap<DeviceId, f64>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct SavedGroups {
    lambda: Option<SavedLambda>,
    counts: Option<Vec<Vec<f64>>>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "`lambda` must be a list of numbers, or one list per label for eodds")]
enum SavedLambda {
    Flat(Vec<f64>),
    ByLabel(Vec<Vec<f64>>),
}

impl GroupState {
    pub fn save(&self, notion: Notion) -> Value {
        let mut state = Map::new();
        if let Some(counts) = &self.counts {
            state.insert("counts".into(), json!(counts.rows()));
        }
        if let Some(lambda) = &self.lambda {
            let by_label = || lambda.split_at(lambda.len() / 2);
            let lambda = if notion == Notion::Eodds { json!(by_label()) } else { json!(lambda) };
            state.insert("lambda".into(), lambda);
        }
        if state.is_empty() { Value::Null } else { state.into() }
    }

    pub fn restore(notion: Notion, state: Value) -> Result<Self, String> {
        if state.is_null() {
            return Ok(Self::default());
        }
        let saved: SavedGroups = serde_json::from_value(state).map_err(|error| error.to_string())?;
        let lambda = match (saved.lambda, notion) {
            (None, _) => None,
            (Some(SavedLambda::ByLabel(rows)), Notion::Eodds) if rows.len() == 2 => Some(rows.concat()),
            (Some(SavedLambda::Flat(_)), Notion::Eodds) | (Some(SavedLambda::ByLabel(_)), _) => {
                return Err("`lambda` must be one list per label for eodds, else one list".into());
            }
            (Some(SavedLambda::Flat(lambda)), _) => Some(lambda),
        };
        let counts = match saved.counts {
            None => None,
            Some(rows) => {
                let counted = |cells: &Cells| cells.values().iter().all(|&n| n >= 0.0);
                let short = |cells: &Cells| cells.values().len() <= MAX_GROUPS;
                let counts = Cells::from_rows(&rows).filter(|cells| counted(cells) && short(cells));
                let why = "`counts` must be two lists, one per label, of equally many numbers from 0 on";
                Some(counts.ok_or(why)?)
            }
        };
        if let (Some(lambda), Some(counts)) = (&lambda, &counts) {
            let a = counts.attributes();
            let expected = match notion {
                Notion::Eo => a - 1,
                Notion::Eodds => 2 * (a - 1),
                Notion::Dp | Notion::Cp => a,
            };
            if lambda.len() != expected {
                return Err(format!("`lambda` has {} numbers, not {expected}", lambda.len()));
            }
        }
        Ok(Self { counts, lambda })
    }
}

impl ClientState {
    pub fn save(&self) -> Value {
        if *self == Self::default() { Value::Null } else { json!(self) }
    }

    pub fn restore(state: Value) -> Result<Self, String> {
        if state.is_null() {
            return Ok(Self::default());
        }
        let saved: Self = serde_json::from_value(state).map_err(|error| error.to_string())?;
        match saved.counts.iter().flatten().find(|(_, samples)| **samples <= 0.0) {
            Some((device, samples)) => Err(format!("`counts` of {device} must be above 0, not {samples}")),
            None => Ok(saved),
        }
    }
}
