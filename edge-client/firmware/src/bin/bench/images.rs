//! Convolutions, counted and checked: the three parts of one layer, and steps of the zoo's `motion-cnn`.
//!
//! Generic over the backend, and also compiled into a test of the host, which compares the bits.

use client::train::{
    Backend, Descent, GradTarget, PassMode, TargetLabels, TrainError, backward, forward, loss_and_gradient,
};
use common::{
    plan::{
        Activation, Conv, Grad, Loss, Node, Op, Operand, PlanInfo, PlanStore, Pool, PoolKind, Segments,
        Window,
    },
    rng::Rng,
    wire::Crc32,
};

/// A layer of 8 -> 16 channels, 3x3, padded, on 14x14 pixels.
pub const LAYER: Conv = Conv {
    inputs: 8,
    outputs: 16,
    groups: 1,
    window: Window { height: 14, width: 14, kernel: [3, 3], stride: [1, 1], pad: [1; 4] },
    weight: 0,
    bias: None,
};
const LAYER_INPUTS: usize = 8 * 14 * 14;
const LAYER_WEIGHTS: usize = 16 * 8 * 9;
const LAYER_OUTPUTS: usize = 16 * 14 * 14;
/// Multiply-accumulates of each part: (3 * 14 - 2)^2 places of the kernel inside the image, for every pair of channels.
pub const LAYER_MACS: u64 = 40 * 40 * 8 * 16;

/// The parts of the layer, one after the other.
pub struct Layer<'a> {
    x: &'a mut [f32],
    w: &'a mut [f32],
    y: &'a mut [f32],
}

impl<'a> Layer<'a> {
    /// Random numbers, half of the inputs zero. `None` if the arena is too small.
    pub fn new(arena: &'a mut [f32]) -> Option<Self> {
        let (x, rest) = arena.split_at_mut_checked(LAYER_INPUTS)?;
        let (w, rest) = rest.split_at_mut_checked(LAYER_WEIGHTS)?;
        let y = rest.get_mut(..LAYER_OUTPUTS)?;
        let mut rng = Rng::new(11);
        x.iter_mut().for_each(|x| *x = (rng.unit_f32() - 0.5).max(0.0));
        w.iter_mut().for_each(|w| *w = rng.unit_f32() - 0.5);
        y.fill(0.25);
        Some(Self { x, w, y })
    }

    /// Forward.
    pub fn forward(&mut self, backend: &mut impl Backend<f32>) {
        backend.conv(&LAYER, 1, self.x, self.w, self.y);
    }

    /// Input gradient; the output of forward serves as the gradient.
    pub fn input_grad(&mut self, backend: &mut impl Backend<f32>) {
        backend.conv_input_grad(&LAYER, 1, self.y, self.w, self.x);
    }

    /// Weight gradient.
    pub fn weight_grad(&mut self, backend: &mut impl Backend<f32>) {
        backend.conv_weight_grad(&LAYER, 1, -0.01, self.y, self.x, self.w);
    }

    /// Checksum of all numbers.
    pub fn check(&self) -> u32 {
        checksum(self.x.iter().chain(&*self.w).chain(&*self.y))
    }
}

fn checksum<'a>(numbers: impl Iterator<Item = &'a f32>) -> u32 {
    let mut crc = Crc32::default();
    numbers.for_each(|number| crc.update(&number.to_le_bytes()));
    crc.finish()
}

const BATCH: u32 = 2;
const STEPS: u32 = 2;
const CLASSES: u32 = 6;
const PARAMS: u32 = 4_198;
const INPUT: u32 = 3 * 128;

const fn line(width: u32, kernel: u16, stride: u16, pad: u16) -> Window {
    Window { height: 1, width, kernel: [1, kernel], stride: [1, stride], pad: [0, pad, 0, pad] }
}

/// The widest tier of `motion-cnn`. Gradients alternate between two buffers and are applied as they are computed.
fn motion() -> Result<PlanStore<12>, TrainError> {
    let mut next = PARAMS;
    let mut room = |len: u32| {
        next += BATCH * len;
        next - BATCH * len
    };
    let input = room(INPUT);
    let (first, depth, point) = (room(16 * 64), room(16 * 64), room(32 * 64));
    let (pooled, second, means, logits) = (room(32 * 32), room(32 * 32), room(32), room(CLASSES));
    let (even, odd) = (room(32 * 32), room(32 * 64));
    let info = PlanInfo {
        digest: 0,
        inputs: INPUT,
        outputs: CLASSES,
        loss: Loss::Softmax { classes: CLASSES },
        batch: BATCH as u16,
        params: PARAMS,
        stats: 0,
        segments: Segments::default(),
        input,
        logits,
        arena: next,
        nodes: 10,
        forward: 10,
        schedule: 0,
    };
    let conv = |inputs: u32, outputs: u32, groups: u32, window: Window, weight: u32| {
        let bias = Some(weight + outputs * inputs / groups * u32::from(window.kernel[1]));
        Op::Conv(Conv { inputs, outputs, groups, window, weight, bias })
    };
    let relu = |len| Op::Activate { kind: Activation::Relu, len };
    let pool = |kind, window| Op::Pool(Pool { kind, channels: 32, window });
    let onto = |at| Some(Grad { at, add: false });
    let dense = Op::Dense { rows: 1, inputs: 32, outputs: CLASSES, weight: 4_000, bias: Some(4_192) };
    let mut store = PlanStore::new(info)?;
    // Op, input and its gradient, output and its gradient.
    for (op, at, grad, output, output_grad) in [
        (conv(3, 16, 1, line(128, 5, 2, 2), 0), input, None, first, odd),
        (relu(16 * 64), first, onto(odd), first, odd),
        (conv(16, 16, 16, line(64, 5, 1, 2), 256), first, onto(odd), depth, even),
        (conv(16, 32, 1, line(64, 1, 1, 0), 352), depth, onto(even), point, odd),
        (relu(32 * 64), point, onto(odd), point, odd),
        (pool(PoolKind::Max, line(64, 2, 2, 0)), point, onto(odd), pooled, even),
        (conv(32, 32, 1, line(32, 3, 1, 1), 896), pooled, onto(even), second, odd),
        (relu(32 * 32), second, onto(odd), second, odd),
        (pool(PoolKind::Average, line(32, 32, 1, 0)), second, onto(odd), means, even),
        (dense, means, onto(even), logits, logits),
    ] {
        let input = Operand { at, grad };
        store.push(Node {
            op,
            input,
            second: None,
            output,
            output_grad: Some(output_grad),
            keep: None,
            scratch: None,
        });
    }
    Ok(store)
}

/// Trains `motion-cnn` for a few steps: the bits of the loss, and the checksum of the weights. `between` is called before the
/// first and after the last step.
pub fn train_motion(
    arena: &mut [f32],
    backend: &mut impl Backend<f32>,
    mut between: impl FnMut(),
) -> Result<(u64, u32), TrainError> {
    let store = motion()?;
    let plan = store.plan()?;
    let (params, rows) = (PARAMS as usize, BATCH as usize);
    let arena = arena.get_mut(..plan.info().arena as usize).ok_or(TrainError::Overlap)?;
    let mut rng = Rng::new(12);
    arena[..params].iter_mut().for_each(|weight| *weight = (rng.unit_f32() - 0.5) * 0.4);
    arena[params..][..rows * INPUT as usize].iter_mut().for_each(|x| *x = rng.unit_f32() - 0.5);
    let labels: [u32; BATCH as usize] = core::array::from_fn(|row| row as u32 % CLASSES);
    let truth = TargetLabels { labels: &labels, per_row: 1 };
    let (descent, mode) = (Descent::new(0.1), PassMode::Train { seed: 0, step: 0 });
    let mut loss = 0.0;
    between();
    for _ in 0..STEPS {
        forward(plan, arena, rows, mode, backend)?;
        loss = loss_and_gradient(plan, arena, rows, BATCH, &truth)?.loss;
        backward(plan, arena, rows, mode, GradTarget::Weights(descent), backend)?;
    }
    between();
    Ok((loss.to_bits(), checksum(arena[..params].iter())))
}

/// Steps of [`train_motion`].
pub const MOTION_STEPS: u64 = STEPS as u64;
