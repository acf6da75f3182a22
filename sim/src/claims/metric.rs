//! The numbers that claims and tables speak of, one per run: of the final model, unless said otherwise.

use serde::{Serialize, Serializer};

/// Losses in nats, accuracies as shares, variances of accuracy in percent squared, as the sources print them.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Metric {
    LossMean,
    LossVariance,
    LossWorst10,
    LossBest10,
    /// Variance of the tier means.
    LossInter,
    /// Variance inside tiers.
    LossWithin,
    /// Largest difference of two devices: client parity.
    LossMaxMin,
    /// Mean loss of a tier, 0 the widest.
    TierLoss(usize),
    /// Loss of the device with this number.
    DeviceLoss(usize),
    Accuracy,
    AccuracyVariance,
    AccuracyWorst5,
    AccuracyBest5,
    AccuracyWorst10,
    /// Radians.
    AccuracyAngle,
    AccuracyJain,
    /// All test samples together.
    PooledAccuracy,
    /// Of always predicting the more frequent label.
    ConstantAccuracy,
    GapMax,
    GapMin,
    GapVariance,
    Dp,
    EqualOpportunity,
    EqualizedOdds,
    /// Participants that an update worked against, mean over rounds.
    ModelConflicts,
    /// The same layer by layer, mean over layers and rounds.
    LayerConflicts,
    BytesUp,
    BytesDown,
    Bytes,
    /// Virtual time of the run.
    VirtualSeconds,
    /// Time that the aggregator took to combine.
    ServerSeconds,
}

/// How to write a number.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Unit {
    Plain,
    Percent,
    Bytes,
    Seconds,
}

impl Metric {
    pub fn name(self) -> String {
        match self {
            Self::TierLoss(tier) => format!("mean loss of tier {tier}"),
            Self::DeviceLoss(device) => format!("loss of device {device}"),
            other => other.fixed_name().into(),
        }
    }

    fn fixed_name(self) -> &'static str {
        match self {
            Self::LossMean => "mean loss",
            Self::LossVariance => "variance of loss",
            Self::LossWorst10 => "loss, worst 10 %",
            Self::LossBest10 => "loss, best 10 %",
            Self::LossInter => "variance of tier means",
            Self::LossWithin => "variance inside tiers",
            Self::LossMaxMin => "largest difference of losses",
            Self::TierLoss(_) => "mean loss of a tier",
            Self::DeviceLoss(_) => "loss of a device",
            Self::Accuracy => "accuracy",
            Self::AccuracyVariance => "variance of accuracy (percent²)",
            Self::AccuracyWorst5 => "accuracy, worst 5 %",
            Self::AccuracyBest5 => "accuracy, best 5 %",
            Self::AccuracyWorst10 => "accuracy, worst 10 %",
            Self::AccuracyAngle => "angle (radians)",
            Self::AccuracyJain => "Jain's index",
            Self::PooledAccuracy => "accuracy, pooled",
            Self::ConstantAccuracy => "constant predictor",
            Self::GapMax => "largest gap",
            Self::GapMin => "least gap",
            Self::GapVariance => "variance of gaps",
            Self::Dp => "DP disparity",
            Self::EqualOpportunity => "EO disparity",
            Self::EqualizedOdds => "EOdds disparity",
            Self::ModelConflicts => "model conflicts",
            Self::LayerConflicts => "layer conflicts",
            Self::BytesUp => "bytes up",
            Self::BytesDown => "bytes down",
            Self::Bytes => "bytes",
            Self::VirtualSeconds => "virtual time",
            Self::ServerSeconds => "server time",
        }
    }

    /// The name in published tables and in JSON.
    pub fn key(self) -> String {
        match self {
            Self::TierLoss(tier) => format!("loss_tier{tier}"),
            Self::DeviceLoss(device) => format!("loss_device{device}"),
            Self::LossMean => "loss".into(),
            Self::LossVariance => "loss_variance".into(),
            Self::LossWorst10 => "loss_worst10".into(),
            Self::LossBest10 => "loss_best10".into(),
            Self::LossInter => "loss_inter".into(),
            Self::LossWithin => "loss_within".into(),
            Self::LossMaxMin => "loss_max_min".into(),
            Self::Accuracy => "accuracy".into(),
            Self::AccuracyVariance => "accuracy_variance".into(),
            Self::AccuracyWorst5 => "accuracy_worst5".into(),
            Self::AccuracyBest5 => "accuracy_best5".into(),
            Self::AccuracyWorst10 => "accuracy_worst10".into(),
            Self::AccuracyAngle => "angle".into(),
            Self::AccuracyJain => "jain".into(),
            Self::PooledAccuracy => "pooled_accuracy".into(),
            Self::ConstantAccuracy => "constant_accuracy".into(),
            Self::GapMax => "gap_max".into(),
            Self::GapMin => "gap_min".into(),
            Self::GapVariance => "gap_variance".into(),
            Self::Dp => "dp".into(),
            Self::EqualOpportunity => "eo".into(),
            Self::EqualizedOdds => "eodds".into(),
            Self::ModelConflicts => "model_conflicts".into(),
            Self::LayerConflicts => "layer_conflicts".into(),
            Self::BytesUp => "bytes_up".into(),
            Self::BytesDown => "bytes_down".into(),
            Self::Bytes => "bytes".into(),
            Self::VirtualSeconds => "virtual_seconds".into(),
            Self::ServerSeconds => "server_seconds".into(),
        }
    }

    pub fn unit(self) -> Unit {
        match self {
            Self::Accuracy
            | Self::AccuracyWorst5
            | Self::AccuracyBest5
            | Self::AccuracyWorst10
            | Self::PooledAccuracy
            | Self::ConstantAccuracy => Unit::Percent,
            Self::BytesUp | Self::BytesDown | Self::Bytes => Unit::Bytes,
            Self::VirtualSeconds | Self::ServerSeconds => Unit::Seconds,
            _ => Unit::Plain,
        }
    }

    /// Whether more is better.
    pub fn high_is_good(self) -> bool {
        self.unit() == Unit::Percent || self == Self::AccuracyJain
    }
}

impl Serialize for Metric {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.key())
    }
}
