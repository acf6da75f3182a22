//! Recurrent layers: GRU, LSTM and RNN, in one direction.

use common::plan::RecurrentKind;

use super::{Importer, float, integer, problem, text, texts};
use crate::{
    graph::{Param, RecurrentParams},
    onnx::{
        import::{ImportError, title},
        proto::NodeProto,
        view::{OnnxValue, TensorView, ViewAxis},
    },
};

/// What a step computes.
#[derive(Copy, Clone, PartialEq, Debug)]
enum Cell {
    Gru { reset_after: bool },
    Other(RecurrentKind),
}

impl Cell {
    fn of(node: &NodeProto) -> Result<Self, ImportError> {
        let functions = texts(node, "activations");
        let functions: Vec<&str> = functions.iter().map(String::as_str).collect();
        match (node.op_type.as_str(), &functions[..]) {
            ("GRU", [] | ["Sigmoid", "Tanh"]) => {
                Ok(Self::Gru { reset_after: integer(node, "linear_before_reset").unwrap_or(0) != 0 })
            }
            ("LSTM", [] | ["Sigmoid", "Tanh", "Tanh"]) => Ok(Self::Other(RecurrentKind::Lstm)),
            ("RNN", [] | ["Tanh"]) => Ok(Self::Other(RecurrentKind::Tanh)),
            (op, functions) => {
                let known = match op {
                    "GRU" => "Sigmoid, Tanh",
                    "LSTM" => "Sigmoid, Tanh, Tanh",
                    _ => "Tanh",
                };
                let text =
                    format!("has the activations {}; export it with {known} instead", functions.join(", "));
                Err(problem(node, text))
            }
        }
    }

    fn gates(self) -> usize {
        match self {
            Self::Gru { .. } => 3,
            Self::Other(kind) => kind.gates() as usize,
        }
    }
}

impl<'a> Importer<'a> {
    /// A layer of `[steps, N, inputs]` (layout 0) or `[N, steps, inputs]` (layout 1).
    pub(super) fn recurrent(&mut self, node: &'a NodeProto) -> Result<TensorView, ImportError> {
        let cell = Cell::of(node)?;
        let batch_first = integer(node, "layout").unwrap_or(0) == 1;
        let input = self.steps_of(node, batch_first)?;
        let &[steps, inputs] = &self.builder.sizes(input.value)[..] else {
            return Err(problem(node, "does not read [steps, N, numbers]"));
        };
        self.check_recurrent(node, steps)?;
        let units = self.units(node)?;
        let (size, gates) = (units as usize, cell.gates());
        let weight = self.gates(node, 1, &[gates * size, inputs])?;
        let recurrent = self.gates(node, 2, &[gates * size, size])?;
        let bias = match operand(node, 3) {
            Some(_) => Some(self.gates(node, 3, &[2 * gates * size])?),
            None => None,
        };
        let (name, params) = (title(node), RecurrentParams { weight, recurrent, bias });
        let value = match cell {
            Cell::Gru { reset_after } => self.builder.gru(&name, input.value, units, reset_after, params)?,
            Cell::Other(kind) => self.builder.recurrent(&name, input.value, units, kind, params)?,
        };
        if let Some(last) = node.output.get(1).filter(|name| !name.is_empty()) {
            let value = self.builder.last(&format!("{name}.last"), value)?;
            let axes = match batch_first {
                true => vec![ViewAxis::Batch, ViewAxis::One, ViewAxis::Dim(0)],
                false => vec![ViewAxis::One, ViewAxis::Batch, ViewAxis::Dim(0)],
            };
            self.define(last, OnnxValue::Tensor(TensorView { value, axes }));
        }
        let (steps, width) = (ViewAxis::Dim(0), ViewAxis::Dim(1));
        let axes = match batch_first {
            true => vec![ViewAxis::Batch, steps, ViewAxis::One, width],
            false => vec![steps, ViewAxis::One, ViewAxis::Batch, width],
        };
        Ok(self.named(node, TensorView { value, axes }))
    }

    /// The sequence that a layer reads, as `[N, steps, numbers]` in the order of memory.
    fn steps_of(&mut self, node: &'a NodeProto, batch_first: bool) -> Result<TensorView, ImportError> {
        let mut view = self.input(node, 0)?;
        if !batch_first && view.axes.len() == 3 {
            view.axes.swap(0, 1);
        }
        let turned = problem(
            node,
            "does not read [steps, N, numbers] in the order of memory; check that the batch is the first axis of the \
             model's input (batch_first=True in PyTorch)",
        );
        self.plain(node, view).map_err(|_| turned)
    }

    fn check_recurrent(&self, node: &NodeProto, steps: usize) -> Result<(), ImportError> {
        let refused = |text: &str| Err(problem(node, text));
        match text(node, "direction").as_deref() {
            None | Some("forward") => {}
            Some("bidirectional") => {
                return refused(
                    "runs in both directions; set bidirectional=False, with more units if needed",
                );
            }
            Some(_) => {
                return refused("runs backwards; reverse the steps of the samples and export it forward");
            }
        }
        if float(node, "clip").is_some() {
            return refused("clips its gates, which is not supported; export it without clip");
        }
        if integer(node, "input_forget").unwrap_or(0) != 0 {
            return refused("couples input and forget gate, which is not supported; set input_forget to 0");
        }
        if let Some(lengths) = operand(node, 4)
            && self.uniform_integer(lengths)? != Some(steps as i64)
        {
            return refused(
                "has sequences of different lengths, which is not supported; pad all to one length and leave out \
                 sequence_lens",
            );
        }
        for state in [5, 6].into_iter().filter_map(|place| operand(node, place)) {
            if self.uniform(state)? != Some(0.0) {
                return refused("starts from another state than 0; leave out the initial state");
            }
        }
        if node.output.get(2).is_some_and(|cell| self.readers.contains_key(cell.as_str())) {
            return refused(
                "its final cell is read, which is not supported; read its final state, the second output",
            );
        }
        match operand(node, 7) {
            Some(peepholes) if self.uniform(peepholes)? != Some(0.0) => {
                refused("has peepholes, which are not supported; train it without them")
            }
            _ => Ok(()),
        }
    }

    /// The integer that all elements of a tensor have.
    fn uniform_integer(&self, name: &str) -> Result<Option<i64>, ImportError> {
        let Some(Ok(numbers)) = self.source.constants.integers(name) else {
            return Ok(self.uniform(name)?.map(|number| number as i64));
        };
        Ok(numbers.first().copied().filter(|first| numbers.iter().all(|x| x == first)))
    }

    /// Size of the state: an attribute, or the last axis of `R`.
    fn units(&self, node: &NodeProto) -> Result<u32, ImportError> {
        let recurrent = operand(node, 2).and_then(|name| self.source.constants.floats(name)).transpose()?;
        let last = recurrent.and_then(|floats| floats.dims.last().map(|&size| size as i64));
        let units = integer(node, "hidden_size").or(last).and_then(|units| u32::try_from(units).ok());
        units.ok_or_else(|| problem(node, "has no hidden_size"))
    }

    /// Parameters with an extra axis for the direction.
    fn gates(&mut self, node: &NodeProto, place: usize, dims: &[usize]) -> Result<Param, ImportError> {
        let (name, floats) = self.weight(node, place)?;
        let expected: Vec<usize> = std::iter::once(1).chain(dims.iter().copied()).collect();
        if floats.dims != expected {
            return Err(problem(
                node,
                format!("'{name}' has shape {:?}; expected {expected:?}", floats.dims),
            ));
        }
        self.weights.insert(name.clone(), floats.data);
        Ok(Param::plain(name))
    }
}

/// An operand that is not left out.
fn operand(node: &NodeProto, place: usize) -> Option<&str> {
    node.input.get(place).map(String::as_str).filter(|name| !name.is_empty())
}
