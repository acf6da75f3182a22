//! Branches: joined, cut, padded and multiplied values.

use super::{Importer, float, integer, integers, problem, shape::place, text};
use crate::{
    graph::ValueId,
    onnx::{
        import::{ImportError, title},
        proto::NodeProto,
        view::{OnnxValue, TensorView, ViewAxis},
    },
};

/// Each costs a node of the model, and an index list can be as long as the file.
const MOST_RUNS: usize = 64;

impl<'a> Importer<'a> {
    /// Two operands at a time.
    pub(super) fn concat(&mut self, node: &'a NodeProto) -> Result<TensorView, ImportError> {
        let views: Result<Vec<TensorView>, _> =
            (0..node.input.len()).map(|at| self.input(node, at)).collect();
        let mut views = views?;
        let axis = integer(node, "axis").ok_or_else(|| problem(node, "names no axis"))?;
        let [first, others @ ..] = &views[..] else { return Err(problem(node, "has no operands")) };
        let rank = first.axes.len();
        let axis = place(axis, rank).ok_or_else(|| problem(node, format!("joins axis {axis} of {rank}")))?;
        let alike = matches!(first.axes.get(axis), Some(ViewAxis::Dim(_)))
            && others.iter().all(|other| other.axes == first.axes);
        if !alike {
            let plain: Result<_, _> = views.into_iter().map(|view| self.plain(node, view)).collect();
            views = plain?;
        }
        let mut views = views.into_iter();
        let Some(mut joined) = views.next() else { return Err(problem(node, "has no operands")) };
        let count = views.len();
        let dim = self.dim(node, &joined, axis)?;
        for (number, next) in views.enumerate() {
            let name = match number + 1 == count {
                true => title(node),
                false => format!("{}.{}", title(node), number + 1),
            };
            joined.value = self.builder.concat(&name, joined.value, next.value, dim)?;
        }
        Ok(self.named(node, joined))
    }

    /// A Concat along an axis that samples do not have, or the Gather that takes one value out of it again.
    pub(super) fn stacked(&self, node: &NodeProto) -> Result<Option<OnnxValue>, ImportError> {
        let first = self.values.get(node.input.first().map_or("", String::as_str));
        let axis = integer(node, "axis").unwrap_or(0);
        match (node.op_type.as_str(), first) {
            ("Concat", Some(OnnxValue::Tensor(first))) => {
                let one = place(axis, first.axes.len()).filter(|&at| first.axes[at] == ViewAxis::One);
                let views = node.input.iter().map(|name| match self.values.get(name.as_str()) {
                    Some(OnnxValue::Tensor(view)) if view.axes == first.axes => Some(view.clone()),
                    _ => None,
                });
                Ok(one.and_then(|axis| Some(OnnxValue::Stack(views.collect::<Option<_>>()?, axis))))
            }
            ("Gather", Some(OnnxValue::Stack(views, stacked))) => {
                let name = node.input.get(1).map_or("", String::as_str);
                let index = match self.fixed_of(node, name)?[..] {
                    [index] if place(axis, views[0].axes.len()) == Some(*stacked) => {
                        place(index, views.len())
                    }
                    _ => None,
                };
                let taken = index.and_then(|index| views.get(index).cloned());
                let mut taken =
                    taken.ok_or_else(|| problem(node, "takes more than one of several values"))?;
                if self.source.constants.rank(name) != Some(1) {
                    taken.axes.remove(*stacked);
                }
                Ok(Some(OnnxValue::Tensor(taken)))
            }
            _ => Ok(None),
        }
    }

    /// `from..to` of one axis of the file.
    pub(super) fn part(
        &mut self,
        node: &NodeProto,
        name: &str,
        view: TensorView,
        axis: usize,
        (from, to): (i64, i64),
    ) -> Result<TensorView, ImportError> {
        let view = match view.axes.get(axis) {
            Some(ViewAxis::Dim(_)) => view,
            _ => self.plain(node, view)?,
        };
        let dim = self.dim(node, &view, axis)?;
        let number = |number: i64| u32::try_from(number).unwrap_or(u32::MAX);
        let value =
            self.builder.part(name, view.value, dim, number(from), number(to.saturating_sub(from)))?;
        Ok(TensorView { value, ..view })
    }

    /// Columns of a table, as scikit-learn's ColumnTransformer and feature selection take them.
    pub(super) fn columns(&mut self, node: &'a NodeProto) -> Result<TensorView, ImportError> {
        let view = self.input(node, 0)?;
        let indices = self.fixed_of(node, node.input.get(1).map_or("", String::as_str))?;
        let axis = view.axes.len().saturating_sub(1);
        self.chosen(node, view, axis, &indices)
    }

    /// Listed indices of one axis: a part for each run of neighbours, joined two at a time.
    pub(super) fn chosen(
        &mut self,
        node: &'a NodeProto,
        view: TensorView,
        axis: usize,
        indices: &[i64],
    ) -> Result<TensorView, ImportError> {
        let size = self.fixed_size(node, &view, axis)?;
        let mut runs: Vec<(i64, i64)> = vec![];
        for &index in indices {
            let at = if index < 0 { index.saturating_add(size) } else { index };
            match runs.last_mut() {
                Some((_, to)) if *to == at => *to = at.saturating_add(1),
                _ => runs.push((at, at.saturating_add(1))),
            }
        }
        if runs == [(0, size)] {
            return Ok(self.named(node, view));
        }
        if runs.len() > MOST_RUNS {
            let text = format!("takes {} separate parts; at most {MOST_RUNS} are supported", runs.len());
            return Err(problem(node, text));
        }
        let (name, count) = (title(node), runs.len());
        let mut joined: Option<TensorView> = None;
        for (number, run) in runs.into_iter().enumerate() {
            let part = if count == 1 { name.clone() } else { format!("{name}.part{number}") };
            let next = self.part(node, &part, view.clone(), axis, run)?;
            joined = Some(match joined {
                None => next,
                Some(before) => {
                    let whole = if number + 1 == count { name.clone() } else { format!("{name}.{number}") };
                    let dim = self.dim(node, &next, axis)?;
                    let value = self.builder.concat(&whole, before.value, next.value, dim)?;
                    TensorView { value, ..next }
                }
            });
        }
        let joined = joined.ok_or_else(|| problem(node, "takes nothing of a value"))?;
        Ok(self.named(node, joined))
    }

    /// One index of an axis, which becomes one of size 1 that the sample does not have.
    pub(super) fn index(
        &mut self,
        node: &NodeProto,
        view: TensorView,
        axis: usize,
        index: i64,
    ) -> Result<TensorView, ImportError> {
        let name = title(node);
        let view = self.part(node, &format!("{name}.part"), view, axis, (index, index.saturating_add(1)))?;
        let gone = usize::from(self.dim(node, &view, axis)?);
        let mut sizes: Vec<u32> = self.builder.sizes(view.value).iter().map(|&size| size as u32).collect();
        sizes.remove(gone);
        if sizes.is_empty() {
            return Err(problem(node, "takes a single number of a sample, which is not supported"));
        }
        let value = self.builder.reshape(&name, view.value, &sizes)?;
        let axes = view.axes.iter().map(|axis| match axis {
            ViewAxis::Dim(dim) if *dim == gone => ViewAxis::One,
            ViewAxis::Dim(dim) if *dim > gone => ViewAxis::Dim(dim - 1),
            other => other.clone(),
        });
        Ok(TensorView { value, axes: axes.collect() })
    }

    /// One part for each output.
    pub(super) fn split(&mut self, node: &'a NodeProto) -> Result<TensorView, ImportError> {
        let view = self.input(node, 0)?;
        let rank = view.axes.len();
        let axis = integer(node, "axis").unwrap_or(0);
        let axis = place(axis, rank).ok_or_else(|| problem(node, format!("splits axis {axis} of {rank}")))?;
        let size = self.fixed_size(node, &view, axis)?;
        let given = node.input.get(1).filter(|name| !name.is_empty());
        let parts = match (given, integers(node, "split")) {
            (Some(name), _) => self.fixed_of(node, name)?,
            (None, Some(parts)) => parts.to_vec(),
            (None, None) => {
                let count = node.output.len().max(1) as i64;
                let each = (size + count - 1) / count;
                (0..count).map(|part| each.min(size - part * each)).collect()
            }
        };
        let sum = parts.iter().try_fold(0i64, |sum, &part| sum.checked_add(part));
        if sum != Some(size) || parts.len() != node.output.len() || parts.iter().any(|&part| part <= 0) {
            return Err(problem(node, format!("splits {size} into {parts:?}")));
        }
        let mut from = 0;
        let mut views = Vec::new();
        for (number, (part, output)) in parts.iter().zip(&node.output).enumerate() {
            let name = if number == 0 { title(node) } else { format!("{}.{number}", title(node)) };
            views.push((output, self.part(node, &name, view.clone(), axis, (from, from + part))?));
            from += part;
        }
        for (output, view) in views.iter().skip(1) {
            self.define(output, OnnxValue::Tensor(view.clone()));
        }
        let (_, first) = views.swap_remove(0);
        Ok(self.named(node, first))
    }

    /// Zeros around axes. Those around an image go into the convolution or average that alone reads it.
    pub(super) fn pad(&mut self, node: &'a NodeProto) -> Result<TensorView, ImportError> {
        let view = self.input(node, 0)?;
        let mode = text(node, "mode").unwrap_or_else(|| "constant".to_owned());
        let operand = node.input.get(2).filter(|name| !name.is_empty());
        let filled = match operand {
            Some(name) => self.uniform(name)?,
            None => Some(float(node, "value").unwrap_or(0.0)),
        };
        if mode != "constant" || filled != Some(0.0) {
            return Err(problem(node, "pads with something other than zeros, which is not supported"));
        }
        let pads = self.pads(node, view.axes.len())?;
        if let Some(window) = self.padded_window(node, &view, &pads)? {
            if let Some(output) = node.output.first() {
                self.padded.insert(output, window);
            }
            return Ok(view);
        }
        let mut padded = view;
        for (axis, &(before, after)) in pads.iter().enumerate().filter(|(_, pads)| **pads != (0, 0)) {
            let dim = self.dim(node, &padded, axis)?;
            let name = format!("{}.{axis}", title(node));
            padded.value = self.builder.pad(&name, padded.value, dim, before, after)?;
        }
        Ok(self.named(node, padded))
    }

    /// Zeros before and after each of `rank` axes.
    fn pads(&self, node: &NodeProto, rank: usize) -> Result<Vec<(u32, u32)>, ImportError> {
        let wrong = || problem(node, "has pads that do not fit its input");
        let list = match node.input.get(1).filter(|name| !name.is_empty()) {
            Some(name) => self.fixed_of(node, name)?,
            None => integers(node, "pads").map(<[i64]>::to_vec).ok_or_else(wrong)?,
        };
        let axes = match node.input.get(3).filter(|name| !name.is_empty()) {
            Some(name) => self.fixed_of(node, name)?,
            None => (0..rank as i64).collect(),
        };
        if list.len() != 2 * axes.len() {
            return Err(wrong());
        }
        let (before, after) = list.split_at(axes.len());
        let number = |number: i64| {
            let cropped = || problem(node, "pads by a negative number; cut the value with Slice instead");
            u32::try_from(number).map_err(|_| cropped())
        };
        let mut pads = vec![(0, 0); rank];
        for ((&axis, &before), &after) in axes.iter().zip(before).zip(after) {
            let axis = place(axis, rank).ok_or_else(wrong)?;
            pads[axis] = (number(before)?, number(after)?);
        }
        Ok(pads)
    }

    /// Top, left, bottom, right, if the only reader of a padded image can pad it.
    fn padded_window(
        &self,
        node: &NodeProto,
        view: &TensorView,
        pads: &[(u32, u32)],
    ) -> Result<Option<[u16; 4]>, ImportError> {
        let output = node.output.first().map_or("", String::as_str);
        let image = pads.get(2..).filter(|_| pads.starts_with(&[(0, 0); 2]));
        let reader = self.only_reader(output, "Conv").or_else(|| self.only_reader(output, "AveragePool"));
        let (Some(image), Some(reader), false) = (image, reader, self.is_output(output)) else {
            return Ok(None);
        };
        let kernel = match reader.op_type.as_str() {
            "Conv" => self.source.constants.sizes(reader.input.get(1).map_or("", String::as_str)),
            _ => integers(reader, "kernel_shape").map(|sizes| [&[0, 0], sizes].concat()),
        };
        let own = integers(reader, "pads").is_some_and(|pads| pads.iter().any(|&pad| pad != 0));
        let counted = reader.op_type == "Conv" || !own || integer(reader, "count_include_pad") == Some(1);
        let explicit =
            text(reader, "auto_pad").is_none_or(|mode| matches!(mode.as_str(), "" | "NOTSET" | "VALID"));
        let exact = integer(reader, "ceil_mode").unwrap_or(0) == 0;
        let Some(kernel) = kernel.filter(|kernel| kernel.len() == pads.len()) else { return Ok(None) };
        let plain = view.is_plain(self.builder.shape(view.value).dims.len());
        let own = integers(reader, "pads").map_or_else(|| vec![0; 2 * image.len()], <[i64]>::to_vec);
        let inside = image.iter().enumerate().all(|(axis, &(before, after))| {
            let own = |at: usize| own.get(at).copied().unwrap_or(i64::MAX / 2);
            let (before, after) = (i64::from(before) + own(axis), i64::from(after) + own(axis + image.len()));
            before.max(after) < kernel[axis + 2]
        });
        if !(counted && explicit && exact && plain && inside) {
            return Ok(None);
        }
        let small = |pad: u32| u16::try_from(pad).unwrap_or(u16::MAX);
        Ok(match image {
            [(left, right)] => Some([0, small(*left), 0, small(*right)]),
            [(top, bottom), (left, right)] => Some([*top, *left, *bottom, *right].map(small)),
            _ => None,
        })
    }

    /// The product of two computed values: equal shapes, or an image and one number per channel.
    pub(super) fn mul(&mut self, node: &'a NodeProto) -> Result<TensorView, ImportError> {
        let (mut a, mut b) = (self.input(node, 0)?, self.input(node, 1)?);
        if self.builder.size(a.value) < self.builder.size(b.value) {
            std::mem::swap(&mut a, &mut b);
        }
        if let Some(gate) = self.per_channel_gate(node, &a, &b)? {
            b = TensorView { value: gate, axes: a.axes.clone() };
        }
        if a.axes != b.axes {
            a = self.plain(node, a)?;
            b = self.plain(node, b)?;
        }
        let value = self.builder.mul(&title(node), a.value, b.value)?;
        Ok(self.named(node, TensorView { value, ..a }))
    }

    /// `[channels][1][1]` of an operand with one number per channel of the image `a`, in any order of axes.
    fn per_channel_gate(
        &mut self,
        node: &NodeProto,
        a: &TensorView,
        b: &TensorView,
    ) -> Result<Option<ValueId>, ImportError> {
        let sizes = self.builder.sizes(a.value);
        let (channels, gates) = (sizes.first().copied().unwrap_or(0), self.builder.size(b.value));
        let wide =
            |axis: &&ViewAxis| matches!(axis, ViewAxis::Dim(dim) if self.builder.sizes(b.value)[*dim] > 1);
        let ranks = a.axes.len() == b.axes.len() && sizes.len() > 1;
        let place = b.axes.iter().position(|axis| wide(&axis));
        let aligned = place.is_some_and(|place| a.axes.get(place) == Some(&ViewAxis::Dim(0)));
        if !ranks || !aligned || channels != gates || gates == self.builder.size(a.value) {
            return Ok(None);
        }
        let target: Vec<u32> = std::iter::once(channels as u32).chain(vec![1; sizes.len() - 1]).collect();
        Ok(Some(self.builder.reshape(&format!("{}.gate", title(node)), b.value, &target)?))
    }

    /// The axis of the sample that an axis of the file stands for.
    fn dim(&self, node: &NodeProto, view: &TensorView, axis: usize) -> Result<u8, ImportError> {
        match view.axes.get(axis) {
            Some(ViewAxis::Dim(dim)) => Ok(*dim as u8),
            Some(ViewAxis::Batch) => Err(problem(node, "works on the batch, which would mix samples")),
            _ => Err(problem(node, format!("works on axis {axis}, which its input does not have"))),
        }
    }
}
