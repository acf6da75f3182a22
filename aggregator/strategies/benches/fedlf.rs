//! Measures FedLF's time on the server against the bare inner products of its updates.
//!
//! `cargo bench -p fairtier-strategies --bench fedlf` measures 10, 50 and 100 devices with the 178,110 parameters of the
//! 784-200-100-10 network. It prints the time of combining: inner products by layer, min-norm problems, fold, new model. Beside
//! it stand the bare products of the same `f32` updates by the same routine, without layers. Then it compares combining with
//! other strategies. Each time is the best of several runs, in turns.

use std::{hint::black_box, time::Instant};

use common::{Tier, TierSet, message::Scalars, region::RegionMap, rng::Rng};
use fairtier_strategies::{
    Registry,
    algebra::Products,
    check::check_update,
    cohort::Cohort,
    combine::combine,
    methods::{min_norm, residual},
};
use ndarray::{ArrayView2, ArrayViewMut2, Axis, linalg::general_mat_mul};
use serde_json::Value;

const RUNS: usize = 9;
/// As in the aggregator: numbers gathered at a time, and rows multiplied at a time.
const STRETCH: usize = 4096;
const PANEL: usize = 56;
const OTHERS: [&str; 4] = ["fedavg", "fedfv", "fedmdfg", "fedlf"];

fn main() {
    let sizes = [784 * 200 + 200, 200 * 100 + 100, 100 * 10 + 10];
    let len: usize = sizes.iter().sum();
    let layers: Vec<_> = sizes
        .iter()
        .scan(0, |end, size| {
            *end += size;
            Some(*end - size..*end)
        })
        .collect();
    let regions = RegionMap::from_spans(len, 1, [(0, len, TierSet::first(1))]);
    println!("{len} parameters in {} layers; milliseconds", layers.len());
    println!("devices   fedlf   of f32 numbers   ratio   of f64 numbers   ratio");
    let mut others = String::new();
    for devices in [10, 50, 100] {
        let mut rng = Rng::new(1);
        let tier = Tier::new(0).expect("tier 0 exists");
        let mut cohort = Cohort::new(regions.clone(), 0.1);
        cohort.set_layers(layers.as_slice());
        // Gradients of devices have a common part.
        let common: Vec<f32> = (0..len).map(|_| rng.unit_f32() - 0.5).collect();
        let mut updates: Vec<Vec<f32>> = Vec::new();
        for device in 0..devices {
            let update: Vec<f32> = common.iter().map(|common| 0.3 * common + rng.unit_f32() - 0.5).collect();
            let norms = check_update(&update, regions.pieces(tier), 1).expect("finite numbers");
            let scalars =
                Scalars { samples: 100, loss_before: 0.5 + rng.unit_f64(), steps: 1, ..Scalars::default() };
            let name = format!("d{device:03}").parse().expect("a legal name");
            cohort.admit(name, tier, scalars, &norms).expect("a legal device");
            updates.push(update);
        }
        let wide: Vec<f64> = updates.iter().flatten().map(|&value| f64::from(value)).collect();
        let mut best = [f64::INFINITY; 3];
        for _ in 0..RUNS {
            let times = [
                whole("fedlf", &cohort, &updates),
                time(|| drop(black_box(bare(&updates)))),
                time(|| {
                    let mut products = vec![0.0; devices * devices];
                    multiply(&wide, len, &mut products);
                    black_box(products);
                }),
            ];
            best.iter_mut().zip(times).for_each(|(best, time)| *best = best.min(time));
        }
        let [fedlf, narrow, wide] = best.map(|seconds| 1e3 * seconds);
        let ratios = (fedlf / narrow, fedlf / wide);
        println!("{devices:7} {fedlf:7.1} {narrow:16.1} {:7.2} {wide:16.1} {:7.2}", ratios.0, ratios.1);
        others += &format!("{devices:7}");
        for name in OTHERS {
            let best = (0..RUNS).map(|_| whole(name, &cohort, &updates)).fold(f64::INFINITY, f64::min);
            others += &format!("{:9.1}", 1e3 * best);
        }
        others += "\n";
    }
    println!("devices{}", OTHERS.map(|name| format!("{name:>9}")).concat());
    print!("{others}");
    solver();
}

/// Seconds of combining by a strategy without earlier rounds.
fn whole(strategy: &str, cohort: &Cohort, updates: &[Vec<f32>]) -> f64 {
    let mut method = Registry::standard().method(strategy, Value::Null).expect("a known strategy");
    let mut theta = vec![0.0f32; updates.first().map_or(0, Vec::len)];
    let mut updates = updates;
    let seconds = time(|| {
        let done = combine(&mut method, cohort, &[], &mut updates, &mut theta);
        assert!(done.is_ok_and(|outcome| outcome.kept.is_none()));
    });
    black_box(theta);
    seconds
}

/// The min-norm problem alone: rows that all count, and rows of which few count.
fn solver() {
    for (rows, size) in [(100, 400), (200, 800), (200, 50)] {
        let mut rng = Rng::new(2);
        let vectors: Vec<Vec<f64>> = (0..rows).map(|_| (0..size).map(|_| rng.normal()).collect()).collect();
        let dot = |i: usize, j: usize| vectors[i].iter().zip(&vectors[j]).map(|(a, b)| a * b).sum();
        let products = Products::new(rows, dot);
        // Too short for the system's clock of threads.
        let mut best = f64::INFINITY;
        for _ in 0..RUNS {
            let start = Instant::now();
            black_box(min_norm(&products));
            best = best.min(start.elapsed().as_secs_f64());
        }
        let left = residual(&products, &min_norm(&products));
        println!("min-norm of {rows} rows of {size}: {:.2} ms, residual {left:.0e}", 1e3 * best);
    }
}

/// Products of all updates, converted stretch by stretch.
fn bare(updates: &[Vec<f32>]) -> Vec<f64> {
    let mut products = vec![0.0; updates.len() * updates.len()];
    let len = updates.first().map_or(0, Vec::len);
    let mut values = Vec::new();
    for start in (0..len).step_by(STRETCH) {
        let end = len.min(start + STRETCH);
        values.clear();
        for update in updates {
            values.extend(update[start..end].iter().map(|&value| f64::from(value)));
        }
        multiply(&values, end - start, &mut products);
    }
    products
}

fn multiply(values: &[f64], width: usize, products: &mut [f64]) {
    let rows = values.len() / width;
    for (number, products) in products.chunks_mut(PANEL * rows).enumerate() {
        let (first, end) = (number * PANEL, rows.min((number + 1) * PANEL));
        let panel = ArrayView2::from_shape((end - first, width), &values[first * width..end * width]);
        let left = ArrayView2::from_shape((end, width), &values[..end * width]);
        let products = ArrayViewMut2::from_shape((end - first, rows), products);
        if let (Ok(panel), Ok(left), Ok(mut products)) = (panel, left, products) {
            let mut products = products.slice_axis_mut(Axis(1), (..end).into());
            general_mat_mul(1.0, &panel, &left.t(), 1.0, &mut products);
        }
    }
}

/// Seconds on the processor if the system reports them, so that a busy machine does not distort the ratio.
fn time(work: impl FnOnce()) -> f64 {
    let (start, busy) = (Instant::now(), on_processor());
    work();
    match (busy, on_processor()) {
        (Some(before), Some(after)) => (after - before) * 1e-9,
        _ => start.elapsed().as_secs_f64(),
    }
}

/// Nanoseconds that this thread has run.
fn on_processor() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    status.split_whitespace().next()?.parse().ok()
}
