//! Hardware in the loop: boards, emulated or real, beside Linux clients in one fleet.
//!
//! | module | does |
//! |---|---|
//! | [`boards`] | `tests/hil/boards/*.toml`; starts emulated boards, flashes real ones |
//! | [`run`] | one run of one strategy with aggregator, bridge, boards and clients |
//! | [`images`] | a CNN for 28x28 images on boards with 128 KB |
//! | [`report`] | reports of a comparison |
//! | [`faults`] | boards on a line that drops, flips and repeats bytes, and resets |
//!
//! A host with the same arithmetic can replace a board; the results must be the same, bit for bit.

pub mod boards;
pub mod faults;
pub mod images;
pub mod report;
pub mod run;

use fairtier::demo::{DemoOptions, Fleet};

/// Devices of each tier. The last device is left out, so that 8 boards and 6 others remain.
const PER_TIER: usize = 3;
const DEVICES: usize = 14;

/// The options of the demo for this fleet.
pub fn options(seed: u64) -> DemoOptions {
    let options = DemoOptions {
        seed,
        rounds: run::ROUNDS,
        devices_per_tier: PER_TIER,
        target: 0.0,
        ..DemoOptions::default()
    };
    options.with_strategy_params(run::FAIR).expect("parameters of FairHeteroFL")
}

/// The fleet of the hardware tests: the demo's data in five tiers.
pub fn fleet(seed: u64) -> Fleet {
    let mut fleet = Fleet::new(&options(seed)).unwrap();
    fleet.devices.truncate(DEVICES);
    fleet
}
