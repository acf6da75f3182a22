//! Matrix products and convolutions for cores with a single-precision FPU: tiles of 4x4 sums in registers, one `vfma` per
//! multiply-accumulate. Also the loops that touch every number.
//!
//! Every sum starts at zero, runs over k in ascending order in one register and is rounded once per step. It is then stored,
//! or added as `c + factor * sum` with two roundings. The bits are those of `Portable::fused()`.
//!
//! # Audit
//! - `Product::new` checks, before any assembler is called, that every element of the product lies inside the
//!   slices it was given. The assembler reads exactly `k` numbers along each of the rows and columns of its
//!   tiles and writes (with `add`, also reads) 4 rows of 4 numbers per tile.
//! - `begin` checks that every number of the eight or five operands of a tile or strip lies inside its slice, and
//!   `Nest::reach` that every loop has at least one turn. The assembler reads exactly those numbers and writes 16 or 4 sums.
//! - It uses r0-r12, lr and s0-s31. The procedure call standard requires that r4-r11 and s16-s31 are preserved: they are
//!   pushed first and popped last. The stack pointer stays a multiple of 8.
//! - It calls nothing and has no other effect. Interrupts do not affect it, because the core stacks the FPU's registers.
#![allow(unsafe_code, reason = "the one file that calls assembler (kernel.s); see the audit")]

use core::{arch::global_asm, ptr};

use client::train::{
    Backend, GemmWrite, MatrixView, MatrixViewMut,
    tiles::{self, Nest, TileKernel},
};
use common::plan::Conv;

const SIDE: usize = 4;

/// The backend of cores with an FPU.
#[derive(Copy, Clone, Debug, Default)]
pub struct Fpu;

impl Backend<f32> for Fpu {
    fn gemm(
        &mut self,
        a: MatrixView<'_, f32>,
        b: MatrixView<'_, f32>,
        store: GemmWrite<f32>,
        c: MatrixViewMut<'_, f32>,
    ) {
        let inner = a.columns.min(b.rows);
        let (rows, columns) = (a.rows.min(c.rows), b.columns.min(c.columns));
        let (a, b) = (MatrixView { rows, columns: inner, ..a }, MatrixView { rows: inner, columns, ..b });
        let mut c = MatrixViewMut { rows, columns, ..c };
        match Product::new(&a, &b, &c) {
            Some(product) => product.run(store, &mut c),
            None => one_by_one(a, b, store, &mut c),
        }
    }

    fn conv(&mut self, conv: &Conv, samples: usize, x: &[f32], w: &[f32], y: &mut [f32]) {
        tiles::forward(self, conv, samples, x, w, y);
    }

    fn conv_input_grad(&mut self, conv: &Conv, samples: usize, dy: &[f32], w: &[f32], dx: &mut [f32]) {
        tiles::input_grad(self, conv, samples, dy, w, dx);
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
        tiles::weight_grad(self, conv, samples, factor, dy, x, dw);
    }

    fn relu(&mut self, values: &mut [f32]) {
        let (fours, rest) = values.as_chunks_mut::<SIDE>();
        if !fours.is_empty() {
            // SAFETY: the slice holds `fours` times four numbers.
            unsafe { fairtier_relu(fours.as_mut_ptr().cast(), fours.len()) };
        }
        rest.iter_mut().filter(|value| **value < 0.0).for_each(|value| *value = 0.0);
    }

    fn relu_grad(&mut self, y: &[f32], gradient: &mut [f32]) {
        let len = y.len().min(gradient.len());
        let ((y, y_rest), (fours, rest)) =
            (y[..len].as_chunks::<SIDE>(), gradient[..len].as_chunks_mut::<SIDE>());
        if !fours.is_empty() {
            // SAFETY: both slices hold `fours` times four numbers.
            unsafe { fairtier_relu_grad(y.as_ptr().cast(), fours.as_mut_ptr().cast(), fours.len()) };
        }
        for (gradient, &y) in rest.iter_mut().zip(y_rest) {
            *gradient = if y > 0.0 { *gradient } else { 0.0 };
        }
    }

    fn column_sums(&mut self, stride: usize, factor: f32, rows: &[f32], sums: &mut [f32]) {
        let width = sums.len().min(stride);
        let count = rows.len().checked_div(stride).unwrap_or(0);
        let (fours, rest) = sums[..width].as_chunks_mut::<SIDE>();
        let done = fours.len() * SIDE;
        if count == 0 {
            return;
        }
        for (block, fours) in fours.iter_mut().enumerate() {
            // SAFETY: `count` whole rows of `stride` numbers, of which these four columns are a part.
            unsafe {
                let rows = rows[block * SIDE..].as_ptr();
                fairtier_column_sums(rows, stride * 4, count, fours.as_mut_ptr(), factor);
            }
        }
        for (column, sum) in rest.iter_mut().enumerate() {
            let column = rows[done + column..].iter().step_by(stride).take(count);
            *sum += factor * column.fold(0.0, |total, value| total + value);
        }
    }
}

impl TileKernel<f32> for Fpu {
    type Walk = CheckedWalk;

    fn walk(&self, nest: &Nest) -> CheckedWalk {
        CheckedWalk::new(nest)
    }

    fn tile(
        &mut self,
        CheckedWalk { walk, a_reach, b_reach }: &mut CheckedWalk,
        (a, a_at): (&[f32], &[usize; SIDE]),
        (b, b_at): (&[f32], &[usize; SIDE]),
        sums: &mut [[f32; SIDE]; SIDE],
    ) {
        if begin(&mut walk.a, *a_reach, a, a_at) && begin(&mut walk.b, *b_reach, b, b_at) {
            // SAFETY: `begin` has checked all operands, and `sums` holds 16 numbers.
            unsafe { fairtier_conv_tile(walk, sums.as_mut_ptr().cast()) };
        }
    }

    fn strip(
        &mut self,
        CheckedWalk { walk, a_reach, b_reach }: &mut CheckedWalk,
        (a, a_at): (&[f32], &[usize; SIDE]),
        (b, b_at): (&[f32], usize),
        sums: &mut [f32; SIDE],
    ) {
        if begin(&mut walk.a, *a_reach, a, a_at) && begin(&mut walk.b[..1], *b_reach, b, &[b_at]) {
            // SAFETY: `begin` has checked the operands that a strip reads, and `sums` holds 4 numbers.
            unsafe { fairtier_conv_strip(walk, sums.as_mut_ptr()) };
        }
    }
}

/// Arguments of the assembler for the tiles or strips of a convolution. Distances are in bytes.
#[derive(Debug)]
#[repr(C)]
struct Walk {
    a: [*const f32; SIDE],
    b: [*const f32; SIDE],
    a_step: isize,
    b_step: isize,
    terms: usize,
    /// From behind the last term of a line to the first of the next.
    a_line: isize,
    b_line: isize,
    lines: usize,
    /// From behind the last line of a plane to the first of the next.
    a_plane: isize,
    b_plane: isize,
    planes: usize,
}

/// Numbers below and above the first one of an operand that are read; `None` if there is nothing to read.
type Reach = Option<(usize, usize)>;

/// A [`Walk`], and how far its operands reach.
#[derive(Debug)]
pub struct CheckedWalk {
    walk: Walk,
    a_reach: Reach,
    b_reach: Reach,
}

impl CheckedWalk {
    fn new(nest: &Nest) -> Self {
        Self { walk: Walk::new(nest), a_reach: nest.reach(nest.a), b_reach: nest.reach(nest.b) }
    }
}

impl Walk {
    fn new(nest: &Nest) -> Self {
        let Nest { counts: [planes, lines, terms], a, b } = *nest;
        let gap = |outer: isize, turns: usize, inner: isize| (outer - turns as isize * inner) * 4;
        Self {
            a: [ptr::null(); SIDE],
            b: [ptr::null(); SIDE],
            a_step: a[2] * 4,
            b_step: b[2] * 4,
            terms,
            a_line: gap(a[1], terms, a[2]),
            b_line: gap(b[1], terms, b[2]),
            lines,
            a_plane: gap(a[0], lines, a[1]),
            b_plane: gap(b[0], lines, b[1]),
            planes,
        }
    }
}

/// Sets where operands begin. False if one of them reaches outside its slice, which would be a bug of the trainer.
fn begin(places: &mut [*const f32], reach: Reach, data: &[f32], at: &[usize]) -> bool {
    let Some((below, above)) = reach else { return false };
    places.iter_mut().zip(at).all(|(place, &at)| {
        *place = data.as_ptr().wrapping_add(at);
        at >= below && at.checked_add(above).is_some_and(|last| last < data.len())
    })
}

/// Which index is contiguous in memory, in `a` and in `b`.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Kind {
    /// Both along k: `x W^T`.
    Dots,
    /// `a` along k, `b` along its columns: `dy W`.
    Rows,
    /// `a` along its rows, `b` along its columns: `dy^T x`.
    Outer,
}

/// Arguments of the assembler, which advances `b` and `tiles`. Strides are in bytes.
#[repr(C)]
struct Job {
    a: *const f32,
    a_stride: usize,
    b: *const f32,
    b_stride: usize,
    k: usize,
    c: *mut f32,
    c_stride: usize,
    /// 0: store; 1: add `factor` times the sum.
    add: u32,
    factor: f32,
    /// From a tile to the one on its right.
    b_next: usize,
    tiles: usize,
}

unsafe extern "C" {
    fn fairtier_tiles_dots(job: *mut Job);
    fn fairtier_tiles_rows(job: *mut Job);
    fn fairtier_tiles_outer(job: *mut Job);
    fn fairtier_conv_tile(walk: *const Walk, sums: *mut f32);
    fn fairtier_conv_strip(walk: *const Walk, sums: *mut f32);
    fn fairtier_relu(values: *mut f32, fours: usize);
    fn fairtier_relu_grad(y: *const f32, gradient: *mut f32, fours: usize);
    fn fairtier_column_sums(rows: *const f32, stride: usize, count: usize, sums: *mut f32, factor: f32);
    fn fairtier_dot(a: *const f32, a_stride: usize, b: *const f32, b_stride: usize, k: usize) -> f32;
}

/// A product of at least 4x4 sums whose operands are checked to be inside their slices.
struct Product<'a> {
    kind: Kind,
    a: &'a MatrixView<'a, f32>,
    b: &'a MatrixView<'a, f32>,
}

impl<'a> Product<'a> {
    fn new(
        a: &'a MatrixView<'a, f32>,
        b: &'a MatrixView<'a, f32>,
        c: &MatrixViewMut<'_, f32>,
    ) -> Option<Self> {
        let kind = match (a.strides, b.strides) {
            ((_, 1), (1, _)) => Kind::Dots,
            ((_, 1), (_, 1)) => Kind::Rows,
            ((1, _), (_, 1)) => Kind::Outer,
            _ => return None,
        };
        let last = |rows: usize, columns: usize, strides: (usize, usize)| {
            let row = rows.checked_sub(1)?.checked_mul(strides.0)?;
            row.checked_add(columns.checked_sub(1)?.checked_mul(strides.1)?)
        };
        let inside = last(a.rows, a.columns, a.strides)? < a.data.len()
            && last(b.rows, b.columns, b.strides)? < b.data.len()
            && last(c.rows, c.columns, (c.stride, 1))? < c.data.len();
        (inside && c.rows >= SIDE && c.columns >= SIDE).then_some(Self { kind, a, b })
    }

    fn run(&self, store: GemmWrite<f32>, c: &mut MatrixViewMut<'_, f32>) {
        let mut row = 0;
        while row < c.rows {
            // The last tiles overlap sums that are already computed, and do not store those again.
            let top = row.min(c.rows - SIDE);
            let mut column = 0;
            if top == row {
                let tiles = c.columns / SIDE;
                let place = c.data[top * c.stride..].as_mut_ptr();
                // SAFETY: the tiles cover rows `top..top + 4` and the first `4 * tiles` columns of `c`.
                unsafe { self.tiles((top, 0), tiles, store, place, c.stride) };
                column = tiles * SIDE;
            }
            while column < c.columns {
                let left = column.min(c.columns - SIDE);
                self.part(store, c, (top, left), (row - top, column - left));
                column = left + SIDE;
            }
            row = top + SIDE;
        }
    }

    /// A tile whose first rows and columns are not stored.
    fn part(
        &self,
        store: GemmWrite<f32>,
        c: &mut MatrixViewMut<'_, f32>,
        (top, left): (usize, usize),
        (skip_rows, skip_columns): (usize, usize),
    ) {
        let place = top * c.stride + left;
        let mut before = [[0.0; SIDE]; SIDE];
        for (row, before) in before.iter_mut().enumerate() {
            if let Some(there) = c.data[place + row * c.stride..].first_chunk() {
                *before = *there;
            }
        }
        // SAFETY: the tile lies inside `c`.
        unsafe { self.tiles((top, left), 1, store, c.data[place..].as_mut_ptr(), c.stride) };
        for (row, before) in before.iter().enumerate() {
            let there = &mut c.data[place + row * c.stride..];
            if row < skip_rows {
                if let Some(there) = there.first_chunk_mut() {
                    *there = *before;
                }
            } else {
                for (there, before) in there.iter_mut().zip(before).take(skip_columns) {
                    *there = *before;
                }
            }
        }
    }

    /// Tiles side by side, the first at (`top`, `left`).
    ///
    /// # Safety
    /// Tiles must lie inside the product, and `c` must hold four rows, `c_stride` apart, of as many tiles.
    unsafe fn tiles(
        &self,
        (top, left): (usize, usize),
        tiles: usize,
        store: GemmWrite<f32>,
        c: *mut f32,
        c_stride: usize,
    ) {
        let Self { kind, a, b } = self;
        let (a_stride, b_stride) = match kind {
            Kind::Dots => (a.strides.0, b.strides.1),
            Kind::Rows => (a.strides.0, b.strides.0),
            Kind::Outer => (a.strides.1, b.strides.0),
        };
        let (add, factor) = match store {
            GemmWrite::Replace => (0, 0.0),
            GemmWrite::Add(factor) => (1, factor),
        };
        let mut job = Job {
            a: a.data[top * a.strides.0..].as_ptr(),
            a_stride: a_stride * 4,
            b: b.data[left * b.strides.1..].as_ptr(),
            b_stride: b_stride * 4,
            k: a.columns,
            c,
            c_stride: c_stride * 4,
            add,
            factor,
            b_next: SIDE * b.strides.1 * 4,
            tiles,
        };
        // SAFETY: `new` has checked that the whole product lies inside the slices; the rest is the caller's.
        unsafe {
            match kind {
                Kind::Dots => fairtier_tiles_dots(&raw mut job),
                Kind::Rows => fairtier_tiles_rows(&raw mut job),
                Kind::Outer => fairtier_tiles_outer(&raw mut job),
            }
        }
    }
}

fn put(place: &mut f32, sum: f32, store: GemmWrite<f32>) {
    match store {
        GemmWrite::Replace => *place = sum,
        GemmWrite::Add(factor) => *place += factor * sum,
    }
}

/// A product of any strides and sizes. Numbers outside a view are skipped.
fn one_by_one(
    a: MatrixView<'_, f32>,
    b: MatrixView<'_, f32>,
    store: GemmWrite<f32>,
    c: &mut MatrixViewMut<'_, f32>,
) {
    for row in 0..a.rows {
        for column in 0..b.columns {
            let sum = dot(
                a.data.get(row * a.strides.0..).unwrap_or_default(),
                a.strides.1,
                b.data.get(column * b.strides.1..).unwrap_or_default(),
                b.strides.0,
                a.columns,
            );
            if let Some(place) = c.data.get_mut(row * c.stride + column) {
                put(place, sum, store);
            }
        }
    }
}

/// `k` products of numbers `strides` apart, or as many as there are.
fn dot(a: &[f32], a_stride: usize, b: &[f32], b_stride: usize, k: usize) -> f32 {
    let there = |slice: &[f32], stride: usize| match (slice.len(), stride) {
        (0, _) => 0,
        (_, 0) => k,
        (len, stride) => (len - 1) / stride + 1,
    };
    let k = k.min(there(a, a_stride)).min(there(b, b_stride));
    if k == 0 {
        return 0.0;
    }
    // SAFETY: `k` was limited to what both slices hold.
    unsafe { fairtier_dot(a.as_ptr(), a_stride * 4, b.as_ptr(), b_stride * 4, k) }
}

global_asm!(include_str!("kernel.s"), options(raw));
