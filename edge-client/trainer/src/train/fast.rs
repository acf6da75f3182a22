//! Matrix products for hosts: [`wide`] where the processor has AVX-512, else `matrixmultiply`. The only module with `unsafe`
//! in this crate.
//!
//! Fast kernels sum in another order and may fuse, so bits differ from `Portable` and between
//! processors; results agree to about 1e-6 relative.
#![expect(unsafe_code, reason = "kernels take raw pointers; `gemm` checks every length first")]

use common::plan::Conv;

use super::{Backend, GemmWrite, MatrixView, MatrixViewMut};

mod columns;
#[cfg(target_arch = "x86_64")]
mod wide;

/// The backend of Linux-class devices and of the simulator. Keeps the buffers of products and convolutions between calls.
#[derive(Clone, Debug)]
pub struct Fast<T = f32> {
    columns: Vec<T>,
    panel: Vec<T>,
    wide: bool,
    record: Option<Vec<MatrixProduct>>,
}

impl<T> Default for Fast<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Fast<T> {
    /// Uses AVX-512 where the processor has it.
    pub fn new() -> Self {
        #[cfg(target_arch = "x86_64")]
        let wide = wide::is_available();
        #[cfg(not(target_arch = "x86_64"))]
        let wide = false;
        Self { wide, ..Self::general() }
    }

    /// Uses `matrixmultiply` on every processor, as the reference of benchmarks.
    pub fn general() -> Self {
        Self { columns: Vec::new(), panel: Vec::new(), wide: false, record: None }
    }

    /// True if products use AVX-512 kernels, whose bits are those of `Portable::fused` for up to 2,048 terms.
    pub fn is_wide(&self) -> bool {
        self.wide
    }

    /// Records every product from now on, for benchmarks that repeat the products alone.
    pub fn start_record(&mut self) {
        self.record = Some(Vec::new());
    }

    /// Stops recording and returns the products since [`start_record`](Self::start_record).
    pub fn take_record(&mut self) -> Vec<MatrixProduct> {
        self.record.take().unwrap_or_default()
    }
}

/// One matrix product: `c[m][n] = a[m][k] b[k][n]`, or added to `c`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct MatrixProduct {
    /// m, k, n.
    pub sizes: [usize; 3],
    /// Addresses of a, b, c.
    pub at: [usize; 3],
    /// Row and column strides of a, b, c.
    pub strides: [(usize, usize); 3],
    /// The product is added to c.
    pub add: bool,
}

macro_rules! fast {
    ($float:ty, $kernel:path, $wide:expr) => {
        impl Backend<$float> for Fast<$float> {
            fn gemm(
                &mut self,
                a: MatrixView<'_, $float>,
                b: MatrixView<'_, $float>,
                store: GemmWrite<$float>,
                mut c: MatrixViewMut<'_, $float>,
            ) {
                let [m, k, n] = [a.rows, a.columns, b.columns];
                let fit = b.rows == k && c.rows == m && c.columns == n;
                assert!(
                    fit && a.holds() && b.holds() && c.holds(),
                    "matrix product {m}x{k}x{n} reaches outside its slices"
                );
                if let Some(record) = &mut self.record {
                    let at = [a.data.as_ptr() as usize, b.data.as_ptr() as usize, c.data.as_ptr() as usize];
                    let strides = [a.strides, b.strides, (c.stride, 1)];
                    record.push(MatrixProduct {
                        sizes: [m, k, n],
                        at,
                        strides,
                        add: store != GemmWrite::Replace,
                    });
                }
                // SAFETY: the views were checked, and `wide` states whether the processor has AVX-512.
                if self.wide && unsafe { $wide(a, b, store, &mut c, &mut self.panel) } {
                    return;
                }
                let (alpha, beta) = match store {
                    GemmWrite::Replace => (1.0, 0.0),
                    GemmWrite::Add(factor) => (factor, 1.0),
                };
                let ((rsa, csa), (rsb, csb)) = (a.strides, b.strides);
                // SAFETY: the assertion above bounds every element the kernel addresses, with all
                // indices within isize; `c` is a unique borrow, so it overlaps neither `a` nor `b`, and
                // its row stride is at least `n`, which makes its elements distinct.
                unsafe {
                    $kernel(
                        m,
                        k,
                        n,
                        alpha,
                        a.data.as_ptr(),
                        rsa as isize,
                        csa as isize,
                        b.data.as_ptr(),
                        rsb as isize,
                        csb as isize,
                        beta,
                        c.data.as_mut_ptr(),
                        c.stride as isize,
                        1,
                    );
                }
            }

            fn conv(&mut self, conv: &Conv, samples: usize, x: &[$float], w: &[$float], y: &mut [$float]) {
                columns::forward(self, conv, samples, x, w, y);
            }

            fn conv_input_grad(
                &mut self,
                conv: &Conv,
                samples: usize,
                dy: &[$float],
                w: &[$float],
                dx: &mut [$float],
            ) {
                columns::input_grad(self, conv, samples, dy, w, dx);
            }

            fn conv_weight_grad(
                &mut self,
                conv: &Conv,
                samples: usize,
                factor: $float,
                dy: &[$float],
                x: &[$float],
                dw: &mut [$float],
            ) {
                columns::weight_grad(self, conv, samples, factor, dy, x, dw);
            }
        }
    };
}

fast!(f32, matrixmultiply::sgemm, wide_product);
fast!(f64, matrixmultiply::dgemm, no_product);

/// # Safety
/// As for [`wide::gemm`].
#[cfg(target_arch = "x86_64")]
unsafe fn wide_product(
    a: MatrixView<'_, f32>,
    b: MatrixView<'_, f32>,
    store: GemmWrite<f32>,
    c: &mut MatrixViewMut<'_, f32>,
    panel: &mut Vec<f32>,
) -> bool {
    // SAFETY: guaranteed by the caller.
    unsafe { wide::gemm(a, b, store, c, panel) };
    true
}

#[cfg(not(target_arch = "x86_64"))]
use no_product as wide_product;

/// Returns false: nothing was computed.
unsafe fn no_product<T>(
    _: MatrixView<'_, T>,
    _: MatrixView<'_, T>,
    _: GemmWrite<T>,
    _: &mut MatrixViewMut<'_, T>,
    _: &mut Vec<T>,
) -> bool {
    false
}
