//! Combining needs memory for the model, not for the fleet: a hundred times as many devices may cost
//! at most 5 % more at the peak.
#![expect(clippy::unwrap_used, reason = "a test may fail that way")]

use std::{
    alloc::{GlobalAlloc, Layout as Block, System},
    convert::Infallible,
    sync::atomic::{AtomicUsize, Ordering},
};

use common::{AxisId, Dim, Layout, TensorShape, Tier, WidthMask, message::Scalars, region::RegionMap};
use fairtier_strategies::{
    Registry,
    check::check_update,
    cohort::Cohort,
    combine::combine,
    updates::{UpdateRef, Updates},
};

#[global_allocator]
static COUNTED: Counted = Counted;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

struct Counted;

#[expect(unsafe_code, reason = "an allocator needs unsafe code; this one only counts")]
// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, block: Block) -> *mut u8 {
        let now = NOW.fetch_add(block.size(), Ordering::Relaxed) + block.size();
        PEAK.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(block) }
    }

    unsafe fn dealloc(&self, at: *mut u8, block: Block) {
        NOW.fetch_sub(block.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(at, block) }
    }
}

/// Generates each update when it is read: device number `n` sends `n % 3` everywhere.
struct Made<'a>(&'a RegionMap);

impl Made<'_> {
    fn make(&self, number: usize, tier: Tier, buffer: &mut Vec<f32>) {
        buffer.clear();
        buffer.resize(self.0.slice_len(tier), (number % 3) as f32);
    }
}

impl Updates for Made<'_> {
    type Value = f32;
    type Error = Infallible;

    fn read<'a>(
        &'a mut self,
        which: UpdateRef<'_>,
        buffer: &'a mut Vec<f32>,
    ) -> Result<&'a [f32], Infallible> {
        if let UpdateRef::Update(index, participant) = which {
            self.make(index, participant.tier, buffer);
        }
        Ok(buffer)
    }
}

/// Peak bytes of a round beyond the model and the regions.
fn peak(strategy: &str, regions: &RegionMap, devices: usize) -> usize {
    let mut theta = vec![0.0f32; regions.parameters()];
    let before = NOW.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let mut strategy = Registry::standard().method(strategy, serde_json::Value::Null).unwrap();
    let mut cohort = Cohort::new(regions.clone(), 0.1);
    cohort.reserve(devices);
    let mut updates = Made(regions);
    let mut buffer = Vec::new();
    for number in 0..devices {
        let tier = Tier::new(number % regions.tiers()).unwrap();
        updates.make(number, tier, &mut buffer);
        let norms = check_update(&buffer, regions.pieces(tier), regions.sets().len()).unwrap();
        let scalars = Scalars {
            samples: 10,
            loss_before: 1.0,
            loss_after: Some(0.5),
            test: None,
            steps: 1,
            ..Scalars::default()
        };
        cohort.admit(format!("{number:04}").parse().unwrap(), tier, scalars, &norms).unwrap();
    }
    drop(buffer);
    let outcome = combine(&mut strategy, &cohort, &[], &mut updates, &mut theta).unwrap();
    assert_eq!((outcome.kept, outcome.weights.len()), (None, devices));
    assert!(theta.iter().all(|&value| value != 0.0));
    PEAK.load(Ordering::Relaxed) - before
}

#[test]
fn a_hundred_times_the_devices_cost_no_memory() {
    let regions = mnist();
    assert_eq!((regions.parameters(), regions.tiers()), (178_110, 5));
    let averaging = Registry::standard();
    let plain = |name: &&str| !averaging.method(name, serde_json::Value::Null).unwrap().is_buffered();
    let averaging: Vec<_> = averaging.names().filter(plain).collect();
    assert!(averaging.len() >= 15, "{averaging:?}");
    for strategy in averaging {
        let (few, many) = (peak(strategy, &regions, 10), peak(strategy, &regions, 1000));
        println!("{strategy}: {few} bytes for 10 devices, {many} for 1000");
        assert!(many as f64 <= 1.05 * few as f64, "{strategy}: {few} bytes grow to {many}");
        assert!(many - few < 200_000);
    }
}

/// 784-200-100-10 in the five published tiers.
fn mnist() -> RegionMap {
    let (first, second) = (Dim::units(AxisId(0)), Dim::units(AxisId(1)));
    let shapes = [
        vec![first, Dim::fixed(784)],
        vec![first],
        vec![second, first],
        vec![second],
        vec![Dim::fixed(10), second],
        vec![Dim::fixed(10)],
    ];
    let tensors: Vec<_> = shapes.iter().map(|dims| TensorShape::new(dims).unwrap()).collect();
    let full = WidthMask::full(&[200, 100]).unwrap();
    let masks: Vec<_> = [1.0, 0.7, 0.5, 0.25, 0.125].map(|rate| full.at_rate(rate).unwrap()).to_vec();
    RegionMap::new(Layout { full: &full, tensors: &tensors }, &masks)
}
