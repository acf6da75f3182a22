//! The operations of a Graph. Sizes follow from the shapes of the values that they read and write, so an operation contains
//! only its other properties.

use common::{
    Dim,
    plan::{Activation, ArithmeticKind, PoolKind, RecurrentKind},
};

use super::{Axes, ParamId, digest};

/// What a node computes.
#[derive(Copy, Clone, PartialEq, Debug)]
#[expect(missing_docs, reason = "the line of a variant explains its fields")]
pub enum Op {
    /// `y = x W^T + b` with `W[out][in]`, on the last axis.
    Dense { weight: ParamId, bias: Option<ParamId> },
    /// On `[channels][height][width]`, or `[channels][length]` with a kernel of height 1.
    Conv { weight: ParamId, bias: Option<ParamId>, groups: Groups, window: Kernel },
    /// A function of every number.
    Activate(Activation),
    /// Maximum or mean over a window that moves.
    Pool { kind: PoolKind, window: Kernel },
    /// The mean of every channel.
    GlobalPool,
    /// The sum of two values of the same shape.
    Add,
    /// All axes of a sample become one, row-major; the numbers stay where they are.
    Flatten,
    /// Other axes; the numbers stay where they are.
    Reshape,
    /// `y[t] = table[x[t]]`.
    Embed { table: ParamId },
    /// On `[steps][inputs]`; see [`common::plan::Gru`].
    Gru { weight: ParamId, recurrent: ParamId, bias: Option<ParamId>, reset_after: bool },
    /// LSTM or plain, on `[steps][inputs]`; see [`common::plan::Recurrent`].
    Recurrent { kind: RecurrentKind, weight: ParamId, recurrent: ParamId, bias: Option<ParamId> },
    /// In training only.
    Dropout { rate: f32 },
    /// Over the last `axes` axes. Without a scale there is no bias either.
    LayerNorm { axes: u8, epsilon: f32, scale: Option<ParamId>, bias: Option<ParamId> },
    /// Over groups of channels.
    GroupNorm { groups: Groups, epsilon: f32, scale: ParamId, bias: ParamId },
    /// Over the samples of a batch; its statistics are [`super::Graph::stats`].
    BatchNorm { epsilon: f32, scale: ParamId, bias: ParamId },
    /// The last step of `[steps][width]`.
    Last,
    /// Two values, one behind the other along `axis`.
    Concat { axis: u8 },
    /// A part of `axis`, after `before`.
    Part { axis: u8, before: Dim },
    /// Zeros before and after `axis`.
    Pad { axis: u8, before: u32, after: u32 },
    /// Of the axes after the first `kept`, the first `moved` go to the end.
    Transpose { kept: u8, moved: u8 },
    /// The largest number of every channel.
    GlobalMaxPool,
    /// One number for every column of `[steps][width]`.
    StepPool { kind: PoolKind },
    /// The product of two values of equal shape, or of an image with one number per channel.
    Mul,
    /// `x` where positive, else a slope times `x`: one for all, or one per place of some axes.
    PRelu { slope: ParamId, axes: Option<Axes> },
    /// With constants, which are not trained: [`super::Graph::constants`].
    Arithmetic { kind: ArithmeticKind, with: Constant },
}

/// The second operand of arithmetic.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum Constant {
    /// The same for every number.
    One(f32),
    /// One per place of some axes.
    Each(Axes),
}

/// Into how many groups channels fall.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Groups {
    /// This many groups.
    Count(u32),
    /// Every channel is a group of its own, however many a slice has (depthwise).
    Each,
}

impl Groups {
    /// Number of groups of this many channels.
    pub fn count(self, channels: u32) -> u32 {
        match self {
            Self::Count(count) => count,
            Self::Each => channels,
        }
    }
}

/// How a kernel moves; [`common::plan::Window`] without the image.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Kernel {
    /// Height and width.
    pub size: [u16; 2],
    /// By how much it moves, down and to the right.
    pub stride: [u16; 2],
    /// Top, left, bottom, right.
    pub pad: [u16; 4],
}

impl Kernel {
    /// A square kernel that moves by `stride`.
    pub fn square(size: u16, stride: u16, pad: u16) -> Self {
        Self { size: [size; 2], stride: [stride; 2], pad: [pad; 4] }
    }

    /// A kernel for signals.
    pub fn line(size: u16, stride: u16, pad: u16) -> Self {
        Self { size: [1, size], stride: [1, stride], pad: [0, pad, 0, pad] }
    }
}

impl Op {
    /// Parameters in the order of the flat vector.
    pub fn params(&self) -> impl Iterator<Item = ParamId> {
        let params = match *self {
            Self::Dense { weight, bias } | Self::Conv { weight, bias, .. } => [Some(weight), bias, None],
            Self::Embed { table } => [Some(table), None, None],
            Self::PRelu { slope, .. } => [Some(slope), None, None],
            Self::Gru { weight, recurrent, bias, .. } | Self::Recurrent { weight, recurrent, bias, .. } => {
                [Some(weight), Some(recurrent), bias]
            }
            Self::LayerNorm { scale, bias, .. } => [scale, bias, None],
            Self::GroupNorm { scale, bias, .. } | Self::BatchNorm { scale, bias, .. } => {
                [Some(scale), Some(bias), None]
            }
            Self::Activate(_)
            | Self::Pool { .. }
            | Self::GlobalPool
            | Self::Add
            | Self::Flatten
            | Self::Reshape
            | Self::Dropout { .. }
            | Self::Last
            | Self::Concat { .. }
            | Self::Part { .. }
            | Self::Pad { .. }
            | Self::Transpose { .. }
            | Self::GlobalMaxPool
            | Self::StepPool { .. }
            | Self::Mul
            | Self::Arithmetic { .. } => [None; 3],
        };
        params.into_iter().flatten()
    }

    pub(super) fn renumber(&mut self, number: impl Fn(ParamId) -> ParamId) {
        let change = |param: &mut ParamId| *param = number(*param);
        match self {
            Self::Dense { weight, bias } | Self::Conv { weight, bias, .. } => {
                change(weight);
                bias.iter_mut().for_each(change);
            }
            Self::Embed { table } => change(table),
            Self::PRelu { slope, .. } => change(slope),
            Self::Gru { weight, recurrent, bias, .. } | Self::Recurrent { weight, recurrent, bias, .. } => {
                change(weight);
                change(recurrent);
                bias.iter_mut().for_each(change);
            }
            Self::LayerNorm { scale, bias, .. } => [scale, bias].into_iter().flatten().for_each(change),
            Self::GroupNorm { scale, bias, .. } | Self::BatchNorm { scale, bias, .. } => {
                change(scale);
                change(bias);
            }
            _ => {}
        }
    }

    /// True if the output has the numbers of the input, in the same order.
    pub fn renames(&self) -> bool {
        matches!(self, Self::Flatten | Self::Reshape)
    }

    /// True if steps of a sequence depend on those before them.
    pub fn is_recurrent(&self) -> bool {
        matches!(self, Self::Gru { .. } | Self::Recurrent { .. })
    }

    /// The name that tables show.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Dense { .. } => "Dense",
            Self::Conv { .. } => "Conv",
            Self::Activate(kind) => activation_name(*kind),
            Self::Pool { kind: PoolKind::Max, .. } => "MaxPool",
            Self::Pool { .. } => "AveragePool",
            Self::GlobalPool => "GlobalAveragePool",
            Self::Add => "Add",
            Self::Flatten => "Flatten",
            Self::Reshape => "Reshape",
            Self::Embed { .. } => "Embed",
            Self::Gru { .. } => "Gru",
            Self::Recurrent { kind: RecurrentKind::Lstm, .. } => "Lstm",
            Self::Recurrent { kind: RecurrentKind::Tanh, .. } => "Rnn",
            Self::Dropout { .. } => "Dropout",
            Self::LayerNorm { .. } => "LayerNorm",
            Self::GroupNorm { .. } => "GroupNorm",
            Self::BatchNorm { .. } => "BatchNorm",
            Self::Last => "Last",
            Self::Concat { .. } => "Concat",
            Self::Part { .. } => "Part",
            Self::Pad { .. } => "Pad",
            Self::Transpose { .. } => "Transpose",
            Self::GlobalMaxPool => "GlobalMaxPool",
            Self::StepPool { kind: PoolKind::Max } => "MaxOverSteps",
            Self::StepPool { .. } => "MeanOverSteps",
            Self::Mul => "Mul",
            Self::PRelu { .. } => "PRelu",
            Self::Arithmetic { kind: ArithmeticKind::Add, .. } => "Add (constant)",
            Self::Arithmetic { kind: ArithmeticKind::Sub, .. } => "Sub (constant)",
            Self::Arithmetic { kind: ArithmeticKind::Mul, .. } => "Mul (constant)",
            Self::Arithmetic { kind: ArithmeticKind::Div, .. } => "Div (constant)",
        }
    }

    /// The words for the digest, without parameters and shapes. Numbers are never reused.
    pub(super) fn words(&self) -> Vec<u32> {
        let groups = |groups: Groups| match groups {
            Groups::Count(count) => count,
            Groups::Each => 0,
        };
        let window = |window: &Kernel| {
            let [height, width] = window.size;
            let [down, right] = window.stride;
            let sizes = [height, width, down, right].into_iter().chain(window.pad);
            sizes.map(u32::from).collect::<Vec<_>>()
        };
        let pool = |kind: PoolKind| match kind {
            PoolKind::Max => 0,
            PoolKind::Average => 1,
            PoolKind::AveragePadded => 2,
        };
        match *self {
            Self::Dense { .. } => vec![1],
            Self::Activate(kind) => activation_words(kind),
            Self::Flatten => vec![3],
            Self::Reshape => vec![4],
            Self::Conv { groups: count, window: kernel, .. } => {
                [vec![5, groups(count)], window(&kernel)].concat()
            }
            Self::Pool { kind, window: kernel } => [vec![9, pool(kind)], window(&kernel)].concat(),
            Self::GlobalPool => vec![10],
            Self::Add => vec![11],
            Self::Embed { .. } => vec![12],
            Self::Gru { reset_after, .. } => vec![13, reset_after.into()],
            Self::Dropout { rate } => vec![14, rate.to_bits()],
            Self::LayerNorm { axes, epsilon, scale: Some(_), bias: Some(_) } => {
                vec![15, axes.into(), epsilon.to_bits()]
            }
            Self::LayerNorm { axes, epsilon, scale, .. } => {
                vec![19, axes.into(), epsilon.to_bits(), scale.is_some().into()]
            }
            Self::GroupNorm { groups: count, epsilon, .. } => vec![16, groups(count), epsilon.to_bits()],
            Self::BatchNorm { epsilon, .. } => vec![17, epsilon.to_bits()],
            Self::Last => vec![18],
            Self::Recurrent { kind: RecurrentKind::Lstm, .. } => vec![50],
            Self::Recurrent { kind: RecurrentKind::Tanh, .. } => vec![51],
            Self::Concat { axis } => vec![60, axis.into()],
            Self::Part { axis, ref before } => [vec![61, axis.into()], digest::words(before)].concat(),
            Self::Pad { axis, before, after } => vec![62, axis.into(), before, after],
            Self::Transpose { kept, moved } => vec![63, kept.into(), moved.into()],
            Self::GlobalMaxPool => vec![64],
            Self::StepPool { kind } => vec![65, pool(kind)],
            Self::Mul => vec![66],
            Self::PRelu { axes, .. } => [vec![42], axes.map_or(vec![], axes_words)].concat(),
            Self::Arithmetic { kind, with } => {
                let with = match with {
                    Constant::One(number) => vec![0, number.to_bits()],
                    Constant::Each(axes) => [vec![1], axes_words(axes)].concat(),
                };
                [vec![43, kind as u32], with].concat()
            }
        }
    }
}

fn axes_words(axes: Axes) -> Vec<u32> {
    vec![axes.first.into(), axes.count.into()]
}

fn activation_name(kind: Activation) -> &'static str {
    match kind {
        Activation::Relu => "Relu",
        Activation::LeakyRelu { .. } => "LeakyRelu",
        Activation::Sigmoid => "Sigmoid",
        Activation::Tanh => "Tanh",
        Activation::Gelu => "Gelu",
        Activation::GeluTanh => "Gelu (tanh)",
        Activation::Silu => "Silu",
        Activation::Mish => "Mish",
        Activation::HardSwish => "HardSwish",
        Activation::HardSigmoid { .. } => "HardSigmoid",
        Activation::Clip { .. } => "Clip",
        Activation::Elu { .. } => "Elu",
        Activation::Selu => "Selu",
        Activation::Celu { .. } => "Celu",
        Activation::Softplus => "Softplus",
        Activation::Softsign => "Softsign",
    }
}

fn activation_words(kind: Activation) -> Vec<u32> {
    match kind {
        Activation::Relu => vec![2],
        Activation::LeakyRelu { slope } => vec![6, slope.to_bits()],
        Activation::Sigmoid => vec![7],
        Activation::Tanh => vec![8],
        Activation::Gelu => vec![30],
        Activation::GeluTanh => vec![31],
        Activation::Silu => vec![32],
        Activation::Mish => vec![33],
        Activation::HardSwish => vec![34],
        Activation::HardSigmoid { alpha, beta } => vec![35, alpha.to_bits(), beta.to_bits()],
        Activation::Clip { min, max } => vec![36, min.to_bits(), max.to_bits()],
        Activation::Elu { alpha } => vec![37, alpha.to_bits()],
        Activation::Selu => vec![38],
        Activation::Celu { alpha } => vec![39, alpha.to_bits()],
        Activation::Softplus => vec![40],
        Activation::Softsign => vec![41],
    }
}
