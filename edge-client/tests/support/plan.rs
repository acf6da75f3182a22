//! Plans of multi-layer perceptrons for tests and benchmarks, laid out without any re-use of buffers.
//! (The compiler of real Plans lives in another crate.)

use common::{
    plan::{Node, Op, Plan, PlanInfo},
    rng::Rng,
};

#[derive(Copy, Clone, Debug)]
pub struct Options {
    /// With a gradient segment.
    pub grads: bool,
    pub residual: bool,
    /// ReLU overwrites its input and its gradient; the loss gradient overwrites the logits.
    pub in_place: bool,
    pub bias: bool,
}

pub const PLAIN: Options = Options { grads: true, residual: false, in_place: false, bias: true };

pub struct TestPlan {
    pub info: PlanInfo,
    pub nodes: Vec<Node>,
}

impl TestPlan {
    /// Dense layers of these widths (inputs first), with a ReLU between them.
    pub fn new(widths: &[u32], batch: u16, options: Options) -> Self {
        let layers: Vec<(u32, u32)> = widths.windows(2).map(|pair| (pair[0], pair[1])).collect();
        let (mut params, mut offsets) = (0, Vec::new());
        for &(inputs, outputs) in &layers {
            let bias = options.bias.then_some(params + inputs * outputs);
            offsets.push((params, bias));
            params += inputs * outputs + if options.bias { outputs } else { 0 };
        }
        let mut end = params;
        let mut take = |len: u32| (end, end += len).0;
        let anchor = Some(take(params));
        let grads = options.grads.then(|| take(params));
        let residual = options.residual.then(|| take(params));
        let mut take = |width: u32| take(width * u32::from(batch));
        let input = take(widths[0]);
        let (mut at, mut grad) = (input, None);
        let mut nodes = Vec::new();
        for (layer, (&(inputs, outputs), &(weight, bias))) in layers.iter().zip(&offsets).enumerate() {
            let last = layer + 1 == layers.len();
            let output = take(outputs);
            let output_grad = if last && options.in_place { output } else { take(outputs) };
            let op = Op::Dense { inputs, outputs, weight, bias };
            nodes.push(Node { op, input: at, output, input_grad: grad, output_grad: Some(output_grad) });
            (at, grad) = (output, Some(output_grad));
            if !last {
                let (output, output_grad) =
                    if options.in_place { (output, output_grad) } else { (take(outputs), take(outputs)) };
                let op = Op::Relu { len: outputs };
                nodes.push(Node { op, input: at, output, input_grad: grad, output_grad: Some(output_grad) });
                (at, grad) = (output, Some(output_grad));
            }
        }
        let info = PlanInfo {
            digest: 0,
            inputs: widths[0],
            outputs: widths[widths.len() - 1],
            batch,
            params,
            anchor,
            grads,
            residual,
            input,
            logits: at,
            arena: end,
            nodes: nodes.len() as u16,
        };
        Self { info, nodes }
    }

    pub fn plan(&self) -> Plan<'_> {
        Plan::check(&self.info, &self.nodes).unwrap()
    }

    /// An arena with random weights (He), small biases and rubbish everywhere else.
    pub fn arena<T>(&self, seed: u64, number: impl Fn(f64) -> T) -> Vec<T> {
        let mut rng = Rng::new(seed);
        let mut arena: Vec<T> = (0..self.info.arena).map(|_| number(rng.normal())).collect();
        for node in &self.nodes {
            if let Op::Dense { inputs, outputs, weight, bias } = node.op {
                let scale = (2.0 / f64::from(inputs)).sqrt();
                for at in weight..weight + inputs * outputs {
                    arena[at as usize] = number(scale * rng.normal());
                }
                for at in bias.map_or(0..0, |bias| bias..bias + outputs) {
                    arena[at as usize] = number(0.1 * rng.normal());
                }
            }
        }
        arena
    }
}
