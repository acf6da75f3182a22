//! Matrix products for processors with AVX-512, for the shapes of small models and batches.
//!
//! ```text
//! c[i][j] (+)= sum_p a[i][p] b[p][j]      up to 12 rows i and 32 columns j at a time, p innermost
//! ```
//! A general product first packs both operands, and for fifty rows that costs as much as the product itself. Here numbers of
//! `a` are broadcast without packing. Rows of `b` are read in place if they are contiguous; else 32 columns at a time are
//! transposed into a panel, 16 x 16 numbers at once. Ends of rows are masked, so no shape is slow.
//! `cargo bench -p fairtier-trainer` compares it with `matrixmultiply`.
//!
//! Every sum has one accumulator and fused steps with p ascending. Up to [`DEPTH`] terms, the bits are those of
//! `Portable::fused`.
#![expect(unsafe_code, reason = "vector loads and stores take pointers; `gemm` states what they may reach")]

use core::arch::x86_64::{
    __m512, __mmask16, _mm512_add_ps, _mm512_castpd_ps, _mm512_castps_pd, _mm512_fmadd_ps,
    _mm512_mask_storeu_ps, _mm512_maskz_loadu_ps, _mm512_mul_ps, _mm512_set1_ps, _mm512_setzero_ps,
    _mm512_shuffle_f32x4, _mm512_storeu_ps, _mm512_unpackhi_pd, _mm512_unpackhi_ps, _mm512_unpacklo_pd,
    _mm512_unpacklo_ps,
};

use super::{GemmWrite, MatrixView, MatrixViewMut};

/// Numbers in a vector, and columns of a panel.
const LANES: usize = 16;
const PANEL: usize = 2 * LANES;
/// Rows of `c` whose sums fit the registers.
const ROWS: usize = 12;
/// Products are summed in parts of this many terms, so that a panel stays in the second-level cache.
const DEPTH: usize = 2048;

pub(super) fn is_available() -> bool {
    std::arch::is_x86_feature_detected!("avx512f")
}

/// `c = a b`, or added to `c`. `panel` is a buffer that is kept between calls.
///
/// # Safety
/// The processor has AVX-512F ([`is_available`]); the views fit each other and reach nothing outside their
/// slices ([`MatrixView::holds`], [`MatrixViewMut::holds`]).
pub(super) unsafe fn gemm(
    a: MatrixView<'_, f32>,
    b: MatrixView<'_, f32>,
    store: GemmWrite<f32>,
    c: &mut MatrixViewMut<'_, f32>,
    panel: &mut Vec<f32>,
) {
    let [m, k, n] = [a.rows, a.columns, b.columns];
    if m == 0 || n == 0 {
        return;
    }
    if k == 0 {
        if store == GemmWrite::Replace {
            c.data.chunks_mut(c.stride).take(m).for_each(|row| row[..n].fill(0.0));
        }
        return;
    }
    let turned = b.strides.1 != 1;
    if turned && panel.len() < k.min(DEPTH) * PANEL {
        panel.resize(k.min(DEPTH) * PANEL, 0.0);
    }
    for first in (0..k).step_by(DEPTH) {
        let depth = DEPTH.min(k - first);
        let store = if first == 0 { store } else { later(store) };
        for column in (0..n).step_by(PANEL) {
            let columns = PANEL.min(n - column);
            // SAFETY: `first < k` and `column < n`, so only elements of `a`, `b` and `c` are addressed, which the caller
            // guarantees to be inside their slices. `c` is borrowed mutably and overlaps neither.
            unsafe {
                let from = b.data.as_ptr().add(first * b.strides.0 + column * b.strides.1);
                let rows = if turned {
                    turn(from, b.strides, [depth, columns], panel.as_mut_ptr());
                    Rows { at: panel.as_ptr(), stride: PANEL, depth }
                } else {
                    Rows { at: from, stride: b.strides.0, depth }
                };
                let a = Left { at: a.data.as_ptr().add(first * a.strides.1), strides: a.strides };
                let c = Right { at: c.data.as_mut_ptr().add(column), stride: c.stride };
                if columns > LANES {
                    strip::<2>(m, a, rows, mask(columns - LANES), store, c);
                } else {
                    strip::<1>(m, a, rows, mask(columns), store, c);
                }
            }
        }
    }
}

/// How the second part of a sum is stored.
fn later(store: GemmWrite<f32>) -> GemmWrite<f32> {
    match store {
        GemmWrite::Replace => GemmWrite::Add(1.0),
        GemmWrite::Add(factor) => GemmWrite::Add(factor),
    }
}

/// The first `lanes` of a vector, at least one.
fn mask(lanes: usize) -> __mmask16 {
    !0 >> (LANES - lanes)
}

/// Numbers that are broadcast: `(i, p)` at `i * strides.0 + p * strides.1`.
#[derive(Copy, Clone)]
struct Left {
    at: *const f32,
    strides: (usize, usize),
}

/// `depth` contiguous rows.
#[derive(Copy, Clone)]
struct Rows {
    at: *const f32,
    stride: usize,
    depth: usize,
}

/// Where sums go.
#[derive(Copy, Clone)]
struct Right {
    at: *mut f32,
    stride: usize,
}

/// All rows of `c` over `V` vectors of columns, the last of them masked. Tiles have equal heights, because a thin last one
/// would be slow.
#[target_feature(enable = "avx512f")]
unsafe fn strip<const V: usize>(
    m: usize,
    a: Left,
    b: Rows,
    mask: __mmask16,
    store: GemmWrite<f32>,
    c: Right,
) {
    let height = m.div_ceil(m.div_ceil(ROWS));
    for row in (0..m).step_by(height) {
        // SAFETY: `row < m`, and a tile has no more rows than are left.
        unsafe {
            let a = Left { at: a.at.add(row * a.strides.0), ..a };
            let c = Right { at: c.at.add(row * c.stride), ..c };
            match height.min(m - row) {
                1 => tile::<1, V>(a, b, mask, store, c),
                2 => tile::<2, V>(a, b, mask, store, c),
                3 => tile::<3, V>(a, b, mask, store, c),
                4 => tile::<4, V>(a, b, mask, store, c),
                5 => tile::<5, V>(a, b, mask, store, c),
                6 => tile::<6, V>(a, b, mask, store, c),
                7 => tile::<7, V>(a, b, mask, store, c),
                8 => tile::<8, V>(a, b, mask, store, c),
                9 => tile::<9, V>(a, b, mask, store, c),
                10 => tile::<10, V>(a, b, mask, store, c),
                11 => tile::<11, V>(a, b, mask, store, c),
                _ => tile::<ROWS, V>(a, b, mask, store, c),
            }
        }
    }
}

/// `R` rows and `V` vectors of columns of `c`: the sums stay in registers.
#[target_feature(enable = "avx512f")]
unsafe fn tile<const R: usize, const V: usize>(
    a: Left,
    b: Rows,
    mask: __mmask16,
    store: GemmWrite<f32>,
    c: Right,
) {
    let mask_of = |vector: usize| if vector + 1 == V { mask } else { !0 };
    let mut sums = [[_mm512_setzero_ps(); V]; R];
    for p in 0..b.depth {
        let mut row = [_mm512_setzero_ps(); V];
        // SAFETY: masked lanes are not read, the others are elements of `b`'s row `p` and of `a`'s column `p`.
        unsafe {
            for (vector, row) in row.iter_mut().enumerate() {
                *row = _mm512_maskz_loadu_ps(mask_of(vector), b.at.add(p * b.stride + vector * LANES));
            }
            for (i, sums) in sums.iter_mut().enumerate() {
                let factor = _mm512_set1_ps(*a.at.add(i * a.strides.0 + p * a.strides.1));
                for (sum, row) in sums.iter_mut().zip(row) {
                    *sum = _mm512_fmadd_ps(factor, row, *sum);
                }
            }
        }
    }
    for (i, sums) in sums.iter().enumerate() {
        for (vector, &sum) in sums.iter().enumerate() {
            let mask = mask_of(vector);
            // SAFETY: masked lanes are neither read nor written, the others are elements of `c`'s row `i`.
            unsafe {
                let place = c.at.add(i * c.stride + vector * LANES);
                let value = match store {
                    GemmWrite::Replace => sum,
                    GemmWrite::Add(factor) => {
                        let product = _mm512_mul_ps(_mm512_set1_ps(factor), sum);
                        _mm512_add_ps(_mm512_maskz_loadu_ps(mask, place), product)
                    }
                };
                _mm512_mask_storeu_ps(place, mask, value);
            }
        }
    }
}

/// Transposes `columns` columns (at most those of a panel) of `depth` numbers into rows of a panel.
#[target_feature(enable = "avx512f")]
unsafe fn turn(from: *const f32, strides: (usize, usize), [depth, columns]: [usize; 2], panel: *mut f32) {
    if strides.0 != 1 {
        for p in 0..depth {
            for j in 0..columns {
                // SAFETY: an element of the source, and a place in the panel.
                unsafe { *panel.add(p * PANEL + j) = *from.add(p * strides.0 + j * strides.1) };
            }
        }
        return;
    }
    for column in (0..columns).step_by(LANES) {
        for first in (0..depth).step_by(LANES) {
            let left = [LANES.min(depth - first), LANES.min(columns - column)];
            // SAFETY: the rest of the source is read, and the panel has PANEL numbers for each of `depth` rows.
            unsafe {
                let (from, to) = (from.add(column * strides.1 + first), panel.add(first * PANEL + column));
                // Constant sizes keep the block in registers.
                if left == [LANES; 2] {
                    block(from, strides.1, [LANES; 2], to);
                } else {
                    block(from, strides.1, left, to);
                }
            }
        }
    }
}

/// Transposes `columns` columns of `depth` numbers, at most 16 of either.
#[inline(always)]
unsafe fn block(from: *const f32, stride: usize, [depth, columns]: [usize; 2], to: *mut f32) {
    // SAFETY: called where there is AVX-512; masked lanes are not read, and `depth` rows are written.
    unsafe {
        let mut rows = [_mm512_setzero_ps(); LANES];
        for (j, row) in rows.iter_mut().enumerate() {
            if j < columns {
                *row = _mm512_maskz_loadu_ps(mask(depth), from.add(j * stride));
            }
        }
        for (p, row) in transpose(rows).into_iter().enumerate() {
            if p < depth {
                _mm512_storeu_ps(to.add(p * PANEL), row);
            }
        }
    }
}

/// Transposes a 16 x 16 block: pairs, then fours, then the four quarters of vectors.
#[inline]
#[target_feature(enable = "avx512f")]
fn transpose(rows: [__m512; LANES]) -> [__m512; LANES] {
    let mut pairs = rows;
    for i in (0..LANES).step_by(2) {
        pairs[i] = _mm512_unpacklo_ps(rows[i], rows[i + 1]);
        pairs[i + 1] = _mm512_unpackhi_ps(rows[i], rows[i + 1]);
    }
    // fours[4 i + j]: columns j, 4 + j, 8 + j and 12 + j of rows 4 i .. 4 i + 4.
    let mut fours = pairs;
    for i in (0..LANES).step_by(4) {
        let pair = [0, 1, 2, 3].map(|j| _mm512_castps_pd(pairs[i + j]));
        fours[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(pair[0], pair[2]));
        fours[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(pair[0], pair[2]));
        fours[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(pair[1], pair[3]));
        fours[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(pair[1], pair[3]));
    }
    const EVEN: i32 = 0x88;
    const ODD: i32 = 0xdd;
    let mut out = fours;
    for j in 0..4 {
        let upper = (fours[j], fours[4 + j]);
        let lower = (fours[8 + j], fours[12 + j]);
        let even = _mm512_shuffle_f32x4::<EVEN>(upper.0, upper.1);
        let odd = _mm512_shuffle_f32x4::<ODD>(upper.0, upper.1);
        let even_below = _mm512_shuffle_f32x4::<EVEN>(lower.0, lower.1);
        let odd_below = _mm512_shuffle_f32x4::<ODD>(lower.0, lower.1);
        out[j] = _mm512_shuffle_f32x4::<EVEN>(even, even_below);
        out[8 + j] = _mm512_shuffle_f32x4::<ODD>(even, even_below);
        out[4 + j] = _mm512_shuffle_f32x4::<EVEN>(odd, odd_below);
        out[12 + j] = _mm512_shuffle_f32x4::<ODD>(odd, odd_below);
    }
    out
}
