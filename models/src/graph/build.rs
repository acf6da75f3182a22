//! Builds a [`Graph`] node by node, and numbers parameters and hidden axes. The layers are in [`super::layers`].

use common::{Dim, TensorShape};

use super::{
    Graph, GraphError, Input, Node, Op, Output, Param, ParamId, Tail, ValueId, axes::Axes, uncut::Reason,
};

/// Plans address parameters and activations with 32 bits.
pub(super) const MAX_LEN: u64 = 1 << 31;

/// Builds a Graph. Every layer gets its own hidden axis. Axes that must agree become one, and those of the model's output are
/// not cut.
#[derive(Clone, Debug)]
pub struct Builder {
    name: String,
    input: Input,
    pub(super) nodes: Vec<Node>,
    params: Vec<Param>,
    shapes: Vec<TensorShape>,
    pub(super) axes: Axes,
    /// Per node; mean and variance of a batch normalisation.
    pub(super) stats: Vec<Vec<f32>>,
    /// Per node.
    pub(super) constants: Vec<Vec<f32>>,
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
        let (name, axes) = (name.to_owned(), Axes::default());
        Ok(Self {
            name,
            input,
            nodes: vec![],
            params: vec![],
            shapes: vec![],
            axes,
            stats: vec![],
            constants: vec![],
        })
    }

    /// Per-sample shape of a value, with provisional axes.
    pub fn shape(&self, value: ValueId) -> &TensorShape {
        match value.index().checked_sub(1) {
            Some(node) => &self.nodes[node].shape,
            None => &self.input.shape,
        }
    }

    /// Sizes of a value's axes.
    pub fn sizes(&self, value: ValueId) -> Vec<usize> {
        self.axes.sizes(&self.shape(value).dims)
    }

    /// Size of a value's last axis.
    pub fn width(&self, value: ValueId) -> usize {
        self.shape(value).dims.last().map_or(1, |dim| self.axes.size(dim))
    }

    /// Numbers per sample of a value.
    pub fn size(&self, value: ValueId) -> usize {
        self.sizes(value).iter().product()
    }

    /// The Graph of everything that `value` needs.
    pub fn finish(mut self, output: &str, value: ValueId, tail: Option<Tail>) -> Result<Graph, GraphError> {
        for dim in self.shape(value).dims.clone() {
            self.axes.pin(&dim, output, Reason::Output);
        }
        let value = self.prune(value);
        if self.params.is_empty() {
            return Err(GraphError::NothingToTrain);
        }
        let live = self.nodes.iter().map(|node| &node.shape).chain(&self.shapes);
        let (resolved, full, uncut) = self.axes.resolve(live.flat_map(|shape| &shape.dims))?;
        let Self { name, input, mut nodes, params, mut shapes, stats, constants, .. } = self;
        for node in &mut nodes {
            node.shape = resolved.shape(&node.shape);
            if let Op::Part { before, .. } = &mut node.op {
                *before = resolved.dim(*before);
            }
        }
        shapes.iter_mut().for_each(|shape| *shape = resolved.shape(shape));
        let output = Output { name: output.to_owned(), value, tail, labels: None };
        let (stats, constants) = (stats.concat(), constants.concat());
        let graph = Graph {
            name,
            input,
            output,
            nodes,
            params,
            shapes,
            stats,
            constants,
            full,
            uncut,
            metadata: vec![],
        };
        let len = |shape: &TensorShape| {
            shape.dims.iter().map(|dim| dim.size(&graph.full) as u64).fold(1, u64::saturating_mul)
        };
        if let Some(node) = graph.nodes.iter().find(|node| len(&node.shape) > MAX_LEN) {
            return Err(GraphError::TooLarge(len(&node.shape)));
        }
        match graph.shapes.iter().map(len).fold(0, u64::saturating_add) {
            len if len > MAX_LEN => Err(GraphError::TooLarge(len)),
            _ => Ok(graph),
        }
    }

    pub(super) fn push(&mut self, name: &str, op: Op, inputs: &[ValueId], dims: &[Dim]) -> ValueId {
        let shape = shape_of(dims);
        self.nodes.push(Node { name: name.to_owned(), op, inputs: inputs.to_vec(), shape });
        self.stats.push(vec![]);
        self.constants.push(vec![]);
        ValueId(self.nodes.len() as u32)
    }

    /// A parameter of these dimensions. A parameter that already exists is shared, and the axes of both uses become one.
    pub(super) fn param(&mut self, param: Param, dims: &[Dim]) -> Result<ParamId, GraphError> {
        if let Some(place) = self.params.iter().position(|other| other.name == param.name) {
            let shape = self.shapes[place].clone();
            if !self.params[place].agrees(&param) || self.axes.sizes(&shape.dims) != self.axes.sizes(dims) {
                return Err(GraphError::Shared(param.name));
            }
            for (a, b) in shape.dims.iter().zip(dims) {
                self.axes.unify(a, b, &param.name);
            }
            return Ok(ParamId(place as u32));
        }
        self.params.push(param);
        self.shapes.push(shape_of(dims));
        Ok(ParamId(self.params.len() as u32 - 1))
    }

    /// Removes the nodes that `value` does not need, and returns its new number.
    fn prune(&mut self, value: ValueId) -> ValueId {
        let mut needed = vec![false; self.nodes.len() + 1];
        let mut open = vec![value];
        while let Some(value) = open.pop() {
            if !std::mem::replace(&mut needed[value.index()], true)
                && let Some(node) = value.index().checked_sub(1)
            {
                open.extend(&self.nodes[node].inputs);
            }
        }
        let mut next = 0;
        let mut values = vec![ValueId::INPUT];
        for needed in needed.iter().skip(1) {
            next += u32::from(*needed);
            values.push(ValueId(next));
        }
        retain(&mut self.stats, &needed[1..]);
        retain(&mut self.constants, &needed[1..]);
        retain(&mut self.nodes, &needed[1..]);
        for input in self.nodes.iter_mut().flat_map(|node| &mut node.inputs) {
            *input = values[input.index()];
        }
        self.prune_params();
        values[value.index()]
    }

    fn prune_params(&mut self) {
        let mut used = vec![false; self.params.len()];
        for param in self.nodes.iter().flat_map(|node| node.op.params()) {
            used[param.index()] = true;
        }
        if used.iter().all(|&used| used) {
            return;
        }
        let numbers: Vec<u32> = used
            .iter()
            .scan(0, |next, &used| Some(std::mem::replace(next, *next + u32::from(used))))
            .collect();
        retain(&mut self.params, &used);
        retain(&mut self.shapes, &used);
        for node in &mut self.nodes {
            node.op.renumber(|param| ParamId(numbers[param.index()]));
        }
    }
}

/// Keeps the items that are marked.
fn retain<T>(items: &mut Vec<T>, marks: &[bool]) {
    assert_eq!(items.len(), marks.len());
    let mut marks = marks.iter();
    items.retain(|_| marks.next() == Some(&true));
}

fn shape_of(dims: &[Dim]) -> TensorShape {
    TensorShape::new(dims).expect("a layer has at most four dimensions")
}
