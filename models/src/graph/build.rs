//! Puts a [`Graph`] together node by node, checking shapes and numbering parameters and hidden axes.

use std::collections::HashSet;

use common::{AxisId, Dim, TensorShape, WidthMask, layout::MAX_AXES, mask::MaskError};

use super::{Graph, GraphError, Input, Node, Op, Output, Param, ParamId, Tail, ValueId};

/// Plans address parameters and activations with 32 bits.
const MAX_LEN: u64 = 1 << 31;

/// What the outputs of a dense layer are.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Units {
    /// A new hidden axis, which tiers cut.
    Hidden(u32),
    /// Outputs of the model, which stay.
    Fixed(u32),
}

impl Param {
    /// A parameter whose ONNX initializer has the order of the flat vector.
    pub fn plain(name: impl Into<String>) -> Self {
        Self { name: name.into(), transposed: false }
    }
}

#[derive(Clone, Debug)]
pub struct Builder {
    name: String,
    input: Input,
    nodes: Vec<Node>,
    params: Vec<Param>,
    shapes: Vec<TensorShape>,
    widths: Vec<u32>,
}

impl Builder {
    /// `shape` is per sample.
    pub fn new(name: &str, input: &str, shape: &[u32]) -> Result<Self, GraphError> {
        let len = shape.iter().try_fold(1u64, |len, &size| len.checked_mul(size.into()));
        if !len.is_some_and(|len| (1..=MAX_LEN).contains(&len)) {
            return Err(GraphError::InputSize);
        }
        let dims: Vec<Dim> = shape.iter().map(|&size| Dim::fixed(size)).collect();
        let shape = TensorShape::new(&dims).ok_or(GraphError::Rank(dims.len()))?;
        let input = Input { name: input.to_owned(), shape };
        let name = name.to_owned();
        Ok(Self { name, input, nodes: vec![], params: vec![], shapes: vec![], widths: vec![] })
    }

    /// Per-sample shape of a value.
    pub fn shape(&self, value: ValueId) -> &TensorShape {
        match value.index().checked_sub(1).and_then(|node| self.nodes.get(node)) {
            Some(node) => &node.shape,
            None => &self.input.shape,
        }
    }

    /// Numbers per sample of a value.
    pub fn size(&self, value: ValueId) -> usize {
        self.shape(value).dims.iter().map(|dim| self.dim_size(dim)).product()
    }

    /// A dense layer with weights `[units][inputs]`.
    pub fn dense(
        &mut self,
        name: &str,
        input: ValueId,
        inputs: usize,
        units: Units,
        weight: Param,
        bias: Option<Param>,
    ) -> Result<ValueId, GraphError> {
        let from = match self.shape(input).dims.as_slice() {
            [dim] if self.dim_size(dim) == inputs => *dim,
            dims => {
                let sizes: Vec<usize> = dims.iter().map(|dim| self.dim_size(dim)).collect();
                let (node, got) = (name.to_owned(), format!("{sizes:?}"));
                return Err(GraphError::DenseInput { node, expected: inputs, got });
            }
        };
        let (Units::Hidden(size) | Units::Fixed(size)) = units;
        if size == 0 || u64::from(size) > MAX_LEN {
            return Err(GraphError::DenseOutput(name.to_owned()));
        }
        let to = match units {
            Units::Fixed(size) => Dim::fixed(size),
            Units::Hidden(size) => Dim::units(self.axis(size)?),
        };
        let weight = self.param(weight, &[to, from]);
        let bias = bias.map(|bias| self.param(bias, &[to]));
        Ok(self.push(name, Op::Dense { weight, bias }, input, &[to]))
    }

    pub fn relu(&mut self, name: &str, input: ValueId) -> ValueId {
        let shape = self.shape(input).dims.clone();
        self.push(name, Op::Relu, input, &shape)
    }

    /// Gives the value itself where a sample has one axis already.
    pub fn flatten(&mut self, name: &str, input: ValueId) -> ValueId {
        let dims = &self.shape(input).dims;
        match dims.as_slice() {
            [_] => input,
            dims => {
                let flat = flattened(dims);
                self.push(name, Op::Flatten, input, &[flat])
            }
        }
    }

    pub fn finish(self, output: &str, value: ValueId, tail: Option<Tail>) -> Result<Graph, GraphError> {
        if self.params.is_empty() {
            return Err(GraphError::NothingToTrain);
        }
        let mut names = HashSet::new();
        if let Some(param) = self.params.iter().find(|param| !names.insert(&param.name)) {
            return Err(GraphError::Shared(param.name.clone()));
        }
        let Self { name, input, nodes, params, shapes, widths } = self;
        let full = WidthMask::full(&widths)?;
        let output = Output { name: output.to_owned(), value, tail };
        let graph = Graph { name, input, output, nodes, params, shapes, full };
        let lens = graph.shapes.iter().map(|shape| {
            shape.dims.iter().map(|dim| dim.size(&graph.full) as u64).fold(1, u64::saturating_mul)
        });
        match lens.fold(0, u64::saturating_add) {
            len if len > MAX_LEN => Err(GraphError::TooLarge(len)),
            _ => Ok(graph),
        }
    }

    fn axis(&mut self, size: u32) -> Result<AxisId, MaskError> {
        if self.widths.len() >= MAX_AXES {
            return Err(MaskError::TooManyAxes);
        }
        self.widths.push(size);
        Ok(AxisId(self.widths.len() as u8 - 1))
    }

    fn param(&mut self, param: Param, dims: &[Dim]) -> ParamId {
        self.params.push(param);
        self.shapes.push(shape_of(dims));
        ParamId(self.params.len() as u32 - 1)
    }

    fn push(&mut self, name: &str, op: Op, input: ValueId, dims: &[Dim]) -> ValueId {
        let shape = shape_of(dims);
        self.nodes.push(Node { name: name.to_owned(), op, inputs: vec![input], shape });
        ValueId(self.nodes.len() as u32)
    }

    fn dim_size(&self, dim: &Dim) -> usize {
        let width = dim.axis.and_then(|axis| self.widths.get(usize::from(axis.0))).map_or(1, |&w| w as usize);
        dim.blocks as usize * width * dim.inner as usize
    }
}

/// One dimension in place of several. The hidden axis of a value comes first (channel-major), so what
/// follows becomes its `inner`.
fn flattened(dims: &[Dim]) -> Dim {
    let mut flat = Dim::fixed(1);
    for dim in dims {
        if dim.axis.is_some() {
            flat = Dim { blocks: flat.blocks * flat.inner * dim.blocks, ..*dim };
        } else {
            flat.inner *= dim.inner;
        }
    }
    flat
}

/// Every caller passes at most two dimensions, or those of a shape that exists.
fn shape_of(dims: &[Dim]) -> TensorShape {
    TensorShape::new(dims).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flatten_keeps_the_hidden_axis_apart() {
        let channels = Dim::units(AxisId(2));
        let flat = flattened(&[channels, Dim::fixed(4), Dim::fixed(5)]);
        assert_eq!(flat, Dim { blocks: 1, axis: Some(AxisId(2)), inner: 20 });
        let last = flattened(&[Dim::fixed(4), Dim::fixed(5), channels]);
        assert_eq!(last, Dim { blocks: 20, axis: Some(AxisId(2)), inner: 1 });
        assert_eq!(flattened(&[Dim::fixed(4), Dim::fixed(5)]), Dim::fixed(20));
    }

    #[test]
    fn wrong_sizes_are_refused() {
        assert_eq!(Builder::new("m", "x", &[0]).unwrap_err(), GraphError::InputSize);
        assert_eq!(Builder::new("m", "x", &[u32::MAX; 3]).unwrap_err(), GraphError::InputSize);
        assert_eq!(Builder::new("m", "x", &[1; 5]).unwrap_err(), GraphError::Rank(5));
        let mut builder = Builder::new("m", "x", &[2, 3]).unwrap();
        let refused = builder.dense("fc", ValueId::INPUT, 6, Units::Fixed(2), Param::plain("w"), None);
        let text = refused.unwrap_err().to_string();
        assert_eq!(
            text,
            "'fc' takes 6 numbers per sample, but its input has shape [2, 3]; put a Flatten before it"
        );
        assert_eq!(builder.finish("y", ValueId::INPUT, None), Err(GraphError::NothingToTrain));
    }
}
