//! Sequences: tables of words and the last step. Recurrent layers are in [`super::cells`].

use super::{Importer, integer, integers, problem, shape::place};
use crate::{
    graph::{Param, ValueId},
    onnx::{
        import::{ImportError, title},
        proto::NodeProto,
        view::{SymbolicSize, TensorView, ViewAxis},
    },
};

impl<'a> Importer<'a> {
    /// A table of words, or one step of a sequence.
    pub(super) fn gather(&mut self, node: &'a NodeProto) -> Result<TensorView, ImportError> {
        let table = node.input.first().map_or("", String::as_str);
        if self.source.constants.contains(table) {
            return self.embed(node);
        }
        let view = self.input(node, 0)?;
        let axis = place(integer(node, "axis").unwrap_or(0), view.axes.len());
        let name = node.input.get(1).map_or("", String::as_str);
        let index = self.fixed_of(node, name)?;
        let axis = axis.ok_or_else(|| problem(node, "names an axis that its input does not have"))?;
        let vector = self.source.constants.rank(name) == Some(1);
        let [index] = &index[..] else {
            return match vector {
                true => self.chosen(node, view, axis, &index),
                false => Err(problem(node, "takes several parts of a value; give them as one list")),
            };
        };
        let view = match view.axes.get(axis) {
            Some(ViewAxis::One) if matches!(index, 0 | -1) => view,
            _ => {
                let size = self.fixed_size(node, &view, axis)?;
                self.step(node, view, axis, if *index < 0 { index + size } else { *index })?
            }
        };
        let mut axes = view.axes.clone();
        if !vector {
            axes.remove(axis);
        }
        Ok(self.named(node, TensorView { axes, ..view }))
    }

    pub(super) fn slice(&mut self, node: &'a NodeProto) -> Result<TensorView, ImportError> {
        let view = self.input(node, 0)?;
        let part = |place: usize, name: &str| match node.input.get(place).filter(|name| !name.is_empty()) {
            Some(name) => self.fixed_of(node, name).map(Some),
            None => Ok(integers(node, name).map(<[i64]>::to_vec)),
        };
        let (Some(starts), Some(ends)) = (part(1, "starts")?, part(2, "ends")?) else {
            return Err(problem(node, "has no starts or no ends"));
        };
        let axes = part(3, "axes")?.unwrap_or_else(|| (0..starts.len() as i64).collect());
        let steps = part(4, "steps")?.unwrap_or_else(|| vec![1; starts.len()]);
        if let Some(step) = steps.iter().find(|&&step| step != 1) {
            return Err(problem(
                node,
                format!("takes a part in steps of {step}; only steps of 1 are supported"),
            ));
        }
        let unsupported = || problem(node, "takes a part of the batch");
        let mut view = view;
        for (number, ((&start, &end), &axis)) in starts.iter().zip(&ends).zip(&axes).enumerate() {
            let axis = place(axis, view.axes.len())
                .ok_or_else(|| problem(node, "has an axis that its input lacks"))?;
            let size = match view.axes.get(axis).map(|axis| self.size(&view, axis)) {
                Some(SymbolicSize::Fixed(size)) => size,
                _ if start == 0 && end >= i64::from(i32::MAX) => continue,
                _ => return Err(unsupported()),
            };
            let from = if start < 0 { start + size } else { start }.clamp(0, size);
            let to = if end < 0 { end + size } else { end }.clamp(0, size);
            if (from, to) == (0, size) {
                continue;
            }
            view = match self.is_last_step(&view, axis, from) {
                true => self.step(node, view, axis, from)?,
                false => {
                    let name = if number == 0 { title(node) } else { format!("{}.{number}", title(node)) };
                    self.part(node, &name, view, axis, (from, to))?
                }
            };
        }
        Ok(self.named(node, view))
    }

    /// One step or index, with an axis of size 1 in its place.
    fn step(
        &mut self,
        node: &NodeProto,
        view: TensorView,
        axis: usize,
        index: i64,
    ) -> Result<TensorView, ImportError> {
        if !self.is_last_step(&view, axis, index) {
            return self.index(node, view, axis, index);
        }
        let value = self.builder.last(&title(node), view.value)?;
        let axes = view.axes.iter().map(|axis| match axis {
            ViewAxis::Dim(0) => ViewAxis::One,
            ViewAxis::Dim(dim) => ViewAxis::Dim(dim - 1),
            other => other.clone(),
        });
        Ok(TensorView { value, axes: axes.collect() })
    }

    fn is_last_step(&self, view: &TensorView, axis: usize, index: i64) -> bool {
        let sizes = self.builder.sizes(view.value);
        let last = sizes.first().map(|&steps| steps as i64 - 1);
        view.axes.get(axis) == Some(&ViewAxis::Dim(0)) && sizes.len() == 2 && Some(index) == last
    }

    /// The size of an axis, which must not be the batch.
    pub(super) fn fixed_size(
        &self,
        node: &NodeProto,
        view: &TensorView,
        axis: usize,
    ) -> Result<i64, ImportError> {
        match view.axes.get(axis).map(|axis| self.size(view, axis)) {
            Some(SymbolicSize::Fixed(size)) => Ok(size),
            _ => Err(problem(node, "works on the batch, which would mix samples")),
        }
    }

    fn embed(&mut self, node: &'a NodeProto) -> Result<TensorView, ImportError> {
        let view = self.input(node, 1)?;
        let (name, table) = self.weight(node, 0)?;
        let ([entries, width], 0) = (&table.dims[..], integer(node, "axis").unwrap_or(0)) else {
            return Err(problem(node, format!("looks up in a table of shape {:?}", table.dims)));
        };
        let rank = self.builder.shape(view.value).dims.len();
        if view.value != ValueId::INPUT || !view.is_plain(rank) {
            return Err(problem(node, "looks up something other than the model's input"));
        }
        let size = |size: &usize| u32::try_from(*size).unwrap_or(u32::MAX);
        self.weights.insert(name.clone(), table.data);
        let sizes = (size(entries), size(width));
        let value = self.builder.embed(&title(node), view.value, sizes, false, Param::plain(name))?;
        Ok(self.named(node, TensorView::plain(value, rank + 1)))
    }
}
