//! What a model says of a sample.

use common::plan::{Loss, Plan};

use super::{Backend, Float, PassMode, TrainError, executor::predictions, forward};

/// Computes the outputs for the sample in the first row of the input buffer.
pub fn predict<'a>(
    plan: Plan<'_>,
    arena: &'a mut [f32],
    backend: &mut (impl Backend<f32> + ?Sized),
) -> Result<&'a [f32], TrainError> {
    forward(plan, arena, 1, PassMode::Evaluate, backend)?;
    predictions(plan, arena, 1)
}

/// The answer for one sample.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Prediction {
    /// The class with the largest score, the first of equals; 0 for a number.
    pub class: u32,
    /// Its probability, or the predicted number.
    pub score: f32,
}

impl Prediction {
    /// What these outputs say at their first position; `None` without outputs.
    pub fn of(loss: Loss, outputs: &[f32]) -> Option<Self> {
        let &first = outputs.first()?;
        match loss {
            Loss::Squared => Some(Self { class: 0, score: first }),
            // A single logit is that of class 1.
            Loss::Sigmoid if outputs.len() == 1 => {
                let one = first.sigmoid();
                Some(if first > 0.0 {
                    Self { class: 1, score: one }
                } else {
                    Self { class: 0, score: 1.0 - one }
                })
            }
            Loss::Sigmoid => {
                let (class, largest) = peak(outputs);
                Some(Self { class, score: largest.sigmoid() })
            }
            Loss::Softmax { classes } => {
                let logits = outputs.get(..classes as usize)?;
                let (class, largest) = peak(logits);
                let sum = logits.iter().fold(0.0, |sum, &logit| sum + Float::exp(logit - largest));
                Some(Self { class, score: 1.0 / sum })
            }
        }
    }
}

fn peak(logits: &[f32]) -> (u32, f32) {
    let first = (0, logits.first().copied().unwrap_or(f32::NEG_INFINITY));
    logits.iter().zip(0..).fold(first, |best, (&logit, at)| if logit > best.1 { (at, logit) } else { best })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_probabilities_or_numbers() {
        let of = |loss, outputs: &[f32]| Prediction::of(loss, outputs).map(|it| (it.class, it.score));
        assert_eq!(of(Loss::Softmax { classes: 2 }, &[3.0, 3.0]), Some((0, 0.5)));
        let (class, score) = of(Loss::Softmax { classes: 3 }, &[0.0, 2.0, 1.0]).unwrap();
        assert!(class == 1 && (score - 0.665_240_9).abs() < 1e-6, "{score}");
        assert_eq!(of(Loss::Sigmoid, &[0.0]), Some((0, 0.5)));
        assert_eq!(of(Loss::Sigmoid, &[30.0]).map(|it| it.0), Some(1));
        assert_eq!(of(Loss::Sigmoid, &[-1.0, 0.0, -2.0]), Some((1, 0.5)));
        assert_eq!(of(Loss::Squared, &[-7.5]), Some((0, -7.5)));
        // Large logits do not overflow.
        assert_eq!(of(Loss::Softmax { classes: 2 }, &[900.0, -900.0]), Some((0, 1.0)));
        assert_eq!((of(Loss::Squared, &[]), of(Loss::Softmax { classes: 2 }, &[1.0])), (None, None));
    }
}
