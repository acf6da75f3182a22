//! Matrix products by `matrixmultiply`, for hosts. The only file with `unsafe` in this crate.
//!
//! Fast kernels sum in another order and may fuse, so bits differ from `Portable` and between
//! processors; results agree to about 1e-6 relative.
#![expect(unsafe_code, reason = "matrixmultiply takes raw pointers; `gemm` checks every length first")]

use common::plan::Conv;

use super::{Backend, Store, View, ViewMut};

mod columns;

/// The backend of Linux-class devices and of the simulator. Keeps the room that convolutions need.
#[derive(Clone, Debug, Default)]
pub struct Fast<T = f32> {
    columns: Vec<T>,
    record: Option<Vec<Product>>,
}

impl<T> Fast<T> {
    pub fn new() -> Self {
        Self { columns: Vec::new(), record: None }
    }

    /// Notes every product from now on, for benchmarks that repeat them without anything around.
    pub fn start_record(&mut self) {
        self.record = Some(Vec::new());
    }

    /// The products since [`start_record`](Self::start_record), and no more notes.
    pub fn take_record(&mut self) -> Vec<Product> {
        self.record.take().unwrap_or_default()
    }
}

/// One matrix product: `c[m][n] = a[m][k] b[k][n]`, or added to `c`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Product {
    /// m, k, n.
    pub sizes: [usize; 3],
    /// Addresses of a, b, c.
    pub at: [usize; 3],
    /// Row and column strides of a, b, c.
    pub strides: [(usize, usize); 3],
    pub add: bool,
}

macro_rules! fast {
    ($float:ty, $kernel:path) => {
        impl Backend<$float> for Fast<$float> {
            fn gemm(
                &mut self,
                a: View<'_, $float>,
                b: View<'_, $float>,
                store: Store<$float>,
                c: ViewMut<'_, $float>,
            ) {
                let [m, k, n] = [a.rows, a.columns, b.columns];
                let fit = b.rows == k && c.rows == m && c.columns == n;
                assert!(
                    fit && a.holds() && b.holds() && c.holds(),
                    "matrix product {m}x{k}x{n} reaches outside its slices"
                );
                let (alpha, beta) = match store {
                    Store::Replace => (1.0, 0.0),
                    Store::Add(factor) => (factor, 1.0),
                };
                let ((rsa, csa), (rsb, csb)) = (a.strides, b.strides);
                if let Some(record) = &mut self.record {
                    let at = [a.data.as_ptr() as usize, b.data.as_ptr() as usize, c.data.as_ptr() as usize];
                    let strides = [a.strides, b.strides, (c.stride, 1)];
                    record.push(Product { sizes: [m, k, n], at, strides, add: beta != 0.0 });
                }
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

fast!(f32, matrixmultiply::sgemm);
fast!(f64, matrixmultiply::dgemm);
