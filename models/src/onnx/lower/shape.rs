//! Nodes that only permute, add or merge axes. The numbers of a sample stay in place, until a layer needs another order in
//! memory; then they are transposed.

use super::{Importer, integer, integers, problem};
use crate::{
    graph::ValueId,
    onnx::{
        import::{ImportError, title},
        proto::NodeProto,
        view::{SymbolicSize, TensorView, ViewAxis},
    },
};

impl<'a> Importer<'a> {
    /// The same value with the batch first and the sample in the order of memory.
    pub(super) fn plain(&mut self, node: &NodeProto, view: TensorView) -> Result<TensorView, ImportError> {
        let sizes = self.builder.sizes(view.value);
        if view.is_plain(sizes.len()) {
            return Ok(view);
        }
        let Some((ViewAxis::Batch, rest)) = view.axes.split_first() else {
            return Err(problem(node, "needs the batch as the first axis of its input"));
        };
        let (mut target, mut order) = (Vec::new(), Vec::new());
        for axis in rest {
            match axis {
                ViewAxis::One => target.push(1),
                ViewAxis::Dim(dim) => {
                    target.push(sizes[*dim] as u32);
                    order.push(*dim);
                }
                ViewAxis::ChannelLast => {
                    target.push(sizes.iter().product::<usize>() as u32);
                    order.extend((1..sizes.len()).chain([0]));
                }
                ViewAxis::Batch => return Err(problem(node, "reads a value with two batches")),
            }
        }
        let value = self.in_order(node, view.value, &order)?;
        let value = self.builder.reshape(&format!("{}.input", title(node)), value, &target)?;
        let rank = self.builder.shape(value).dims.len();
        Ok(TensorView::plain(value, rank))
    }

    /// Transposes the axes of a sample. Axes of size 1 stay where they are if the others are in order.
    fn in_order(
        &mut self,
        node: &NodeProto,
        value: ValueId,
        order: &[usize],
    ) -> Result<ValueId, ImportError> {
        let sizes = self.builder.sizes(value);
        let wide: Vec<usize> = order.iter().copied().filter(|&dim| sizes[dim] != 1).collect();
        if wide.is_sorted() {
            return Ok(value);
        }
        let mut left: Vec<usize> = (0..sizes.len()).filter(|dim| wide.contains(dim)).collect();
        let target: Vec<u32> = left.iter().map(|&dim| sizes[dim] as u32).collect();
        let mut value = self.builder.reshape(&format!("{}.squeeze", title(node)), value, &target)?;
        for (kept, wanted) in wide.iter().enumerate() {
            let moved = left.iter().skip(kept).position(|dim| dim == wanted).unwrap_or(0);
            if moved > 0 {
                let name = format!("{}.transpose", title(node));
                value = self.builder.transpose(&name, value, kept as u8, moved as u8)?;
                left[kept..].rotate_left(moved);
            }
        }
        Ok(value)
    }

    pub(super) fn flatten(&mut self, node: &'a NodeProto) -> Result<TensorView, ImportError> {
        let axis = integer(node, "axis").unwrap_or(1);
        let view = self.input(node, 0)?;
        let rank = view.axes.len() as i64;
        match if axis < 0 { axis + rank } else { axis } {
            1 => self.merged(node, &view),
            _ => Err(problem(node, format!("flattens at axis {axis}, which would mix samples; expected 1"))),
        }
    }

    /// One axis per sample.
    fn merged(&mut self, node: &'a NodeProto, view: &TensorView) -> Result<TensorView, ImportError> {
        let rank = self.builder.shape(view.value).dims.len();
        let channel_last: Vec<ViewAxis> =
            std::iter::once(ViewAxis::Batch).chain((1..rank).chain([0]).map(ViewAxis::Dim)).collect();
        let sizes = self.builder.sizes(view.value);
        let is_image =
            sizes.first().is_some_and(|&channels| channels > 1) && sizes.iter().skip(1).any(|&size| size > 1);
        if view.axes == channel_last && is_image {
            // A dense layer reads it with its columns in another order.
            return Ok(TensorView { value: view.value, axes: vec![ViewAxis::Batch, ViewAxis::ChannelLast] });
        }
        let plain = self.plain(node, view.clone())?;
        let value = self.builder.flatten(&title(node), plain.value);
        Ok(self.named(node, TensorView::plain(value, 1)))
    }

    pub(super) fn reshape(&mut self, node: &'a NodeProto) -> Result<TensorView, ImportError> {
        if let Some(view) = self.spelled_group_norm(node)? {
            return Ok(view);
        }
        let view = self.input(node, 0)?;
        let target = node.input.get(1).and_then(|name| self.sizes_of(name).transpose()).transpose()?;
        let mut target = target.ok_or_else(|| {
            problem(node, "the target shape is computed; export with fixed sizes, or use Flatten instead")
        })?;
        if integer(node, "allowzero").unwrap_or(0) == 0 {
            for (size, axis) in target.iter_mut().zip(&view.axes) {
                if *size == SymbolicSize::Fixed(0) {
                    *size = self.size(&view, axis);
                }
            }
        }
        if let Some(axes) = self.same_but_ones(&view, &target) {
            return Ok(TensorView { axes, ..view });
        }
        let len = self.builder.size(view.value) as i64;
        let refused = || {
            let sizes: Vec<String> = target
                .iter()
                .map(|size| match size {
                    SymbolicSize::Fixed(size) => size.to_string(),
                    SymbolicSize::Batch => "N".to_owned(),
                })
                .collect();
            problem(
                node,
                format!(
                    "reshapes to [{}]; only [N, ...] with {len} numbers per sample is supported",
                    sizes.join(", ")
                ),
            )
        };
        let sample = self.sample(&target, len).ok_or_else(refused)?;
        if sample.len() == 1 {
            return self.merged(node, &view);
        }
        let plain = self.plain(node, view)?;
        let value = self.builder.reshape(&title(node), plain.value, &sample)?;
        let rank = self.builder.shape(value).dims.len();
        Ok(self.named(node, TensorView::plain(value, rank)))
    }

    /// The sizes of a sample in a target shape, if the rest is the batch.
    fn sample(&self, target: &[SymbolicSize], len: i64) -> Option<Vec<u32>> {
        let (first, rest) = target.split_first()?;
        let open = rest.iter().filter(|size| **size == SymbolicSize::Fixed(-1)).count();
        let known: i64 = rest.iter().try_fold(1i64, |product, size| match *size {
            SymbolicSize::Fixed(-1) => Some(product),
            SymbolicSize::Fixed(size) if size > 0 => product.checked_mul(size),
            _ => None,
        })?;
        let batch = match *first {
            SymbolicSize::Batch => true,
            SymbolicSize::Fixed(-1) => open == 0,
            // A fixed batch size of the exporter stands for any batch size.
            SymbolicSize::Fixed(rows) => rows > 0 && (open == 0 || Some(rows) == self.source.input.batch),
        };
        let fits = match open {
            0 => known == len,
            1 => len % known == 0,
            _ => false,
        };
        let size = |size: &SymbolicSize| match *size {
            SymbolicSize::Fixed(-1) => u32::try_from(len / known).ok(),
            SymbolicSize::Fixed(size) => u32::try_from(size).ok(),
            SymbolicSize::Batch => None,
        };
        (batch && fits && !rest.is_empty()).then(|| rest.iter().map(size).collect())?
    }

    /// True if only axes of size 1 are added or removed.
    fn same_but_ones(&self, view: &TensorView, target: &[SymbolicSize]) -> Option<Vec<ViewAxis>> {
        let mut left = view.axes.iter().filter(|axis| **axis != ViewAxis::One).peekable();
        let mut axes = Vec::new();
        for size in target {
            let here = left.peek().map(|axis| self.size(view, axis));
            let batch = self.source.input.batch.map(SymbolicSize::Fixed);
            match *size {
                size if here == Some(size) => axes.extend(left.next().cloned()),
                SymbolicSize::Fixed(-1) => axes.extend(left.next().cloned()),
                size if here == Some(SymbolicSize::Batch) && batch == Some(size) => {
                    axes.extend(left.next().cloned());
                }
                SymbolicSize::Fixed(1) => axes.push(ViewAxis::One),
                _ => return None,
            }
        }
        // A single number per sample may lose its axis.
        let flat = axes == [ViewAxis::Batch];
        let rest = left.all(|axis| flat && self.size(view, axis) == SymbolicSize::Fixed(1));
        (rest && axes.len() == target.len()).then_some(axes)
    }

    pub(super) fn size(&self, view: &TensorView, axis: &ViewAxis) -> SymbolicSize {
        match axis {
            ViewAxis::Batch => SymbolicSize::Batch,
            ViewAxis::One => SymbolicSize::Fixed(1),
            ViewAxis::Dim(dim) => SymbolicSize::Fixed(self.builder.sizes(view.value)[*dim] as i64),
            ViewAxis::ChannelLast => SymbolicSize::Fixed(self.builder.size(view.value) as i64),
        }
    }

    pub(super) fn squeeze(&mut self, node: &'a NodeProto) -> Result<TensorView, ImportError> {
        let view = self.input(node, 0)?;
        let axes = self.axes_operand(node)?;
        let one = |place: &usize| {
            view.axes.get(*place).is_some_and(|axis| self.size(&view, axis) == SymbolicSize::Fixed(1))
        };
        if !axes.iter().all(one) {
            return Err(problem(node, "removes an axis that is not of size 1"));
        }
        let added = |place: &usize| view.axes.get(*place) == Some(&ViewAxis::One);
        let left = |view: &TensorView| {
            let axes_left = view.axes.iter().enumerate().filter(|(place, _)| !axes.contains(place));
            axes_left.map(|(_, axis)| axis.clone()).collect::<Vec<_>>()
        };
        if axes.iter().all(added) || left(&view) == [ViewAxis::Batch] {
            return Ok(TensorView { axes: left(&view), ..view });
        }
        let plain = self.plain(node, view)?;
        let sizes = self.builder.sizes(plain.value);
        let kept = sizes.iter().enumerate().filter(|(dim, _)| !axes.contains(&(dim + 1)));
        let target: Vec<u32> = kept.map(|(_, &size)| size as u32).collect();
        let value = self.builder.reshape(&title(node), plain.value, &target)?;
        let rank = self.builder.shape(value).dims.len();
        Ok(self.named(node, TensorView::plain(value, rank)))
    }

    pub(super) fn unsqueeze(&mut self, node: &'a NodeProto) -> Result<TensorView, ImportError> {
        let view = self.input(node, 0)?;
        let given = self.integer_operand(node, "axes")?.ok_or_else(|| problem(node, "names no axes"))?;
        let rank = view.axes.len() + given.len();
        let places: Option<Vec<usize>> = given.iter().map(|&axis| place(axis, rank)).collect();
        let places = places.ok_or_else(|| problem(node, "adds an axis out of range"))?;
        let mut axes = Vec::with_capacity(rank);
        let mut left = view.axes.iter().cloned();
        for at in 0..rank {
            let kept = if places.contains(&at) { Some(ViewAxis::One) } else { left.next() };
            axes.push(kept.ok_or_else(|| problem(node, "adds an axis twice"))?);
        }
        Ok(TensorView { axes, ..view })
    }

    pub(super) fn transpose(&mut self, node: &'a NodeProto) -> Result<TensorView, ImportError> {
        let view = self.input(node, 0)?;
        let rank = view.axes.len();
        let reversed: Vec<i64> = (0..rank as i64).rev().collect();
        let order = integers(node, "perm").unwrap_or(&reversed);
        let axes: Option<Vec<ViewAxis>> =
            order.iter().map(|&at| view.axes.get(usize::try_from(at).ok()?).cloned()).collect();
        let mut seen = order.to_vec();
        seen.sort_unstable();
        seen.dedup();
        match axes.filter(|axes| axes.len() == rank && seen.len() == rank) {
            Some(axes) => Ok(TensorView { axes, ..view }),
            None => Err(problem(node, format!("permutes {rank} axes by {order:?}"))),
        }
    }

    /// The axes that a node works on: an attribute, or since operator set 13 an operand.
    pub(super) fn axes_operand(&self, node: &NodeProto) -> Result<Vec<usize>, ImportError> {
        let view = self.input(node, 0)?;
        let rank = view.axes.len();
        let axes = match self.integer_operand(node, "axes")? {
            Some(axes) => axes.iter().map(|&axis| place(axis, rank)).collect::<Option<Vec<_>>>(),
            // A squeeze without axes removes all of size 1.
            None if node.op_type == "Squeeze" => Some(
                (0..rank).filter(|&at| self.size(&view, &view.axes[at]) == SymbolicSize::Fixed(1)).collect(),
            ),
            // Since operator set 18.
            None if integer(node, "noop_with_empty_axes").unwrap_or(0) != 0 => Some(vec![]),
            None => Some((0..rank).collect()),
        };
        axes.ok_or_else(|| problem(node, format!("has axes out of the range of {rank}")))
    }

    fn integer_operand(&self, node: &NodeProto, name: &str) -> Result<Option<Vec<i64>>, ImportError> {
        if let Some(axes) = integers(node, name) {
            return Ok(Some(axes.to_vec()));
        }
        let operand = node.input.get(1).filter(|name| !name.is_empty());
        operand.map(|name| self.fixed_of(node, name)).transpose()
    }
}

/// Index from the front; negative numbers count from the end.
pub(super) fn place(axis: i64, rank: usize) -> Option<usize> {
    let axis = if axis < 0 { axis + rank as i64 } else { axis };
    usize::try_from(axis).ok().filter(|&axis| axis < rank)
}
