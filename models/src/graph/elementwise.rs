//! Operations on single numbers with numbers of their own: slopes, which are trained, and constants, which are not.
//!
//! Constants are part of the Graph and of its digest. A device gets them in front of its parameters ([`Graph::weights`]).

use std::{ops::Range, slice};

use common::{
    Dim, Layout, TensorShape, WidthMask,
    plan::{ArithmeticKind, Spread},
    slice::{WrongLength, gather},
};

use super::{Graph, GraphError, Node, Op, Param, ValueId, build::Builder, op::Constant};

/// Consecutive axes of a value.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Axes {
    /// The first of them.
    pub first: u8,
    /// How many there are.
    pub count: u8,
}

impl Axes {
    fn range(self) -> Range<usize> {
        let first = usize::from(self.first);
        first..first + usize::from(self.count)
    }

    /// Number of axes after these, of so many.
    pub fn after(self, axes: usize) -> usize {
        axes.saturating_sub(self.range().end)
    }

    /// How one number per place of these axes is spread over a value of these sizes.
    pub fn spread(self, sizes: &[u32]) -> Spread {
        let Range { start, end } = self.range();
        let product = |sizes: &[u32]| sizes.iter().product::<u32>();
        Spread { len: product(sizes), channels: product(&sizes[start..end]), inner: product(&sizes[end..]) }
    }
}

impl Builder {
    /// A leaky ReLU with one trained slope, or one per place of some axes.
    pub fn prelu(
        &mut self,
        name: &str,
        input: ValueId,
        axes: Option<Axes>,
        slope: Param,
    ) -> Result<ValueId, GraphError> {
        let dims = self.shape(input).dims.to_vec();
        let over = match axes {
            Some(axes) => self.over(name, &dims, axes)?,
            None => vec![Dim::fixed(1)],
        };
        let slope = self.param(slope, &over)?;
        Ok(self.push(name, Op::PRelu { slope, axes }, &[input], &dims))
    }

    /// Arithmetic with one constant.
    pub fn with_number(
        &mut self,
        name: &str,
        input: ValueId,
        kind: ArithmeticKind,
        number: f32,
    ) -> Result<ValueId, GraphError> {
        self.operand(name, kind, &[number])?;
        let dims = self.shape(input).dims.to_vec();
        Ok(self.push(name, Op::Arithmetic { kind, with: Constant::One(number) }, &[input], &dims))
    }

    /// Arithmetic with one constant per place of some axes.
    pub fn with_constants(
        &mut self,
        name: &str,
        input: ValueId,
        kind: ArithmeticKind,
        axes: Axes,
        numbers: Vec<f32>,
    ) -> Result<ValueId, GraphError> {
        let dims = self.shape(input).dims.to_vec();
        let over = self.over(name, &dims, axes)?;
        let expected: usize = self.axes.sizes(&over).iter().product();
        if numbers.len() != expected {
            return Err(self.wrong(name, format!("has {} constants; expected {expected}", numbers.len())));
        }
        self.operand(name, kind, &numbers)?;
        let value = self.push(name, Op::Arithmetic { kind, with: Constant::Each(axes) }, &[input], &dims);
        self.constants[value.index() - 1] = numbers;
        Ok(value)
    }

    fn over(&self, name: &str, dims: &[Dim], axes: Axes) -> Result<Vec<Dim>, GraphError> {
        match dims.get(axes.range()) {
            Some(over) if !over.is_empty() => Ok(over.to_vec()),
            _ => Err(self.wrong(name, format!("has numbers for {axes:?} of {} axes", dims.len()))),
        }
    }

    fn operand(&self, name: &str, kind: ArithmeticKind, numbers: &[f32]) -> Result<(), GraphError> {
        if numbers.iter().any(|number| !number.is_finite()) {
            return Err(self.wrong(name, "has a constant that is not finite"));
        }
        match kind == ArithmeticKind::Div && numbers.contains(&0.0) {
            true => Err(self.wrong(name, "divides by a constant 0")),
            false => Ok(()),
        }
    }
}

impl Node {
    /// Shape of the constants, if there is one per place of some axes.
    fn constant_shape(&self) -> Option<TensorShape> {
        match self.op {
            Op::Arithmetic { with: Constant::Each(axes), .. } => {
                TensorShape::new(self.shape.dims.get(axes.range())?)
            }
            _ => None,
        }
    }
}

impl Graph {
    /// Constants that are not the same for all numbers, node by node.
    pub fn constants(&self) -> &[f32] {
        &self.constants
    }

    /// [`Graph::constants`] of a slice.
    pub fn gather_constants(&self, mask: &WidthMask) -> Vec<f32> {
        let (mut rest, mut packed) = (self.constants.as_slice(), Vec::new());
        for shape in self.nodes.iter().filter_map(Node::constant_shape) {
            let (these, others) = rest.split_at(shape.len(&self.full));
            rest = others;
            let start = packed.len();
            packed.resize(start + shape.len(mask), 0.0);
            let layout = Layout { full: &self.full, tensors: slice::from_ref(&shape) };
            let gathered = gather(layout, mask, these, &mut packed[start..]);
            debug_assert!(gathered.is_ok(), "a node has as many constants as places");
        }
        packed
    }

    /// What a device holds before its segments: the constants and the packed parameters of a slice.
    pub fn weights(&self, mask: &WidthMask, parameters: &[f32]) -> Result<Vec<f32>, WrongLength> {
        Ok([self.gather_constants(mask), self.gather(mask, parameters)?].concat())
    }
}
