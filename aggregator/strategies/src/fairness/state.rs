//! What is saved with the model, in the same transaction as the round.

use serde::{Deserialize, Serialize};

use super::{
    controller::Controller, line::Capped, meter::Meter, resolution::Noise, settings::Measure,
    sums::SignalKind,
};
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
    /// By knob; empty in a state of a program that did not know them.
    #[serde(default)]
    pub notes: Vec<KnobNotes>,
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

/// What the last round showed of one knob beside the disparity. It is for reports alone and moves nothing.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnobNotes {
    /// The noise of the measurement.
    pub noise: Option<Noise>,
    /// Devices whose shares the guard bounded.
    pub capped: Capped,
}

impl FairnessState {
    /// The knob that is wanted, with its notes.
    pub(super) fn of(&self, wanted: impl Fn(&KnobState) -> bool) -> Option<(&KnobState, KnobNotes)> {
        let at = self.knobs.iter().position(wanted)?;
        Some((&self.knobs[at], self.notes.get(at).cloned().unwrap_or_default()))
    }

    /// For a store. The notes follow the knobs, where earlier programs end.
    pub fn to_bytes(&self) -> Vec<u8> {
        let knobs = postcard::to_allocvec(&(&self.strategy, &self.knobs));
        let notes = postcard::to_allocvec(&self.notes);
        let encoded = "numbers and names always encode";
        [TAG, &knobs.expect(encoded), &notes.expect(encoded)].concat()
    }

    /// What [`FairnessState::to_bytes`] gave; `None`: it is something else.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let ((strategy, knobs), rest) = postcard::take_from_bytes(bytes.strip_prefix(TAG)?).ok()?;
        let (notes, rest) = match rest {
            [] => (vec![], rest),
            rest => postcard::take_from_bytes(rest).ok()?,
        };
        rest.is_empty().then_some(Self { strategy, knobs, notes })
    }
}
