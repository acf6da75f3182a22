//! `fairtier model`: arguments and output. The library does the work.

use std::path::PathBuf;

use crate::{Graph, plan::default_loss};
use clap::{Args, Subcommand, ValueEnum};
use common::plan::Loss;

pub mod check;
mod examples;
pub mod grad;
pub mod inspect;
pub mod plan;
mod program;
pub mod table;
pub mod uncut;

/// `fairtier model`.
#[derive(Debug, Args)]
#[command(after_help = examples::ALL)]
pub struct ModelTools {
    #[command(subcommand)]
    pub command: ModelCommand,
    /// How to print results
    #[arg(long, global = true, value_enum, default_value_t = OutputFormat::Table)]
    pub format: OutputFormat,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
pub enum OutputFormat {
    Table,
    Json,
}

#[derive(Debug, Subcommand)]
pub enum ModelCommand {
    /// Shows layers, parameters, hidden axes, and what every tier needs
    #[command(after_help = examples::INSPECT)]
    Inspect {
        #[command(flatten)]
        source: ModelArgs,
        #[command(flatten)]
        tiers: TiersArgs,
    },
    /// Writes the sub-model of one tier as ONNX
    #[command(after_help = examples::SLICE)]
    Slice {
        #[command(flatten)]
        source: ModelArgs,
        #[command(flatten)]
        tier: TierArgs,
        /// File to write
        #[arg(long)]
        out: PathBuf,
        /// End with logits even if the model ends with a softmax or sigmoid
        #[arg(long)]
        logits: bool,
    },
    /// Writes the whole model and the sub-model of every tier as ONNX
    #[command(after_help = examples::EXPORT)]
    Export {
        #[command(flatten)]
        source: ModelArgs,
        #[command(flatten)]
        tiers: TiersArgs,
        /// Directory to write to; made if needed
        #[arg(long)]
        out: PathBuf,
        /// End with logits even if the model ends with a softmax or sigmoid
        #[arg(long)]
        logits: bool,
    },
    /// Computes the exact needs of one tier, and finds a setting that fits the RAM
    #[command(after_help = examples::PLAN)]
    Plan {
        #[command(flatten)]
        source: ModelArgs,
        #[command(flatten)]
        need: PlanArgs,
    },
    /// Checks whether a model is supported and can be sliced, and whether outputs and gradients are right
    #[command(after_help = examples::CHECK)]
    Check {
        #[command(flatten)]
        source: ModelArgs,
        #[command(flatten)]
        check: CheckArgs,
    },
    /// Writes loss and gradients on given samples, as NumPy's .npz
    #[command(after_help = examples::GRAD)]
    Grad {
        #[command(flatten)]
        source: ModelArgs,
        #[command(flatten)]
        grad: GradArgs,
    },
    /// Lists the models that come with FairTier
    #[command(after_help = examples::ZOO)]
    Zoo,
}

#[derive(Debug, Args)]
pub struct ModelArgs {
    /// ONNX file, a name from `fairtier model zoo`, or layers as in mlp:4-16-3 or cnn:28-4-8-10
    pub model: String,
    /// Draws the weights of a zoo model
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Keep hidden axes whole that a rate below 1 cannot cut, instead of refusing the rate
    #[arg(long)]
    pub keep_whole: bool,
}

#[derive(Debug, Args)]
pub struct TiersArgs {
    /// Width rates, widest first; by default those of the zoo model, or 1,0.7,0.5,0.25,0.125
    #[arg(long, value_delimiter = ',', value_parser = rate)]
    pub tiers: Option<Vec<f64>>,
    /// Samples per batch for which memory is counted
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..))]
    pub batch: u16,
}

#[derive(Debug, Args)]
pub struct PlanArgs {
    /// Share of every hidden axis to keep, such as 0.5; by default all
    #[arg(long, value_parser = rate, conflicts_with = "widths")]
    pub tier: Option<f64>,
    /// Units to keep of every hidden axis, in model order
    #[arg(long, value_delimiter = ',')]
    pub widths: Option<Vec<u32>>,
    /// Samples per optimiser step
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..))]
    pub batch: u16,
    /// Optimiser whose state must have room
    #[arg(long, value_enum, default_value_t = OptimizerKind::Sgd)]
    pub optimizer: OptimizerKind,
    /// Bytes of RAM for the arena, such as 64k; finds a setting that fits
    #[arg(long, value_parser = plan::bytes)]
    pub ram: Option<u64>,
    /// Bytes of flash for the parameters, such as 256k
    #[arg(long, value_parser = plan::bytes)]
    pub flash: Option<u64>,
    /// Room for the residual of a lossy codec
    #[arg(long)]
    pub error_feedback: bool,
    /// Room for a second vector: a fair gradient that is sent along, or a first step that is sent back
    #[arg(long)]
    pub guide: bool,
    /// Room for a personal model that stays on the device
    #[arg(long)]
    pub personal: bool,
    /// Train only this many of the last layers
    #[arg(long, value_name = "LAYERS")]
    pub last: Option<u16>,
    /// Multiply the outputs of cut layers by HeteroFL's scaler
    #[arg(long)]
    pub scaler: bool,
    /// List every buffer
    #[arg(long)]
    pub buffers: bool,
    /// Training samples of a device: prints the work of a round, and the share of a fairness target in it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub samples: Option<u32>,
    /// Passes over the samples in a round
    #[arg(long, default_value_t = 1, requires = "samples", value_parser = clap::value_parser!(u16).range(1..))]
    pub epochs: u16,
}

#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Width rates; by default those of the zoo model, or 1,0.7,0.5,0.25,0.125
    #[arg(long, value_delimiter = ',', value_parser = rate)]
    pub tiers: Option<Vec<f64>>,
    /// Loss to check with; by default softmax, or sigmoid where the model ends with one or the last axis of its output has size 1
    #[arg(long, value_enum)]
    pub loss: Option<LossKind>,
    /// Random samples
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(2..=1024))]
    pub samples: u16,
    /// Single numbers of every parameter whose gradient is compared with finite differences
    #[arg(long, default_value_t = 2)]
    pub probes: u16,
}

#[derive(Debug, Args)]
pub struct GradArgs {
    /// Samples, [N, ...] as the model takes them; whole numbers for an embedding
    #[arg(long, value_name = "X.npy")]
    pub inputs: PathBuf,
    /// Classes of shape (N), or (N, T) with one per token; for the other losses numbers of shape (N) or (N, outputs)
    #[arg(long, value_name = "Y.npy")]
    pub labels: PathBuf,
    /// File to write: `loss`, and every gradient under its initializer's name
    #[arg(long, value_name = "GRADS.npz")]
    pub out: PathBuf,
    /// Share of every hidden axis to keep, such as 0.5; by default all
    #[arg(long, value_parser = rate, conflicts_with = "widths")]
    pub tier: Option<f64>,
    /// Units to keep of every hidden axis, in model order
    #[arg(long, value_delimiter = ',')]
    pub widths: Option<Vec<u32>>,
    /// By default softmax, or sigmoid where the model ends with one or the last axis of its output has size 1
    #[arg(long, value_enum)]
    pub loss: Option<LossKind>,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
pub enum LossKind {
    /// Cross-entropy of classes
    Softmax,
    /// Binary cross-entropy of every output
    Sigmoid,
    /// Mean squared error
    Squared,
}

impl LossKind {
    pub fn of(kind: Option<Self>, graph: &Graph) -> Loss {
        let shape = graph.shape(graph.output().value);
        let last = shape.dims.last().map_or(1, |dim| dim.size(graph.full()));
        match kind {
            None => default_loss(graph),
            Some(Self::Softmax) => Loss::Softmax { classes: last as u32 },
            Some(Self::Sigmoid) => Loss::Sigmoid,
            Some(Self::Squared) => Loss::Squared,
        }
    }
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
pub enum OptimizerKind {
    Sgd,
    Momentum,
    Adam,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct TierArgs {
    /// Share of every hidden axis to keep, such as 0.5
    #[arg(long, value_parser = rate)]
    pub tier: Option<f64>,
    /// Units to keep of every hidden axis, in model order
    #[arg(long, value_delimiter = ',')]
    pub widths: Option<Vec<u32>>,
}

fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.trim().parse().map_err(|_| format!("'{text}' is not a number"))?;
    match rate > 0.0 && rate <= 1.0 {
        true => Ok(rate),
        false => Err("a rate must be in (0, 1], such as 0.5".to_owned()),
    }
}
