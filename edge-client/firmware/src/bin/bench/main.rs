//! Measures the instructions of one optimiser step, and its exact result: 64-32-10, batch 16, plain SGD.
//!
//! Under QEMU's `-icount shift=0` every instruction takes 1 ns, so SysTick counts instructions. That is not a count of
//! cycles. Boards with convolutions count those too (`images`). Prints one line per number and then `done`.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

#[cfg(feature = "conv")]
mod images;

use core::fmt::Write as _;

use client::train::{Descent, GradTarget, PassMode, TargetLabels, backward, forward, loss_and_gradient};
use common::{
    plan::{Activation, Grad, Loss, Node, Op, Operand, PlanInfo, PlanStore, Segments},
    rng::Rng,
    wire::Crc32,
};
use cortex_m_rt::entry;
use embedded_io_async::Write;
use firmware::{
    Best,
    board::{self, SYSTICK_HZ, Uart, clock},
};

const BATCH: u32 = 16;
const INPUTS: u32 = 64;
/// The widest tier of the digits model that the arena holds: 1, 0.5 or 0.125.
const HIDDEN: u32 = match board::ARENA {
    28_000.. => 32,
    20_000.. => 16,
    _ => 4,
};
const OUTPUTS: u32 = 10;
const PARAMS: u32 = HIDDEN * (INPUTS + 1) + OUTPUTS * (HIDDEN + 1);
const STEPS: u32 = 4;

/// The layout of the compiler in `models` for such a model: gradients are applied as they are computed.
fn plan() -> PlanStore<3> {
    let (weight2, input) = (HIDDEN * (INPUTS + 1), PARAMS);
    let hidden = input + BATCH * INPUTS;
    let gradient = hidden + BATCH * HIDDEN;
    let logits = gradient + BATCH * HIDDEN;
    let info = PlanInfo {
        digest: 0,
        inputs: INPUTS,
        outputs: OUTPUTS,
        loss: Loss::Softmax { classes: OUTPUTS },
        batch: BATCH as u16,
        params: PARAMS,
        stats: 0,
        segments: Segments::default(),
        input,
        logits,
        arena: logits + BATCH * OUTPUTS,
        nodes: 3,
        forward: 3,
        schedule: 0,
    };
    let node = |op, input, output, output_grad| Node {
        op,
        input,
        second: None,
        output,
        output_grad: Some(output_grad),
        keep: None,
        scratch: None,
    };
    let dense = |inputs, outputs, weight| Op::Dense {
        rows: 1,
        inputs,
        outputs,
        weight,
        bias: Some(weight + inputs * outputs),
    };
    let onto = |at| Some(Grad { at, add: false });
    let mut store = match PlanStore::new(info) {
        Ok(store) => store,
        Err(_) => return plan(),
    };
    store.push(node(dense(INPUTS, HIDDEN, 0), Operand { at: input, grad: None }, hidden, gradient));
    let relu = Op::Activate { kind: Activation::Relu, len: HIDDEN };
    store.push(node(relu, Operand { at: hidden, grad: onto(gradient) }, hidden, gradient));
    let last = dense(HIDDEN, OUTPUTS, weight2);
    store.push(node(last, Operand { at: hidden, grad: onto(gradient) }, logits, logits));
    store
}

#[entry]
fn main() -> ! {
    clock::start();
    board::run(|spawner| {
        if let Ok(token) = bench() {
            spawner.spawn(token);
        }
    })
}

#[embassy_executor::task]
async fn bench() {
    let mut uart = Uart::start();
    let mut text = Text::default();
    let (arena, _) = board::buffers();
    match measure(arena, &mut text).and_then(|()| measure_images(arena, &mut text)) {
        Ok(()) => _ = writeln!(text, "done"),
        Err(why) => _ = writeln!(text, "failed: {why}"),
    }
    let _ = uart.write_all(&text.bytes[..text.len]).await;
    let _ = uart.flush().await;
}

/// Instructions since an earlier reading of the clock.
fn instructions_since(begin: u64) -> u64 {
    (clock::counts() - begin) * (1_000_000_000 / u64::from(SYSTICK_HZ))
}

#[cfg(not(feature = "conv"))]
fn measure_images(_: &mut [f32], _: &mut Text) -> Result<(), &'static str> {
    Ok(())
}

#[cfg(feature = "conv")]
fn measure_images(arena: &mut [f32], text: &mut Text) -> Result<(), &'static str> {
    let mut backend = Best::default();
    let mut layer = images::Layer::new(arena).ok_or("layer")?;
    let begin = clock::counts();
    layer.forward(&mut backend);
    let forward = instructions_since(begin);
    let begin = clock::counts();
    layer.input_grad(&mut backend);
    let input_grad = instructions_since(begin);
    let begin = clock::counts();
    layer.weight_grad(&mut backend);
    let weight_grad = instructions_since(begin);
    let _ = writeln!(text, "conv-macs {}", images::LAYER_MACS);
    let _ = writeln!(text, "conv-forward {forward}");
    let _ = writeln!(text, "conv-input-grad {input_grad}");
    let _ = writeln!(text, "conv-weight-grad {weight_grad}");
    let _ = writeln!(text, "conv-bits {:08x}", layer.check());
    let mut begin = clock::counts();
    let mut took = 0;
    let trained = images::train_motion(arena, &mut backend, || {
        took = instructions_since(begin);
        begin = clock::counts();
    });
    let (loss, weights) = trained.map_err(|_| "motion")?;
    let _ = writeln!(text, "motion-instructions {}", took / images::MOTION_STEPS);
    let _ = writeln!(text, "motion-bits {loss:016x}-{weights:08x}");
    Ok(())
}

fn measure(arena: &mut [f32], text: &mut Text) -> Result<(), &'static str> {
    let store = plan();
    let plan = store.plan().map_err(|_| "plan")?;
    let arena = arena.get_mut(..plan.info().arena as usize).ok_or("arena")?;
    // The same numbers on every machine: weights with He's scale, and pixels of which half are zero.
    let mut rng = Rng::new(7);
    let (weights, rest) = arena.split_at_mut(PARAMS as usize);
    weights.iter_mut().for_each(|weight| *weight = (rng.unit_f32() - 0.5) * 0.4);
    for pixel in rest.iter_mut().take((BATCH * INPUTS) as usize) {
        *pixel = (rng.below(32).saturating_sub(15)) as f32 / 16.0;
    }
    let labels: [u32; BATCH as usize] = core::array::from_fn(|row| row as u32 % OUTPUTS);
    let truth = TargetLabels { labels: &labels, per_row: 1 };
    let descent = Descent::new(0.1);
    let (rows, mut backend, mode) = (BATCH as usize, Best::default(), PassMode::Train { seed: 0, step: 0 });
    let mut loss = 0.0;
    let begin = clock::counts();
    for _ in 0..STEPS {
        forward(plan, arena, rows, mode, &mut backend).map_err(|_| "forward")?;
        loss = loss_and_gradient(plan, arena, rows, BATCH, &truth).map_err(|_| "loss")?.loss;
        backward(plan, arena, rows, mode, GradTarget::Weights(descent), &mut backend)
            .map_err(|_| "backward")?;
    }
    let instructions = instructions_since(begin) / u64::from(STEPS);
    let mut crc = Crc32::default();
    arena[..PARAMS as usize].iter().for_each(|weight| crc.update(&weight.to_le_bytes()));
    let _ = writeln!(text, "toolchain {}", board::TOOLCHAIN);
    let _ = writeln!(text, "hidden {HIDDEN}");
    let _ = writeln!(text, "instructions {instructions}");
    let _ = writeln!(text, "loss {:016x}", loss.to_bits());
    let _ = writeln!(text, "weights {:08x}", crc.finish());
    Ok(())
}

struct Text {
    bytes: [u8; 512],
    len: usize,
}

impl Default for Text {
    fn default() -> Self {
        Self { bytes: [0; 512], len: 0 }
    }
}

impl core::fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        for byte in text.bytes() {
            *self.bytes.get_mut(self.len).ok_or(core::fmt::Error)? = byte;
            self.len += 1;
        }
        Ok(())
    }
}
