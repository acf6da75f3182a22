//! The matrix products of a dense layer, the only part of training that is worth a second version.
//!
//! With `x[rows][inputs]`, `w[outputs][inputs]`, `y[rows][outputs]`, all row-major:
//!
//! | product | formula | sum over |
//! |---|---|---|
//! | `gemm_nt` | `y = x w^T + b` | inputs |
//! | `gemm_nn` | `dx = dy w` | outputs |
//! | `gemm_tn` | `dw += scale * (dy^T x)` | rows |

/// Sizes of one dense layer in one batch.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Sizes {
    pub rows: usize,
    pub inputs: usize,
    pub outputs: usize,
}

/// How matrix products are computed. Slices have exactly the lengths that [`Sizes`] says.
pub trait Backend<T> {
    fn gemm_nt(&self, sizes: Sizes, x: &[T], w: &[T], bias: Option<&[T]>, y: &mut [T]);
    fn gemm_nn(&self, sizes: Sizes, dy: &[T], w: &[T], dx: &mut [T]);
    fn gemm_tn(&self, sizes: Sizes, scale: T, dy: &[T], x: &[T], dw: &mut [T]);
}
