//! What is saved with the model, in the same transaction as the round.

use serde::{Deserialize, Serialize};

use super::{controller::Controller, meter::Meter, settings::Measure, sums::SignalKind};
use crate::strategy::FairnessScope;

/// Before the bytes of a state; another form gets another tag.
const TAG: &[u8] = b"F1";

/// The state of all knobs.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FairnessState {
    /// Whose knobs they are. A state of another strategy is not taken up.
    pub strategy: String,
    /// One per knob.
    pub knobs: Vec<KnobState>,
}

/// The state of one knob.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnobState {
    /// The parameter that is driven.
    pub parameter: String,
    /// Of a parameter per tier.
    pub tier: Option<usize>,
    /// Between whom the disparity is measured.
    pub scope: FairnessScope,
    /// The figure that is compared with the target.
    pub measure: Measure,
    /// What the figure is computed from.
    pub signal: SignalKind,
    /// State of the controller.
    pub controller: Controller,
    /// State of the measurement.
    pub meter: Meter,
}

impl FairnessState {
    /// For a store.
    pub fn to_bytes(&self) -> Vec<u8> {
        [TAG, &postcard::to_allocvec(self).expect("numbers and names always encode")].concat()
    }

    /// What [`FairnessState::to_bytes`] gave; `None`: it is something else.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (state, rest) = postcard::take_from_bytes(bytes.strip_prefix(TAG)?).ok()?;
        rest.is_empty().then_some(state)
    }
}
