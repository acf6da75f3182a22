//! A simple reference forward pass of a Graph in f64, in evaluation mode.

use common::plan::{Activation, ArithmeticKind, PoolKind, RecurrentKind, Spread, Window};
use models::{
    Graph,
    graph::{Axes, Constant, Groups, Kernel, Node, Op, ParamId},
};

/// The logits of a batch.
pub fn forward(graph: &Graph, parameters: &[f32], batch: &[f32]) -> Vec<f64> {
    let model = Model { graph, parameters, offsets: graph.offsets(graph.full()) };
    batch.chunks(graph.inputs()).flat_map(|sample| model.sample(sample)).collect()
}

struct Model<'a> {
    graph: &'a Graph,
    parameters: &'a [f32],
    offsets: Vec<usize>,
}

impl Model<'_> {
    fn sample(&self, sample: &[f32]) -> Vec<f64> {
        let mut values: Vec<Vec<f64>> = vec![sample.iter().map(|&x| x.into()).collect()];
        let mut stats = self.graph.stats().iter().map(|&x| f64::from(x));
        let mut constants = self.graph.constants().iter().map(|&x| f64::from(x));
        for node in self.graph.nodes() {
            let inputs: Vec<&Vec<f64>> = node.inputs.iter().map(|value| &values[value.index()]).collect();
            let output = self.node(node, &inputs, &mut stats, &mut constants);
            values.push(output);
        }
        values.swap_remove(self.graph.output().value.index())
    }

    fn node(
        &self,
        node: &Node,
        inputs: &[&Vec<f64>],
        stats: &mut impl Iterator<Item = f64>,
        constants: &mut impl Iterator<Item = f64>,
    ) -> Vec<f64> {
        let x = inputs[0];
        let read = self.sizes(&self.graph.shape(node.inputs[0]).dims);
        let written = self.sizes(&node.shape.dims);
        let inner = |channels: usize| x.len() / channels;
        match node.op {
            Op::Flatten | Op::Reshape | Op::Dropout { .. } => x.clone(),
            Op::Activate(kind) => x.iter().map(|&x| activate(kind, x)).collect(),
            Op::Add => x.iter().zip(inputs[1]).map(|(a, b)| a + b).collect(),
            Op::Dense { weight, bias } => {
                let (w, b) = (self.param(weight), bias.map(|bias| self.param(bias)));
                x.chunks(read[read.len() - 1]).flat_map(|row| affine(&w, b.as_deref(), row)).collect()
            }
            Op::Conv { weight, bias, groups, window } => {
                let (w, b) = (self.param(weight), bias.map(|bias| self.param(bias)));
                let groups = groups.count(read[0] as u32) as usize;
                conv(&w, b.as_deref(), x, &read, &written, groups, window)
            }
            Op::Pool { kind, window } => pool(kind, x, &read, window),
            Op::GlobalPool => {
                x.chunks(inner(read[0])).map(|c| c.iter().sum::<f64>() / c.len() as f64).collect()
            }
            Op::Embed { table } => {
                let (table, width) = (self.param(table), written[written.len() - 1]);
                x.iter().flat_map(|&word| table[word as usize * width..][..width].to_vec()).collect()
            }
            Op::Gru { weight, recurrent, bias, reset_after } => {
                let units = written[1];
                let bias = bias.map_or_else(|| vec![0.0; 6 * units], |bias| self.param(bias));
                gru(&self.param(weight), &self.param(recurrent), &bias, x, read[1], units, reset_after)
            }
            Op::Recurrent { kind, weight, recurrent, bias } => {
                let rows = kind.gates() as usize * written[1];
                let bias = bias.map_or_else(|| vec![0.0; 2 * rows], |bias| self.param(bias));
                recur(kind, &self.param(weight), &self.param(recurrent), &bias, x, read[1], written[1])
            }
            Op::Last => x[x.len() - read[1]..].to_vec(),
            Op::GlobalMaxPool => x.chunks(inner(read[0])).map(largest).collect(),
            Op::StepPool { kind } => {
                let columns = (0..read[1]).map(|at| x.iter().skip(at).step_by(read[1]).copied());
                let columns = columns.map(|column| column.collect::<Vec<_>>());
                let mean = |column: &Vec<f64>| column.iter().sum::<f64>() / column.len() as f64;
                columns
                    .map(|column| if kind == PoolKind::Max { largest(&column) } else { mean(&column) })
                    .collect()
            }
            Op::Concat { .. } | Op::Part { .. } | Op::Pad { .. } | Op::Transpose { .. } => {
                self.arranged(node, inputs, &read, &written)
            }
            Op::Mul => {
                let each = x.len() / inputs[1].len();
                x.iter().enumerate().map(|(at, x)| x * inputs[1][at / each]).collect()
            }
            Op::PRelu { slope, axes } => {
                let slopes = spread(&self.param(slope), axes, &written);
                x.iter().zip(slopes).map(|(&x, slope)| x.max(0.0) + slope * x.min(0.0)).collect()
            }
            Op::Arithmetic { kind, with } => {
                let numbers = match with {
                    Constant::One(number) => vec![number.into(); x.len()],
                    Constant::Each(axes) => {
                        let Spread { channels, .. } = axes.spread(&narrow(&written));
                        let own: Vec<f64> = constants.take(channels as usize).collect();
                        spread(&own, Some(axes), &written)
                    }
                };
                let one = |(x, c): (&f64, f64)| match kind {
                    ArithmeticKind::Add => x + c,
                    ArithmeticKind::Sub => x - c,
                    ArithmeticKind::Mul => x * c,
                    ArithmeticKind::Div => x / c,
                };
                x.iter().zip(numbers).map(one).collect()
            }
            Op::LayerNorm { axes, epsilon, scale, bias } => {
                let len: usize = written[written.len() - usize::from(axes)..].iter().product();
                let scale = scale.map_or_else(|| vec![1.0; len], |scale| self.param(scale));
                let bias = bias.map_or_else(|| vec![0.0; len], |bias| self.param(bias));
                let rows = x.chunks(len).map(|row| normal(row, epsilon));
                rows.flat_map(|row| (0..len).map(|i| scale[i] * row[i] + bias[i]).collect::<Vec<_>>())
                    .collect()
            }
            Op::GroupNorm { groups, epsilon, scale, bias } => {
                let groups = match groups {
                    Groups::Count(count) => count as usize,
                    Groups::Each => read[0],
                };
                let (scale, bias, inner) = (self.param(scale), self.param(bias), inner(read[0]));
                let all: Vec<f64> = x.chunks(x.len() / groups).flat_map(|row| normal(row, epsilon)).collect();
                all.iter().enumerate().map(|(i, x)| scale[i / inner] * x + bias[i / inner]).collect()
            }
            Op::BatchNorm { epsilon, scale, bias } => {
                let (scale, bias, inner) = (self.param(scale), self.param(bias), inner(read[0]));
                let mean: Vec<f64> = stats.take(read[0]).collect();
                let var: Vec<f64> = stats.take(read[0]).collect();
                let one = |(i, x): (usize, &f64)| {
                    let c = i / inner;
                    scale[c] * (x - mean[c]) / (var[c] + f64::from(epsilon)).sqrt() + bias[c]
                };
                x.iter().enumerate().map(one).collect()
            }
        }
    }

    /// Every number of the output, by its index on every axis.
    fn arranged(&self, node: &Node, inputs: &[&Vec<f64>], read: &[usize], written: &[usize]) -> Vec<f64> {
        let one = |flat: usize| {
            let mut at = index(flat, written);
            match node.op {
                Op::Concat { axis } => {
                    let (axis, first) = (usize::from(axis), read[usize::from(axis)]);
                    if at[axis] < first {
                        return inputs[0][flat_index(&at, read)];
                    }
                    at[axis] -= first;
                    inputs[1][flat_index(&at, &self.sizes(&self.graph.shape(node.inputs[1]).dims))]
                }
                Op::Part { axis, before } => {
                    at[usize::from(axis)] += before.size(self.graph.full());
                    inputs[0][flat_index(&at, read)]
                }
                Op::Pad { axis, before, .. } => {
                    let axis = usize::from(axis);
                    match at[axis].checked_sub(before as usize).filter(|&at| at < read[axis]) {
                        Some(inside) => {
                            at[axis] = inside;
                            inputs[0][flat_index(&at, read)]
                        }
                        None => 0.0,
                    }
                }
                Op::Transpose { kept, moved } => {
                    at[usize::from(kept)..].rotate_right(moved.into());
                    inputs[0][flat_index(&at, read)]
                }
                _ => unreachable!("moves no numbers"),
            }
        };
        (0..written.iter().product()).map(one).collect()
    }

    fn sizes(&self, dims: &[common::Dim]) -> Vec<usize> {
        dims.iter().map(|dim| dim.size(self.graph.full())).collect()
    }

    fn param(&self, id: ParamId) -> Vec<f64> {
        let len = self.graph.param_shapes()[id.index()].len(self.graph.full());
        self.parameters[self.offsets[id.index()]..][..len].iter().map(|&x| x.into()).collect()
    }
}

fn narrow(sizes: &[usize]) -> Vec<u32> {
    sizes.iter().map(|&size| size as u32).collect()
}

/// One of `numbers` for each number of a value; by default there is only one.
fn spread(numbers: &[f64], axes: Option<Axes>, sizes: &[usize]) -> Vec<f64> {
    let len: usize = sizes.iter().product();
    let inner = axes.map_or(len, |axes| axes.spread(&narrow(sizes)).inner as usize);
    (0..len).map(|at| numbers[at / inner % numbers.len()]).collect()
}

fn affine(w: &[f64], b: Option<&[f64]>, x: &[f64]) -> Vec<f64> {
    let rows = w.chunks(x.len()).enumerate();
    rows.map(|(o, row)| row.iter().zip(x).map(|(w, x)| w * x).sum::<f64>() + b.map_or(0.0, |b| b[o]))
        .collect()
}

fn activate(kind: Activation, x: f64) -> f64 {
    match kind {
        Activation::Relu => x.max(0.0),
        Activation::LeakyRelu { slope } => x.max(0.0) + f64::from(slope) * x.min(0.0),
        Activation::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Activation::Tanh => x.tanh(),
        Activation::Gelu => 0.5 * x * (1.0 + erf(x / std::f64::consts::SQRT_2)),
        Activation::GeluTanh => {
            0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
        }
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::Mish => x * x.exp().ln_1p().tanh(),
        Activation::HardSwish => x * (x + 3.0).clamp(0.0, 6.0) / 6.0,
        Activation::HardSigmoid { alpha, beta } => (f64::from(alpha) * x + f64::from(beta)).clamp(0.0, 1.0),
        Activation::Clip { min, max } => x.clamp(min.into(), max.into()),
        Activation::Elu { alpha } => x.max(0.0) + f64::from(alpha) * (x.min(0.0).exp() - 1.0),
        Activation::Selu => {
            1.050_700_987_355_480_5 * (x.max(0.0) + 1.673_263_242_354_377_2 * (x.min(0.0).exp() - 1.0))
        }
        Activation::Celu { alpha } => {
            let alpha = f64::from(alpha);
            x.max(0.0) + alpha * ((x.min(0.0) / alpha).exp() - 1.0)
        }
        Activation::Softplus => x.exp().ln_1p(),
        Activation::Softsign => x / (1.0 + x.abs()),
    }
}

/// The error function by Simpson's rule.
fn erf(x: f64) -> f64 {
    const PANELS: usize = 200;
    let h = x.clamp(-6.0, 6.0) / PANELS as f64;
    let weight = |i: usize| match i {
        0 | PANELS => 1.0,
        _ if i % 2 == 1 => 4.0,
        _ => 2.0,
    };
    let sum: f64 = (0..=PANELS).map(|i| weight(i) * (-(i as f64 * h).powi(2)).exp()).sum();
    sum * h / 3.0 * std::f64::consts::FRAC_2_SQRT_PI
}

fn largest(numbers: impl AsRef<[f64]>) -> f64 {
    numbers.as_ref().iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

fn index(mut flat: usize, sizes: &[usize]) -> Vec<usize> {
    let mut index = vec![0; sizes.len()];
    for (at, size) in index.iter_mut().zip(sizes).rev() {
        (*at, flat) = (flat % size, flat / size);
    }
    index
}

fn flat_index(index: &[usize], sizes: &[usize]) -> usize {
    index.iter().zip(sizes).fold(0, |flat, (at, size)| flat * size + at)
}

fn normal(row: &[f64], epsilon: f32) -> Vec<f64> {
    let n = row.len() as f64;
    let mean = row.iter().sum::<f64>() / n;
    let var = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
    row.iter().map(|x| (x - mean) / (var + f64::from(epsilon)).sqrt()).collect()
}

fn window(read: &[usize], kernel: Kernel) -> Window {
    let (height, width) = if read.len() == 3 { (read[1], read[2]) } else { (1, read[1]) };
    let (height, width) = (height as u32, width as u32);
    Window { height, width, kernel: kernel.size, stride: kernel.stride, pad: kernel.pad }
}

/// The pixels under the kernel at one place of the result: tap, and the pixel if it is inside.
fn taps(window: &Window, row: u32, column: u32) -> Vec<Option<usize>> {
    let mut taps = Vec::new();
    for y in 0..u32::from(window.kernel[0]) {
        for x in 0..u32::from(window.kernel[1]) {
            let y = (row * u32::from(window.stride[0]) + y).checked_sub(window.pad[0].into());
            let x = (column * u32::from(window.stride[1]) + x).checked_sub(window.pad[1].into());
            let inside = y.zip(x).filter(|&(y, x)| y < window.height && x < window.width);
            taps.push(inside.map(|(y, x)| (y * window.width + x) as usize));
        }
    }
    taps
}

fn conv(
    w: &[f64],
    b: Option<&[f64]>,
    x: &[f64],
    read: &[usize],
    written: &[usize],
    groups: usize,
    kernel: Kernel,
) -> Vec<f64> {
    let window = window(read, kernel);
    let (inputs, outputs) = (read[0] / groups, written[0]);
    let (area, size) = (window.area() as usize, window.kernel_area() as usize);
    let (rows, columns) = window.output();
    let mut y = Vec::new();
    for o in 0..outputs {
        let group = o / (outputs / groups);
        for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
            let mut sum = b.map_or(0.0, |b| b[o]);
            for i in 0..inputs {
                let image = &x[(group * inputs + i) * area..][..area];
                for (tap, pixel) in taps(&window, row, column).into_iter().enumerate() {
                    sum += pixel.map_or(0.0, |pixel| image[pixel]) * w[(o * inputs + i) * size + tap];
                }
            }
            y.push(sum);
        }
    }
    y
}

fn pool(kind: PoolKind, x: &[f64], read: &[usize], kernel: Kernel) -> Vec<f64> {
    let window = window(read, kernel);
    let (rows, columns) = window.output();
    let mut y = Vec::new();
    for image in x.chunks(window.area() as usize) {
        for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
            let inside: Vec<f64> =
                taps(&window, row, column).into_iter().flatten().map(|pixel| image[pixel]).collect();
            let sum: f64 = inside.iter().sum();
            y.push(match kind {
                PoolKind::Max => inside.into_iter().fold(f64::NEG_INFINITY, f64::max),
                PoolKind::Average => sum / inside.len() as f64,
                PoolKind::AveragePadded => sum / window.kernel_area() as f64,
            });
        }
    }
    y
}

fn gru(w: &[f64], r: &[f64], b: &[f64], x: &[f64], inputs: usize, units: usize, after: bool) -> Vec<f64> {
    let mut h = vec![0.0; units];
    let mut states = Vec::new();
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    for x in x.chunks(inputs) {
        let from_x =
            |gate: usize, u: usize| dot(&w[(gate * units + u) * inputs..][..inputs], x) + b[gate * units + u];
        let from_h = |gate: usize, u: usize, h: &[f64]| {
            dot(&r[(gate * units + u) * units..][..units], h) + b[(3 + gate) * units + u]
        };
        let gate = |number: usize| {
            (0..units).map(|u| sigmoid(from_x(number, u) + from_h(number, u, &h))).collect::<Vec<_>>()
        };
        let (z, reset) = (gate(0), gate(1));
        let old: Vec<f64> = h.iter().zip(&reset).map(|(h, r)| h * r).collect();
        let new: Vec<f64> = (0..units)
            .map(|u| match after {
                true => (from_x(2, u) + reset[u] * from_h(2, u, &h)).tanh(),
                false => (from_x(2, u) + from_h(2, u, &old)).tanh(),
            })
            .collect();
        h = (0..units).map(|u| (1.0 - z[u]) * new[u] + z[u] * h[u]).collect();
        states.extend(&h);
    }
    states
}

/// LSTM and plain layers, as ONNX's documentation has them.
fn recur(
    kind: RecurrentKind,
    w: &[f64],
    r: &[f64],
    b: &[f64],
    x: &[f64],
    inputs: usize,
    units: usize,
) -> Vec<f64> {
    let (wb, rb) = b.split_at(b.len() / 2);
    let (mut h, mut c) = (vec![0.0; units], vec![0.0; units]);
    let mut states = Vec::new();
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    for x in x.chunks(inputs) {
        let (from_x, from_h) = (affine(w, Some(wb), x), affine(r, Some(rb), &h));
        let sums: Vec<f64> = from_x.iter().zip(&from_h).map(|(x, h)| x + h).collect();
        for u in 0..units {
            let gate = |number: usize| sums[number * units + u];
            h[u] = match kind {
                RecurrentKind::Tanh => gate(0).tanh(),
                RecurrentKind::Lstm => {
                    c[u] = sigmoid(gate(2)) * c[u] + sigmoid(gate(0)) * gate(3).tanh();
                    sigmoid(gate(1)) * f64::tanh(c[u])
                }
            };
        }
        states.extend(&h);
    }
    states
}
