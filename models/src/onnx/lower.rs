//! Translates the nodes that an output needs into nodes of a [`Graph`](crate::Graph).
//!
//! | ONNX | ours | module |
//! |---|---|---|
//! | Gemm; MatMul; Add of a constant to a MatMul | Dense (alpha and beta go into the weights) | [`dense`] |
//! | Conv, MaxPool, AveragePool, GlobalAveragePool, GlobalMaxPool | Conv, Pool, GlobalPool | [`image`] |
//! | ReduceMean, ReduceMax over pixels or steps | GlobalPool, StepPool | [`image`] |
//! | BatchNormalization, LayerNormalization, GroupNormalization, and equivalent sequences of nodes | norms | [`norm`] |
//! | GRU, LSTM, RNN | Gru, Recurrent; Last for the final state | [`cells`] |
//! | Gather of words, Gather or Slice of the last step | Embed, Last | [`recurrent`] |
//! | Concat, Slice, Split, Pad, Mul of two values | Concat, Part, Pad, Mul | [`structure`] |
//! | ArrayFeatureExtractor, Gather of several indices | Part, Concat | [`structure`] |
//! | Flatten, Reshape, Squeeze, Unsqueeze, Transpose | Flatten, Reshape, Transpose, or nothing | [`shape`] |
//! | Shape, ConstantOfShape, Expand, and arithmetic on sizes | nothing | [`fold`] |
//! | Relu, Gelu, Clip and other activations of one node | the same | [`activation`] |
//! | Gelu, Silu, Mish, HardSwish, Softplus as several nodes | one node | [`spelled`] |
//! | PRelu; Neg; Add, Sub, Mul and Div with a constant; Scaler | PRelu, Arithmetic | [`constant`] |
//! | Add of two values, Dropout | the same | here |
//! | Identity, Cast, ZipMap | nothing: a second name of the same value | here |
//! | Softmax, LogSoftmax or Sigmoid before the output | the Tail | here |

use std::collections::{BTreeSet, HashMap, HashSet};

use common::plan::{Activation, ArithmeticKind, PoolKind};

use super::{
    constants::is_default_domain,
    import::{Import, ImportError, SourceModel, is_read, title, unsupported},
    labels::renames,
    proto::{NodeProto, data_type},
    tensor::Floats,
    view::{OnnxValue, SymbolicSize, TensorView, ViewAxis},
};
use crate::graph::{Builder, Graph, GraphError, Param, Tail, ValueId};

mod activation;
mod bias;
mod cells;
mod constant;
mod dense;
mod fold;
mod image;
mod norm;
mod recurrent;
mod shape;
mod spelled;
mod structure;

use bias::BiasAxis;

/// Reads everything that the output called `output` needs.
pub fn lower(source: &SourceModel<'_>, output: &str) -> Result<Import, ImportError> {
    let nodes = source.needed(output);
    let mut draft = Importer::new(source, &nodes)?;
    for node in &nodes {
        draft.node(node).map_err(|error| draft.with_inputs(node, error))?;
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
    /// Activations that were merged from several nodes, by the name of the output: what they are, and of which value.
    spelled: HashMap<&'a str, (Activation, &'a str)>,
    /// Outputs of an Add whose constant became the bias of an earlier layer.
    biased: HashMap<&'a str, BiasAxis>,
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
            // An operand that is left out has no name.
            let named = node.input.iter().filter(|name| !name.is_empty());
            named.for_each(|name| readers.entry(name).or_default().push(node));
        }
        let found = spelled::find(source, nodes, &readers);
        let taken = found.iter().flat_map(|spelled| &spelled.inside).copied().collect();
        let spelled = found.iter().map(|found| (found.output, (found.kind, found.input))).collect();
        Ok(Self {
            source,
            builder,
            values: HashMap::from([(source.input.name, OnnxValue::Tensor(input))]),
            names: HashMap::from([(ValueId::INPUT, source.input.name.to_owned())]),
            readers,
            taken,
            padded: HashMap::new(),
            spelled,
            biased: HashMap::new(),
            weights: HashMap::new(),
            tail: None,
            after_tail: HashSet::new(),
            notes: vec![],
        })
    }

    fn node(&mut self, node: &'a NodeProto) -> Result<(), ImportError> {
        if !is_read(node) {
            return Err(unsupported(node));
        }
        let output = node.output.first().ok_or_else(|| problem(node, "has no output"))?;
        if self.taken.contains(output.as_str()) {
            return Ok(());
        }
        let reads_tail = node.input.iter().any(|name| self.after_tail.contains(name.as_str()));
        let follows = || problem(node, "follows a softmax; only the output of the model may follow one");
        if reads_tail && !renames(node) && !flattens(node) {
            return Err(follows());
        }
        let is_tail = self.is_last_sigmoid(node) || matches!(node.op_type.as_str(), "Softmax" | "LogSoftmax");
        if is_tail || (reads_tail && node.op_type != "Shape") {
            self.after_tail.insert(output);
        }
        if let Some(&(kind, input)) = self.spelled.get(output.as_str()) {
            let view = self.value(node, input)?;
            let view = self.activate(node, view, kind)?;
            self.define(output, OnnxValue::Tensor(view));
            return Ok(());
        }
        let value = match self.fold(node)? {
            Some(value) => value,
            None => OnnxValue::Tensor(self.tensor(node)?),
        };
        if let (true, OnnxValue::Tensor(view)) = (reads_tail, &value) {
            // Another order or other axes would be another softmax.
            let before = node.input.first().and_then(|name| self.values.get(name.as_str()));
            if !matches!(before, Some(OnnxValue::Tensor(before)) if before.value == view.value) {
                return Err(follows());
            }
        }
        // A recurrent layer of which only the final state is read leaves out its first output.
        if !output.is_empty() {
            self.define(output, value);
        }
        Ok(())
    }

    /// The error as one of this node, with the names and shapes of what it reads.
    fn with_inputs(&self, node: &NodeProto, error: ImportError) -> ImportError {
        let mut error = match error {
            ImportError::Graph(GraphError::Layer { problem: text, .. }) => problem(node, text),
            ImportError::Graph(GraphError::DenseInput { expected, got, .. }) => problem(
                node,
                format!(
                    "takes {expected} numbers per sample, but its input has shape {got}; put a Flatten before it"
                ),
            ),
            other => other,
        };
        if let ImportError::Op { inputs, .. } | ImportError::Node { inputs, .. } = &mut error {
            let names = node.input.iter().filter(|name| !name.is_empty());
            *inputs = names.map(|name| self.described(name)).collect();
        }
        error
    }

    /// A name and its shape, where it is known.
    fn described(&self, name: &str) -> String {
        let size = |size: &SymbolicSize| match size {
            SymbolicSize::Fixed(size) => size.to_string(),
            SymbolicSize::Batch => "N".to_owned(),
        };
        let shape: Vec<String> = match self.values.get(name) {
            Some(OnnxValue::Tensor(view)) => {
                view.axes.iter().map(|axis| size(&self.size(view, axis))).collect()
            }
            Some(OnnxValue::Sizes(sizes)) => {
                return format!("{name} = [{}]", sizes.iter().map(size).collect::<Vec<_>>().join(", "));
            }
            Some(OnnxValue::Filled(number)) => return format!("{name} = {number}"),
            _ => match self.source.constants.dims(name) {
                Some(dims) => dims.iter().map(i64::to_string).collect(),
                None => return name.to_owned(),
            },
        };
        format!("{name} [{}]", shape.join(", "))
    }

    /// Translates a node that computes with samples.
    fn tensor(&mut self, node: &'a NodeProto) -> Result<TensorView, ImportError> {
        if let Some(&axis) = node.output.first().and_then(|sum| self.biased.get(sum.as_str())) {
            return self.after_bias(node, axis);
        }
        match node.op_type.as_str() {
            "Gemm" => self.gemm(node),
            "MatMul" => self.matmul(node),
            "Add" => self.compute(node, ArithmeticKind::Add),
            "Sub" => self.compute(node, ArithmeticKind::Sub),
            "Mul" => self.compute(node, ArithmeticKind::Mul),
            "Div" => self.compute(node, ArithmeticKind::Div),
            "Neg" => self.negated(node),
            "PRelu" => self.prelu(node),
            "Sigmoid" if self.is_last_sigmoid(node) => self.last_sigmoid(node),
            "Scaler" => self.scaler(node),
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
            "GRU" | "LSTM" | "RNN" => self.recurrent(node),
            "Gather" => self.gather(node),
            "ArrayFeatureExtractor" => self.columns(node),
            "Slice" => self.slice(node),
            "Split" => self.split(node),
            "Concat" => self.concat(node),
            "Pad" => self.pad(node),
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
            _ => self.activation(node),
        }
    }

    fn finish(self, output: &str) -> Result<Import, ImportError> {
        let missing = || ImportError::NoOutput;
        let Some(OnnxValue::Tensor(view)) = self.values.get(output) else { return Err(missing()) };
        let logits = self.names.get(&view.value).cloned().ok_or_else(missing)?;
        let rank = self.builder.shape(view.value).dims.len();
        let flat = view.axes == [ViewAxis::Batch] && self.builder.sizes(view.value) == [1];
        if !view.is_plain(rank) && !flat {
            let text = format!("the output '{output}' is transposed or has extra axes; expected [N, ...]");
            return Err(ImportError::Output(text));
        }
        let batch = self.source.input.batch.and_then(|batch| usize::try_from(batch).ok());
        let mut notes = self.notes;
        let tail = self.tail;
        notes.extend(flat.then(|| format!("the output '{output}' has shape [N, 1] instead of [N]")));
        notes.extend(tail.map(|tail| format!("{} before the output left out in training", tail.op_type())));
        let graph = self.builder.finish(output, view.value, tail)?;
        notes.extend(conversions(self.source, &graph));
        let mut parameters = Vec::with_capacity(graph.layout().len());
        for (param, shape) in graph.params().iter().zip(graph.param_shapes()) {
            parameters.extend(param.layout.from_file(shape, graph.full(), &self.weights[&param.name]));
        }
        Ok(Import { graph, parameters, notes, logits, batch })
    }

    /// With a constant, or of two computed values; the bias of a MatMul was already merged into it.
    fn compute(&mut self, node: &'a NodeProto, kind: ArithmeticKind) -> Result<TensorView, ImportError> {
        match (self.with_constant(node, kind)?, kind) {
            (Some(view), _) => Ok(view),
            (None, ArithmeticKind::Add) => self.add(node),
            (None, ArithmeticKind::Mul) => self.mul(node),
            (None, ArithmeticKind::Sub | ArithmeticKind::Div) => Err(problem(
                node,
                "computes with two computed values; only Add and Mul are supported, or a constant",
            )),
        }
    }

    fn add(&mut self, node: &'a NodeProto) -> Result<TensorView, ImportError> {
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
        match data_type::is_float(to) || words {
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

    fn is_last_sigmoid(&self, node: &NodeProto) -> bool {
        if node.op_type != "Sigmoid" {
            return false;
        }
        let output = node.output.first().map_or("", String::as_str);
        let single = self.input(node, 0).is_ok_and(|view| self.builder.sizes(view.value) == [1]);
        self.ends_with(output, single) || self.two_classes(output).is_some()
    }

    fn last_sigmoid(&mut self, node: &'a NodeProto) -> Result<TensorView, ImportError> {
        let view = self.input(node, 0)?;
        let both = node.output.first().and_then(|output| self.two_classes(output));
        self.tail = Some(if both.is_some() { Tail::TwoClasses } else { Tail::Sigmoid });
        let Some((rest, both)) = both else { return Ok(view) };
        if self.builder.sizes(view.value) != [1] {
            return Err(problem(
                node,
                "gives the probabilities of several labels and of their contraries, which is not supported",
            ));
        }
        self.taken.extend([rest, both]);
        self.after_tail.insert(both);
        self.values.insert(both, OnnxValue::Tensor(view.clone()));
        Ok(view)
    }

    /// The names of `1 - p` and `[1 - p, p]`, if this is what follows the probability `p`.
    fn two_classes(&self, p: &str) -> Option<(&'a str, &'a str)> {
        let readers = self.readers.get(p)?;
        let find =
            |op: &str| readers.iter().copied().find(|node| node.op_type == op && is_default_domain(node));
        let (sub, concat) = (find("Sub")?, find("Concat")?);
        let (rest, both) = (sub.output.first()?, concat.output.first()?);
        let one = self.source.constants.floats(sub.input.first()?)?.ok()?.data == [1.0];
        let order = sub.input.get(1)? == p && concat.input == [rest.as_str(), p];
        let alone =
            readers.len() == 2 && self.readers.get(rest.as_str())?.len() == 1 && self.ends_with(both, false);
        let columns = matches!(integer(concat, "axis"), Some(1 | -1));
        (one && order && alone && columns).then_some((rest.as_str(), both.as_str()))
    }

    /// The computed tensor that a node reads.
    fn input(&self, node: &NodeProto, place: usize) -> Result<TensorView, ImportError> {
        self.value(node, node.input.get(place).map_or("", String::as_str))
    }

    /// A computed tensor by its name in the file.
    fn value(&self, node: &NodeProto, name: &str) -> Result<TensorView, ImportError> {
        match self.values.get(name) {
            Some(OnnxValue::Tensor(view)) => Ok(view.clone()),
            Some(OnnxValue::Stack(..)) => {
                Err(problem(node, "reads values that are stacked; take one of them, or join their features"))
            }
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

    /// True if nothing is computed from a value: it is the output, perhaps under another name. A single number per sample may
    /// lose its axis.
    fn ends_with(&self, value: &str, single: bool) -> bool {
        // Bounded by the number of nodes, because a damaged file may have cycles.
        let (mut open, mut steps) = (vec![value], self.source.graph.node.len());
        while let Some(value) = open.pop() {
            for reader in self.readers.get(value).into_iter().flatten() {
                if !(renames(reader) || (single && flattens(reader))) || steps == 0 {
                    return false;
                }
                steps -= 1;
                if reader.op_type == "Shape" {
                    continue;
                }
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

/// True if the node may only remove the last axis of `[N, 1]`, or computes the shape for that.
fn flattens(node: &NodeProto) -> bool {
    is_default_domain(node) && matches!(node.op_type.as_str(), "Reshape" | "Squeeze" | "Shape")
}

/// One note for every type of number that is not `f32`.
fn conversions(source: &SourceModel<'_>, graph: &Graph) -> Vec<String> {
    let other = |kind: i32| data_type::is_float(kind) && kind != data_type::FLOAT;
    let kinds = graph.params().iter().filter_map(|param| source.constants.kind(&param.name));
    let kinds: BTreeSet<i32> = kinds.filter(|&kind| other(kind)).collect();
    let weights =
        kinds.into_iter().map(|kind| format!("weights of type {} become float", data_type::name(kind)));
    let input = Some(source.input.elem_type).filter(|&kind| other(kind));
    let input = input.map(|kind| format!("the input takes float instead of {}", data_type::name(kind)));
    weights.chain(input).collect()
}

fn problem(node: &NodeProto, problem: impl Into<String>) -> ImportError {
    let (node, op, problem) = (title(node), node.op_type.clone(), problem.into());
    ImportError::Node { node, op, problem, inputs: vec![] }
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

fn texts(node: &NodeProto, name: &str) -> Vec<String> {
    let attribute = node.attribute.iter().find(|attribute| attribute.name == name);
    let strings = attribute.map_or(&[][..], |attribute| &attribute.strings);
    strings.iter().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect()
}

fn floats<'n>(node: &'n NodeProto, name: &str) -> &'n [f32] {
    node.attribute.iter().find(|attribute| attribute.name == name).map_or(&[], |attribute| &attribute.floats)
}

fn text(node: &NodeProto, name: &str) -> Option<String> {
    let attribute = node.attribute.iter().find(|attribute| attribute.name == name)?;
    attribute.s.as_ref().map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}
