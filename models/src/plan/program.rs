//! The nodes of a Graph at the widths of one tier, as operations of a Plan between values that own memory. Value 0 is the input,
//! and value `k + 1` is the output of node `k`.

use common::{
    TensorShape, WidthMask,
    plan::{
        Arithmetic, Arrange, Constant, Conv, Gate, Gru, Norm, Op, PRelu, Pool, PoolKind, Recurrent, Spread,
        Standardize, Window,
    },
};

use crate::graph::{self, Graph, Groups, Kernel, ParamId};

#[derive(Clone, Debug)]
pub struct Program {
    pub nodes: Vec<ProgramNode>,
    /// Numbers of normalisation statistics.
    pub stats: u64,
    /// Numbers of constants, which are before the parameters.
    pub constants: u64,
}

#[derive(Clone, Debug)]
pub struct ProgramNode {
    pub name: String,
    pub op: Op,
    pub input: usize,
    /// The second operand of an op that has two.
    pub second: Option<usize>,
    /// Its parameters are not trained.
    pub frozen: bool,
}

impl ProgramNode {
    pub fn trains(&self) -> bool {
        !self.frozen && self.has_parameters()
    }

    fn has_parameters(&self) -> bool {
        self.op.parameters().iter().any(Option::is_some)
    }

    pub fn reads(&self) -> impl Iterator<Item = usize> {
        [Some(self.input), self.second].into_iter().flatten()
    }
}

impl Program {
    /// With `scaler`, outputs of layers are divided by the share of units that the tier keeps. All layers, or only the `last`
    /// ones, are trained.
    pub fn new(graph: &Graph, mask: &WidthMask, scaler: bool, last: Option<u16>) -> Self {
        let constants = graph.gather_constants(mask).len();
        let mut lowering = Lowering {
            graph,
            mask,
            offsets: graph.offsets(mask).into_iter().map(|offset| (constants + offset) as u32).collect(),
            constants: 0,
            stats: 0,
            dropouts: 0,
        };
        let mut nodes = Vec::new();
        // The value of the program for each value of the graph.
        let mut values = vec![0; graph.nodes().len() + 1];
        for (index, node) in graph.nodes().iter().enumerate() {
            let input = values[node.inputs[0].index()];
            let second = node.inputs.get(1).map(|value| values[value.index()]);
            let Some(op) = lowering.op(node) else {
                values[index + 1] = input;
                continue;
            };
            nodes.push(ProgramNode { name: node.name.clone(), op, input, second, frozen: false });
            if let Some(factor) = lowering.factor(node).filter(|_| scaler) {
                let len = op.sizes().1 as u32;
                let name = format!("{} (scaler)", node.name);
                let (op, input) = (Op::Scale { len, factor }, nodes.len());
                nodes.push(ProgramNode { name, op, input, second: None, frozen: false });
            }
            values[index + 1] = nodes.len();
        }
        if let Some(last) = last {
            let layers = nodes.iter_mut().rev().filter(|node| node.has_parameters());
            layers.skip(last.into()).for_each(|node| node.frozen = true);
        }
        Self { nodes, stats: lowering.stats.into(), constants: constants as u64 }
    }

    /// Number of constants and parameters before the trained ones; `None` if nothing is trained, or if frozen ones follow.
    pub fn frozen(&self) -> Option<u64> {
        let stretches = |frozen: bool| {
            let nodes = self.nodes.iter().filter(move |node| node.frozen == frozen);
            nodes.flat_map(|node| node.op.parameters()).flatten()
        };
        let first = stretches(false).map(|(at, _)| u64::from(at)).min()?;
        stretches(true).all(|(at, len)| u64::from(at) + len <= first).then_some(first)
    }

    /// Numbers per sample of a value.
    pub fn len(&self, value: usize) -> u64 {
        match value.checked_sub(1) {
            Some(index) => self.nodes[index].op.sizes().1,
            None => self.nodes[0].op.sizes().0,
        }
    }

    /// The value that the loss is computed from.
    pub fn output(&self) -> usize {
        self.nodes.len()
    }
}

struct Lowering<'a> {
    graph: &'a Graph,
    mask: &'a WidthMask,
    offsets: Vec<u32>,
    /// Constants so far.
    constants: u32,
    /// Statistics so far.
    stats: u32,
    dropouts: u32,
}

impl Lowering<'_> {
    /// `None` for a node that only renames its input. Sizes fit 32 bits, as [`Graph`] guarantees.
    fn op(&mut self, node: &graph::Node) -> Option<Op> {
        let (read, written) = (self.sizes(self.graph.shape(node.inputs[0])), self.sizes(&node.shape));
        let len: u32 = written.iter().product();
        let last = |sizes: &[u32]| sizes[sizes.len() - 1];
        let first = |sizes: &[u32]| sizes[0];
        Some(match node.op {
            graph::Op::Flatten | graph::Op::Reshape => return None,
            graph::Op::Dense { weight, bias } => Op::Dense {
                rows: len / last(&written).max(1),
                inputs: last(&read),
                outputs: last(&written),
                weight: self.offset(weight),
                bias: bias.map(|bias| self.offset(bias)),
            },
            graph::Op::Conv { weight, bias, groups, window } => Op::Conv(Conv {
                inputs: first(&read),
                outputs: first(&written),
                groups: groups.count(first(&read)),
                window: image(&read, window),
                weight: self.offset(weight),
                bias: bias.map(|bias| self.offset(bias)),
            }),
            graph::Op::Activate(kind) => Op::Activate { kind, len },
            graph::Op::Pool { kind, window } => {
                Op::Pool(Pool { kind, channels: first(&read), window: image(&read, window) })
            }
            graph::Op::GlobalPool => Op::Pool(whole_image(&read, PoolKind::Average)),
            graph::Op::Add => Op::Add { len },
            graph::Op::Embed { table } => Op::Embed {
                rows: read.iter().product(),
                entries: first(&self.sizes(&self.graph.param_shapes()[table.index()])),
                width: last(&written),
                table: self.offset(table),
            },
            graph::Op::Gru { weight, recurrent, bias, reset_after } => Op::Gru(Gru {
                steps: first(&read),
                inputs: last(&read),
                units: last(&written),
                reset_after,
                weight: self.offset(weight),
                recurrent: self.offset(recurrent),
                bias: bias.map(|bias| self.offset(bias)),
            }),
            graph::Op::Recurrent { kind, weight, recurrent, bias } => Op::Recurrent(Recurrent {
                kind,
                steps: first(&read),
                inputs: last(&read),
                units: last(&written),
                weight: self.offset(weight),
                recurrent: self.offset(recurrent),
                bias: bias.map(|bias| self.offset(bias)),
            }),
            graph::Op::Dropout { rate } => {
                self.dropouts += 1;
                Op::Dropout { len, rate, salt: self.dropouts }
            }
            graph::Op::LayerNorm { axes, epsilon, scale, bias } => {
                let at = written.len().saturating_sub(axes.into());
                let channels: u32 = written.iter().skip(at).product();
                let instances = len / channels.max(1);
                match (scale.map(|scale| self.offset(scale)), bias.map(|bias| self.offset(bias))) {
                    (Some(scale), Some(bias)) => {
                        Op::Norm(Norm { instances, channels, inner: 1, epsilon, shared: true, scale, bias })
                    }
                    (scale, _) => Op::Standardize(Standardize { instances, channels, epsilon, scale }),
                }
            }
            graph::Op::GroupNorm { groups, epsilon, scale, bias } => {
                let channels = first(&written);
                let instances = match groups {
                    Groups::Count(count) => count,
                    Groups::Each => channels,
                };
                Op::Norm(Norm {
                    instances,
                    channels: channels / instances.max(1),
                    inner: len / channels.max(1),
                    epsilon,
                    shared: false,
                    scale: self.offset(scale),
                    bias: self.offset(bias),
                })
            }
            graph::Op::BatchNorm { epsilon, scale, bias } => {
                let channels = first(&written);
                let stats = self.stats;
                self.stats += 2 * channels;
                let (scale, bias) = (self.offset(scale), self.offset(bias));
                Op::BatchNorm { channels, inner: len / channels.max(1), epsilon, scale, bias, stats }
            }
            graph::Op::Last => Op::Last { steps: first(&read), width: last(&read) },
            graph::Op::GlobalMaxPool => Op::Pool(whole_image(&read, PoolKind::Max)),
            graph::Op::StepPool { kind } => {
                // Steps are the rows of one image, and the kernel is one column of it.
                let (height, width) = (first(&read), last(&read));
                let (kernel, stride) = ([height as u16, 1], [1; 2]);
                Op::Pool(Pool {
                    kind,
                    channels: 1,
                    window: Window { height, width, kernel, stride, pad: [0; 4] },
                })
            }
            graph::Op::Concat { axis } => {
                let second = self.sizes(self.graph.shape(node.inputs[1]));
                let (rows, first, inner) = around(&read, axis);
                let second = around(&second, axis).1;
                Op::Arrange(Arrange::Concat { rows, first: first * inner, second: second * inner })
            }
            graph::Op::Part { axis, before } => {
                let (rows, width, inner) = around(&read, axis);
                let (start, len) = (before.size(self.mask) as u32, around(&written, axis).1);
                let (width, start, len) = (width * inner, start * inner, len * inner);
                Op::Arrange(Arrange::Part { rows, width, start, len })
            }
            graph::Op::Pad { axis, before, after } => {
                let (rows, width, inner) = around(&read, axis);
                let (width, before, after) = (width * inner, before * inner, after * inner);
                Op::Arrange(Arrange::Pad { rows, width, before, after })
            }
            graph::Op::Transpose { kept, moved } => {
                let (kept, moved) = (usize::from(kept), usize::from(moved));
                Op::Arrange(Arrange::Transpose {
                    rows: read.iter().take(kept).product(),
                    height: read.iter().skip(kept).take(moved).product(),
                    width: read.iter().skip(kept + moved).product(),
                })
            }
            graph::Op::Mul => {
                let channels: u32 = self.sizes(self.graph.shape(node.inputs[1])).iter().product();
                Op::Gate(Gate { channels, inner: len / channels.max(1) })
            }
            graph::Op::PRelu { slope, axes } => {
                let one = Spread { len, channels: 1, inner: len };
                let spread = axes.map_or(one, |axes| axes.spread(&written));
                Op::PRelu(PRelu { spread, slope: self.offset(slope) })
            }
            graph::Op::Arithmetic { kind, with: graph::Constant::One(number) } => {
                Op::Arithmetic(Arithmetic { kind, len, with: Constant::One(number) })
            }
            graph::Op::Arithmetic { kind, with: graph::Constant::Each(axes) } => {
                let Spread { channels, inner, .. } = axes.spread(&written);
                let at = self.constants;
                self.constants += channels;
                Op::Arithmetic(Arithmetic { kind, len, with: Constant::Each { channels, inner, at } })
            }
        })
    }

    /// HeteroFL's factor of a layer whose units are cut.
    fn factor(&self, node: &graph::Node) -> Option<f32> {
        let units = match node.op {
            graph::Op::Dense { .. } => node.shape.dims.last(),
            graph::Op::Conv { .. } => node.shape.dims.first(),
            _ => None,
        }?;
        let (full, kept) = (units.size(self.graph.full()), units.size(self.mask));
        (kept < full && kept > 0).then(|| (full as f64 / kept as f64) as f32)
    }

    fn sizes(&self, shape: &TensorShape) -> Vec<u32> {
        shape.dims.iter().map(|dim| dim.size(self.mask) as u32).collect()
    }

    fn offset(&self, param: ParamId) -> u32 {
        self.offsets[param.index()]
    }
}

/// Height and width of `[channels][height][width]` or `[channels][length]`; `Plan::check` refuses anything else.
fn area(sizes: &[u32]) -> (u32, u32) {
    match *sizes {
        [_, height, width] => (height, width),
        [_, length] => (1, length),
        _ => (0, 0),
    }
}

/// One number per channel.
fn whole_image(sizes: &[u32], kind: PoolKind) -> Pool {
    let (height, width) = area(sizes);
    let size = [height as u16, width as u16];
    let window = image(sizes, Kernel { size, stride: size, pad: [0; 4] });
    Pool { kind, channels: sizes.first().copied().unwrap_or(0), window }
}

/// How many numbers an axis has, before and after it the products of the others.
fn around(sizes: &[u32], axis: u8) -> (u32, u32, u32) {
    let axis = usize::from(axis);
    let size = sizes.get(axis).copied().unwrap_or(0);
    (sizes.iter().take(axis).product(), size, sizes.iter().skip(axis + 1).product())
}

fn image(sizes: &[u32], kernel: Kernel) -> Window {
    let (height, width) = area(sizes);
    Window { height, width, kernel: kernel.size, stride: kernel.stride, pad: kernel.pad }
}
