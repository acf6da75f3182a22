//! Products without an FPU. A multiplication is a call of some fifty instructions, so the fastest loop skips those that do
//! not change the sum.
//!
//! A sum that begins with +0 is never -0 (only -0 + -0 is), so adding a zero of either sign does not change its bits. A
//! product with zero is such a zero, unless the other factor is infinite or NaN. About half of all factors are zero:
//! background pixels and inactive units. The bits are those of `Portable::plain()`.

use client::train::{Backend, GemmWrite, MatrixView, MatrixViewMut, Portable};
use common::plan::Conv;

/// The backend of cores without an FPU.
#[derive(Copy, Clone, Debug, Default)]
pub struct Soft;

impl Backend<f32> for Soft {
    fn gemm(
        &mut self,
        a: MatrixView<'_, f32>,
        b: MatrixView<'_, f32>,
        store: GemmWrite<f32>,
        c: MatrixViewMut<'_, f32>,
    ) {
        let (inner, rows, columns) = (a.columns.min(b.rows), a.rows.min(c.rows), b.columns.min(c.columns));
        let (a_step, b_step) = (a.strides.1.max(1), b.strides.0.max(1));
        for row in 0..rows {
            let a = a.data.get(row * a.strides.0..).unwrap_or_default();
            let Some(c) = c.data.get_mut(row * c.stride..) else { return };
            for (column, place) in c.iter_mut().enumerate().take(columns) {
                let b = b.data.get(column * b.strides.1..).unwrap_or_default();
                let mut sum = 0.0;
                for (&a, &b) in a.iter().step_by(a_step).zip(b.iter().step_by(b_step)).take(inner) {
                    if counts(a, b) {
                        sum += a * b;
                    }
                }
                match store {
                    GemmWrite::Replace => *place = sum,
                    GemmWrite::Add(1.0) => *place += sum,
                    GemmWrite::Add(factor) => *place += factor * sum,
                }
            }
        }
    }

    fn conv(&mut self, conv: &Conv, samples: usize, x: &[f32], w: &[f32], y: &mut [f32]) {
        Portable::plain().conv(conv, samples, x, w, y);
    }

    fn conv_input_grad(&mut self, conv: &Conv, samples: usize, dy: &[f32], w: &[f32], dx: &mut [f32]) {
        Portable::plain().conv_input_grad(conv, samples, dy, w, dx);
    }

    fn conv_weight_grad(
        &mut self,
        conv: &Conv,
        samples: usize,
        factor: f32,
        dy: &[f32],
        x: &[f32],
        dw: &mut [f32],
    ) {
        Portable::plain().conv_weight_grad(conv, samples, factor, dy, x, dw);
    }
}

/// False if `a * b` is a zero, found from the bits.
#[inline(always)]
fn counts(a: f32, b: f32) -> bool {
    const INFINITE: u32 = 0x7f80_0000;
    let (a, b) = (a.to_bits() & !(1 << 31), b.to_bits() & !(1 << 31));
    (a != 0 || b >= INFINITE) && (b != 0 || a >= INFINITE)
}
