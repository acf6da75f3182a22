//! Matrix products by `matrixmultiply`, for hosts. The only file with `unsafe` in this crate.
//!
//! Fast kernels sum in another order and may fuse, so bits differ from `Portable` and between
//! processors; results agree to about 1e-6 relative.
#![expect(unsafe_code, reason = "matrixmultiply takes raw pointers; `gemm` checks every length first")]

use super::{Backend, Sizes};

/// The backend of Linux-class devices and of the simulator.
#[derive(Copy, Clone, Debug, Default)]
pub struct Fast;

/// A matrix of a product: element `(i, j)` lies at `i * strides.0 + j * strides.1`.
#[derive(Copy, Clone)]
struct Matrix<'a, T> {
    data: &'a [T],
    strides: (usize, usize),
}

impl<'a, T> Matrix<'a, T> {
    fn new(data: &'a [T], width: usize) -> Self {
        Self { data, strides: (width, 1) }
    }

    fn transposed(self) -> Self {
        Self { strides: (self.strides.1, self.strides.0), ..self }
    }

    /// True if every element of `rows x columns` lies inside the slice.
    fn holds(&self, rows: usize, columns: usize) -> bool {
        holds(self.data.len(), rows, columns, self.strides)
    }
}

fn holds(len: usize, rows: usize, columns: usize, strides: (usize, usize)) -> bool {
    let (Some(row), Some(column)) = (rows.checked_sub(1), columns.checked_sub(1)) else { return true };
    let last = row.checked_mul(strides.0).zip(column.checked_mul(strides.1));
    let last = last.and_then(|(row, column)| row.checked_add(column));
    last.is_some_and(|last| last < len && isize::try_from(last).is_ok())
}

macro_rules! fast {
    ($float:ty, $kernel:path) => {
        impl Backend<$float> for Fast {
            fn gemm_nt(
                &self,
                sizes: Sizes,
                x: &[$float],
                w: &[$float],
                bias: Option<&[$float]>,
                y: &mut [$float],
            ) {
                let Sizes { rows, inputs, outputs } = sizes;
                if let (Some(bias), 1..) = (bias, outputs) {
                    y.chunks_exact_mut(outputs).for_each(|y| y.copy_from_slice(bias));
                }
                let keep = if bias.is_some() { 1.0 } else { 0.0 };
                let w = Matrix::new(w, inputs).transposed();
                gemm(rows, inputs, outputs, 1.0, Matrix::new(x, inputs), w, keep, y);
            }

            fn gemm_nn(&self, sizes: Sizes, dy: &[$float], w: &[$float], dx: &mut [$float]) {
                let Sizes { rows, inputs, outputs } = sizes;
                gemm(rows, outputs, inputs, 1.0, Matrix::new(dy, outputs), Matrix::new(w, inputs), 0.0, dx);
            }

            fn gemm_tn(&self, sizes: Sizes, scale: $float, dy: &[$float], x: &[$float], dw: &mut [$float]) {
                let Sizes { rows, inputs, outputs } = sizes;
                let dy = Matrix::new(dy, outputs).transposed();
                gemm(outputs, rows, inputs, scale, dy, Matrix::new(x, inputs), 1.0, dw);
            }
        }

        /// `c[m][n] = alpha * a[m][k] b[k][n] + beta * c`.
        #[expect(clippy::too_many_arguments, reason = "the signature of BLAS")]
        fn gemm(
            m: usize,
            k: usize,
            n: usize,
            alpha: $float,
            a: Matrix<'_, $float>,
            b: Matrix<'_, $float>,
            beta: $float,
            c: &mut [$float],
        ) {
            assert!(
                a.holds(m, k) && b.holds(k, n) && holds(c.len(), m, n, (n, 1)),
                "matrix product {m}x{k}x{n} reaches outside its slices"
            );
            let ((rsa, csa), (rsb, csb)) = (a.strides, b.strides);
            // SAFETY: the assertion above bounds every element the kernel addresses, with all
            // indices within isize; `c` is a unique borrow, so it overlaps neither `a` nor `b`, and
            // its row stride `n` makes its elements distinct.
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
                    c.as_mut_ptr(),
                    n as isize,
                    1,
                );
            }
        }
    };
}

mod single {
    use super::{Backend, Fast, Matrix, Sizes, holds};
    fast!(f32, matrixmultiply::sgemm);
}

mod double {
    use super::{Backend, Fast, Matrix, Sizes, holds};
    fast!(f64, matrixmultiply::dgemm);
}
