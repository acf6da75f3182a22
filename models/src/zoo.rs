//! Models that come with FairTier, by name. Weights are drawn from a seed, so no files are needed; `zoo/` holds some as ONNX for
//! trying the tools.

use common::rng::{Rng, derive};

use crate::graph::{Graph, Op};

mod nets;
mod random;
use nets::Design;
pub use nets::{cnn, lstm, mlp};
pub use random::random;

const FIVE: &[f64] = &[1.0, 0.75, 0.5, 0.35, 0.25];
const QUARTERS: &[f64] = &[1.0, 0.75, 0.5, 0.25];
const EIGHTH: &[f64] = &[1.0, 0.7, 0.5, 0.25, 0.125];
/// No hidden axis: every tier is the whole model.
const WHOLE: &[f64] = &[1.0];

/// Every model of the zoo.
pub const ALL: &[Entry] = &[
    Entry {
        name: "mnist-mlp",
        description: "two hidden layers for 28x28 images of digits, 10 classes",
        rates: EIGHTH,
        design: Design::Mlp(&[784, 200, 100, 10]),
    },
    Entry {
        name: "femnist-mlp",
        description: "one hidden layer for 28x28 images of characters, 10 classes",
        rates: &[1.0, 0.7, 0.45, 0.25, 0.125],
        design: Design::Mlp(&[784, 64, 10]),
    },
    Entry {
        name: "cifar-cnn",
        description: "two convolutions 3x3, pooling, dropout, dense 128 for 32x32 colour images, 10 classes",
        rates: FIVE,
        design: Design::CifarCnn,
    },
    Entry {
        name: "shakespeare-gru",
        description: "embedding 256, GRU 1024: the next of 86 characters, in sequences of 50",
        rates: FIVE,
        design: Design::CharGru { entries: 86, width: 256, units: 1024, steps: 50 },
    },
    Entry {
        name: "fmnist-mlp",
        description: "FedLF and FedEBA+: two hidden layers of 200 for 28x28 images, 10 classes",
        rates: EIGHTH,
        design: Design::Mlp(&[784, 200, 200, 10]),
    },
    Entry {
        name: "cifar-cnn-5x5",
        description: "FedLF and FedEBA+: two convolutions 5x5 of 64, dense 384 and 192, 10 classes",
        rates: FIVE,
        design: Design::Lenet { image: [3, 32, 32], channels: [64, 64], units: &[384, 192], classes: 10 },
    },
    Entry {
        name: "emnist-linear",
        description: "EAGLE: one layer for 28x28 images of characters, 62 classes",
        rates: WHOLE,
        design: Design::Mlp(&[784, 62]),
    },
    Entry {
        name: "emnist-cnn",
        description: "EAGLE: two convolutions 5x5, dense 128 for 28x28 images of characters, 62 classes",
        rates: FIVE,
        design: Design::Lenet { image: [1, 28, 28], channels: [32, 64], units: &[128], classes: 62 },
    },
    Entry {
        name: "fairness-mlp",
        description: "FedFB: 4 hidden units for two features and a group, one logit",
        rates: &[1.0, 0.5],
        design: Design::Mlp(&[3, 4, 1]),
    },
    Entry {
        name: "fairness-logistic",
        description: "FedFB: logistic regression on two features and a group, one logit",
        rates: WHOLE,
        design: Design::Mlp(&[3, 1]),
    },
    Entry {
        name: "cifar-resnet",
        description: "three residual blocks with group normalisation for 32x32 colour images, 10 classes",
        rates: QUARTERS,
        design: Design::Resnet,
    },
    Entry {
        name: "motion-cnn",
        description: "1-D convolutions (one depthwise) for 128 samples of a 3-axis accelerometer, 6 classes",
        rates: QUARTERS,
        design: Design::MotionCnn,
    },
    Entry {
        name: "digits-mlp",
        description: "one hidden layer for 8x8 images of digits, 10 classes; fits a microcontroller",
        rates: EIGHTH,
        design: Design::Mlp(&[64, 32, 10]),
    },
    Entry {
        name: "digits-cnn",
        description: "one convolution 3x3 for 8x8 images of digits, 10 classes; fits a microcontroller",
        rates: &[1.0, 0.5, 0.25],
        design: Design::DigitsCnn,
    },
    Entry {
        name: "digits-gru",
        description: "GRU 16 over the rows of 8x8 images of digits, 10 classes; fits a microcontroller",
        rates: &[1.0, 0.5, 0.25],
        design: Design::DigitsGru,
    },
];

/// A model by its name, with weights drawn from `seed`: one of [`ALL`], dense layers with ReLU such as `mlp:784-100-10`,
/// convolutions ([`cnn`]) such as `cnn:28-4-8-10`, or an LSTM ([`lstm`]) such as `lstm:8-8-16-10`.
pub fn build(name: &str, seed: u64) -> Option<(Graph, Vec<f32>)> {
    if let Some(entry) = by_name(name) {
        return Some(entry.build(seed));
    }
    let (kind, widths) = name.split_once(':')?;
    let widths: Vec<u32> = widths.split('-').map(str::parse).collect::<Result<_, _>>().ok()?;
    let graph = match kind {
        "mlp" => mlp(name, &widths).ok()?,
        "cnn" => cnn(name, &widths).ok()?,
        "lstm" => lstm(name, &widths).ok()?,
        _ => return None,
    };
    let parameters = initial(&graph, seed);
    Some((graph, parameters))
}

/// The model of the zoo with this name.
pub fn by_name(name: &str) -> Option<Entry> {
    ALL.iter().find(|entry| entry.name == name).copied()
}

/// A model of the zoo.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Entry {
    /// As in `model.source`.
    pub name: &'static str,
    /// What it is for, in one line.
    pub description: &'static str,
    /// Rates of the usual tiers, widest first.
    pub rates: &'static [f64],
    design: Design,
}

impl Entry {
    /// The model with weights drawn from `seed`.
    pub fn build(&self, seed: u64) -> (Graph, Vec<f32>) {
        let graph = self.design.graph(self.name).expect("tests build every entry of the table");
        let parameters = initial(&graph, seed);
        (graph, parameters)
    }
}

/// Parameters as PyTorch draws them: weights and biases of dense, convolutional and recurrent layers
/// uniform in `(-1/sqrt(n), 1/sqrt(n))` with `n` the inputs of a unit (recurrent: the units), tables
/// normal, scales 1 and shifts 0. Every tensor has its own stream.
pub fn initial(graph: &Graph, seed: u64) -> Vec<f32> {
    let full = graph.full();
    let mut parameters = Vec::with_capacity(graph.layout().len());
    let mut drawn = 0;
    for node in graph.nodes() {
        let shapes: Vec<_> = node.op.params().map(|param| &graph.param_shapes()[param.index()]).collect();
        let bound = |inputs: usize| 1.0 / (inputs.max(1) as f64).sqrt();
        for (place, param) in node.op.params().enumerate() {
            // A shared parameter was drawn where it was used first.
            if param.index() < drawn {
                continue;
            }
            drawn = param.index() + 1;
            let mut rng = Rng::new(derive(seed, u64::from(param.0)));
            let len = shapes[place].len(full);
            let draw: &mut dyn FnMut() -> f64 = match node.op {
                Op::Embed { .. } => &mut || rng.normal(),
                // As PyTorch.
                Op::PRelu { .. } => &mut || 0.25,
                Op::LayerNorm { .. } | Op::GroupNorm { .. } | Op::BatchNorm { .. } => {
                    &mut || if place == 0 { 1.0 } else { 0.0 }
                }
                Op::Gru { .. } | Op::Recurrent { .. } => {
                    let units = node.shape.dims.last().map_or(1, |dim| dim.size(full));
                    &mut move || (2.0 * rng.unit_f64() - 1.0) * bound(units)
                }
                _ => {
                    let inputs = shapes[0].dims.iter().skip(1).map(|dim| dim.size(full)).product();
                    &mut move || (2.0 * rng.unit_f64() - 1.0) * bound(inputs)
                }
            };
            parameters.extend((0..len).map(|_| draw() as f32));
        }
    }
    parameters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameter_counts_of_all_tiers() {
        let expected: [(&str, &[usize]); 15] = [
            ("mnist-mlp", &[178_110, 120_480, 84_060, 40_785, 20_067]),
            ("femnist-mlp", &[50_890, 34_990, 22_270, 12_730, 6_370]),
            ("cifar-cnn", &[1_060_138, 596_770, 265_626, 125_806, 66_706]),
            ("shakespeare-gru", &[4_048_470, 2_452_054, 1_248_854, 714_474, 438_870]),
            ("fmnist-mlp", &[199_210, 131_050, 89_610, 42_310, 20_535]),
            ("cifar-cnn-5x5", &[797_962, 450_250, 201_354, 97_353, 51_274]),
            ("emnist-linear", &[48_670]),
            ("emnist-cnn", &[191_294, 109_310, 50_110, 24_680, 13_694]),
            ("fairness-mlp", &[21, 11]),
            ("fairness-logistic", &[4]),
            ("cifar-resnet", &[78_186, 44_338, 20_026, 5_250]),
            ("motion-cnn", &[4_198, 2_478, 1_206, 382]),
            ("digits-mlp", &[2_410, 1_660, 1_210, 610, 310]),
            ("digits-cnn", &[1_370, 690, 350]),
            ("digits-gru", &[1_418, 522, 218]),
        ];
        assert_eq!(expected.map(|(name, _)| name), *ALL.iter().map(|entry| entry.name).collect::<Vec<_>>());
        for (name, counts) in expected {
            let entry = by_name(name).unwrap();
            let (graph, parameters) = entry.build(0);
            assert_eq!(parameters.len(), graph.layout().len(), "{name}");
            let tiers = entry.rates.iter().map(|&rate| {
                let mask = graph.full().at_rate(rate).unwrap();
                assert_eq!(graph.check_mask(&mask), Ok(()), "{name} at {rate}");
                graph.gather(&mask, &parameters).unwrap().len()
            });
            assert_eq!(tiers.collect::<Vec<_>>(), counts, "{name}");
        }
        assert_eq!(by_name("resnet-50"), None);
    }

    #[test]
    fn dense_layers_by_their_widths() {
        let (graph, parameters) = build("mlp:7-4-1", 0).unwrap();
        assert_eq!((parameters.len(), graph.layers().len()), (7 * 4 + 4 + 4 + 1, 2));
        assert_eq!(build("mlp:784-200-100-10", 3).unwrap().1, by_name("mnist-mlp").unwrap().build(3).1);
        for wrong in ["mlp:", "mlp:3", "mlp:3-x", "mlp:3-0", "mlp"] {
            assert!(build(wrong, 0).is_none(), "{wrong}");
        }
    }

    #[test]
    fn convolutions_by_their_channels() {
        let (graph, parameters) = build("cnn:28-4-8-10", 0).unwrap();
        assert_eq!(parameters.len(), (9 * 4 + 4) + (9 * 4 * 8 + 8) + (7 * 7 * 8 * 10 + 10));
        let half = graph.full().at_rate(0.5).unwrap();
        assert_eq!(graph.gather(&half, &parameters).unwrap().len(), 20 + 76 + 1970);
        for wrong in ["cnn:", "cnn:28", "cnn:28-10", "cnn:28-0-10", "cnn:0-4-10", "rnn:28-4-10"] {
            assert!(build(wrong, 0).is_none(), "{wrong}");
        }
    }

    #[test]
    fn an_lstm_by_its_sizes() {
        let (graph, parameters) = build("lstm:8-6-16-10", 0).unwrap();
        assert_eq!(parameters.len(), 4 * 16 * (6 + 16 + 2) + 16 * 10 + 10);
        let half = graph.full().at_rate(0.5).unwrap();
        assert_eq!(graph.gather(&half, &parameters).unwrap().len(), 4 * 8 * (6 + 8 + 2) + 8 * 10 + 10);
        for wrong in ["lstm:", "lstm:8-16-10", "lstm:8-6-0-10", "lstm:0-6-16-10", "lstm:8-6-16-16-10"] {
            assert!(build(wrong, 0).is_none(), "{wrong}");
        }
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
