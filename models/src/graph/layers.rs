//! The layers that a [`Builder`] adds: the shapes of their inputs, outputs and parameters. These determine slices, which have
//! the same shapes with narrower axes.

use common::{
    Dim,
    plan::{Activation, PoolKind, Window},
};

use super::{
    GraphError, Op, Param, ValueId,
    build::{Builder, MAX_LEN},
    op::{Groups, Kernel},
    uncut::Reason,
};

impl Builder {
    /// A dense layer with weights `[units][inputs]`, on the last axis.
    pub fn dense(
        &mut self,
        name: &str,
        input: ValueId,
        inputs: usize,
        units: u32,
        weight: Param,
        bias: Option<Param>,
    ) -> Result<ValueId, GraphError> {
        let dims = self.shape(input).dims.clone();
        let (from, rows) = match dims.split_last() {
            Some((from, rows)) if self.axes.size(from) == inputs => (*from, rows),
            _ => {
                let (node, got) = (name.to_owned(), format!("{:?}", self.sizes(input)));
                return Err(GraphError::DenseInput { node, expected: inputs, got });
            }
        };
        rows.iter().for_each(|dim| self.axes.pin(dim, name, Reason::Positions));
        let to = self.units(name, units)?;
        let weight = self.param(weight, &[to, from])?;
        let bias = bias.map(|bias| self.param(bias, &[to])).transpose()?;
        let shape = [rows, &[to]].concat();
        Ok(self.push(name, Op::Dense { weight, bias }, &[input], &shape))
    }

    /// A convolution over `[channels][height][width]` or `[channels][length]`.
    #[expect(clippy::too_many_arguments, reason = "each is one property of the layer")]
    pub fn conv(
        &mut self,
        name: &str,
        input: ValueId,
        outputs: u32,
        groups: u32,
        window: Kernel,
        weight: Param,
        bias: Option<Param>,
    ) -> Result<ValueId, GraphError> {
        let (channels, image) = self.image(name, input, &window)?;
        let inputs = self.axes.size(&channels) as u32;
        if groups == 0 || !inputs.is_multiple_of(groups) || !outputs.is_multiple_of(groups) {
            let text = format!("{groups} groups divide neither {inputs} inputs nor {outputs} outputs");
            return Err(self.wrong(name, text));
        }
        let depthwise = groups > 1 && groups == inputs;
        let (groups, to, from) = if depthwise {
            // Output channel o reads input channel o / m, so both are cut together.
            (Groups::Each, channels.spread(outputs / inputs), Dim::fixed(1))
        } else {
            let to = self.units(name, outputs)?;
            if groups > 1 {
                // A prefix of the channels would not be a prefix of every group.
                self.axes.pin(&channels, name, Reason::Groups);
                self.axes.pin(&to, name, Reason::Groups);
            }
            let from = if groups > 1 { Dim::fixed(inputs / groups) } else { channels };
            (Groups::Count(groups), to, from)
        };
        let kernel: Vec<Dim> = match image.len() {
            1 => vec![Dim::fixed(window.size[1].into())],
            _ => window.size.iter().map(|&size| Dim::fixed(size.into())).collect(),
        };
        let weight = self.param(weight, &[&[to, from][..], &kernel].concat())?;
        let bias = bias.map(|bias| self.param(bias, &[to])).transpose()?;
        let shape = [&[to][..], &image].concat();
        Ok(self.push(name, Op::Conv { weight, bias, groups, window }, &[input], &shape))
    }

    /// Applies a function to every number.
    pub fn activate(&mut self, name: &str, input: ValueId, kind: Activation) -> ValueId {
        let shape = self.shape(input).dims.clone();
        self.push(name, Op::Activate(kind), &[input], &shape)
    }

    /// `max(x, 0)`.
    pub fn relu(&mut self, name: &str, input: ValueId) -> ValueId {
        self.activate(name, input, Activation::Relu)
    }

    /// Maximum or mean over a window that moves.
    pub fn pool(
        &mut self,
        name: &str,
        input: ValueId,
        kind: PoolKind,
        window: Kernel,
    ) -> Result<ValueId, GraphError> {
        let (channels, image) = self.image(name, input, &window)?;
        let padded = window.pad != [0; 4] || kind != PoolKind::AveragePadded;
        let kind = if padded { kind } else { PoolKind::Average };
        let shape = [&[channels][..], &image].concat();
        Ok(self.push(name, Op::Pool { kind, window }, &[input], &shape))
    }

    /// `[channels][1][1]`: the mean of every channel.
    pub fn global_pool(&mut self, name: &str, input: ValueId) -> Result<ValueId, GraphError> {
        self.pool_all(name, input, Op::GlobalPool)
    }

    /// `[channels][1][1]`: the largest number of every channel.
    pub fn global_max_pool(&mut self, name: &str, input: ValueId) -> Result<ValueId, GraphError> {
        self.pool_all(name, input, Op::GlobalMaxPool)
    }

    fn pool_all(&mut self, name: &str, input: ValueId, op: Op) -> Result<ValueId, GraphError> {
        let dims = self.shape(input).dims.clone();
        let sizes = self.sizes(input);
        let fits = matches!(sizes.len(), 2 | 3) && sizes.iter().skip(1).all(|&size| size <= u16::MAX.into());
        if !fits {
            return Err(self.wrong(name, format!("pools an image, but its input has shape {sizes:?}")));
        }
        dims.iter().skip(1).for_each(|dim| self.axes.pin(dim, name, Reason::Positions));
        let ones = std::iter::repeat_n(Dim::fixed(1), dims.len() - 1);
        let shape: Vec<Dim> = dims.iter().copied().take(1).chain(ones).collect();
        Ok(self.push(name, op, &[input], &shape))
    }

    /// Adds two values of equal shape, whose axes become one.
    pub fn add(&mut self, name: &str, a: ValueId, b: ValueId) -> Result<ValueId, GraphError> {
        let (x, y) = (self.sizes(a), self.sizes(b));
        if a == b {
            return Err(self.wrong(name, "adds a value to itself; double the weights before it instead"));
        }
        if x != y {
            return Err(
                self.wrong(name, format!("adds shapes {x:?} and {y:?}; only equal ones are supported"))
            );
        }
        let (left, right) = (self.shape(a).dims.clone(), self.shape(b).dims.clone());
        for (a, b) in left.iter().zip(&right) {
            self.axes.unify(a, b, name);
        }
        Ok(self.push(name, Op::Add, &[a, b], &left))
    }

    /// Returns the value itself if a sample has only one axis.
    pub fn flatten(&mut self, name: &str, input: ValueId) -> ValueId {
        let dims = self.shape(input).dims.clone();
        if dims.len() == 1 {
            return input;
        }
        let flat = self.axes.flattened(&dims, name);
        self.push(name, Op::Flatten, &[input], &[flat])
    }

    /// Changes the axes of the same numbers. Axes of equal size at either end are kept. A hidden axis that is merged or split is
    /// not cut.
    pub fn reshape(&mut self, name: &str, input: ValueId, sizes: &[u32]) -> Result<ValueId, GraphError> {
        let dims = self.shape(input).dims.clone();
        let (old, new): (Vec<usize>, Vec<usize>) =
            (self.sizes(input), sizes.iter().map(|&size| size as usize).collect());
        if old == new {
            return Ok(input);
        }
        let len = |sizes: &[usize]| sizes.iter().fold(1u64, |len, &size| len.saturating_mul(size as u64));
        if new.len() > 4 {
            let text = format!("reshapes to {} dimensions per sample; at most 4 are supported", new.len());
            return Err(self.wrong(name, text));
        }
        if len(&old) != len(&new) || new.is_empty() {
            return Err(self.wrong(name, format!("cannot reshape {old:?} to {new:?}")));
        }
        if new.len() == 1 {
            return Ok(self.flatten(name, input));
        }
        let most = old.len().min(new.len());
        let front = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
        let back = old.iter().rev().zip(new.iter().rev()).take_while(|(a, b)| a == b).count();
        let back = back.min(most - front.min(most));
        dims[front..dims.len() - back].iter().for_each(|dim| self.axes.pin(dim, name, Reason::Merged));
        let shape: Vec<Dim> = (0..new.len())
            .map(|place| match place {
                _ if place < front => Some(dims[place]),
                _ if place >= new.len() - back => Some(dims[place + dims.len() - new.len()]),
                _ => None,
            })
            .zip(sizes)
            .map(|(dim, &size)| dim.unwrap_or(Dim::fixed(size)))
            .collect();
        Ok(self.push(name, Op::Reshape, &[input], &shape))
    }

    /// An embedding of `entries` words; the input holds whole numbers. The width is a hidden axis only
    /// where `sliced` says so.
    pub fn embed(
        &mut self,
        name: &str,
        input: ValueId,
        (entries, width): (u32, u32),
        sliced: bool,
        table: Param,
    ) -> Result<ValueId, GraphError> {
        if input != ValueId::INPUT || self.shape(input).dims.len() > 3 {
            return Err(self.wrong(name, "looks up something other than the model's input"));
        }
        let to = self.units(name, width)?;
        if !sliced {
            self.axes.pin(&to, name, Reason::Embedding);
        }
        let table = self.param(table, &[Dim::fixed(entries), to])?;
        let shape = [&self.shape(input).dims[..], &[to]].concat();
        Ok(self.push(name, Op::Embed { table }, &[input], &shape))
    }

    /// Drops numbers with probability `rate`, in training only.
    pub fn dropout(&mut self, name: &str, input: ValueId, rate: f32) -> Result<ValueId, GraphError> {
        if !(0.0..1.0).contains(&rate) {
            return Err(self.wrong(name, format!("drops a share of {rate}; it must be in [0, 1)")));
        }
        let shape = self.shape(input).dims.clone();
        Ok(self.push(name, Op::Dropout { rate }, &[input], &shape))
    }

    /// The last step of `[steps][width]`.
    pub fn last(&mut self, name: &str, input: ValueId) -> Result<ValueId, GraphError> {
        match self.shape(input).dims[..] {
            [steps, width] => {
                self.axes.pin(&steps, name, Reason::Positions);
                Ok(self.push(name, Op::Last, &[input], &[width]))
            }
            _ => {
                let got = self.sizes(input);
                Err(self.wrong(
                    name,
                    format!("takes the last of [steps, numbers], but its input has shape {got:?}"),
                ))
            }
        }
    }

    pub(super) fn units(&mut self, name: &str, units: u32) -> Result<Dim, GraphError> {
        if units == 0 || u64::from(units) > MAX_LEN {
            return Err(GraphError::DenseOutput(name.to_owned()));
        }
        Ok(Dim::units(self.axes.add(name, units)?))
    }

    /// Channels of an image or signal, and its size after the kernel.
    fn image(&mut self, name: &str, input: ValueId, kernel: &Kernel) -> Result<(Dim, Vec<Dim>), GraphError> {
        let dims = self.shape(input).dims.clone();
        let sizes = self.sizes(input);
        let (channels, height, width) = match (dims.first(), &sizes[..]) {
            (Some(channels), &[_, height, width]) => (*channels, height, width),
            (Some(channels), &[_, length]) if kernel.size[0] == 1 => (*channels, 1, length),
            _ => {
                let text = format!(
                    "takes [channels, height, width] or [channels, length], but its input has shape {sizes:?}"
                );
                return Err(self.wrong(name, text));
            }
        };
        // An axis of pixels cannot be cut.
        dims.iter().skip(1).for_each(|dim| self.axes.pin(dim, name, Reason::Positions));
        let window = Window {
            height: height as u32,
            width: width as u32,
            kernel: kernel.size,
            stride: kernel.stride,
            pad: kernel.pad,
        };
        let (rows, columns) = window.output();
        let inside = (0..2).all(|axis| {
            let size = kernel.size[axis];
            kernel.stride[axis] > 0 && kernel.pad[axis] < size && kernel.pad[axis + 2] < size
        });
        if rows == 0 || columns == 0 || !inside {
            let text = format!(
                "a kernel of {:?} with stride {:?} and padding {:?} does not fit on {height} x {width}",
                kernel.size, kernel.stride, kernel.pad
            );
            return Err(self.wrong(name, text));
        }
        let image = if dims.len() == 2 { vec![columns] } else { vec![rows, columns] };
        Ok((channels, image.into_iter().map(Dim::fixed).collect()))
    }

    pub(super) fn wrong(&self, name: &str, problem: impl Into<String>) -> GraphError {
        GraphError::Layer { node: name.to_owned(), problem: problem.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_sizes_are_refused() {
        assert_eq!(Builder::new("m", "x", &[0]).unwrap_err(), GraphError::InputSize);
        assert_eq!(Builder::new("m", "x", &[u32::MAX; 3]).unwrap_err(), GraphError::InputSize);
        assert_eq!(Builder::new("m", "x", &[1; 5]).unwrap_err(), GraphError::Rank(5));
        let mut builder = Builder::new("m", "x", &[2, 3]).unwrap();
        let refused = builder.dense("fc", ValueId::INPUT, 6, 2, Param::plain("w"), None);
        let text = refused.unwrap_err().to_string();
        assert_eq!(
            text,
            "'fc' takes 6 numbers per sample, but its input has shape [2, 3]; put a Flatten before it"
        );
        assert_eq!(builder.finish("y", ValueId::INPUT, None), Err(GraphError::NothingToTrain));
    }
}
