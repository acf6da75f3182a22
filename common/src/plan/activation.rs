//! Functions of single numbers.

use serde::{Deserialize, Serialize};

/// A function of single numbers.
#[derive(Copy, Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "full", derive(Deserialize))]
#[expect(missing_docs, reason = "the line of a variant explains its fields")]
pub enum Activation {
    /// `max(x, 0)`.
    Relu,
    /// `x` where positive, else `slope * x`; `slope > 0`.
    LeakyRelu { slope: f32 },
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// Hyperbolic tangent.
    Tanh,
    /// `x * (1 + erf(x / sqrt 2)) / 2`.
    Gelu,
    /// `x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2`.
    GeluTanh,
    /// `x * sigmoid(x)`, also called Swish.
    Silu,
    /// `x * tanh(softplus(x))`.
    Mish,
    /// `x * min(max(x / 6 + 1 / 2, 0), 1)`.
    HardSwish,
    /// `min(max(alpha * x + beta, 0), 1)`; `alpha > 0`.
    HardSigmoid { alpha: f32, beta: f32 },
    /// `min(max(x, min), max)`; a bound that is absent is infinite.
    Clip { min: f32, max: f32 },
    /// `x` where positive, else `alpha * (exp(x) - 1)`; `alpha > 0`.
    Elu { alpha: f32 },
    /// `gamma * elu(x)` with the constants of its authors, [`SELU_ALPHA`] and [`SELU_GAMMA`].
    Selu,
    /// `x` where positive, else `alpha * (exp(x / alpha) - 1)`; `alpha > 0`.
    Celu { alpha: f32 },
    /// `ln(1 + exp(x))`.
    Softplus,
    /// `x / (1 + |x|)`.
    Softsign,
}

/// `alpha` of [`Activation::Selu`].
pub const SELU_ALPHA: f32 = 1.673_263_2;
/// `gamma` of [`Activation::Selu`].
pub const SELU_GAMMA: f32 = 1.050_701;

/// Small boards know one function, and decoders of the others would take flash.
#[cfg(not(feature = "full"))]
impl<'de> Deserialize<'de> for Activation {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        enum Small {
            Relu,
        }
        Small::deserialize(deserializer).map(|Small::Relu| Self::Relu)
    }
}

impl Activation {
    /// The first protocol that knows the function.
    pub fn since(self) -> u8 {
        match self {
            Self::Relu | Self::LeakyRelu { .. } | Self::Sigmoid | Self::Tanh => 4,
            Self::Gelu
            | Self::GeluTanh
            | Self::Silu
            | Self::Mish
            | Self::HardSwish
            | Self::HardSigmoid { .. }
            | Self::Clip { .. }
            | Self::Elu { .. }
            | Self::Selu
            | Self::Celu { .. }
            | Self::Softplus
            | Self::Softsign => 7,
        }
    }

    /// The derivative follows from the input only: two inputs with another derivative have the same output. The derivative of
    /// every other function follows from its output.
    pub fn needs_input(self) -> bool {
        cfg!(feature = "full")
            && matches!(self, Self::Gelu | Self::GeluTanh | Self::Silu | Self::Mish | Self::HardSwish)
    }

    /// Its numbers are in the range for which the formulas hold.
    pub fn is_sound(self) -> bool {
        let positive = |number: f32| number > 0.0 && number.is_finite();
        match self {
            Self::LeakyRelu { slope } => positive(slope),
            Self::HardSigmoid { alpha, beta } => positive(alpha) && beta.is_finite(),
            Self::Clip { min, max } => min < max,
            Self::Elu { alpha } | Self::Celu { alpha } => positive(alpha),
            _ => true,
        }
    }
}
