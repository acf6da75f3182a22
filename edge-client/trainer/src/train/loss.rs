//! How outputs and targets become a loss and a gradient.
//!
//! The loss of a batch is `(sum_k v_k l_k) / targets` with `v` the weight of the target's sample (1 in evaluation). Sums over
//! targets are `f64`. NaN is not capped, so that divergence is detected.

use common::plan::{Loss, PlanInfo};

use super::{FULL, Float, part::value};
use crate::data::DataError;

mod regress;
pub(super) mod robust;
mod softmax;

/// Largest loss of one target, so that a single outlier does not dominate the mean.
pub const LOSS_CAP: f64 = 1e4;

/// The targets of a batch. Rows are those of the batch, positions the targets of a sample.
pub trait Truth {
    /// The label at a position.
    fn class(&self, row: usize, position: usize) -> Result<u32, DataError>;
    /// The number to predict at a position.
    fn value(&self, row: usize, position: usize) -> Result<f32, DataError>;
    /// Weight of a sample in training.
    fn weight(&self, _row: usize) -> Result<f32, DataError> {
        Ok(1.0)
    }
}

/// Classes in memory, `per_row` for every row.
#[derive(Copy, Clone, Debug)]
pub struct TargetLabels<'a> {
    /// All labels, row after row.
    pub labels: &'a [u32],
    /// Labels per row.
    pub per_row: usize,
}

/// Numbers in memory, `per_row` for every row.
#[derive(Copy, Clone, Debug)]
pub struct TargetValues<'a> {
    /// All numbers, row after row.
    pub values: &'a [f32],
    /// Numbers per row.
    pub per_row: usize,
}

impl Truth for TargetLabels<'_> {
    fn class(&self, row: usize, position: usize) -> Result<u32, DataError> {
        look_up(self.labels, self.per_row, row, position)
    }

    fn value(&self, row: usize, position: usize) -> Result<f32, DataError> {
        self.class(row, position).map(|label| label as f32)
    }
}

impl Truth for TargetValues<'_> {
    fn class(&self, row: usize, position: usize) -> Result<u32, DataError> {
        let value = self.value(row, position)?;
        let wrong = DataError::Label { index: row as u32, label: u32::MAX, classes: 0 };
        if value >= 0.0 && value as u32 as f32 == value { Ok(value as u32) } else { Err(wrong) }
    }

    fn value(&self, row: usize, position: usize) -> Result<f32, DataError> {
        look_up(self.values, self.per_row, row, position)
    }
}

fn look_up<T: Copy>(values: &[T], per_row: usize, row: usize, position: usize) -> Result<T, DataError> {
    let missing =
        DataError::NoTarget { index: row as u32, position: position as u32, targets: per_row as u32 };
    let at = row.checked_mul(per_row).and_then(|at| at.checked_add(position));
    let inside = position < per_row;
    at.filter(|_| inside).and_then(|at| values.get(at)).copied().ok_or(missing)
}

/// Sum of losses and number of correct predictions over some samples.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub struct LossTally {
    /// Samples so far.
    pub samples: u32,
    /// Labels or target numbers; one per sample in plain classification.
    pub targets: u32,
    /// Targets that were predicted correctly.
    pub correct: u32,
    /// Sum, not mean.
    pub loss: f64,
}

impl LossTally {
    /// Mean loss per target.
    pub fn mean_loss(&self) -> f64 {
        if self.targets == 0 { 0.0 } else { self.loss / f64::from(self.targets) }
    }

    fn add(&mut self, loss: f64, correct: bool) {
        self.targets += 1;
        self.correct += u32::from(correct);
        self.loss += loss;
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.samples += other.samples;
        self.targets += other.targets;
        self.correct += other.correct;
        self.loss += other.loss;
    }
}

pub(super) fn score<T: Float>(
    info: &PlanInfo,
    outputs: &[T],
    truth: &(impl Truth + ?Sized),
) -> Result<LossTally, DataError> {
    let mut tally = LossTally::default();
    for (row, outputs) in outputs.chunks_exact((info.outputs as usize).max(1)).enumerate() {
        score_row(info, row, outputs, truth, &mut tally)?;
    }
    Ok(tally)
}

/// Adds one sample.
pub(super) fn score_row<T: Float>(
    info: &PlanInfo,
    row: usize,
    outputs: &[T],
    truth: &(impl Truth + ?Sized),
    tally: &mut LossTally,
) -> Result<(), DataError> {
    tally.samples += 1;
    for (position, outputs) in outputs.chunks_exact(per_target(info)).enumerate() {
        let (loss, correct) = match info.loss {
            Loss::Softmax { classes } => softmax::score(outputs, label(truth, row, position, classes)?),
            Loss::Sigmoid => regress::sigmoid(value(outputs, 0), share(truth, row, position)?),
            Loss::Squared => regress::squared(value(outputs, 0), target(truth, row, position)?),
        };
        tally.add(loss, correct);
    }
    Ok(())
}

/// Replaces outputs by `scale * v * dl/doutput`; the returned tally holds `v * l`.
pub(super) fn gradient<T: Float>(
    info: &PlanInfo,
    outputs: &mut [T],
    scale: T,
    truth: &(impl Truth + ?Sized),
) -> Result<LossTally, DataError> {
    let mut tally = LossTally::default();
    for (row, outputs) in outputs.chunks_exact_mut((info.outputs as usize).max(1)).enumerate() {
        tally.samples += 1;
        let weight = truth.weight(row)?;
        let scale = T::from_f32(weight) * scale;
        for (position, outputs) in outputs.chunks_exact_mut(per_target(info)).enumerate() {
            let (loss, correct) = match info.loss {
                Loss::Softmax { classes } => {
                    softmax::gradient(outputs, label(truth, row, position, classes)?, scale)
                }
                Loss::Sigmoid => {
                    let wanted = share(truth, row, position)?;
                    let result = regress::sigmoid(value(outputs, 0), wanted);
                    regress::sigmoid_gradient(outputs, wanted, scale);
                    result
                }
                Loss::Squared => {
                    let wanted = target(truth, row, position)?;
                    let result = regress::squared(value(outputs, 0), wanted);
                    regress::squared_gradient(outputs, wanted, scale);
                    result
                }
            };
            tally.add(f64::from(weight) * loss, correct);
        }
    }
    Ok(tally)
}

fn per_target(info: &PlanInfo) -> usize {
    match info.loss {
        Loss::Softmax { classes } => classes.max(1) as usize,
        Loss::Sigmoid | Loss::Squared => 1,
    }
}

fn label(
    truth: &(impl Truth + ?Sized),
    row: usize,
    position: usize,
    classes: u32,
) -> Result<usize, DataError> {
    let label = truth.class(row, position)?;
    let wrong = DataError::Label { index: row as u32, label, classes };
    if label < classes { Ok(label as usize) } else { Err(wrong) }
}

fn target<T: Float>(truth: &(impl Truth + ?Sized), row: usize, position: usize) -> Result<T, DataError> {
    let value = truth.value(row, position)?;
    let wrong = DataError::NonFinite { index: row, feature: position };
    if value.is_finite() { Ok(T::from_f32(value)) } else { Err(wrong) }
}

/// A target of a binary model. Boards have labels only, which the gateway has checked.
fn share<T: Float>(truth: &(impl Truth + ?Sized), row: usize, position: usize) -> Result<T, DataError> {
    let share: T = target(truth, row, position)?;
    if FULL && !(0.0..=1.0).contains(&share.to_f64()) {
        return Err(DataError::NotBinary { index: row as u32, position: position as u32 });
    }
    Ok(share)
}

/// `f64::min` would turn NaN into the cap.
fn capped(loss: f64) -> f64 {
    if loss > LOSS_CAP { LOSS_CAP } else { loss }
}
