//! Recurrent layers other than the GRU: LSTM and plain ones.

use serde::{Deserialize, Serialize};

use super::op::mul;
use crate::small::only_with;

only_with!("full": Recurrent);

/// A layer over a sequence, in one direction, whose state starts at 0. With ONNX gate order i, o, f, c:
///
/// ```text
/// LSTM   i, o, f = sigmoid(W x + Wb + R h + Rb)      g = tanh(Wc x + Wbc + Rc h + Rbc)
///        c' = f*c + i*g                              h' = o*tanh(c')
/// plain  h' = tanh(W x + Wb + R h + Rb)
/// ```
/// `W[k u][inputs]`, `R[k u][u]`, `B[2 k u]` = Wb Rb, with `k` gates. The output is all states `h`, `[steps][u]`.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "full", derive(Deserialize))]
pub struct Recurrent {
    /// What a step computes.
    pub kind: RecurrentKind,
    /// Length of the sequence.
    pub steps: u32,
    /// Numbers per step of the input.
    pub inputs: u32,
    /// Size of the state, `u`.
    pub units: u32,
    /// Offset of `W` in the parameters.
    pub weight: u32,
    /// Offset of `R` in the parameters.
    pub recurrent: u32,
    /// Offset of `B` in the parameters.
    pub bias: Option<u32>,
}

/// What a step of a recurrent layer computes.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum RecurrentKind {
    /// Long short-term memory, without peepholes.
    Lstm,
    /// A plain layer with hyperbolic tangent.
    Tanh,
}

impl RecurrentKind {
    /// Products with `W` and `R` per unit.
    pub fn gates(self) -> u32 {
        match self {
            Self::Lstm => 4,
            Self::Tanh => 1,
        }
    }

    /// Numbers per unit and step that forward leaves for backward: the gates, and the cell of an LSTM.
    pub fn kept(self) -> u32 {
        match self {
            Self::Lstm => 5,
            Self::Tanh => 1,
        }
    }

    /// Gradients per unit that backward carries from step to step: of the state, and of the cell of an LSTM.
    pub fn carried(self) -> u32 {
        match self {
            Self::Lstm => 2,
            Self::Tanh => 1,
        }
    }
}

impl Recurrent {
    pub(super) fn sizes(&self) -> (u64, u64) {
        (mul(self.steps, self.inputs), mul(self.steps, self.units))
    }

    pub(super) fn keep(&self) -> u64 {
        mul(self.steps, self.units).saturating_mul(self.kind.kept().into())
    }

    pub(super) fn scratch(&self) -> u64 {
        mul(self.units, self.kind.carried())
    }

    pub(super) fn macs(&self) -> u64 {
        let columns = u64::from(self.inputs) + u64::from(self.units);
        mul(self.steps, self.units).saturating_mul(self.kind.gates().into()).saturating_mul(columns)
    }

    pub(super) fn parameters(&self) -> [Option<(u32, u64)>; 3] {
        let rows = mul(self.units, self.kind.gates());
        [
            Some((self.weight, rows.saturating_mul(self.inputs.into()))),
            Some((self.recurrent, rows.saturating_mul(self.units.into()))),
            self.bias.map(|bias| (bias, 2 * rows)),
        ]
    }
}
