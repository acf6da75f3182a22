//! Time of one SGD step of the MNIST model 784-200-100-10 at batch 50, beside the time that its eight
//! matrix products take `matrixmultiply` alone, in the same run.
//!
//! `cargo bench -p edge-client`. A ratio of 1 means that everything but the products is free.
#![expect(clippy::unwrap_used, reason = "a benchmark may panic")]

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use edge_client::train::{Backend, Fast, Portable, Target, backward, descend, forward, loss_and_gradient};

use crate::plan::{Options, PLAIN, TestPlan};

#[path = "../tests/support/plan.rs"]
mod plan;

const WIDTHS: [u32; 4] = [784, 200, 100, 10];
const BATCH: usize = 50;
const REPEATS: usize = 60;

fn main() {
    let fused = TestPlan::new(&WIDTHS, BATCH as u16, Options { grads: false, in_place: true, ..PLAIN });
    let apart = TestPlan::new(&WIDTHS, BATCH as u16, Options { in_place: true, ..PLAIN });
    let mut products = Products::new();
    let names = [
        "bare products (matrixmultiply)",
        "Fast, gradients applied at once",
        "Fast, gradient segment",
        "Portable, gradients applied at once",
        "Portable, gradient segment",
    ];
    let mut cases: [Box<dyn FnMut()>; 5] = [
        Box::new(move || products.run()),
        step(&fused, &Fast),
        step(&apart, &Fast),
        step(&fused, &Portable),
        step(&apart, &Portable),
    ];
    // Turn by turn, so that a change of clock speed hits all alike.
    let mut best = [Duration::MAX; 5];
    for _ in 0..REPEATS {
        for (case, best) in cases.iter_mut().zip(&mut best) {
            let start = Instant::now();
            (0..4).for_each(|_| case());
            *best = start.elapsed().div_f64(4.0).min(*best);
        }
    }
    println!("{:<36} {:>10} {:>8}", "one step", "us", "ratio");
    for (name, time) in names.iter().zip(best) {
        let ratio = best[0].as_secs_f64() / time.as_secs_f64();
        println!("{name:<36} {:>10.1} {ratio:>8.2}", time.as_secs_f64() * 1e6);
    }
}

fn step<'a>(plan: &'a TestPlan, backend: &'a dyn Backend<f32>) -> Box<dyn FnMut() + 'a> {
    let mut arena = plan.arena(1, |x| x as f32);
    let (plan, lr) = (plan.plan(), 1e-3);
    // The forward pass leaves the input as it is, so every step sees the same batch.
    Box::new(move || {
        forward(plan, &mut arena, BATCH, backend).unwrap();
        loss_and_gradient(plan, &mut arena, BATCH, |row| Ok(row as u32 % 10)).unwrap();
        match plan.info.grads {
            None => backward(plan, &mut arena, BATCH, Target::Weights { lr }, backend).unwrap(),
            Some(grads) => {
                backward(plan, &mut arena, BATCH, Target::Grads, backend).unwrap();
                let (weights, grads) = arena.split_at_mut(grads as usize);
                descend(lr, grads, &mut weights[..plan.info.params as usize]);
            }
        }
        black_box(&arena);
    })
}

/// The products of one step without anything around them.
struct Products {
    layers: Vec<[Vec<f32>; 6]>,
}

impl Products {
    fn new() -> Self {
        let buffer = |len: usize| (0..len).map(|i| (i % 7) as f32 * 0.1).collect::<Vec<f32>>();
        let layer = |pair: &[u32]| {
            let (inputs, outputs) = (pair[0] as usize, pair[1] as usize);
            let (x, w, y) = (BATCH * inputs, inputs * outputs, BATCH * outputs);
            [x, w, y, y, x, w].map(buffer)
        };
        Self { layers: WIDTHS.windows(2).map(layer).collect() }
    }

    fn run(&mut self) {
        for (layer, [x, w, y, dy, dx, dw]) in self.layers.iter_mut().enumerate() {
            let (m, k, n) = (BATCH, WIDTHS[layer] as usize, WIDTHS[layer + 1] as usize);
            product([m, k, n], x, (k, 1), w, (1, k), y);
            if layer > 0 {
                product([m, n, k], dy, (n, 1), w, (k, 1), dx);
            }
            product([n, m, k], dy, (1, n), x, (k, 1), dw);
            black_box(&dw);
        }
    }
}

fn product(
    [m, k, n]: [usize; 3],
    a: &[f32],
    a_strides: (usize, usize),
    b: &[f32],
    b_strides: (usize, usize),
    c: &mut [f32],
) {
    assert!(a.len() == m * k && b.len() == k * n && c.len() == m * n);
    let [(rsa, csa), (rsb, csb)] =
        [a_strides, b_strides].map(|(row, column)| (row as isize, column as isize));
    // SAFETY: the lengths are those of dense matrices, and the strides walk each of them exactly once.
    unsafe {
        matrixmultiply::sgemm(
            m,
            k,
            n,
            1.0,
            a.as_ptr(),
            rsa,
            csa,
            b.as_ptr(),
            rsb,
            csb,
            0.0,
            c.as_mut_ptr(),
            n as isize,
            1,
        );
    }
}
