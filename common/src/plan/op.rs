//! The operations of a Plan: what each computes, on how many numbers, with which parameters.
//!
//! Parameter offsets are relative to the start of the slice. Images are `[channels][height][width]`,
//! sequences `[steps][width]`, all row-major. A 1-D convolution is one of height 1.

use serde::{Deserialize, Serialize};

use super::{Activation, Arithmetic, Arrange, Gate, PRelu, Recurrent};
use crate::small::only_with;

only_with!("full": Gru, Norm, Standardize);
only_with!("conv": Conv, Pool);

/// What a node computes.
#[derive(Copy, Clone, PartialEq, Debug, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the line of a variant explains its fields")]
pub enum Op {
    /// `y = x W^T + b` with `W[outputs][inputs]`, for each of `rows` rows of a sample (a row per token;
    /// 1 for everything else).
    Dense { rows: u32, inputs: u32, outputs: u32, weight: u32, bias: Option<u32> },
    /// Convolution.
    Conv(Conv),
    /// Applies `kind` to each of `len` numbers per sample; may work in place. Backward needs the output only, or for some
    /// kinds the input only ([`Activation::needs_input`]).
    Activate { kind: Activation, len: u32 },
    /// Pooling over windows of an image.
    Pool(Pool),
    /// `y = input + second`; may write over `input`.
    Add { len: u32 },
    /// `y[t] = table[x[t]]`, where `x` holds `rows` whole numbers below `entries`.
    Embed { rows: u32, entries: u32, width: u32, table: u32 },
    /// Recurrent layer over a sequence.
    Gru(Gru),
    /// In training, `y = 0` with probability `rate`, else `x / (1 - rate)`; otherwise `y = x`. The brief's seed, the step, `salt`
    /// and the index determine what is dropped, so backward needs nothing. May work in place.
    Dropout { len: u32, rate: f32, salt: u32 },
    /// Group and layer normalisation.
    Norm(Norm),
    /// `y = scale[c] * (x - mean[c]) / sqrt(var[c] + epsilon) + bias[c]` with `channels` channels of `inner` numbers.
    ///
    /// In training, mean and variance (divisor N) are those of the batch. In evaluation they come from a pass over the device's
    /// own data. `stats` is their offset in the statistics segment: `mean[channels]`, then `var[channels]`.
    BatchNorm { channels: u32, inner: u32, epsilon: f32, scale: u32, bias: u32, stats: u32 },
    /// `y = factor * x`, in training only (HeteroFL's scaler). May work in place.
    Scale { len: u32, factor: f32 },
    /// The last of `steps` rows of `width` numbers.
    Last { steps: u32, width: u32 },
    /// `y = x` where positive, else `slope[c] * x`.
    PRelu(PRelu),
    /// `y = x + c`, `x - c`, `x * c` or `x / c` with constants, which are not trained. May work in place.
    Arithmetic(Arithmetic),
    /// LSTM or plain recurrent layer over a sequence.
    Recurrent(Recurrent),
    /// Joins, cuts, pads or transposes.
    Arrange(Arrange),
    /// Multiplies two values.
    Gate(Gate),
    /// Layer normalisation without summands.
    Standardize(Standardize),
}

/// How a kernel moves over an image.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Window {
    /// Rows of the input image.
    pub height: u32,
    /// Columns of the input image.
    pub width: u32,
    /// Height and width of the kernel.
    pub kernel: [u16; 2],
    /// Steps of the kernel, down and right.
    pub stride: [u16; 2],
    /// Top, left, bottom, right.
    pub pad: [u16; 4],
}

impl Window {
    /// Height and width of the result; 0 where the kernel does not fit.
    pub fn output(&self) -> (u32, u32) {
        let size = |size: u32, axis: usize| {
            let padded = u64::from(size) + u64::from(self.pad[axis]) + u64::from(self.pad[axis + 2]);
            let room = padded.checked_sub(self.kernel[axis].into())?;
            u32::try_from(room.checked_div(self.stride[axis].into())? + 1).ok()
        };
        (size(self.height, 0).unwrap_or(0), size(self.width, 1).unwrap_or(0))
    }

    /// Pixels of the input.
    pub fn area(&self) -> u64 {
        u64::from(self.height) * u64::from(self.width)
    }

    /// Pixels of the result.
    pub fn output_area(&self) -> u64 {
        let (height, width) = self.output();
        u64::from(height) * u64::from(width)
    }

    /// Numbers under the kernel.
    pub fn kernel_area(&self) -> u64 {
        u64::from(self.kernel[0]) * u64::from(self.kernel[1])
    }
}

/// `y[o] = b[o] + sum_{i,ky,kx} W[o][i][ky][kx] x[i][..]` with
/// `W[outputs][inputs/groups][kernel]`; depthwise where `groups == inputs`.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "conv", derive(Deserialize))]
pub struct Conv {
    /// Input channels.
    pub inputs: u32,
    /// Output channels.
    pub outputs: u32,
    /// Groups of channels; 1 is an ordinary convolution.
    pub groups: u32,
    /// How the kernel moves.
    pub window: Window,
    /// Offset of `W` in the parameters.
    pub weight: u32,
    /// Offset of `b` in the parameters.
    pub bias: Option<u32>,
}

impl Conv {
    /// Input channels that one output channel reads. With 0 groups it is `u64::MAX`, which no Plan has room for.
    fn group_inputs(&self) -> u64 {
        u64::from(self.inputs).checked_div(self.groups.into()).unwrap_or(u64::MAX)
    }
}

/// Reduces each window of each channel to one number.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "conv", derive(Deserialize))]
pub struct Pool {
    /// The reduction.
    pub kind: PoolKind,
    /// Channels of the image.
    pub channels: u32,
    /// How the kernel moves.
    pub window: Window,
}

/// How a window becomes one number.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum PoolKind {
    /// The maximum, without padding. Of equal numbers the first (row by row) gets the gradient.
    Max,
    /// The mean over the kernel's pixels inside the image.
    Average,
    /// The mean over all of the kernel's pixels; padding counts as 0.
    AveragePadded,
}

/// Gated recurrent unit with ONNX gate order z, r, h; the state starts at 0:
///
/// ```text
/// z = sigmoid(Wz x + Wbz + Rz h + Rbz)        r = sigmoid(Wr x + Wbr + Rr h + Rbr)
/// n = tanh(Wh x + Wbh + Rh (r*h) + Rbh)       reset_after = false (linear_before_reset = 0)
/// n = tanh(Wh x + Wbh + r*(Rh h + Rbh))       reset_after = true
/// h' = (1 - z)*n + z*h
/// ```
/// `W[3u][inputs]`, `R[3u][u]`, `B[6u]` = Wbz Wbr Wbh Rbz Rbr Rbh. The output is all states, `[steps][u]`.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "full", derive(Deserialize))]
pub struct Gru {
    /// Length of the sequence.
    pub steps: u32,
    /// Numbers per step of the input.
    pub inputs: u32,
    /// Size of the state, `u`.
    pub units: u32,
    /// The reset gate is applied after the product with `R`.
    pub reset_after: bool,
    /// Offset of `W` in the parameters.
    pub weight: u32,
    /// Offset of `R` in the parameters.
    pub recurrent: u32,
    /// Offset of `B` in the parameters.
    pub bias: Option<u32>,
}

/// Each of `instances` groups of `channels x inner` consecutive numbers gets mean 0 and variance 1 (divisor
/// N, `epsilon` added), then `y = scale[c] * x + bias[c]`.
#[derive(Copy, Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "full", derive(Deserialize))]
pub struct Norm {
    /// Groups that are normalised on their own.
    pub instances: u32,
    /// Channels per instance.
    pub channels: u32,
    /// Numbers per channel.
    pub inner: u32,
    /// Added to the variance.
    pub epsilon: f32,
    /// Layer normalisation: all instances share `scale[channels]`. Group normalisation: each instance has its own part of
    /// `scale[instances * channels]`.
    pub shared: bool,
    /// Offset of the factors in the parameters.
    pub scale: u32,
    /// Offset of the summands in the parameters.
    pub bias: u32,
}

impl Norm {
    /// Length of scale and of bias.
    pub fn affine(&self) -> u64 {
        u64::from(self.channels) * if self.shared { 1 } else { u64::from(self.instances) }
    }
}

/// Each of `instances` groups of `channels` consecutive numbers gets mean 0 and variance 1 (divisor N, `epsilon` added), then
/// `y = scale[c] * x`, where there is a scale.
#[derive(Copy, Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "full", derive(Deserialize))]
pub struct Standardize {
    /// Groups that are normalised on their own.
    pub instances: u32,
    /// Numbers per instance.
    pub channels: u32,
    /// Added to the variance.
    pub epsilon: f32,
    /// Offset of the factors in the parameters; all instances share them.
    pub scale: Option<u32>,
}

impl Op {
    /// The first protocol that knows the op. A device that speaks an older one is not sent it.
    pub fn since(&self) -> u8 {
        match self {
            Self::Activate { kind, .. } => kind.since(),
            Self::Dense { .. }
            | Self::Conv(_)
            | Self::Pool(_)
            | Self::Add { .. }
            | Self::Embed { .. }
            | Self::Gru(_)
            | Self::Dropout { .. }
            | Self::Norm(_)
            | Self::BatchNorm { .. }
            | Self::Scale { .. }
            | Self::Last { .. } => 4,
            Self::PRelu(_) | Self::Arithmetic(_) | Self::Recurrent(_) | Self::Arrange(_) | Self::Gate(_) => 7,
            Self::Standardize(_) => 8,
        }
    }

    /// Numbers per sample that the op reads and writes.
    pub fn sizes(&self) -> (u64, u64) {
        let same = |len: u64| (len, len);
        match *self {
            _ if self.is_left_out() => (0, 0),
            Self::Dense { rows, inputs, outputs, .. } => (mul(rows, inputs), mul(rows, outputs)),
            Self::Conv(conv) => {
                let read = u64::from(conv.inputs).saturating_mul(conv.window.area());
                (read, u64::from(conv.outputs).saturating_mul(conv.window.output_area()))
            }
            Self::Pool(pool) => {
                let read = u64::from(pool.channels).saturating_mul(pool.window.area());
                (read, u64::from(pool.channels).saturating_mul(pool.window.output_area()))
            }
            Self::Activate { len, .. }
            | Self::Add { len }
            | Self::Dropout { len, .. }
            | Self::Scale { len, .. } => same(len.into()),
            Self::Embed { rows, width, .. } => (rows.into(), mul(rows, width)),
            Self::Gru(gru) => (mul(gru.steps, gru.inputs), mul(gru.steps, gru.units)),
            Self::Norm(norm) => same(mul(norm.instances, norm.channels).saturating_mul(norm.inner.into())),
            Self::BatchNorm { channels, inner, .. } => same(mul(channels, inner)),
            Self::Last { steps, width } => (mul(steps, width), width.into()),
            Self::PRelu(prelu) => same(prelu.spread.len.into()),
            Self::Arithmetic(arithmetic) => same(arithmetic.len.into()),
            Self::Recurrent(layer) => layer.sizes(),
            Self::Arrange(arrange) => {
                let (read, _, written) = arrange.sizes();
                (read, written)
            }
            Self::Gate(gate) => same(mul(gate.channels, gate.inner)),
            Self::Standardize(norm) => same(mul(norm.instances, norm.channels)),
        }
    }

    /// Numbers per sample of the second operand; `None` for an op with one operand.
    pub fn second(&self) -> Option<u64> {
        match *self {
            _ if self.is_left_out() => None,
            Self::Add { len } => Some(len.into()),
            Self::Arrange(arrange @ Arrange::Concat { .. }) => Some(arrange.sizes().1),
            Self::Gate(gate) => Some(gate.channels.into()),
            _ => None,
        }
    }

    /// Numbers per sample that forward leaves for backward.
    pub fn keep(&self) -> u64 {
        match *self {
            _ if self.is_left_out() => 0,
            // The gates z, r, n of every step, and where the reset comes after, the product it resets.
            Self::Gru(gru) => mul(gru.steps, gru.units).saturating_mul(if gru.reset_after { 4 } else { 3 }),
            Self::Recurrent(layer) => layer.keep(),
            _ => 0,
        }
    }

    /// Numbers per sample that backward needs while it runs.
    pub fn scratch(&self) -> u64 {
        match *self {
            _ if self.is_left_out() => 0,
            // Gradient of the state, and of the inputs of the three gates (and of the reset product) in
            // every step.
            Self::Gru(gru) => {
                u64::from(gru.units).saturating_add(mul(gru.steps, gru.units).saturating_mul(4))
            }
            Self::Recurrent(layer) => layer.scratch(),
            _ => 0,
        }
    }

    /// Multiply-accumulates per sample of the forward pass.
    pub fn macs(&self) -> u64 {
        match *self {
            Self::Dense { rows, inputs, outputs, .. } => mul(rows, inputs).saturating_mul(outputs.into()),
            Self::Conv(conv) => {
                let taps = conv.group_inputs().saturating_mul(conv.window.kernel_area());
                self.sizes().1.saturating_mul(taps)
            }
            Self::Gru(gru) => mul(gru.steps, gru.units)
                .saturating_mul(3)
                .saturating_mul(u64::from(gru.inputs) + u64::from(gru.units)),
            Self::Recurrent(layer) => layer.macs(),
            _ => 0,
        }
    }

    /// Ranges of parameters as `(offset, length)`.
    pub fn parameters(&self) -> [Option<(u32, u64)>; 3] {
        match *self {
            _ if self.is_left_out() => [None; 3],
            Self::Dense { inputs, outputs, weight, bias, .. } => {
                [Some((weight, mul(inputs, outputs))), bias.map(|bias| (bias, outputs.into())), None]
            }
            Self::Conv(conv) => {
                let taps = conv.group_inputs().saturating_mul(conv.window.kernel_area());
                let len = taps.saturating_mul(conv.outputs.into());
                [Some((conv.weight, len)), conv.bias.map(|bias| (bias, conv.outputs.into())), None]
            }
            Self::Embed { entries, width, table, .. } => [Some((table, mul(entries, width))), None, None],
            Self::Gru(gru) => [
                Some((gru.weight, mul(gru.units, gru.inputs).saturating_mul(3))),
                Some((gru.recurrent, mul(gru.units, gru.units).saturating_mul(3))),
                gru.bias.map(|bias| (bias, u64::from(gru.units) * 6)),
            ],
            Self::Norm(norm) => [Some((norm.scale, norm.affine())), Some((norm.bias, norm.affine())), None],
            Self::BatchNorm { channels, scale, bias, .. } => {
                [Some((scale, channels.into())), Some((bias, channels.into())), None]
            }
            Self::PRelu(prelu) => [Some((prelu.slope, prelu.spread.channels.into())), None, None],
            Self::Standardize(norm) => [norm.scale.map(|scale| (scale, norm.channels.into())), None, None],
            Self::Recurrent(layer) => layer.parameters(),
            Self::Activate { .. }
            | Self::Pool(_)
            | Self::Add { .. }
            | Self::Dropout { .. }
            | Self::Scale { .. }
            | Self::Last { .. }
            | Self::Arithmetic(_)
            | Self::Arrange(_)
            | Self::Gate(_) => [None; 3],
        }
    }

    /// The output may take the place of the input, unless backward reads that, and gradients likewise.
    pub fn may_work_in_place(&self) -> bool {
        matches!(
            self,
            Self::Activate { .. }
                | Self::Add { .. }
                | Self::Dropout { .. }
                | Self::Scale { .. }
                | Self::Arithmetic(_)
        )
    }

    /// Backward reads the node's input (as forward left it).
    pub fn backward_reads_input(&self) -> bool {
        match self {
            Self::Activate { kind, .. } => kind.needs_input(),
            Self::Dense { .. }
            | Self::Conv(_)
            | Self::Pool(Pool { kind: PoolKind::Max, .. })
            | Self::Embed { .. }
            | Self::Gru(_)
            | Self::Norm(_)
            | Self::BatchNorm { .. }
            | Self::PRelu(_)
            | Self::Recurrent(_)
            | Self::Gate(_)
            | Self::Standardize(_) => true,
            _ => false,
        }
    }

    /// Backward reads the second operand.
    pub fn backward_reads_second(&self) -> bool {
        matches!(self, Self::Gate(_))
    }

    /// Backward reads the node's output.
    pub fn backward_reads_output(&self) -> bool {
        match self {
            Self::Activate { kind, .. } => !kind.needs_input(),
            Self::Gru(_) | Self::Recurrent(_) => true,
            _ => false,
        }
    }

    /// False for sizes that cannot be executed.
    pub(super) fn is_sound(&self) -> bool {
        let window = |window: &Window| {
            // A kernel must cover at least one pixel of the image at every position.
            let inside = (0..2).all(|axis| {
                let kernel = window.kernel[axis];
                kernel > 0
                    && window.stride[axis] > 0
                    && window.pad[axis] < kernel
                    && window.pad[axis + 2] < kernel
            });
            inside && window.output_area() > 0
        };
        match self {
            _ if self.is_left_out() => false,
            Self::Conv(conv) => {
                let divides = |count: u32| conv.groups > 0 && count.is_multiple_of(conv.groups);
                window(&conv.window) && divides(conv.inputs) && divides(conv.outputs)
            }
            Self::Pool(pool) => window(&pool.window),
            Self::Dropout { rate, .. } => (0.0..1.0).contains(rate),
            Self::Activate { kind, .. } => kind.is_sound(),
            Self::PRelu(prelu) => prelu.spread.is_sound(),
            Self::Arithmetic(arithmetic) => arithmetic.is_sound(),
            Self::Norm(Norm { epsilon, .. })
            | Self::BatchNorm { epsilon, .. }
            | Self::Standardize(Standardize { epsilon, .. }) => *epsilon > 0.0,
            Self::Scale { factor, .. } => factor.is_finite(),
            Self::Arrange(arrange) => arrange.is_sound(),
            _ => true,
        }
    }
}

pub(super) fn mul(a: u32, b: u32) -> u64 {
    u64::from(a) * u64::from(b)
}
