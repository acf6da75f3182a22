//! Plans for tests and benchmarks, laid out without re-use of buffers. (The compiler of real Plans is in another crate.)
#![allow(dead_code, reason = "every test and benchmark uses its own part of this")]

use common::{
    plan::{
        Activation, Arithmetic, ArithmeticKind, Arrange, BackwardStep, Constant, Conv, Gate, Grad, Gru, Loss,
        Node, Norm, Op, Operand, PRelu, Plan, PlanInfo, Pool, PoolKind, Recurrent, RecurrentKind, Segments,
        Spread, Standardize, Window,
    },
    rng::Rng,
};

#[derive(Copy, Clone, Debug)]
pub struct Options {
    /// With a gradient segment.
    pub grads: bool,
    pub residual: bool,
    /// Ops that may work in place do so; the loss gradient overwrites the logits.
    pub in_place: bool,
    pub bias: bool,
    pub moments: usize,
    pub guide: bool,
    pub personal: bool,
}

pub const PLAIN: Options = Options {
    grads: true,
    residual: false,
    in_place: false,
    bias: true,
    moments: 0,
    guide: false,
    personal: false,
};

#[derive(Clone)]
pub struct TestPlan {
    pub info: PlanInfo,
    pub nodes: Vec<Node>,
    pub schedule: Vec<BackwardStep>,
}

/// A value of the graph; the input is the first.
#[derive(Copy, Clone)]
pub struct Value(usize);

pub struct Builder {
    batch: u16,
    params: u32,
    stats: u32,
    bias: bool,
    lens: Vec<u32>,
    nodes: Vec<(Op, Value, Option<Value>)>,
}

impl Builder {
    pub fn new(inputs: u32, batch: u16) -> (Self, Value) {
        let builder = Self { batch, params: 0, stats: 0, bias: true, lens: vec![inputs], nodes: vec![] };
        (builder, Value(0))
    }

    fn take(&mut self, len: u32) -> u32 {
        self.params += len;
        self.params - len
    }

    fn take_bias(&mut self, len: u32) -> Option<u32> {
        self.bias.then(|| self.take(len))
    }

    fn push(&mut self, op: Op, input: Value, second: Option<Value>) -> Value {
        assert_eq!(op.sizes().0, u64::from(self.len(input)), "{op:?}");
        self.lens.push(op.sizes().1 as u32);
        self.nodes.push((op, input, second));
        Value(self.lens.len() - 1)
    }

    pub fn len(&self, value: Value) -> u32 {
        self.lens[value.0]
    }

    pub fn dense(&mut self, x: Value, rows: u32, outputs: u32) -> Value {
        let inputs = self.len(x) / rows;
        let weight = self.take(inputs * outputs);
        let bias = self.take_bias(outputs);
        self.push(Op::Dense { rows, inputs, outputs, weight, bias }, x, None)
    }

    pub fn conv(&mut self, x: Value, outputs: u32, groups: u32, window: Window) -> Value {
        let inputs = self.len(x) / window.area() as u32;
        let weight = self.take(inputs / groups * outputs * window.kernel_area() as u32);
        let bias = self.take_bias(outputs);
        self.push(Op::Conv(Conv { inputs, outputs, groups, window, weight, bias }), x, None)
    }

    pub fn activate(&mut self, x: Value, kind: Activation) -> Value {
        self.push(Op::Activate { kind, len: self.len(x) }, x, None)
    }

    pub fn relu(&mut self, x: Value) -> Value {
        self.activate(x, Activation::Relu)
    }

    pub fn pool(&mut self, x: Value, kind: PoolKind, window: Window) -> Value {
        let channels = self.len(x) / window.area() as u32;
        self.push(Op::Pool(Pool { kind, channels, window }), x, None)
    }

    pub fn add(&mut self, x: Value, second: Value) -> Value {
        self.push(Op::Add { len: self.len(x) }, x, Some(second))
    }

    pub fn embed(&mut self, x: Value, entries: u32, width: u32) -> Value {
        let (rows, table) = (self.len(x), self.take(entries * width));
        self.push(Op::Embed { rows, entries, width, table }, x, None)
    }

    pub fn gru(&mut self, x: Value, steps: u32, units: u32, reset_after: bool) -> Value {
        let inputs = self.len(x) / steps;
        let (weight, recurrent) = (self.take(3 * units * inputs), self.take(3 * units * units));
        let bias = self.take_bias(6 * units);
        self.push(Op::Gru(Gru { steps, inputs, units, reset_after, weight, recurrent, bias }), x, None)
    }

    pub fn recurrent(&mut self, x: Value, steps: u32, units: u32, kind: RecurrentKind) -> Value {
        let (inputs, rows) = (self.len(x) / steps, kind.gates() * units);
        let (weight, recurrent) = (self.take(rows * inputs), self.take(rows * units));
        let bias = self.take_bias(2 * rows);
        self.push(Op::Recurrent(Recurrent { kind, steps, inputs, units, weight, recurrent, bias }), x, None)
    }

    pub fn dropout(&mut self, x: Value, rate: f32, salt: u32) -> Value {
        self.push(Op::Dropout { len: self.len(x), rate, salt }, x, None)
    }

    pub fn norm(&mut self, x: Value, instances: u32, channels: u32, shared: bool) -> Value {
        let inner = self.len(x) / instances / channels;
        let norm = Norm { instances, channels, inner, epsilon: 1e-5, shared, scale: 0, bias: 0 };
        let (scale, bias) = (self.take(norm.affine() as u32), self.take(norm.affine() as u32));
        self.push(Op::Norm(Norm { scale, bias, ..norm }), x, None)
    }

    pub fn standardize(&mut self, x: Value, instances: u32, scaled: bool) -> Value {
        let channels = self.len(x) / instances;
        let scale = scaled.then(|| self.take(channels));
        self.push(Op::Standardize(Standardize { instances, channels, epsilon: 1e-5, scale }), x, None)
    }

    pub fn batchnorm(&mut self, x: Value, channels: u32) -> Value {
        let inner = self.len(x) / channels;
        let (scale, bias) = (self.take(channels), self.take(channels));
        self.stats += 2 * channels;
        let stats = self.stats - 2 * channels;
        self.push(Op::BatchNorm { channels, inner, epsilon: 1e-5, scale, bias, stats }, x, None)
    }

    pub fn scale(&mut self, x: Value, factor: f32) -> Value {
        self.push(Op::Scale { len: self.len(x), factor }, x, None)
    }

    pub fn prelu(&mut self, x: Value, channels: u32) -> Value {
        let (len, slope) = (self.len(x), self.take(channels));
        let spread = Spread { len, channels, inner: len / channels };
        self.push(Op::PRelu(PRelu { spread, slope }), x, None)
    }

    pub fn arithmetic(&mut self, x: Value, kind: ArithmeticKind, number: f32) -> Value {
        let (len, with) = (self.len(x), Constant::One(number));
        self.push(Op::Arithmetic(Arithmetic { kind, len, with }), x, None)
    }

    pub fn last(&mut self, x: Value, steps: u32) -> Value {
        self.push(Op::Last { steps, width: self.len(x) / steps }, x, None)
    }

    pub fn arrange(&mut self, x: Value, op: Arrange) -> Value {
        self.push(Op::Arrange(op), x, None)
    }

    pub fn concat(&mut self, x: Value, second: Value, rows: u32) -> Value {
        let (a, b) = (self.len(x) / rows, self.len(second) / rows);
        self.push(Op::Arrange(Arrange::Concat { rows, first: a, second: b }), x, Some(second))
    }

    pub fn gate(&mut self, x: Value, second: Value) -> Value {
        let channels = self.len(second);
        self.push(Op::Gate(Gate { channels, inner: self.len(x) / channels }), x, Some(second))
    }

    /// The last value becomes the outputs.
    pub fn finish(self, loss: Loss, options: Options) -> TestPlan {
        let mut end = self.params;
        let mut segment = |there: bool| there.then(|| (end, end += self.params).0);
        let mut segments = Segments {
            anchor: segment(true),
            guide: segment(options.guide),
            grads: segment(options.grads),
            residual: segment(options.residual),
            moment1: segment(options.moments > 0),
            moment2: segment(options.moments > 1),
            personal: segment(options.personal),
            stats: None,
        };
        segments.stats = (self.stats > 0).then(|| (end, end += self.stats).0);
        let mut take = |len: u64| (end, end += len as u32 * u32::from(self.batch)).0;
        // Place of every value and of its gradient.
        let mut at = vec![take(self.lens[0].into())];
        let mut grad: Vec<Option<u32>> = vec![None];
        let readers = |value: usize| {
            let reads = |(_, x, second): &&(Op, Value, Option<Value>)| {
                x.0 == value || second.is_some_and(|second| second.0 == value)
            };
            self.nodes.iter().filter(reads).count()
        };
        for (number, (op, x, _)) in self.nodes.iter().enumerate() {
            let producer_is_done =
                x.0.checked_sub(1).is_some_and(|producer| !self.nodes[producer].0.backward_reads_output());
            let free = op.may_work_in_place() && !op.backward_reads_input();
            let over = options.in_place && free && readers(x.0) == 1 && producer_is_done;
            let (len, last) = (op.sizes().1, number + 1 == self.nodes.len());
            at.push(if over { at[x.0] } else { take(len) });
            let own = if over { grad[x.0] } else { None };
            let logits = (last && options.in_place && !op.backward_reads_output()).then_some(at[number + 1]);
            grad.push(own.or(logits).or_else(|| Some(take(len))));
        }
        // Backward runs in reverse: the last reader of a value writes its gradient first.
        let mut written = vec![false; at.len()];
        let mut nodes: Vec<Node> = vec![];
        for (number, (op, x, second)) in self.nodes.iter().enumerate().rev() {
            let mut port = |value: Value| {
                let add = core::mem::replace(&mut written[value.0], true);
                Operand { at: at[value.0], grad: grad[value.0].map(|at| Grad { at, add }) }
            };
            let second = second.map(&mut port);
            nodes.push(Node {
                op: *op,
                input: port(*x),
                second,
                output: at[number + 1],
                output_grad: grad[number + 1],
                keep: (op.keep() > 0).then(|| take(op.keep())),
                scratch: (op.scratch() > 0).then(|| take(op.scratch())),
            });
        }
        nodes.reverse();
        let info = PlanInfo {
            digest: 0,
            inputs: self.lens[0],
            outputs: self.lens[self.lens.len() - 1],
            loss,
            batch: self.batch,
            params: self.params,
            stats: self.stats,
            segments,
            input: at[0],
            logits: at[at.len() - 1],
            arena: end,
            nodes: nodes.len() as u16,
            forward: nodes.len() as u16,
            schedule: 0,
        };
        TestPlan { info, nodes, schedule: vec![] }
    }
}

pub fn window(height: u32, width: u32, kernel: u16, stride: u16, pad: u16) -> Window {
    Window { height, width, kernel: [kernel; 2], stride: [stride; 2], pad: [pad; 4] }
}

impl TestPlan {
    /// Dense layers of these widths (inputs first), with a ReLU between them.
    pub fn new(widths: &[u32], batch: u16, options: Options) -> Self {
        let (mut builder, mut x) = Builder::new(widths[0], batch);
        builder.bias = options.bias;
        for (layer, &width) in widths.iter().enumerate().skip(1) {
            x = builder.dense(x, 1, width);
            if layer + 1 < widths.len() {
                x = builder.relu(x);
            }
        }
        builder.finish(Loss::Softmax { classes: widths[widths.len() - 1] }, options)
    }

    pub fn plan(&self) -> Plan<'_> {
        Plan::check(&self.info, &self.nodes, &self.schedule).unwrap()
    }

    /// An arena with random weights, small biases and random numbers everywhere else; tokens where they are read.
    pub fn arena<T>(&self, seed: u64, number: impl Fn(f64) -> T) -> Vec<T> {
        let mut rng = Rng::new(seed);
        let mut arena: Vec<T> = (0..self.info.arena).map(|_| number(rng.normal())).collect();
        for node in &self.nodes {
            let scale = match node.op {
                Op::Dense { inputs, .. } => (2.0 / f64::from(inputs)).sqrt(),
                Op::Conv(conv) => {
                    let fan_in = f64::from(conv.inputs / conv.groups) * conv.window.kernel_area() as f64;
                    (2.0 / fan_in).sqrt()
                }
                Op::Gru(Gru { units, .. }) | Op::Recurrent(Recurrent { units, .. }) => {
                    (1.0 / f64::from(units)).sqrt()
                }
                _ => 1.0,
            };
            for (part, (at, len)) in node.op.parameters().into_iter().flatten().enumerate() {
                for place in &mut arena[at as usize..][..len as usize] {
                    let value = rng.normal();
                    *place = number(match (node.op, part) {
                        (Op::Norm(_) | Op::BatchNorm { .. }, 0) => 1.0 + 0.1 * value,
                        (Op::Gru(_) | Op::Recurrent(_), 1) => scale * value,
                        (_, 0) => scale * value,
                        _ => 0.1 * value,
                    });
                }
            }
        }
        if let Op::Embed { entries, .. } = self.nodes[0].op {
            let input = self.info.input as usize;
            let len = self.info.inputs as usize * usize::from(self.info.batch);
            for place in &mut arena[input..][..len] {
                *place = number(rng.below(entries.into()) as f64);
            }
        }
        arena
    }
}
