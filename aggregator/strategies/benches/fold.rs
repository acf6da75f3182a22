//! Measures how fast updates are checked and folded, against the limits of the machine.
//!
//! `cargo bench -p fairtier-strategies --bench fold` prints GB/s of incoming `f32` on one core for the 178,110 parameters of
//! the 784-200-100-10 network. It measures a plain copy, a bare axpy in `f32` and a bare fold in `f64`. It also measures what
//! every update passes in production: the check with its norms per region, then the fold.

use std::{hint::black_box, time::Instant};

use common::{
    AxisId, Codec, Dim, Layout, TensorShape, Tier, WidthMask, message::Scalars, region::RegionMap, rng::Rng,
};
use fairtier_strategies::{
    check::{check_encoded, check_update},
    cohort::Cohort,
    combine::Fold,
    strategy::Weight,
};

/// Updates in turn, more than the last cache of one core holds at once.
const UPDATES: usize = 8;

fn main() {
    let regions = mnist();
    let tier = Tier::new(0).expect("tier 0 exists");
    let len = regions.slice_len(tier);
    let mut rng = Rng::new(1);
    let updates: Vec<Vec<f32>> =
        (0..UPDATES).map(|_| (0..len).map(|_| rng.unit_f32() - 0.5).collect()).collect();
    println!("{len} parameters, {} regions, {} pieces", regions.sets().len(), regions.pieces(tier).len());

    let mut copy = vec![0.0f32; len];
    let memcpy = rate(&updates, |update| copy.copy_from_slice(update));
    let axpy = rate(&updates, |update| {
        for (acc, &x) in copy.iter_mut().zip(update) {
            *acc += 0.01 * x;
        }
    });
    let mut wide = vec![0.0f64; len];
    let bare = rate(&updates, |update| {
        for (acc, &x) in wide.iter_mut().zip(update) {
            *acc += 0.01 * f64::from(x);
        }
    });
    black_box((&copy, &wide));

    let mut cohort = Cohort::new(regions.clone(), 0.1);
    let scalars = Scalars {
        samples: 1,
        loss_before: 1.0,
        loss_after: None,
        test: None,
        steps: 1,
        ..Scalars::default()
    };
    let device = "a".parse().expect("a legal name");
    cohort.admit(device, tier, scalars, &vec![0.0; regions.sets().len()]).expect("a legal device");
    let mut fold = Fold::new(&cohort, None);
    let check = rate(&updates, |update| {
        black_box(check_update(update, regions.pieces(tier), regions.sets().len()).is_ok());
    });
    let encoded: Vec<Vec<u8>> =
        updates.iter().map(|update| update.iter().flat_map(|value| value.to_le_bytes()).collect()).collect();
    let mut turn = encoded.iter().cycle();
    let arrival = rate(&updates, |_| {
        let bytes = turn.next().map_or(&[][..], Vec::as_slice);
        black_box(check_encoded(bytes, Codec::F32, regions.pieces(tier), regions.sets().len()).is_ok());
    });
    let small: Vec<Vec<u8>> = updates.iter().map(|update| int8(update)).collect();
    let mut turn = small.iter().cycle();
    let small_arrival = rate(&updates, |_| {
        let bytes = turn.next().map_or(&[][..], Vec::as_slice);
        black_box(check_encoded(bytes, Codec::Int8, regions.pieces(tier), regions.sets().len()).is_ok());
    });
    let mut turn = small.iter().cycle();
    let decode = rate(&updates, |_| {
        let bytes = turn.next().map_or(&[][..], Vec::as_slice);
        black_box(Codec::Int8.decode(bytes, &mut copy).is_ok());
    });
    let encode = rate(&updates, |update| drop(black_box(int8(update))));
    let whole = rate(&updates, |update| {
        let norms = check_update(update, regions.pieces(tier), regions.sets().len());
        if black_box(norms).is_ok() {
            fold.add(tier, update, Weight::Whole(0.01));
        }
    });
    black_box(fold.sums());

    for (name, rate) in [
        ("memcpy", memcpy),
        ("bare axpy, f32", axpy),
        ("bare fold, f64", bare),
        ("check and norms", check),
        ("the same from bytes", arrival),
        ("int8: the same", small_arrival),
        ("int8: decoding", decode),
        ("int8: encoding", encode),
        ("check, norms, fold", whole),
    ] {
        println!("{name:<20} {rate:6.2} GB/s");
    }
    println!("check, norms, fold / bare fold: {:.2}", whole / bare);
}

fn int8(update: &[f32]) -> Vec<u8> {
    let mut bytes = vec![0; Codec::Int8.encoded_len(update.len()).expect("a short update") as usize];
    Codec::Int8.encode(update, 0, 1, &mut bytes).expect("room for just these");
    bytes
}

/// Best of several runs, in GB of updates per second.
fn rate(updates: &[Vec<f32>], mut work: impl FnMut(&[f32])) -> f64 {
    let bytes: usize = updates.iter().map(|update| 4 * update.len()).sum();
    let mut best = f64::INFINITY;
    for _ in 0..60 {
        let start = Instant::now();
        for update in updates {
            work(black_box(update));
        }
        best = best.min(start.elapsed().as_secs_f64());
    }
    bytes as f64 / best / 1e9
}

/// 784-200-100-10 in five tiers.
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
    let tensors: Vec<_> = shapes.iter().filter_map(|dims| TensorShape::new(dims)).collect();
    let full = WidthMask::full(&[200, 100]).expect("two axes");
    let masks: Vec<_> =
        [1.0, 0.7, 0.5, 0.25, 0.125].iter().filter_map(|&rate| full.at_rate(rate).ok()).collect();
    RegionMap::new(Layout { full: &full, tensors: &tensors }, &masks)
}
