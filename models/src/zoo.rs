//! Models that come with FairTier, by name. Weights are drawn from a seed, so no file has to be kept;
//! `zoo/` holds one as ONNX for trying the tools.

use common::rng::{Rng, derive};

use crate::graph::{Builder, Graph, GraphError, Op, Param, Units, ValueId};

/// Every model of the zoo.
pub const ALL: &[Entry] = &[
    Entry {
        name: "mnist-mlp",
        description: "two hidden layers for 28x28 images of digits, 10 classes",
        rates: &[1.0, 0.7, 0.5, 0.25, 0.125],
        widths: &[784, 200, 100, 10],
    },
    Entry {
        name: "femnist-mlp",
        description: "one hidden layer for 28x28 images of characters, 10 classes",
        rates: &[1.0, 0.7, 0.45, 0.25, 0.125],
        widths: &[784, 64, 10],
    },
    Entry {
        name: "digits-mlp",
        description: "one hidden layer for 8x8 images of digits, 10 classes; fits a microcontroller",
        rates: &[1.0, 0.7, 0.5, 0.25, 0.125],
        widths: &[64, 32, 10],
    },
];

pub fn by_name(name: &str) -> Option<Entry> {
    ALL.iter().find(|entry| entry.name == name).copied()
}

#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Entry {
    pub name: &'static str,
    pub description: &'static str,
    /// Of the usual tiers, widest first.
    pub rates: &'static [f64],
    /// Inputs, hidden units, classes.
    widths: &'static [u32],
}

impl Entry {
    /// The model with weights drawn from `seed`.
    pub fn build(&self, seed: u64) -> (Graph, Vec<f32>) {
        let graph = mlp(self.name, self.widths).expect("tests build every entry of the table");
        let parameters = initial(&graph, seed);
        (graph, parameters)
    }
}

/// A multilayer perceptron: `widths` are inputs, hidden units, outputs.
pub fn mlp(name: &str, widths: &[u32]) -> Result<Graph, GraphError> {
    let [inputs, layers @ ..] = widths else { return Err(GraphError::NothingToTrain) };
    let mut builder = Builder::new(name, "input", &[*inputs])?;
    let mut value = ValueId::INPUT;
    for (index, &units) in layers.iter().enumerate() {
        let last = index + 1 == layers.len();
        let layer = format!("fc{}", index + 1);
        let weight = Param::plain(format!("{layer}.weight"));
        let bias = Param::plain(format!("{layer}.bias"));
        let inputs = builder.size(value);
        let units = if last { Units::Fixed(units) } else { Units::Hidden(units) };
        value = builder.dense(&layer, value, inputs, units, weight, Some(bias))?;
        if !last {
            value = builder.relu(&format!("relu{}", index + 1), value);
        }
    }
    builder.finish("logits", value, None)
}

/// Weights and biases uniform in `(-1/sqrt(inputs), 1/sqrt(inputs))`, as PyTorch's `Linear` draws them.
/// Every tensor has its own stream.
pub fn initial(graph: &Graph, seed: u64) -> Vec<f32> {
    let mut parameters = Vec::with_capacity(graph.layout().len());
    for node in graph.nodes() {
        let Op::Dense { .. } = node.op else { continue };
        let inputs: usize = node.inputs.iter().map(|&value| graph.shape(value).len(graph.full())).sum();
        let bound = 1.0 / (inputs as f64).sqrt();
        for param in node.op.params() {
            let mut rng = Rng::new(derive(seed, u64::from(param.0)));
            let len = graph.param_shapes().get(param.index()).map_or(0, |shape| shape.len(graph.full()));
            parameters.extend((0..len).map(|_| ((2.0 * rng.unit_f64() - 1.0) * bound) as f32));
        }
    }
    parameters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameter_counts_of_all_tiers() {
        let expected = [
            ("mnist-mlp", [178_110, 120_480, 84_060, 40_785, 20_067]),
            ("femnist-mlp", [50_890, 34_990, 22_270, 12_730, 6_370]),
            ("digits-mlp", [2_410, 1_660, 1_210, 610, 310]),
        ];
        assert_eq!(expected.map(|(name, _)| name), *ALL.iter().map(|entry| entry.name).collect::<Vec<_>>());
        for (name, counts) in expected {
            let entry = by_name(name).unwrap();
            let (graph, parameters) = entry.build(0);
            assert_eq!(parameters.len(), counts[0]);
            let tiers = entry.rates.iter().map(|&rate| {
                let mask = graph.full().at_rate(rate).unwrap();
                graph.gather(&mask, &parameters).unwrap().len()
            });
            assert_eq!(tiers.collect::<Vec<_>>(), counts, "{name}");
        }
        assert_eq!(by_name("resnet-50"), None);
    }

    #[test]
    fn weights_follow_the_seed_and_the_bound() {
        let entry = by_name("digits-mlp").unwrap();
        let (graph, first) = entry.build(0);
        assert_eq!(first, entry.build(0).1);
        assert_ne!(first, entry.build(1).1);
        let layers = graph.layers();
        for (layer, inputs) in layers.iter().zip([64.0f32, 32.0]) {
            let largest = first[layer.clone()].iter().fold(0.0f32, |max, w| max.max(w.abs()));
            let bound = 1.0 / inputs.sqrt();
            assert!(largest <= bound && largest > 0.95 * bound, "{largest} {bound}");
        }
        assert_ne!(first[layers[0].start..][..16], first[layers[1].start..][..16]);
    }
}
