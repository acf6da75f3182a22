//! Turns the nodes that an output needs into nodes of a [`Graph`].
//!
//! | ONNX | ours |
//! |---|---|
//! | Gemm; MatMul; Add of a constant to a MatMul | Dense (alpha and beta go into the weights) |
//! | Flatten; Reshape to `[N, features]` | Flatten, or nothing where a sample has one axis |
//! | Relu | Relu |
//! | Identity, Dropout, Cast to float, ZipMap | nothing: a second name of the same value |
//! | Softmax, LogSoftmax before the output | the Tail |

use std::collections::{HashMap, HashSet};

use super::{
    constants::is_default_domain,
    import::{Import, ImportError, Source, title, unsupported},
    proto::{NodeProto, data_type},
    tensor::Floats,
};
use crate::graph::{Builder, Param, Tail, ValueId};

/// Reads everything that the output called `output` needs.
pub fn lower(source: &Source<'_>, output: &str) -> Result<Import, ImportError> {
    let nodes = source.needed(output);
    let mut draft = Draft::new(source);
    for node in &nodes {
        draft.node(node)?;
    }
    draft.finish(output)
}

/// A value while names are resolved: the step that gives it.
type Step = usize;

/// One step of the model. A dense layer becomes complete only when the Add after a MatMul is seen, and
/// which layers are hidden only when all are known; so steps come first, the Graph at the end.
struct Draft<'a> {
    source: &'a Source<'a>,
    steps: Vec<Drafted>,
    /// By name in the file.
    values: HashMap<&'a str, Step>,
    tail: Option<Tail>,
    /// Names of what the softmax gives.
    after_tail: HashSet<&'a str>,
    notes: Vec<String>,
}

struct Drafted {
    name: String,
    /// In the file, of the value.
    value: String,
    input: Option<Step>,
    /// Axes of a sample.
    rank: usize,
    /// Numbers of a sample.
    size: u64,
    op: DraftedOp,
}

enum DraftedOp {
    Input,
    Dense(Dense),
    Relu,
    Flatten,
}

struct Dense {
    inputs: usize,
    outputs: usize,
    weight: Param,
    /// `[outputs][inputs]`.
    weights: Vec<f32>,
    bias: Option<(Param, Vec<f32>)>,
}

impl<'a> Draft<'a> {
    fn new(source: &'a Source<'a>) -> Self {
        let shape = &source.input.shape;
        let size = shape.iter().fold(1u64, |size, &axis| size.saturating_mul(axis.into()));
        let (name, value, rank) = (String::new(), source.input.name.to_owned(), shape.len());
        let input = Drafted { name, value, input: None, rank, size, op: DraftedOp::Input };
        let values = HashMap::from([(source.input.name, 0)]);
        let after_tail = HashSet::new();
        Self { source, steps: vec![input], values, tail: None, after_tail, notes: vec![] }
    }

    fn node(&mut self, node: &'a NodeProto) -> Result<(), ImportError> {
        let zip_map = node.domain == "ai.onnx.ml" && node.op_type == "ZipMap";
        if !is_default_domain(node) && !zip_map {
            return Err(unsupported(node));
        }
        let step = match node.op_type.as_str() {
            "Gemm" => self.gemm(node)?,
            "MatMul" => self.matmul(node)?,
            "Add" => self.bias(node)?,
            "Relu" => self.push(node, DraftedOp::Relu)?,
            "Flatten" => self.flatten(node)?,
            "Reshape" => self.reshape(node)?,
            "Identity" | "ZipMap" => self.input(node, 0)?,
            "Dropout" => {
                self.notes.push(format!("'{}' (Dropout) left out", title(node)));
                self.input(node, 0)?
            }
            "Cast" => match integer(node, "to") {
                Some(to) if to == i64::from(data_type::FLOAT) => self.input(node, 0)?,
                to => {
                    let to = data_type::name(to.and_then(|to| i32::try_from(to).ok()).unwrap_or(0));
                    return Err(problem(node, format!("casts to {to}; only float is supported")));
                }
            },
            "Softmax" => self.tail(node, Tail::Softmax)?,
            "LogSoftmax" => self.tail(node, Tail::LogSoftmax)?,
            _ => return Err(unsupported(node)),
        };
        let output = node.output.first().ok_or_else(|| problem(node, "has no output"))?;
        let reads_tail = node.input.iter().any(|name| self.after_tail.contains(name.as_str()));
        if reads_tail && !matches!(node.op_type.as_str(), "Identity" | "ZipMap" | "Cast") {
            return Err(problem(node, "follows a softmax; only the output of the model may"));
        }
        if reads_tail || matches!(node.op_type.as_str(), "Softmax" | "LogSoftmax") {
            self.after_tail.insert(output);
        }
        self.values.insert(output, step);
        Ok(())
    }

    fn finish(self, output: &str) -> Result<Import, ImportError> {
        let missing = || ImportError::NoOutput;
        let last = *self.values.get(output).ok_or_else(missing)?;
        let logits = self.steps.get(last).map(|step| step.value.clone()).ok_or_else(missing)?;
        let fixed = self.fixed(last);
        let name = Some(self.source.graph.name.as_str()).filter(|name| !name.is_empty()).unwrap_or("model");
        let mut builder = Builder::new(name, self.source.input.name, &self.source.input.shape)?;
        let mut parameters = Vec::new();
        let mut values: Vec<ValueId> = Vec::with_capacity(self.steps.len());
        for (index, step) in self.steps.into_iter().enumerate() {
            let input = step.input.and_then(|input| values.get(input)).copied().unwrap_or(ValueId::INPUT);
            values.push(match step.op {
                DraftedOp::Input => ValueId::INPUT,
                DraftedOp::Relu => builder.relu(&step.name, input),
                DraftedOp::Flatten => builder.flatten(&step.name, input),
                DraftedOp::Dense(dense) => {
                    let units = u32::try_from(dense.outputs).unwrap_or(u32::MAX);
                    let _ = &fixed[index];
                    parameters.extend(dense.weights);
                    let bias = dense.bias.map(|(bias, numbers)| {
                        parameters.extend(numbers);
                        bias
                    });
                    builder.dense(&step.name, input, dense.inputs, units, dense.weight, bias)?
                }
            });
        }
        let batch = self.source.input.batch.and_then(|batch| usize::try_from(batch).ok());
        let mut notes = self.notes;
        let tail = self.tail;
        notes.extend(tail.map(|tail| format!("{} before the output left out in training", tail.op_type())));
        let value = values.get(last).copied().ok_or_else(missing)?;
        let graph = builder.finish(output, value, tail)?;
        Ok(Import { graph, parameters, notes, logits, batch })
    }

    /// Steps whose units are the model's outputs: those that reach the output through no other layer.
    fn fixed(&self, last: Step) -> Vec<bool> {
        let mut fixed = vec![false; self.steps.len()];
        let mut at = Some(last);
        while let Some(step) = at.and_then(|at| self.steps.get(at).map(|step| (at, step))) {
            fixed[step.0] = true;
            at = step.1.input.filter(|_| !matches!(step.1.op, DraftedOp::Dense(_)));
        }
        fixed
    }

    fn gemm(&mut self, node: &'a NodeProto) -> Result<Step, ImportError> {
        if integer(node, "transA").unwrap_or(0) != 0 {
            return Err(problem(node, "transA = 1 is not supported"));
        }
        let (alpha, beta) = (float(node, "alpha").unwrap_or(1.0), float(node, "beta").unwrap_or(1.0));
        let mut dense = self.weights(node, integer(node, "transB").unwrap_or(0) != 0)?;
        scale(node, &mut dense.weights, alpha)?;
        if let Some(name) = node.input.get(2).filter(|name| !name.is_empty() && beta != 0.0) {
            let bias = self.source.constants.floats(name);
            let bias = bias.ok_or_else(|| problem(node, "the bias is no constant"))??;
            let mut numbers = broadcast(node, bias, dense.outputs)?;
            scale(node, &mut numbers, beta)?;
            dense.bias = Some((Param::plain(name), numbers));
        }
        self.push(node, DraftedOp::Dense(dense))
    }

    fn matmul(&mut self, node: &'a NodeProto) -> Result<Step, ImportError> {
        let dense = self.weights(node, false)?;
        self.push(node, DraftedOp::Dense(dense))
    }

    /// The second operand as weights; `outputs_first` says that the file holds `[outputs][inputs]`.
    fn weights(&self, node: &NodeProto, outputs_first: bool) -> Result<Dense, ImportError> {
        let name = node.input.get(1).ok_or_else(|| problem(node, "has no second operand"))?;
        let Some(weights) = self.source.constants.floats(name) else {
            return Err(problem(node, format!("multiplies by '{name}', which is no constant")));
        };
        let Floats { dims, data } = weights?;
        let [rows, columns] = dims[..] else {
            return Err(problem(node, format!("the weights have shape {dims:?}; expected two dimensions")));
        };
        if data.is_empty() {
            return Err(problem(node, format!("the weights have shape {dims:?} and hold nothing")));
        }
        let weight = if outputs_first { Param::plain(name) } else { Param::transposed(name) };
        let (inputs, outputs, weights) = match outputs_first {
            true => (columns, rows, data),
            false => (rows, columns, transpose(&data, columns)),
        };
        Ok(Dense { inputs, outputs, weight, weights, bias: None })
    }

    /// An Add whose one operand is a constant and whose other is a MatMul without bias.
    fn bias(&mut self, node: &'a NodeProto) -> Result<Step, ImportError> {
        let constants = &self.source.constants;
        let constant = node.input.iter().take(2).position(|name| constants.contains(name));
        let name = constant.and_then(|place| node.input.get(place));
        let Some((name, place)) = name.zip(constant) else {
            return Err(problem(node, "adds two computed values; only the bias of a MatMul is supported"));
        };
        let step = self.input(node, 1 - place)?;
        let numbers = constants.floats(name).ok_or_else(|| problem(node, "the bias is no constant"))??;
        let uses = |other: &Drafted| other.input == Some(step);
        let shared = self.steps.iter().any(uses) || self.tail.is_some();
        match self.steps.get_mut(step) {
            Some(Drafted { op: DraftedOp::Dense(dense), value, .. }) if dense.bias.is_none() && !shared => {
                dense.bias = Some((Param::plain(name), broadcast(node, numbers, dense.outputs)?));
                value.clone_from(node.output.first().unwrap_or(name));
                Ok(step)
            }
            _ => Err(problem(node, "adds a constant to something else than a MatMul without bias")),
        }
    }

    fn flatten(&mut self, node: &'a NodeProto) -> Result<Step, ImportError> {
        let axis = integer(node, "axis").unwrap_or(1);
        let input = self.input(node, 0)?;
        let rank = self.rank(input) as i64 + 1;
        match if axis < 0 { axis + rank } else { axis } {
            1 => self.push(node, DraftedOp::Flatten),
            _ => Err(problem(node, format!("flattens at axis {axis}, which would mix samples; expected 1"))),
        }
    }

    fn reshape(&mut self, node: &'a NodeProto) -> Result<Step, ImportError> {
        let input = self.input(node, 0)?;
        let shape = node.input.get(1).and_then(|name| self.source.constants.integers(name));
        let shape = shape.ok_or_else(|| {
            problem(node, "the target shape is computed; export with fixed sizes, or use Flatten instead")
        })??;
        let features = self.size(input) as i64;
        let batch = self.source.input.batch;
        let zero_copies = integer(node, "allowzero").unwrap_or(0) == 0;
        let fits = match shape[..] {
            [-1, -1] => false,
            [0, size] if zero_copies => size == -1 || size == features,
            [-1, size] => size == features,
            // A batch size that the exporter wrote down stands for any.
            [rows, -1] => Some(rows) == batch,
            [rows, size] => rows > 0 && size == features,
            _ => false,
        };
        match fits {
            true => self.push(node, DraftedOp::Flatten),
            false => {
                let text =
                    format!("reshapes to {shape:?}; only [N, {features}] (one row per sample) is supported");
                Err(problem(node, text))
            }
        }
    }

    fn tail(&mut self, node: &'a NodeProto, tail: Tail) -> Result<Step, ImportError> {
        let input = self.input(node, 0)?;
        let axis = integer(node, "axis");
        if self.rank(input) != 1 || !matches!(axis, None | Some(1 | -1)) {
            return Err(problem(node, "works on another axis than the last of [N, classes]"));
        }
        if self.tail.replace(tail).is_some() {
            return Err(problem(node, "is the second softmax"));
        }
        Ok(input)
    }

    fn push(&mut self, node: &NodeProto, op: DraftedOp) -> Result<Step, ImportError> {
        let input = self.input(node, 0)?;
        let (rank, size) = match &op {
            DraftedOp::Dense(dense) => (1, dense.outputs as u64),
            DraftedOp::Flatten => (1, self.size(input)),
            DraftedOp::Relu | DraftedOp::Input => (self.rank(input), self.size(input)),
        };
        let (name, value) = (title(node), node.output.first().cloned().unwrap_or_default());
        self.steps.push(Drafted { name, value, input: Some(input), rank, size, op });
        Ok(self.steps.len() - 1)
    }

    /// The step behind a computed input of a node.
    fn input(&self, node: &NodeProto, place: usize) -> Result<Step, ImportError> {
        let name = node.input.get(place).map_or("", String::as_str);
        let undefined = || ImportError::Undefined { node: title(node), value: name.to_owned() };
        match self.values.get(name) {
            None if self.source.constants.contains(name) => {
                Err(problem(node, "computes with constants alone"))
            }
            step => step.copied().ok_or_else(undefined),
        }
    }

    fn rank(&self, step: Step) -> usize {
        self.steps.get(step).map_or(0, |step| step.rank)
    }

    fn size(&self, step: Step) -> u64 {
        self.steps.get(step).map_or(0, |step| step.size)
    }
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

fn scale(node: &NodeProto, numbers: &mut [f32], factor: f32) -> Result<(), ImportError> {
    if factor != 1.0 {
        numbers.iter_mut().for_each(|x| *x *= factor);
    }
    match numbers.iter().all(|x| x.is_finite()) {
        true => Ok(()),
        false => Err(problem(node, format!("the factor {factor} makes weights infinite"))),
    }
}

/// A bias of shape `[n]`, `[1, n]` or of one number as `n` numbers.
fn broadcast(node: &NodeProto, bias: Floats, outputs: usize) -> Result<Vec<f32>, ImportError> {
    let Floats { dims, data } = bias;
    match (dims.as_slice(), data.as_slice()) {
        (_, [one]) => Ok(vec![*one; outputs]),
        ([n] | [1, n], _) if *n == outputs => Ok(data),
        _ => Err(problem(node, format!("the bias has shape {dims:?}; expected [{outputs}]"))),
    }
}

/// From `[rows][columns]` to `[columns][rows]`.
fn transpose(data: &[f32], columns: usize) -> Vec<f32> {
    (0..columns).flat_map(|column| data.iter().skip(column).step_by(columns).copied()).collect()
}
