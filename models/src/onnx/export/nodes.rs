//! The ONNX nodes of each of our operations.
//!
//! | ours | ONNX |
//! |---|---|
//! | Dense on `[n]` | Gemm with `transB = 1` |
//! | Dense on `[.., n]` | Transpose of the weights, MatMul, Add |
//! | Gru, Recurrent | Transpose to `[steps, N, ..]`, GRU or LSTM or RNN, Squeeze, Transpose back |
//! | GroupNorm | Reshape to groups, InstanceNormalization, Reshape back, Mul, Add (operator set 17 has no other) |
//! | Last | Gather |
//! | Part | Slice |
//! | StepPool | ReduceMean or ReduceMax |
//! | Gelu, Silu, Mish | the nodes of their formulas ([`super::activation`]) |
//! | others | the node of the same meaning |

use common::{
    TensorShape,
    plan::{ArithmeticKind, PoolKind, RecurrentKind},
};

use super::{Names, shape_sizes};
use crate::{
    graph::{Constant, Graph, Groups, Kernel, Node, Op, ParamId},
    onnx::{
        proto::{AttributeProto, NodeProto, TensorProto, attribute_type, data_type},
        tensor::float_tensor,
    },
};

/// How the name of a scale ends that is not a parameter.
pub const ONES: &str = ".ones";

/// Nodes and constants so far.
pub struct Writer<'a> {
    pub graph: &'a Graph,
    pub names: &'a Names,
    pub nodes: Vec<NodeProto>,
    /// Constants that are not parameters.
    pub constants: Vec<TensorProto>,
    /// Statistics that are not written yet.
    pub stats: &'a [f32],
    /// Constants of the Graph that are not written yet.
    pub numbers: &'a [f32],
}

impl Writer<'_> {
    pub fn node(&mut self, node: &Node, output: String) {
        let values: Vec<String> = node.inputs.iter().map(|&value| self.names.of(value)).collect();
        let input = values[0].clone();
        let name = node.name.as_str();
        match node.op {
            Op::Dense { weight, bias } if node.shape.dims.len() == 1 => {
                let inputs = [Some(input), Some(self.param(weight)), bias.map(|bias| self.param(bias))];
                self.push(
                    name,
                    "Gemm",
                    inputs.into_iter().flatten().collect(),
                    output,
                    vec![integer("transB", 1)],
                );
            }
            Op::Dense { weight, bias } => {
                let (turned, product) = (format!("{output}.weight"), format!("{output}.product"));
                let (turn, weight) = (format!("{name}/transpose"), self.param(weight));
                self.push(&turn, "Transpose", vec![weight], turned.clone(), vec![list("perm", &[1, 0])]);
                match bias.map(|bias| self.param(bias)) {
                    Some(bias) => {
                        self.push(name, "MatMul", vec![input, turned], product.clone(), vec![]);
                        self.push(&format!("{name}/bias"), "Add", vec![product, bias], output, vec![]);
                    }
                    None => self.push(name, "MatMul", vec![input, turned], output, vec![]),
                }
            }
            Op::Conv { weight, bias, groups, window } => {
                let from = shape_sizes(self.graph, self.graph.shape(node.inputs[0]))[0];
                let line = node.shape.dims.len() == 2;
                let mut attributes = window_attributes(&window, line);
                attributes.push(integer("group", groups.count(from as u32).into()));
                let inputs = [Some(input), Some(self.param(weight)), bias.map(|bias| self.param(bias))];
                self.push(name, "Conv", inputs.into_iter().flatten().collect(), output, attributes);
            }
            Op::Activate(kind) => self.activation(name, kind, input, output),
            Op::Pool { kind, window } => {
                let mut attributes = window_attributes(&window, node.shape.dims.len() == 2);
                let op = if kind == PoolKind::Max { "MaxPool" } else { "AveragePool" };
                if kind == PoolKind::AveragePadded {
                    attributes.push(integer("count_include_pad", 1));
                }
                self.push(name, op, vec![input], output, attributes);
            }
            Op::GlobalPool => self.push(name, "GlobalAveragePool", vec![input], output, vec![]),
            Op::Add => self.push(name, "Add", values, output, vec![]),
            Op::Flatten => self.push(name, "Flatten", vec![input], output, vec![integer("axis", 1)]),
            Op::Reshape => {
                let sizes = shape_sizes(self.graph, &node.shape).into_iter().map(|size| size as i64);
                let target: Vec<i64> = std::iter::once(0).chain(sizes).collect();
                let shape = self.integers(&output, "shape", &target);
                self.push(name, "Reshape", vec![input, shape], output, vec![]);
            }
            Op::Embed { table } => {
                let table = self.param(table);
                self.push(name, "Gather", vec![table, input], output, vec![integer("axis", 0)]);
            }
            Op::Gru { weight, recurrent, bias, reset_after } => {
                let params = [Some(weight), Some(recurrent), bias];
                let attributes = vec![integer("linear_before_reset", reset_after.into())];
                self.recurrent(node, "GRU", input, params, output, attributes);
            }
            Op::Recurrent { kind, weight, recurrent, bias } => {
                let params = [Some(weight), Some(recurrent), bias];
                let op = match kind {
                    RecurrentKind::Lstm => "LSTM",
                    RecurrentKind::Tanh => "RNN",
                };
                self.recurrent(node, op, input, params, output, vec![]);
            }
            Op::Dropout { rate } => {
                let ratio = format!("{output}.ratio");
                self.constants.push(float_tensor(&ratio, &[], &[rate]));
                self.push(name, "Dropout", vec![input, ratio], output, vec![]);
            }
            Op::LayerNorm { axes, epsilon, scale, bias } => {
                let scale = match scale {
                    Some(scale) => self.param(scale),
                    None => self.ones(&output, &node.shape, axes),
                };
                let bias = bias.map(|bias| self.param(bias));
                let inputs = [Some(input), Some(scale), bias].into_iter().flatten().collect();
                let attributes = vec![integer("axis", -i64::from(axes)), float("epsilon", epsilon)];
                self.push(name, "LayerNormalization", inputs, output, attributes);
            }
            Op::GroupNorm { groups: Groups::Each, epsilon, scale, bias } => {
                let inputs = vec![input, self.param(scale), self.param(bias)];
                self.push(name, "InstanceNormalization", inputs, output, vec![float("epsilon", epsilon)]);
            }
            Op::GroupNorm { groups: Groups::Count(groups), epsilon, scale, bias } => {
                let params = [self.param(scale), self.param(bias)];
                self.group_norm(node, input, groups, epsilon, params, output);
            }
            Op::BatchNorm { epsilon, scale, bias } => {
                let channels = shape_sizes(self.graph, &node.shape)[0];
                let mut inputs = vec![input, self.param(scale), self.param(bias)];
                for kind in ["mean", "var"] {
                    let (these, rest) = self.stats.split_at(channels);
                    self.stats = rest;
                    let constant = format!("{output}.{kind}");
                    self.constants.push(float_tensor(&constant, &[channels], these));
                    inputs.push(constant);
                }
                self.push(name, "BatchNormalization", inputs, output, vec![float("epsilon", epsilon)]);
            }
            Op::Last => {
                let from = shape_sizes(self.graph, self.graph.shape(node.inputs[0]))[0];
                let index = format!("{output}.index");
                self.constants.push(integer_tensor(&index, &[], &[from as i64 - 1]));
                self.push(name, "Gather", vec![input, index], output, vec![integer("axis", 1)]);
            }
            Op::PRelu { slope, .. } => {
                let slope = self.param(slope);
                self.push(name, "PRelu", vec![input, slope], output, vec![]);
            }
            Op::Arithmetic { kind, with } => self.arithmetic(node, kind, with, input, output),
            Op::Concat { axis } => {
                self.push(name, "Concat", values, output, vec![integer("axis", i64::from(axis) + 1)]);
            }
            Op::Part { axis, before } => {
                let start = before.size(self.graph.full()) as i64;
                let len = shape_sizes(self.graph, &node.shape)[usize::from(axis)] as i64;
                let starts = self.integers(&output, "starts", &[start]);
                let ends = self.integers(&output, "ends", &[start + len]);
                let axes = self.integers(&output, "axes", &[i64::from(axis) + 1]);
                self.push(name, "Slice", vec![input, starts, ends, axes], output, vec![]);
            }
            Op::Pad { axis, before, after } => {
                // All axes before, then all axes after; the batch is the first.
                let rank = node.shape.dims.len() + 1;
                let mut pads = vec![0; 2 * rank];
                pads[usize::from(axis) + 1] = before.into();
                pads[rank + usize::from(axis) + 1] = after.into();
                let pads = self.integers(&output, "pads", &pads);
                self.push(name, "Pad", vec![input, pads], output, vec![]);
            }
            Op::Transpose { kept, moved } => {
                let mut order: Vec<i64> = (0..=node.shape.dims.len() as i64).collect();
                order[usize::from(kept) + 1..].rotate_left(moved.into());
                self.push(name, "Transpose", vec![input], output, vec![list("perm", &order)]);
            }
            Op::GlobalMaxPool => self.push(name, "GlobalMaxPool", vec![input], output, vec![]),
            Op::StepPool { kind } => {
                let op = if kind == PoolKind::Max { "ReduceMax" } else { "ReduceMean" };
                let attributes = vec![list("axes", &[1]), integer("keepdims", 0)];
                self.push(name, op, vec![input], output, attributes);
            }
            Op::Mul => self.push(name, "Mul", values, output, vec![]),
        }
    }

    /// A constant of ones for the last axes of a value.
    fn ones(&mut self, output: &str, shape: &TensorShape, axes: u8) -> String {
        let sizes = shape_sizes(self.graph, shape);
        let over = &sizes[sizes.len() - usize::from(axes)..];
        let name = format!("{output}{ONES}");
        self.constants.push(float_tensor(&name, over, &vec![1.0; over.iter().product()]));
        name
    }

    fn arithmetic(
        &mut self,
        node: &Node,
        kind: ArithmeticKind,
        with: Constant,
        input: String,
        output: String,
    ) {
        let op = match kind {
            ArithmeticKind::Add => "Add",
            ArithmeticKind::Sub => "Sub",
            ArithmeticKind::Mul => "Mul",
            ArithmeticKind::Div => "Div",
        };
        let constant = match with {
            Constant::One(number) => self.number(&output, "constant", number),
            Constant::Each(axes) => {
                let sizes = shape_sizes(self.graph, &node.shape);
                let (first, after) = (usize::from(axes.first), axes.after(sizes.len()));
                let covered = &sizes[first..sizes.len() - after];
                let (these, rest) = self.numbers.split_at(covered.iter().product());
                self.numbers = rest;
                let name = format!("{output}.constants");
                self.constants.push(float_tensor(&name, &[covered, &vec![1; after]].concat(), these));
                name
            }
        };
        self.push(&node.name, op, vec![input, constant], output, vec![]);
    }

    fn recurrent(
        &mut self,
        node: &Node,
        op: &str,
        input: String,
        params: [Option<ParamId>; 3],
        output: String,
        mut attributes: Vec<AttributeProto>,
    ) {
        let name = &node.name;
        // `[steps][units]`.
        let units = shape_sizes(self.graph, &node.shape)[1];
        let [steps_first, states, squeezed] =
            ["steps", "states", "squeezed"].map(|kind| format!("{output}.{kind}"));
        let turn = || vec![list("perm", &[1, 0, 2])];
        self.push(&format!("{name}/before"), "Transpose", vec![input], steps_first.clone(), turn());
        attributes.insert(0, integer("hidden_size", units as i64));
        let params = params.into_iter().flatten().map(|id| self.param(id));
        let inputs = std::iter::once(steps_first).chain(params).collect();
        self.push(name, op, inputs, states.clone(), attributes);
        let axes = self.integers(&output, "axes", &[1]);
        self.push(&format!("{name}/squeeze"), "Squeeze", vec![states, axes], squeezed.clone(), vec![]);
        self.push(&format!("{name}/after"), "Transpose", vec![squeezed], output, turn());
    }

    fn group_norm(
        &mut self,
        node: &Node,
        input: String,
        groups: u32,
        epsilon: f32,
        [scale, bias]: [String; 2],
        output: String,
    ) {
        let name = &node.name;
        let sizes = shape_sizes(self.graph, &node.shape).into_iter().map(|size| size as i64);
        let back: Vec<i64> = std::iter::once(0).chain(sizes).collect();
        let [grouped, normal, image, scaled] =
            ["grouped", "normal", "image", "scaled"].map(|kind| format!("{output}.{kind}"));
        let count = groups as usize;
        let shape = self.integers(&output, "groups", &[0, groups.into(), -1]);
        self.push(&format!("{name}/group"), "Reshape", vec![input, shape], grouped.clone(), vec![]);
        let (ones, zeros) = (format!("{output}.ones"), format!("{output}.zeros"));
        self.constants.push(float_tensor(&ones, &[count], &vec![1.0; count]));
        self.constants.push(float_tensor(&zeros, &[count], &vec![0.0; count]));
        let attributes = vec![float("epsilon", epsilon)];
        self.push(name, "InstanceNormalization", vec![grouped, ones, zeros], normal.clone(), attributes);
        let shape = self.integers(&output, "shape", &back);
        self.push(&format!("{name}/ungroup"), "Reshape", vec![normal, shape], image.clone(), vec![]);
        self.push(&format!("{name}/scale"), "Mul", vec![image, scale], scaled.clone(), vec![]);
        self.push(&format!("{name}/shift"), "Add", vec![scaled, bias], output, vec![]);
    }

    pub fn push(
        &mut self,
        name: &str,
        op_type: &str,
        input: Vec<String>,
        output: String,
        attribute: Vec<AttributeProto>,
    ) {
        self.nodes.push(NodeProto {
            input,
            output: vec![output],
            name: name.to_owned(),
            op_type: op_type.to_owned(),
            attribute,
            domain: String::new(),
        });
    }

    fn integers(&mut self, output: &str, kind: &str, numbers: &[i64]) -> String {
        let name = format!("{output}.{kind}");
        self.constants.push(integer_tensor(&name, &[numbers.len()], numbers));
        name
    }

    fn param(&self, id: ParamId) -> String {
        self.names.param(id)
    }
}

pub fn integer(name: &str, value: i64) -> AttributeProto {
    let (name, i) = (name.to_owned(), Some(value));
    AttributeProto { name, i, r#type: attribute_type::INT, ..AttributeProto::default() }
}

pub fn float(name: &str, value: f32) -> AttributeProto {
    let (name, f) = (name.to_owned(), Some(value));
    AttributeProto { name, f, r#type: attribute_type::FLOAT, ..AttributeProto::default() }
}

pub fn list(name: &str, values: &[i64]) -> AttributeProto {
    let (name, ints) = (name.to_owned(), values.to_vec());
    AttributeProto { name, ints, r#type: attribute_type::INTS, ..AttributeProto::default() }
}

fn window_attributes(window: &Kernel, line: bool) -> Vec<AttributeProto> {
    let skip = usize::from(line);
    let two = |sizes: [u16; 2]| sizes.into_iter().skip(skip).map(i64::from).collect::<Vec<_>>();
    let [top, left, bottom, right] = window.pad;
    let pads = [two([top, left]), two([bottom, right])].concat();
    vec![list("kernel_shape", &two(window.size)), list("strides", &two(window.stride)), list("pads", &pads)]
}

pub fn integer_tensor(name: &str, dims: &[usize], data: &[i64]) -> TensorProto {
    TensorProto {
        name: name.to_owned(),
        dims: dims.iter().map(|&size| size as i64).collect(),
        data_type: data_type::INT64,
        raw_data: data.iter().flat_map(|x| x.to_le_bytes()).collect(),
        ..TensorProto::default()
    }
}
