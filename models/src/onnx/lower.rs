//! Translates the nodes that an output needs into nodes of a [`Graph`](crate::Graph).
//!
//! | ONNX | ours | module |
//! |---|---|---|
//! | Gemm; MatMul; Add of a constant to a MatMul | Dense (alpha and beta go into the weights) | [`dense`] |
//! | Conv, MaxPool, AveragePool, GlobalAveragePool, GlobalMaxPool | Conv, Pool, GlobalPool | [`image`] |
//! | ReduceMean, ReduceMax over pixels or steps | GlobalPool, StepPool | [`image`] |
//! | BatchNormalization, LayerNormalization, GroupNormalization, and equivalent sequences of nodes | norms | [`norm`] |
//! | GRU, Gather of words, Gather or Slice of the last step | Gru, Embed, Last | [`recurrent`] |
//! | Concat, Slice, Split, Pad, Mul of two values | Concat, Part, Pad, Mul | [`structure`] |
//! | Flatten, Reshape, Squeeze, Unsqueeze, Transpose | Flatten, Reshape, Transpose, or nothing | [`shape`] |
//! | Shape, ConstantOfShape, Expand, and arithmetic on sizes | nothing | [`fold`] |
//! | Relu, LeakyRelu, Sigmoid, Tanh, Add, Dropout | the same | here |
//! | Identity, Cast, ZipMap | nothing: a second name of the same value | here |
//! | Softmax, LogSoftmax or Sigmoid before the output | the Tail | here |

use std::collections::{HashMap, HashSet};

use common::plan::{Activation, PoolKind};

use super::{
    constants::is_default_domain,
    import::{Import, ImportError, SourceModel, title, unsupported},
    proto::{NodeProto, data_type},
    tensor::Floats,
    view::{OnnxValue, TensorView, ViewAxis},
};
use crate::graph::{Builder, Param, Tail, ValueId};

mod dense;
mod fold;
mod image;
mod norm;
mod recurrent;
mod shape;
mod structure;

/// Reads everything that the output called `output` needs.
pub fn lower(source: &SourceModel<'_>, output: &str) -> Result<Import, ImportError> {
    let nodes = source.needed(output);
    let mut draft = Importer::new(source, &nodes)?;
    for node in &nodes {
        draft.node(node)?;
    }
    draft.finish(output)
}

/// A model that is being read.
pub(super) struct Importer<'a> {
    source: &'a SourceModel<'a>,
    builder: Builder,
    /// Values by their name in the file.
    values: HashMap<&'a str, OnnxValue>,
    /// Names in the file of the values of our Graph.
    names: HashMap<ValueId, String>,
    /// The nodes that read a value.
    readers: HashMap<&'a str, Vec<&'a NodeProto>>,
    /// First outputs of nodes that were merged into another node.
    taken: HashSet<&'a str>,
    /// Values with zeros around them that their only reader adds: top, left, bottom, right.
    padded: HashMap<&'a str, [u16; 4]>,
    /// Parameters as the file holds them.
    weights: HashMap<String, Vec<f32>>,
    tail: Option<Tail>,
    /// Names of the outputs of the tail.
    after_tail: HashSet<&'a str>,
    notes: Vec<String>,
}

impl<'a> Importer<'a> {
    fn new(source: &'a SourceModel<'a>, nodes: &[&'a NodeProto]) -> Result<Self, ImportError> {
        let shape = &source.input.shape;
        let name = Some(source.graph.name.as_str()).filter(|name| !name.is_empty()).unwrap_or("model");
        let builder = Builder::new(name, source.input.name, shape)?;
        let input = TensorView::plain(ValueId::INPUT, shape.len());
        let mut readers: HashMap<&str, Vec<&NodeProto>> = HashMap::new();
        for node in nodes {
            node.input.iter().for_each(|name| readers.entry(name).or_default().push(node));
        }
        Ok(Self {
            source,
            builder,
            values: HashMap::from([(source.input.name, OnnxValue::Tensor(input))]),
            names: HashMap::from([(ValueId::INPUT, source.input.name.to_owned())]),
            readers,
            taken: HashSet::new(),
            padded: HashMap::new(),
            weights: HashMap::new(),
            tail: None,
            after_tail: HashSet::new(),
            notes: vec![],
        })
    }

    fn node(&mut self, node: &'a NodeProto) -> Result<(), ImportError> {
        let zip_map = node.domain == "ai.onnx.ml" && node.op_type == "ZipMap";
        if !is_default_domain(node) && !zip_map {
            return Err(unsupported(node));
        }
        let output = node.output.first().ok_or_else(|| problem(node, "has no output"))?;
        if self.taken.contains(output.as_str()) {
            return Ok(());
        }
        let reads_tail = node.input.iter().any(|name| self.after_tail.contains(name.as_str()));
        if reads_tail && !passes(node) {
            return Err(problem(node, "follows a softmax; only the output of the model may follow one"));
        }
        let sigmoid = node.op_type == "Sigmoid" && self.ends_with(output);
        if reads_tail || sigmoid || matches!(node.op_type.as_str(), "Softmax" | "LogSoftmax") {
            self.after_tail.insert(output);
        }
        let value = match self.fold(node)? {
            Some(value) => value,
            None => OnnxValue::Tensor(self.tensor(node)?),
        };
        self.define(output, value);
        Ok(())
    }

    /// Translates a node that computes with samples.
    fn tensor(&mut self, node: &'a NodeProto) -> Result<TensorView, ImportError> {
        match node.op_type.as_str() {
            "Gemm" => self.gemm(node),
            "MatMul" => self.matmul(node),
            "Add" => self.add(node),
            "Relu" => self.activate(node, Activation::Relu),
            "LeakyRelu" => {
                let slope = float(node, "alpha").unwrap_or(0.01);
                match slope > 0.0 && slope.is_finite() {
                    true => self.activate(node, Activation::LeakyRelu { slope }),
                    false => Err(problem(node, format!("has slope {slope}; it must be positive"))),
                }
            }
            "Sigmoid" if self.ends_with(node.output.first().map_or("", String::as_str)) => {
                self.tail = Some(Tail::Sigmoid);
                self.input(node, 0)
            }
            "Sigmoid" => self.activate(node, Activation::Sigmoid),
            "Tanh" => self.activate(node, Activation::Tanh),
            "Conv" => self.conv(node),
            "MaxPool" | "AveragePool" => self.pool(node),
            "GlobalAveragePool" | "GlobalMaxPool" => self.global_pool(node),
            "ReduceMean" => match self.spelled_layer_norm(node)? {
                Some(view) => Ok(view),
                None => self.reduce(node, PoolKind::Average),
            },
            "ReduceMax" => self.reduce(node, PoolKind::Max),
            "BatchNormalization" => self.batch_norm(node),
            "LayerNormalization" => self.layer_norm(node),
            "GroupNormalization" => self.group_norm(node),
            "InstanceNormalization" => self.instance_norm(node),
            "GRU" => self.gru(node),
            "Gather" => self.gather(node),
            "Slice" => self.slice(node),
            "Split" => self.split(node),
            "Concat" => self.concat(node),
            "Pad" => self.pad(node),
            "Mul" => self.mul(node),
            "Flatten" => self.flatten(node),
            "Reshape" => self.reshape(node),
            "Squeeze" => self.squeeze(node),
            "Unsqueeze" => self.unsqueeze(node),
            "Transpose" => self.transpose(node),
            "Identity" | "ZipMap" => self.input(node, 0),
            "Dropout" => self.dropout(node),
            "Cast" => self.cast(node),
            "Softmax" => self.softmax(node, Tail::Softmax),
            "LogSoftmax" => self.softmax(node, Tail::LogSoftmax),
            _ => Err(unsupported(node)),
        }
    }

    fn finish(self, output: &str) -> Result<Import, ImportError> {
        let missing = || ImportError::NoOutput;
        let Some(OnnxValue::Tensor(view)) = self.values.get(output) else { return Err(missing()) };
        let logits = self.names.get(&view.value).cloned().ok_or_else(missing)?;
        let rank = self.builder.shape(view.value).dims.len();
        if !view.is_plain(rank) {
            let text = format!("the output '{output}' is transposed or has extra axes; expected [N, ...]");
            return Err(ImportError::Output(text));
        }
        let batch = self.source.input.batch.and_then(|batch| usize::try_from(batch).ok());
        let mut notes = self.notes;
        let tail = self.tail;
        notes.extend(tail.map(|tail| format!("{} before the output left out in training", tail.op_type())));
        let graph = self.builder.finish(output, view.value, tail)?;
        let mut parameters = Vec::with_capacity(graph.layout().len());
        for (param, shape) in graph.params().iter().zip(graph.param_shapes()) {
            parameters.extend(param.layout.from_file(shape, graph.full(), &self.weights[&param.name]));
        }
        Ok(Import { graph, parameters, notes, logits, batch })
    }

    fn activate(&mut self, node: &'a NodeProto, kind: Activation) -> Result<TensorView, ImportError> {
        let view = self.input(node, 0)?;
        let value = self.builder.activate(&title(node), view.value, kind);
        Ok(self.named(node, TensorView { value, ..view }))
    }

    /// An Add of two computed values; the bias of a MatMul was already merged into it.
    fn add(&mut self, node: &'a NodeProto) -> Result<TensorView, ImportError> {
        if node.input.iter().take(2).any(|name| self.source.constants.contains(name)) {
            return Err(problem(node, "adds a constant to something other than a MatMul without bias"));
        }
        let (mut a, mut b) = (self.input(node, 0)?, self.input(node, 1)?);
        if a.axes != b.axes {
            a = self.plain(node, a)?;
            b = self.plain(node, b)?;
        }
        let value = self.builder.add(&title(node), a.value, b.value)?;
        Ok(self.named(node, TensorView { value, ..a }))
    }

    fn dropout(&mut self, node: &'a NodeProto) -> Result<TensorView, ImportError> {
        let view = self.input(node, 0)?;
        let operand = node.input.get(1).and_then(|name| self.source.constants.floats(name)).transpose()?;
        let operand = operand.and_then(|ratio| ratio.data.first().copied());
        let rate = operand.or(float(node, "ratio")).unwrap_or(0.5);
        if rate == 0.0 {
            return Ok(view);
        }
        let value = self.builder.dropout(&title(node), view.value, rate)?;
        Ok(self.named(node, TensorView { value, ..view }))
    }

    fn cast(&mut self, node: &'a NodeProto) -> Result<TensorView, ImportError> {
        let view = self.input(node, 0)?;
        let to = integer(node, "to").and_then(|to| i32::try_from(to).ok()).unwrap_or(0);
        let words = [data_type::INT32, data_type::INT64].contains(&to) && view.value == ValueId::INPUT;
        match to == data_type::FLOAT || words {
            true => Ok(view),
            false => {
                let to = data_type::name(to);
                Err(problem(node, format!("casts to {to}; only float is supported")))
            }
        }
    }

    fn softmax(&mut self, node: &'a NodeProto, tail: Tail) -> Result<TensorView, ImportError> {
        let view = self.input(node, 0)?;
        let rank = view.axes.len() as i64;
        // Before operator set 13 the default was axis 1, and everything after it was one axis.
        let default = if self.source.opset < 13 { 1 } else { -1 };
        let axis = integer(node, "axis").unwrap_or(default);
        let last = axis == -1 || axis == rank - 1;
        if !last || matches!(view.axes.last(), None | Some(ViewAxis::Batch)) {
            return Err(problem(node, "must work on the last axis of [N, classes]"));
        }
        if self.tail.replace(tail).is_some() {
            return Err(problem(node, "is the second softmax"));
        }
        Ok(view)
    }

    /// The computed tensor that a node reads.
    fn input(&self, node: &NodeProto, place: usize) -> Result<TensorView, ImportError> {
        let name = node.input.get(place).map_or("", String::as_str);
        match self.values.get(name) {
            Some(OnnxValue::Tensor(view)) => Ok(view.clone()),
            Some(_) => {
                Err(problem(node, format!("computes with '{name}', which does not depend on samples")))
            }
            None if self.source.constants.contains(name) => {
                Err(problem(node, "computes with constants only"))
            }
            None => Err(ImportError::Undefined { node: title(node), value: name.to_owned() }),
        }
    }

    /// A constant operand that is trained, kept under the name of its initializer.
    fn weight(&mut self, node: &NodeProto, place: usize) -> Result<(String, Floats), ImportError> {
        let name = node.input.get(place).map_or("", String::as_str);
        let floats = self.source.constants.floats(name);
        let floats = floats.ok_or_else(|| problem(node, format!("needs '{name}' to be a constant")))??;
        Ok((name.to_owned(), floats))
    }

    /// A vector of parameters, one per channel.
    fn vector(&mut self, node: &NodeProto, place: usize) -> Result<Param, ImportError> {
        let (name, floats) = self.weight(node, place)?;
        self.weights.insert(name.clone(), floats.data);
        Ok(Param::plain(name))
    }

    /// Remembers the name of a value in the file.
    fn named(&mut self, node: &NodeProto, view: TensorView) -> TensorView {
        if let Some(name) = node.output.first() {
            self.names.entry(view.value).or_insert_with(|| name.clone());
        }
        view
    }

    fn define(&mut self, name: &'a str, value: OnnxValue) {
        if let OnnxValue::Tensor(view) = &value {
            self.names.entry(view.value).or_insert_with(|| name.to_owned());
        }
        self.values.insert(name, value);
    }

    /// True if nothing is computed from a value: it is the output, perhaps under another name.
    fn ends_with(&self, value: &str) -> bool {
        // Bounded by the number of nodes, because a damaged file may have cycles.
        let (mut open, mut steps) = (vec![value], self.source.graph.node.len());
        while let Some(value) = open.pop() {
            for reader in self.readers.get(value).into_iter().flatten() {
                if !passes(reader) || steps == 0 {
                    return false;
                }
                steps -= 1;
                open.extend(reader.output.iter().map(String::as_str));
            }
        }
        true
    }

    /// The only node that reads a value, if it is of this kind.
    fn only_reader(&self, value: &str, op: &str) -> Option<&'a NodeProto> {
        match self.readers.get(value).map(Vec::as_slice) {
            Some([one]) if one.op_type == op && is_default_domain(one) => Some(one),
            _ => None,
        }
    }
}

/// True if the node passes its input on under another name.
fn passes(node: &NodeProto) -> bool {
    matches!(node.op_type.as_str(), "Identity" | "ZipMap" | "Cast")
}

fn problem(node: &NodeProto, problem: impl Into<String>) -> ImportError {
    ImportError::Node { node: title(node), op: node.op_type.clone(), problem: problem.into() }
}

fn integer(node: &NodeProto, name: &str) -> Option<i64> {
    node.attribute.iter().find(|attribute| attribute.name == name).and_then(|attribute| attribute.i)
}

fn float(node: &NodeProto, name: &str) -> Option<f32> {
    node.attribute.iter().find(|attribute| attribute.name == name).and_then(|attribute| attribute.f)
}

fn integers<'n>(node: &'n NodeProto, name: &str) -> Option<&'n [i64]> {
    let attribute = node.attribute.iter().find(|attribute| attribute.name == name)?;
    Some(&attribute.ints)
}

fn text(node: &NodeProto, name: &str) -> Option<String> {
    let attribute = node.attribute.iter().find(|attribute| attribute.name == name)?;
    attribute.s.as_ref().map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}
