//! Biases that an exporter writes as an Add behind a layer, perhaps with a Reshape or Squeeze between them.

use super::{Importer, problem};
use crate::{
    graph::{DimPart, FileLayout, Param},
    onnx::{
        import::{ImportError, SourceModel},
        proto::NodeProto,
        view::{TensorView, ViewAxis},
    },
};

/// The axis of a sample that a bias belongs to.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(in crate::onnx) enum BiasAxis {
    /// Of a convolution.
    First,
    /// Of a dense layer.
    Last,
}

impl<'a> Importer<'a> {
    /// One number per unit that is added to a layer's output and to nothing else. The Add then passes its input on.
    pub(super) fn late_bias(
        &mut self,
        node: &'a NodeProto,
        units: usize,
        axis: BiasAxis,
    ) -> Result<Option<Param>, ImportError> {
        let Some(add) = self.late_add(node) else { return Ok(None) };
        let (Some((_, name)), Some(sum)) = (constant_operand(self.source, add), add.output.first()) else {
            return Ok(None);
        };
        let Some(floats) = self.source.constants.floats(name).transpose()? else { return Ok(None) };
        let Some(place) = floats.dims.iter().position(|&size| size == units) else { return Ok(None) };
        if floats.data.len() != units {
            return Ok(None);
        }
        let mut layout = vec![vec![]; floats.dims.len()];
        layout[place] = vec![DimPart::whole(0)];
        self.weights.insert(name.to_owned(), floats.data);
        self.biased.insert(sum, axis);
        Ok(Some(Param::in_layout(name, FileLayout(layout))))
    }

    /// The Add of a constant that alone reads the output of a layer, directly or reshaped.
    fn late_add(&self, node: &'a NodeProto) -> Option<&'a NodeProto> {
        let mut value = node.output.first()?.as_str();
        // Bounded, because a damaged file may have cycles.
        for _ in 0..self.source.graph.node.len() {
            let [reader] = self.readers.get(value)?.as_slice() else { return None };
            match reader.op_type.as_str() {
                _ if self.is_output(value) => return None,
                "Add" => return Some(reader),
                "Reshape" | "Squeeze" | "Unsqueeze" | "Identity" => value = reader.output.first()?,
                _ => return None,
            }
        }
        None
    }

    /// The input of an Add whose constant is the bias of an earlier layer, if it is added along the layer's units.
    pub(super) fn after_bias(
        &mut self,
        node: &'a NodeProto,
        axis: BiasAxis,
    ) -> Result<TensorView, ImportError> {
        let elsewhere = || problem(node, "adds a constant to something other than the units of a layer");
        let (place, name) = constant_operand(self.source, node).ok_or_else(elsewhere)?;
        let view = self.input(node, 1 - place)?;
        let dims =
            self.source.constants.floats(name).transpose()?.map(|floats| floats.dims).unwrap_or_default();
        let rank = self.builder.shape(view.value).dims.len();
        let units = match axis {
            BiasAxis::First => 0,
            BiasAxis::Last => rank.saturating_sub(1),
        };
        // Dimensions of a constant are those of the last axes.
        let behind = view.axes.len().checked_sub(dims.len()).ok_or_else(elsewhere)?;
        let aligned = dims.iter().zip(&view.axes[behind..]).all(|(&size, axis)| {
            size == 1 || (*axis == ViewAxis::Dim(units) && self.builder.sizes(view.value)[units] == size)
        });
        if aligned { Ok(self.named(node, view)) } else { Err(elsewhere()) }
    }
}

/// Place and name of the constant that a node computes with.
fn constant_operand<'a>(source: &SourceModel<'_>, node: &'a NodeProto) -> Option<(usize, &'a str)> {
    let [a, b] = &node.input[..] else { return None };
    match (source.constants.contains(a), source.constants.contains(b)) {
        (true, false) => Some((0, a)),
        (false, true) => Some((1, b)),
        _ => None,
    }
}
