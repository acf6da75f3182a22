//! PRelu, and arithmetic with constants, which are kept as they are and not trained.

use common::plan::ArithmeticKind;

use super::{Importer, floats, problem};
use crate::{
    graph::{Axes, DimPart, FileLayout, Param, ValueId},
    onnx::{
        import::{ImportError, title},
        proto::NodeProto,
        tensor::Floats,
        view::{TensorView, ViewAxis},
    },
};

impl<'a> Importer<'a> {
    pub(super) fn prelu(&mut self, node: &'a NodeProto) -> Result<TensorView, ImportError> {
        let view = self.input(node, 0)?;
        let (name, floats) = self.weight(node, 1)?;
        let axes = self.aligned(node, &view, &floats)?;
        let layout = match axes {
            Some(axes) => {
                let covered = |dim: usize| dim.checked_sub(axes.first.into()).map(|dim| dim as u8);
                let places = self.places(node, &view, &floats)?;
                let parts =
                    places.iter().zip(&floats.dims).map(|(place, &size)| match place.and_then(covered) {
                        Some(dim) if size > 1 => vec![DimPart::whole(dim)],
                        _ => vec![],
                    });
                FileLayout(parts.collect())
            }
            None => FileLayout(vec![vec![]; floats.dims.len()]),
        };
        let sizes = self.builder.sizes(view.value);
        let count = axes.map_or(1, |axes| {
            sizes.iter().skip(axes.first.into()).take(axes.count.into()).product::<usize>()
        });
        if floats.data.len() != count {
            let text =
                format!("the slopes have shape {:?}; expected one number, or one per channel", floats.dims);
            return Err(problem(node, text));
        }
        // Exporters merge equal constants, and slopes are often equal before training.
        let shared = self.weights.contains_key(&name);
        let name = if shared { format!("{name}.{}", title(node)) } else { name };
        self.weights.insert(name.clone(), floats.data);
        let value = self.builder.prelu(&title(node), view.value, axes, Param::in_layout(name, layout))?;
        Ok(self.named(node, TensorView { value, ..view }))
    }

    pub(super) fn negated(&mut self, node: &'a NodeProto) -> Result<TensorView, ImportError> {
        let view = self.input(node, 0)?;
        let value = self.builder.with_number(&title(node), view.value, ArithmeticKind::Mul, -1.0)?;
        Ok(self.named(node, TensorView { value, ..view }))
    }

    /// Add, Sub, Mul or Div of a computed value and a constant; `None` if both are computed.
    pub(super) fn with_constant(
        &mut self,
        node: &'a NodeProto,
        kind: ArithmeticKind,
    ) -> Result<Option<TensorView>, ImportError> {
        let [a, b] = &node.input[..] else { return Err(problem(node, "takes two operands")) };
        let (place, constant) = match (self.source.constants.floats(a), self.source.constants.floats(b)) {
            (None, None) => return Ok(None),
            (None, Some(constant)) => (0, constant),
            (Some(constant), None) => (1, constant),
            (Some(_), Some(_)) => return Err(problem(node, "computes with constants only")),
        };
        let constant = constant.map_err(|error| problem(node, error.to_string()))?;
        let mut view = self.input(node, place)?;
        let name = title(node);
        let kind = match (place, kind) {
            // c - x = -x + c.
            (1, ArithmeticKind::Sub) => {
                let negated = format!("{name}/negated");
                view.value = self.builder.with_number(&negated, view.value, ArithmeticKind::Mul, -1.0)?;
                ArithmeticKind::Add
            }
            (1, ArithmeticKind::Div) => {
                return Err(problem(
                    node,
                    "divides a constant by a computed value; only the converse is supported",
                ));
            }
            _ => kind,
        };
        let noted = self.notes.len();
        let value = self.with_floats(node, &name, &view, kind, &constant)?;
        // A number of a formula is no surprise, but one with a name was perhaps trained.
        if self.notes.len() == noted && self.source.is_parameter([b, a][place]) {
            self.notes.push(format!("'{name}' computes with one constant, which is not trained"));
        }
        Ok(Some(self.named(node, TensorView { value, ..view })))
    }

    /// The scaling of scikit-learn's pipelines: `(x - offset) * scale`, with one number per feature or one for all.
    pub(super) fn scaler(&mut self, node: &'a NodeProto) -> Result<TensorView, ImportError> {
        let mut view = self.input(node, 0)?;
        for (attribute, kind) in [("offset", ArithmeticKind::Sub), ("scale", ArithmeticKind::Mul)] {
            let data = floats(node, attribute).to_vec();
            if data.is_empty() {
                return Err(problem(node, format!("has no {attribute}")));
            }
            let constant = Floats { dims: vec![data.len()], data };
            let name = format!("{}/{attribute}", title(node));
            view.value = self.with_floats(node, &name, &view, kind, &constant)?;
        }
        Ok(self.named(node, view))
    }

    fn with_floats(
        &mut self,
        node: &NodeProto,
        name: &str,
        view: &TensorView,
        kind: ArithmeticKind,
        constant: &Floats,
    ) -> Result<ValueId, ImportError> {
        if let Some(axes) = self.aligned(node, view, constant)? {
            let numbers = self.spread(node, view, axes, constant)?;
            let count = numbers.len();
            self.notes.push(format!("'{name}' computes with {count} constants, which are not trained"));
            return Ok(self.builder.with_constants(name, view.value, kind, axes, numbers)?);
        }
        let number = constant.data.first().copied().ok_or_else(|| problem(node, "has an empty constant"))?;
        Ok(self.builder.with_number(name, view.value, kind, number)?)
    }

    /// For each axis of a constant, the axis of a sample that it is broadcast along.
    fn places(
        &self,
        node: &NodeProto,
        view: &TensorView,
        constant: &Floats,
    ) -> Result<Vec<Option<usize>>, ImportError> {
        let sizes = self.builder.sizes(view.value);
        let refused = || {
            problem(
                node,
                format!("a constant of shape {:?} does not fit samples of {sizes:?}", constant.dims),
            )
        };
        let from = view.axes.len().checked_sub(constant.dims.len()).ok_or_else(refused)?;
        let fits = view.axes[from..].iter().zip(&constant.dims).map(|(axis, &size)| match axis {
            ViewAxis::Dim(dim) if size == 1 || sizes[*dim] == size => Ok(Some(*dim)),
            ViewAxis::Batch | ViewAxis::One if size == 1 => Ok(None),
            _ => Err(refused()),
        });
        fits.collect()
    }

    /// The axes along which a constant has more than one number; `None` if it is one number for all.
    fn aligned(
        &self,
        node: &NodeProto,
        view: &TensorView,
        constant: &Floats,
    ) -> Result<Option<Axes>, ImportError> {
        let (places, sizes) = (self.places(node, view, constant)?, self.builder.sizes(view.value));
        let several = places.iter().zip(&constant.dims).filter(|(_, size)| **size > 1);
        let several: Vec<usize> = several.filter_map(|(place, _)| *place).collect();
        let axes = |first: usize, last: usize| Axes { first: first as u8, count: (last - first + 1) as u8 };
        if let (Some(first), Some(last)) = (several.iter().min(), several.iter().max()) {
            return Ok(Some(axes(*first, *last)));
        }
        // One number per channel of one channel: the export of a slice may have it.
        let first = places.first().copied().flatten().filter(|dim| sizes[*dim] == 1);
        Ok(first.map(|dim| axes(dim, dim)))
    }

    /// The numbers of a constant for every place of some axes, in the order of memory.
    fn spread(
        &self,
        node: &NodeProto,
        view: &TensorView,
        axes: Axes,
        constant: &Floats,
    ) -> Result<Vec<f32>, ImportError> {
        let (places, sizes) = (self.places(node, view, constant)?, self.builder.sizes(view.value));
        let (first, count) = (usize::from(axes.first), usize::from(axes.count));
        // Distance in the file between neighbours along each axis.
        let mut strides = vec![0; sizes.len()];
        let mut stride = 1;
        for (place, &size) in places.iter().zip(&constant.dims).rev() {
            if let Some(dim) = place.filter(|_| size > 1) {
                strides[dim] = stride;
            }
            stride *= size;
        }
        let mut at = vec![0];
        for dim in first..first + count {
            let steps = |at: usize| (0..sizes[dim]).map(move |step| (at, step));
            at = at.into_iter().flat_map(steps).map(|(at, step)| at + step * strides[dim]).collect();
        }
        let number = |at: usize| constant.data.get(at).copied();
        at.into_iter()
            .map(number)
            .collect::<Option<_>>()
            .ok_or_else(|| problem(node, "has a constant that is too short"))
    }
}
