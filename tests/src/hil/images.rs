//! Images of 28x28 pixels on boards with 128 KB of RAM: data, fleet and configuration of a small CNN.
//!
//! A fresh clone has only the built-in digits of 8x8 pixels, which are enlarged. With MNIST's files (`hil images
//! --data DIR`), MNIST is used.

use std::path::Path;

use aggregator::config::Config;
use client::data::{DataSplit, Samples, digits, load};
use common::rng::{Rng, derive};
use fairtier::demo::{Fleet, FleetDevice};

use super::{boards::BenchBoard, run};

pub const SIDE: usize = 28;
const SMALL: usize = 8;
/// Samples of a device: as many as the flash of the board holds.
const PER_DEVICE: usize = 160;
const DEVICES: usize = 4;
/// Two convolutions 3x3 of stride 2 with 4 and 8 channels, dense 10: 4,266 parameters.
pub const MODEL: &str = "cnn:28-4-8-10";

/// The first two devices are boards.
pub fn boards() -> Vec<BenchBoard> {
    let board = |device: &str| BenchBoard {
        device: device.into(),
        kind: "mps2-an386-cnn".into(),
        port: "emulated".into(),
    };
    vec![board("t0-00"), board("t0-01")]
}

/// Four devices with images from `data`, or from the built-in digits.
pub fn fleet(data: Option<&Path>, seed: u64) -> Fleet {
    let all = match data {
        Some(dir) => {
            let file = |name: &str| {
                let plain = dir.join(name);
                if plain.exists() { plain } else { dir.join(format!("{name}.gz")) }
            };
            let (images, labels) = (file("train-images-idx3-ubyte"), file("train-labels-idx1-ubyte"));
            load::idx(&images, &labels, 1.0).expect("MNIST's training files are there")
        }
        None => enlarged(),
    };
    let mut order: Vec<u32> = (0..all.len() as u32).collect();
    Rng::new(derive(seed, 28)).shuffle(&mut order);
    let device = |(number, chosen): (usize, &[u32])| FleetDevice {
        device: format!("t0-{number:02}").parse().unwrap(),
        tier: 0,
        shard: scaled(&all.select(chosen).unwrap()).split(0.25, seed).unwrap(),
    };
    let devices = order.chunks_exact(PER_DEVICE).take(DEVICES).enumerate().map(device).collect();
    Fleet { hardware: vec![], devices }
}

/// FedAvg of the CNN; updates travel as `int8`.
pub fn config(rounds: u32, seed: u64) -> Config {
    let more = format!(
        "model = {{ source = \"{MODEL}\", tiers = [1.0], seed = {seed} }}\n\
         training = {{ epochs = 1, batch = 4, lr = 0.1 }}\n\
         wire = {{ up = \"int8\" }}\n"
    );
    run::config("{ name = \"fedavg\" }", rounds, DEVICES, seed, &more)
}

/// Whole numbers up to 255, as on the board.
fn scaled(samples: &Samples) -> Samples {
    let features = samples.features().iter().map(|&byte| byte * (1.0 / 255.0)).collect();
    Samples::new(features, samples.labels().to_vec(), samples.inputs()).unwrap()
}

/// The built-in digits at 28x28, by linear interpolation between the centres of their pixels.
fn enlarged() -> Samples {
    let small = Samples::of(&digits::all(), DataSplit::Train).unwrap();
    let mut features = Vec::with_capacity(small.len() * SIDE * SIDE);
    // Position of a pixel among the original ones, and the weight of the next one.
    let place = |at: usize| {
        let at = ((at as f32 + 0.5) * SMALL as f32 / SIDE as f32 - 0.5).clamp(0.0, (SMALL - 1) as f32);
        (at as usize, (at as usize + 1).min(SMALL - 1), at.fract())
    };
    for row in (0..small.len()).filter_map(|index| small.row(index)) {
        let at = |y: usize, x: usize| row[y * SMALL + x];
        for (y0, y1, dy) in (0..SIDE).map(place) {
            for (x0, x1, dx) in (0..SIDE).map(place) {
                let above = at(y0, x0) * (1.0 - dx) + at(y0, x1) * dx;
                let below = at(y1, x0) * (1.0 - dx) + at(y1, x1) * dx;
                features.push(((above * (1.0 - dy) + below * dy) * 255.0).round());
            }
        }
    }
    Samples::new(features, small.labels().to_vec(), SIDE * SIDE).unwrap()
}
