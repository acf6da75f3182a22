//! Time of one training step and of one evaluation, compared with the time of their matrix products in `matrixmultiply`: the
//! same products on the same memory in the same order, in the same run.
//!
//! `cargo bench -p fairtier-trainer`. A ratio of 1 means that everything but the products takes no time. It also measures the
//! speed-up of the 0.25 tier per sample, and of a second thread that trains another device.
#![expect(clippy::unwrap_used, reason = "a benchmark may panic")]

extern crate fairtier_trainer as trainer;

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use common::plan::{Loss, PoolKind};
use trainer::train::{
    Backend, Descent, Fast, GradTarget, MatrixProduct, PassMode, Portable, TargetLabels, backward, forward,
    loss_and_gradient, score,
};

use crate::plan::{Builder, Options, PLAIN, TestPlan, window};

#[path = "../tests/support/plan.rs"]
mod plan;

const LEAN: Options = Options { grads: false, in_place: true, ..PLAIN };
const TIME: Duration = Duration::from_millis(2500);

fn main() {
    let only = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let wanted = |name: &str| only.as_ref().is_none_or(|only| name.contains(only.as_str()));
    println!("{:<34} {:>10} {:>10} {:>7}", "", "products us", "us", "ratio");
    let models: [(&str, TestPlan); 5] = [
        ("MNIST MLP, batch 50", mlp([200, 100])),
        ("MNIST MLP 0.25, batch 50", mlp([50, 25])),
        ("CIFAR CNN 1,060,138, batch 50", cifar_small()),
        ("CIFAR CNN 797,962, batch 50", cifar_large()),
        ("Shakespeare GRU, batch 10", shakespeare(10)),
    ];
    let mut times = vec![];
    for (name, plan) in &models {
        if !wanted(name) {
            continue;
        }
        for training in [true, false] {
            let (products, time) = compare(plan, training);
            let ratio = products.as_secs_f64() / time.as_secs_f64();
            let kind = if training { "train" } else { "evaluate" };
            println!("{name:<34} {:>10.1} {:>10.1} {ratio:>7.2} {kind}", micros(products), micros(time));
            times.push(time);
        }
    }
    if only.is_none() {
        println!(
            "0.25 tier of the MLP: {:.2} times as fast",
            times[0].as_secs_f64() / times[2].as_secs_f64()
        );
    }
    if wanted("portable") {
        let time = fastest(&mut step(&models[0].1, true, Portable::plain()));
        println!("MNIST MLP, portable, plain: {:.1} us", micros(time));
    }
    if wanted("threads") {
        let plan = &models[0].1;
        println!("two threads: {:.2} times one", threads(plan, 2) / threads(plan, 1));
    }
}

fn mlp([first, second]: [u32; 2]) -> TestPlan {
    TestPlan::new(&[784, first, second, 10], 50, LEAN)
}

/// conv 3x3 3-32, conv 3x3 32-32, pool, dense 8192-128-10.
fn cifar_small() -> TestPlan {
    let (mut b, x) = Builder::new(3 * 32 * 32, 50);
    let x = b.conv(x, 32, 1, window(32, 32, 3, 1, 1));
    let x = b.relu(x);
    let x = b.conv(x, 32, 1, window(32, 32, 3, 1, 1));
    let x = b.relu(x);
    let x = b.pool(x, PoolKind::Max, window(32, 32, 2, 2, 0));
    let x = b.dense(x, 1, 128);
    let x = b.relu(x);
    let _ = b.dense(x, 1, 10);
    let plan = b.finish(Loss::Softmax { classes: 10 }, LEAN);
    assert_eq!(plan.info.params, 1_060_138);
    plan
}

/// conv 5x5 3-64, pool, conv 5x5 64-64, pool, dense 1600-384-192-10.
fn cifar_large() -> TestPlan {
    let (mut b, x) = Builder::new(3 * 32 * 32, 50);
    let x = b.conv(x, 64, 1, window(32, 32, 5, 1, 0));
    let x = b.relu(x);
    let x = b.pool(x, PoolKind::Max, window(28, 28, 2, 2, 0));
    let x = b.conv(x, 64, 1, window(14, 14, 5, 1, 0));
    let x = b.relu(x);
    let x = b.pool(x, PoolKind::Max, window(10, 10, 2, 2, 0));
    let x = b.dense(x, 1, 384);
    let x = b.relu(x);
    let x = b.dense(x, 1, 192);
    let x = b.relu(x);
    let _ = b.dense(x, 1, 10);
    let plan = b.finish(Loss::Softmax { classes: 10 }, LEAN);
    assert_eq!(plan.info.params, 797_962);
    plan
}

/// Embedding 86 x 256, GRU 1024, dense 86, a label per token of 80.
fn shakespeare(batch: u16) -> TestPlan {
    let (mut b, x) = Builder::new(80, batch);
    let x = b.embed(x, 86, 256);
    let x = b.gru(x, 80, 1024, true);
    let _ = b.dense(x, 80, 86);
    let plan = b.finish(Loss::Softmax { classes: 86 }, LEAN);
    assert_eq!(plan.info.params, 4_048_470);
    plan
}

/// One training step or evaluation of a whole batch.
fn step<'a, B: Backend<f32> + 'a>(plan: &'a TestPlan, training: bool, mut backend: B) -> impl FnMut() + 'a {
    let mut arena = plan.arena(1, |x| x as f32);
    move || run(plan, training, &mut arena, &mut backend)
}

fn run(plan: &TestPlan, training: bool, arena: &mut [f32], backend: &mut impl Backend<f32>) {
    let (rows, targets) = (usize::from(plan.info.batch), plan.info.targets());
    let labels = [3; 1000];
    let truth = TargetLabels { labels: &labels, per_row: targets as usize };
    let checked = plan.plan();
    if training {
        let mode = PassMode::Train { seed: 1, step: 0 };
        forward(checked, arena, rows, mode, backend).unwrap();
        loss_and_gradient(checked, arena, rows, rows as u32 * targets, &truth).unwrap();
        let target = GradTarget::Weights(Descent::new(1e-6));
        backward(checked, arena, rows, mode, target, backend).unwrap();
    } else {
        forward(checked, arena, rows, PassMode::Evaluate, backend).unwrap();
        score(checked, arena, rows, &truth).unwrap();
    }
    black_box(arena);
}

/// Best times of the products alone and of the whole.
fn compare(plan: &TestPlan, training: bool) -> (Duration, Duration) {
    let mut arena = plan.arena(1, |x| x as f32);
    let mut fast = Fast::new();
    run(plan, training, &mut arena, &mut fast);
    fast.start_record();
    run(plan, training, &mut arena, &mut fast);
    let products = fast.take_record();
    let mut best = [Duration::MAX; 2];
    let start = Instant::now();
    // Alternates, so that a change of clock speed affects both.
    while start.elapsed() < TIME || best[1] == Duration::MAX {
        for (case, best) in best.iter_mut().enumerate() {
            let mut once = || match case {
                0 => repeat(&products, &mut arena, &mut fast),
                _ => run(plan, training, &mut arena, &mut fast),
            };
            // Refills the caches that the other case has displaced.
            once();
            let start = Instant::now();
            once();
            *best = start.elapsed().min(*best);
        }
    }
    (best[0], best[1])
}

/// Repeats the recorded products on the same memory. The factor of what is added is tiny, so that the numbers stay the same.
fn repeat(products: &[MatrixProduct], arena: &mut [f32], fast: &mut Fast) {
    black_box((arena, fast));
    for MatrixProduct { sizes: [m, k, n], at, strides: [a, b, c], add } in products {
        let [at_a, at_b, at_c] = at.map(std::ptr::with_exposed_provenance_mut::<f32>);
        let [a, b, c] = [a, b, c].map(|&(row, column)| (row as isize, column as isize));
        let (alpha, beta) = if *add { (1e-20, 1.0) } else { (1.0, 0.0) };
        // SAFETY: arena and backend, which the addresses point into, are borrowed, and have not moved or
        // grown since the products were recorded there.
        unsafe {
            matrixmultiply::sgemm(*m, *k, *n, alpha, at_a, a.0, a.1, at_b, b.0, b.1, beta, at_c, c.0, c.1);
        }
    }
}

fn fastest(once: &mut dyn FnMut()) -> Duration {
    let (start, mut best) = (Instant::now(), Duration::MAX);
    while start.elapsed() < TIME {
        let start = Instant::now();
        once();
        best = best.min(start.elapsed());
    }
    best
}

/// Steps per second of `count` threads, each with its own device; best of five tries.
fn threads(plan: &TestPlan, count: usize) -> f64 {
    let tries = (0..5).map(|_| {
        let steps: usize = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..count)
                .map(|_| {
                    scope.spawn(|| {
                        let (mut once, mut steps) = (step(plan, true, Fast::new()), 0);
                        let start = Instant::now();
                        while start.elapsed() < Duration::from_millis(600) {
                            once();
                            steps += 1;
                        }
                        steps
                    })
                })
                .collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).sum()
        });
        steps as f64
    });
    tries.fold(0.0, f64::max)
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
