//! Moves the units of every hidden axis on by one: unit 1 becomes the first one, and the first one the last.
//!
//! The model computes the same. A tier, which holds the first units, then holds other ones: its window has rolled on.

use common::{layout::Dim, mask::WidthMask};

use super::Graph;

impl Graph {
    /// The parameters of the same model with its hidden units moved on by one. A vector of another length stays as it is.
    pub fn rolled<T: Copy>(&self, parameters: &[T]) -> Vec<T> {
        let layout = self.layout();
        if parameters.len() != layout.len() {
            debug_assert!(false, "{} parameters, not {}", parameters.len(), layout.len());
            return parameters.to_vec();
        }
        let (mut rest, mut rolled) = (parameters, Vec::with_capacity(parameters.len()));
        for tensor in layout.tensors {
            let (these, others) = rest.split_at(tensor.len(layout.full));
            rest = others;
            let sources: Vec<Vec<usize>> = tensor.dims.iter().map(|dim| sources(dim, layout.full)).collect();
            copy(&sources, these, &mut rolled);
        }
        rolled
    }
}

/// For every index of a dimension, where its number comes from.
fn sources(dim: &Dim, full: &WidthMask) -> Vec<usize> {
    let (mut sources, mut start) = (Vec::with_capacity(dim.size(full)), 0);
    for part in dim.unrolled() {
        let (size, inner) = (part.size(full), part.inner as usize);
        let step = if part.axis.is_some() { inner } else { 0 };
        sources.extend((0..size).map(|index| start + (index + step) % size));
        start += size;
    }
    sources
}

/// Copies a tensor, outermost dimension first.
fn copy<T: Copy>(sources: &[Vec<usize>], from: &[T], to: &mut Vec<T>) {
    match sources {
        [] => to.extend_from_slice(from),
        [last] => to.extend(last.iter().map(|&index| from[index])),
        [outer, inner @ ..] => {
            let stride = from.len() / outer.len().max(1);
            outer.iter().for_each(|&index| copy(inner, &from[index * stride..][..stride], to));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::zoo;

    #[test]
    fn hidden_units_move_on_and_inputs_and_classes_stay() {
        let (graph, _) = zoo::build("mlp:2-3-2", 0).unwrap();
        // Weights and biases of three hidden units, then weights and biases of two classes.
        let names =
            ["a0", "a1", "b0", "b1", "c0", "c1", "a", "b", "c", "xa", "xb", "xc", "ya", "yb", "yc", "x", "y"];
        let moved =
            ["b0", "b1", "c0", "c1", "a0", "a1", "b", "c", "a", "xb", "xc", "xa", "yb", "yc", "ya", "x", "y"];
        assert_eq!(graph.rolled(&names), moved);
        let thrice = graph.rolled(&graph.rolled(&graph.rolled(&names)));
        assert_eq!(thrice, names);
    }

    /// Constants stay where they are when units move on.
    #[cfg(feature = "tools")]
    #[test]
    fn constants_of_single_units_are_noticed() {
        use crate::graph::{Axes, Builder, Param, ValueId};
        use common::plan::ArithmeticKind;

        let graph = |constants: Vec<f32>| {
            let mut builder = Builder::new("tied", "x", &[3]).unwrap();
            let hidden = builder.dense("a", ValueId::INPUT, 3, 4, Param::plain("a"), None).unwrap();
            let axes = Axes { first: 0, count: 1 };
            let scaled = builder.with_constants("c", hidden, ArithmeticKind::Mul, axes, constants).unwrap();
            let logits = builder.dense("b", scaled, 4, 2, Param::plain("b"), None).unwrap();
            builder.finish("y", logits, None).unwrap()
        };
        let same = |constants| crate::forward::computes_the_same_when_rolled(&graph(constants)).unwrap();
        assert!(same(vec![2.0; 4]));
        assert!(!same(vec![1.0, 2.0, 3.0, 4.0]));
    }

    /// Group normalisation ties neighbouring channels to each other; a moved channel is in another group.
    #[cfg(feature = "tools")]
    #[test]
    fn every_model_of_the_zoo_without_groups_computes_the_same() {
        for entry in zoo::ALL {
            let (graph, _) = entry.build(0);
            let same = crate::forward::computes_the_same_when_rolled(&graph).unwrap();
            assert_eq!(same, entry.name != "cifar-resnet", "{}", entry.name);
        }
    }
}
