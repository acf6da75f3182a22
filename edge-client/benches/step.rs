//! Time of one SGD step of the MNIST model 784-200-100-10 at batch 50, beside the time that its eight
//! matrix products take `matrixmultiply` alone, in the same run.
//!
//! `cargo bench -p edge-client`. A ratio of 1 means that everything but the products is free.
#![expect(clippy::unwrap_used, reason = "a benchmark may panic")]

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use common::plan::Op;
use edge_client::train::{Backend, Fast, Portable, Target, backward, descend, forward, loss_and_gradient};

use crate::plan::{Options, PLAIN, TestPlan};

#[path = "../tests/support/plan.rs"]
mod plan;

const WIDTHS: [u32; 4] = [784, 200, 100, 10];
const BATCH: usize = 50;
const REPEATS: usize = 200;

fn main() {
    let fused = TestPlan::new(&WIDTHS, BATCH as u16, Options { grads: false, in_place: true, ..PLAIN });
    let apart = TestPlan::new(&WIDTHS, BATCH as u16, Options { in_place: true, ..PLAIN });
    let names = [
        "products, gradients applied at once",
        "Fast",
        "Portable",
        "products, gradient segment",
        "Fast",
        "Portable",
    ];
    let mut cases = [
        products(&fused),
        step(&fused, &Fast),
        step(&fused, &Portable),
        products(&apart),
        step(&apart, &Fast),
        step(&apart, &Portable),
    ];
    // Turn by turn, so that a change of clock speed hits all alike.
    let mut best = [Duration::MAX; 6];
    for _ in 0..REPEATS {
        for (case, best) in cases.iter_mut().zip(&mut best) {
            // Brings back what the case before pushed out of the caches.
            case();
            let start = Instant::now();
            (0..4).for_each(|_| case());
            *best = start.elapsed().div_f64(4.0).min(*best);
        }
    }
    println!("{:<36} {:>10} {:>8}", "one step", "us", "ratio");
    for (index, (name, time)) in names.iter().zip(best).enumerate() {
        let ratio = best[index / 3 * 3].as_secs_f64() / time.as_secs_f64();
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

/// The products of one step and nothing else: in the same places of the same kind of arena and in the same
/// order, because where matrices lie and what is still in the caches changes the time of a product.
fn products(plan: &TestPlan) -> Box<dyn FnMut() + '_> {
    let mut arena = plan.arena(1, |x| x as f32);
    let plan = plan.plan();
    // Into the weights the product must be added, with a factor that leaves them as they are.
    let (base, alpha, beta) = plan.info.grads.map_or((0, 1e-12, 1.0), |grads| (grads, 1.0, 0.0));
    Box::new(move || {
        for node in plan.nodes {
            if let Op::Dense { inputs, outputs, weight, .. } = node.op {
                let (k, n) = (inputs as usize, outputs as usize);
                let (x, w) = ((node.input, k, 1), (weight, 1, k));
                product(&mut arena, [BATCH, k, n], 1.0, x, w, 0.0, node.output);
            }
        }
        for node in plan.nodes.iter().rev() {
            if let (Op::Dense { inputs, outputs, weight, .. }, Some(dy)) = (node.op, node.output_grad) {
                let (k, n) = (inputs as usize, outputs as usize);
                if let Some(dx) = node.input_grad {
                    product(&mut arena, [BATCH, n, k], 1.0, (dy, n, 1), (weight, k, 1), 0.0, dx);
                }
                let (dy, x) = ((dy, 1, n), (node.input, k, 1));
                product(&mut arena, [n, BATCH, k], alpha, dy, x, beta, base + weight);
            }
        }
        black_box(&arena);
    })
}

/// `c[m][n] = alpha * a[m][k] b[k][n] + beta * c`; matrices are `(offset, row stride, column stride)`.
fn product(
    arena: &mut [f32],
    [m, k, n]: [usize; 3],
    alpha: f32,
    (a, rsa, csa): (u32, usize, usize),
    (b, rsb, csb): (u32, usize, usize),
    beta: f32,
    c: u32,
) {
    let span = |at: u32, len: usize| at as usize..at as usize + len;
    let parts = arena.get_disjoint_mut([span(a, m * k), span(b, k * n), span(c, m * n)]);
    let [a, b, c] = parts.unwrap();
    let [rsa, csa, rsb, csb] = [rsa, csa, rsb, csb].map(|stride| stride as isize);
    // SAFETY: the three slices are disjoint and have the lengths of dense matrices, and the strides walk
    // each of them exactly once.
    unsafe {
        matrixmultiply::sgemm(
            m,
            k,
            n,
            alpha,
            a.as_ptr(),
            rsa,
            csa,
            b.as_ptr(),
            rsb,
            csb,
            beta,
            c.as_mut_ptr(),
            n as isize,
            1,
        );
    }
}
