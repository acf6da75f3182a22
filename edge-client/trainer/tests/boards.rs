//! The convolutions that the benchmark of boards computes, on a host: `fairtier board figures` on an emulated Cortex-M4F prints
//! the same bits.
#![cfg(feature = "host")]

// The benchmark names the crate that re-exports this one.
extern crate fairtier_trainer as client;

#[allow(dead_code, reason = "the benchmark uses more of it")]
#[path = "../../firmware/src/bin/bench/images.rs"]
mod images;

use client::train::{Fast, Portable};

/// As printed by `mps2-an386-cnn-bench.elf`, also before convolutions had a kernel of their own.
const LAYER: u32 = 0xe540_57d4;
const MOTION: (u64, u32) = (0x400a_4432_7000_0000, 0x6956_8866);

#[test]
fn a_board_and_a_host_compute_the_same_convolutions() {
    let mut arena = vec![0.0; 1 << 16];
    let mut layer = images::Layer::new(&mut arena).unwrap();
    layer.forward(&mut Portable::fused());
    layer.input_grad(&mut Portable::fused());
    layer.weight_grad(&mut Portable::fused());
    assert_eq!(layer.check(), LAYER);
    assert_eq!(images::train_motion(&mut arena, &mut Portable::fused(), || {}).unwrap(), MOTION);
    // Independent of it: another arithmetic has other bits, but nearly the same loss.
    let (loss, weights) = images::train_motion(&mut arena, &mut Portable::plain(), || {}).unwrap();
    assert!((f64::from_bits(loss) - f64::from_bits(MOTION.0)).abs() < 1e-4 && weights != MOTION.1);
    let (loss, _) = images::train_motion(&mut arena, &mut Fast::new(), || {}).unwrap();
    assert!((f64::from_bits(loss) - f64::from_bits(MOTION.0)).abs() < 1e-4);
}
