//! `Portable` against plain loops, bit by bit: blocking must not change the result.

use common::{
    plan::{Conv, Window},
    rng::Rng,
};
use proptest::prelude::*;

use crate::train::{
    Backend, Fast, Float, GemmWrite, MatrixView, MatrixViewMut, Portable,
    test_plan::window,
    tiles::{self, Nest, TileKernel},
};

fn random(rng: &mut Rng, len: usize) -> Vec<f32> {
    (0..len).map(|_| rng.normal() as f32).collect()
}

/// `sum_k` with one accumulator, ascending.
fn sum(fused: bool, terms: impl Iterator<Item = (f32, f32)>) -> f32 {
    terms.fold(0.0, |sum, (a, b)| if fused { libm::fmaf(a, b, sum) } else { sum + a * b })
}

fn check_gemm(
    backend: &mut dyn Backend<f32>,
    fused: bool,
    sizes: [usize; 3],
    turned: (bool, bool),
    seed: u64,
) {
    let [m, k, n] = sizes;
    let rng = &mut Rng::new(seed);
    let (a, b, gap) = (random(rng, m * k), random(rng, k * n), 3);
    let before = random(rng, m * (n + gap));
    let at = |turned: bool, rows: usize, columns: usize, i: usize, j: usize| {
        if turned { j * rows + i } else { i * columns + j }
    };
    let view = |data, turned: bool, rows, columns| match turned {
        true => MatrixView::new(data, columns, rows).transposed(),
        false => MatrixView::new(data, rows, columns),
    };
    for store in [GemmWrite::Replace, GemmWrite::Add(-0.7f32)] {
        let mut c = before.clone();
        backend.gemm(
            view(&a, turned.0, m, k),
            view(&b, turned.1, k, n),
            store,
            MatrixViewMut::strided(&mut c, m, n, n + gap),
        );
        for (place, (&got, &old)) in c.iter().zip(&before).enumerate() {
            let (i, j) = (place / (n + gap), place % (n + gap));
            let total =
                || sum(fused, (0..k).map(|l| (a[at(turned.0, m, k, i, l)], b[at(turned.1, k, n, l, j)])));
            let want = match store {
                _ if j >= n => old,
                GemmWrite::Replace => total(),
                GemmWrite::Add(factor) => old + factor * total(),
            };
            assert_eq!(got.to_bits(), want.to_bits(), "{sizes:?} {turned:?} {i} {j}: {got} {want}");
        }
    }
}

/// Compares a convolution with its definition, term by term in order.
fn check_conv(backend: &mut dyn Backend<f32>, fused: bool, conv: &Conv, seed: u64) {
    let rng = &mut Rng::new(seed);
    let (samples, window) = (2, conv.window);
    let (height, width) = (window.height as usize, window.width as usize);
    let (out_height, out_width) = (window.output().0 as usize, window.output().1 as usize);
    let [kh, kw] = window.kernel.map(usize::from);
    let [sy, sx] = window.stride.map(usize::from);
    let (inputs, outputs, groups) = (conv.inputs as usize, conv.outputs as usize, conv.groups as usize);
    let (ig, og) = (inputs / groups, outputs / groups);
    let x = random(rng, samples * inputs * height * width);
    let w = random(rng, outputs * ig * kh * kw);
    let dy = random(rng, samples * outputs * out_height * out_width);
    let x_at = |s: usize, c: usize, y: usize, x: usize| ((s * inputs + c) * height + y) * width + x;
    let y_at = |s: usize, c: usize, y: usize, x: usize| ((s * outputs + c) * out_height + y) * out_width + x;
    let w_at = |o: usize, i: usize, ky: usize, kx: usize| ((o * ig + i) * kh + ky) * kw + kx;
    // Every product of the convolution: input, weight, output index.
    let mut taps = vec![];
    for s in 0..samples {
        for o in 0..outputs {
            for (oy, ox) in (0..out_height).flat_map(|oy| (0..out_width).map(move |ox| (oy, ox))) {
                for i in 0..ig {
                    for (ky, kx) in (0..kh).flat_map(|ky| (0..kw).map(move |kx| (ky, kx))) {
                        let iy = (oy * sy + ky).checked_sub(window.pad[0].into());
                        let ix = (ox * sx + kx).checked_sub(window.pad[1].into());
                        if let (Some(iy), Some(ix)) = (iy, ix)
                            && iy < height
                            && ix < width
                        {
                            let channel = o / og * ig + i;
                            taps.push((x_at(s, channel, iy, ix), w_at(o, i, ky, kx), y_at(s, o, oy, ox)));
                        }
                    }
                }
            }
        }
    }
    let (mut y, mut dx, mut dw) = (vec![0.5f32; dy.len()], vec![0.25; x.len()], vec![0.125; w.len()]);
    backend.conv(conv, samples, &x, &w, &mut y);
    backend.conv_input_grad(conv, samples, &dy, &w, &mut dx);
    backend.conv_weight_grad(conv, samples, -0.5, &dy, &x, &mut dw);
    for (at, &got) in y.iter().enumerate() {
        let want = 0.5 + sum(fused, taps.iter().filter(|tap| tap.2 == at).map(|tap| (x[tap.0], w[tap.1])));
        assert_eq!(got.to_bits(), want.to_bits(), "forward {conv:?} {at}: {got} {want}");
    }
    for (at, &got) in dx.iter().enumerate() {
        // Ascending in (output channel, ky, kx), which is ascending in the weight's index.
        let mut terms: Vec<_> = taps.iter().filter(|tap| tap.0 == at).collect();
        terms.sort_by_key(|tap| tap.1);
        let want = 0.25 + sum(fused, terms.into_iter().map(|tap| (dy[tap.2], w[tap.1])));
        assert_eq!(got.to_bits(), want.to_bits(), "input {conv:?} {at}: {got} {want}");
    }
    for (at, &got) in dw.iter().enumerate() {
        let want =
            0.125 + -0.5 * sum(fused, taps.iter().filter(|tap| tap.1 == at).map(|tap| (x[tap.0], dy[tap.2])));
        assert_eq!(got.to_bits(), want.to_bits(), "weight {conv:?} {at}: {got} {want}");
    }

    let mut fast = Fast::<f32>::new();
    let (mut y2, mut dx2, mut dw2) = (vec![0.5f32; dy.len()], vec![0.25; x.len()], vec![0.125; w.len()]);
    fast.conv(conv, samples, &x, &w, &mut y2);
    fast.conv_input_grad(conv, samples, &dy, &w, &mut dx2);
    fast.conv_weight_grad(conv, samples, -0.5, &dy, &x, &mut dw2);
    for (a, b) in y.iter().chain(&dx).chain(&dw).zip(y2.iter().chain(&dx2).chain(&dw2)) {
        assert!((a - b).abs() < 1e-4, "{conv:?}: {a} {b}");
    }
}

/// The convolutions of boards, over tiles in plain Rust.
struct InTiles;

/// One sum, term by term. An access outside an operand panics.
fn sum_over(nest: &Nest, (a, a_at): (&[f32], usize), (b, b_at): (&[f32], usize)) -> f32 {
    let [planes, lines, terms] = nest.counts;
    assert!(planes * lines * terms > 0 && nest.reach(nest.a).is_some_and(|(below, _)| below <= a_at));
    let mut total = 0.0;
    for (plane, line) in (0..planes).flat_map(|plane| (0..lines).map(move |line| (plane, line))) {
        for term in 0..terms {
            let at = |start: usize, steps: [isize; 3]| {
                let loops = [plane, line, term].map(|turn| turn as isize);
                let moved: isize = loops.iter().zip(steps).map(|(turn, step)| turn * step).sum();
                start.checked_add_signed(moved).unwrap()
            };
            total = libm::fmaf(a[at(a_at, nest.a)], b[at(b_at, nest.b)], total);
        }
    }
    total
}

impl TileKernel<f32> for InTiles {
    type Walk = Nest;

    fn walk(&self, nest: &Nest) -> Nest {
        *nest
    }

    fn tile(
        &mut self,
        nest: &mut Nest,
        a: (&[f32], &[usize; 4]),
        b: (&[f32], &[usize; 4]),
        sums: &mut [[f32; 4]; 4],
    ) {
        *sums = a.1.map(|row| b.1.map(|column| sum_over(nest, (a.0, row), (b.0, column))));
    }

    fn strip(&mut self, nest: &mut Nest, a: (&[f32], &[usize; 4]), b: (&[f32], usize), sums: &mut [f32; 4]) {
        *sums = a.1.map(|row| sum_over(nest, (a.0, row), b));
    }
}

impl Backend<f32> for InTiles {
    fn gemm(
        &mut self,
        a: MatrixView<'_, f32>,
        b: MatrixView<'_, f32>,
        store: GemmWrite<f32>,
        c: MatrixViewMut<'_, f32>,
    ) {
        Portable::fused().gemm(a, b, store, c);
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
}

#[test]
fn convolutions_have_the_bits_of_plain_loops() {
    let mut seed = 0;
    for (inputs, outputs, groups) in [(1, 1, 1), (3, 5, 1), (4, 6, 2), (3, 3, 3), (2, 4, 2)] {
        for (height, width, kernel, stride, pad) in [
            (4, 5, 3, 1, 1),
            (5, 4, 2, 2, 0),
            (6, 7, 3, 2, 1),
            (3, 3, 1, 1, 0),
            (1, 9, 1, 3, 0),
            (5, 5, 5, 1, 4),
        ] {
            let window = window(height, width, kernel, stride, pad);
            let conv = Conv { inputs, outputs, groups, window, weight: 0, bias: None };
            seed += 1;
            check_conv(&mut Portable::plain(), false, &conv, seed);
            check_conv(&mut Portable::fused(), true, &conv, seed);
            check_conv(&mut InTiles, true, &conv, seed);
        }
    }
}

#[test]
fn hardware_and_software_fma_agree() {
    let rng = &mut Rng::new(3);
    for _ in 0..10_000 {
        let [a, b, c] = core::array::from_fn(|_| rng.normal() as f32);
        assert_eq!(a.fused(b, c).to_bits(), libm::fmaf(a, b, c).to_bits());
    }
}

#[test]
#[should_panic(expected = "reaches outside its slices")]
fn fast_checks_lengths_before_it_uses_pointers() {
    let (a, b, mut c) = ([0.0f32; 8], [0.0f32; 11], [0.0f32; 6]);
    Fast::new().gemm(
        MatrixView::new(&a, 2, 4),
        MatrixView::new(&b, 4, 3),
        GemmWrite::Replace,
        MatrixViewMut::new(&mut c, 2, 3),
    );
}

/// More terms than are summed at once, and none at all.
#[test]
fn fast_products_of_unusual_depth() {
    for turned in [false, true] {
        let (a, b, mut c) = (vec![0.5f32; 3 * 5000], vec![2.0f32; 5000 * 33], vec![1.0f32; 3 * 33]);
        let view =
            if turned { MatrixView::new(&b, 33, 5000).transposed() } else { MatrixView::new(&b, 5000, 33) };
        let mut fast = Fast::new();
        fast.gemm(MatrixView::new(&a, 3, 5000), view, GemmWrite::Add(2.0), MatrixViewMut::new(&mut c, 3, 33));
        assert_eq!(c, [10_001.0; 99]);
        fast.gemm(MatrixView::new(&a, 3, 5000), view, GemmWrite::Replace, MatrixViewMut::new(&mut c, 3, 33));
        assert_eq!(c, [5000.0; 99]);
        fast.gemm(
            MatrixView::new(&a, 3, 0),
            MatrixView::new(&b, 0, 33),
            GemmWrite::Add(1.0),
            MatrixViewMut::new(&mut c, 3, 33),
        );
        assert_eq!(c, [5000.0; 99]);
        fast.gemm(
            MatrixView::new(&a, 3, 0),
            MatrixView::new(&b, 0, 33),
            GemmWrite::Replace,
            MatrixViewMut::new(&mut c, 3, 33),
        );
        assert_eq!(c, [0.0; 99]);
    }
}

proptest! {
    #[test]
    fn products_have_the_bits_of_plain_loops(
        m in 1usize..6, k in 1usize..20, n in 1usize..21, a: bool, b: bool, seed: u64
    ) {
        check_gemm(&mut Portable::plain(), false, [m, k, n], (a, b), seed);
        check_gemm(&mut Portable::fused(), true, [m, k, n], (a, b), seed);
    }

    #[test]
    fn convolutions_in_tiles_have_the_bits_of_plain_loops(
        (groups, inputs, outputs) in (1u32..4, 1u32..6, 1u32..7),
        (height, width) in (1u32..8, 1u32..12),
        kernel in prop::array::uniform2(1u16..5),
        stride in prop::array::uniform2(1u16..4),
        pad in prop::array::uniform4(0u16..4),
        seed: u64,
    ) {
        // `Plan::check` refuses more padding than the kernel reaches.
        let pad = std::array::from_fn(|side| pad[side].min(kernel[side % 2] - 1));
        let window = Window { height, width, kernel, stride, pad };
        prop_assume!(window.output_area() > 0);
        let conv = Conv { inputs: groups * inputs, outputs: groups * outputs, groups, window, weight: 0, bias: None };
        check_conv(&mut InTiles, true, &conv, seed);
    }

    /// Skipped on processors without AVX-512, because `matrixmultiply` has its own tests.
    #[test]
    fn wide_products_have_the_bits_of_plain_loops(
        m in 1usize..40, k in 1usize..70, n in 1usize..70, a: bool, b: bool, seed: u64
    ) {
        let mut fast = Fast::new();
        if fast.is_wide() {
            check_gemm(&mut fast, true, [m, k, n], (a, b), seed);
        }
    }
}
