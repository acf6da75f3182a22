//! Whether training diverges, without I/O.
//!
//! ```text
//! not finite   more devices have failed with a loss or an update that is not finite than have delivered
//! too large    median of the training losses > factor x median of the first round
//! ```
//! Medians, and a majority: a minority of devices cannot end a run. The losses of a round are those of the model that it
//! began with. So the step that made the loss grow is that of the round before, and its model is taken back.

use std::fmt;

use common::Code;

/// A first loss below this counts as this: a small loss grows tenfold by chance.
const LEAST_START: f64 = 0.1;

/// Why training has diverged.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum Divergence {
    /// The losses or updates of most devices are not finite.
    NotFinite {
        /// Devices that have failed.
        failed: usize,
        /// Devices that have answered at all.
        of: usize,
    },
    /// The loss is many times that of the first round.
    TooLarge {
        /// Median over devices.
        loss: f64,
        /// The same in the first round.
        start: f64,
    },
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFinite { failed, of } => {
                write!(f, "losses or updates of {failed} of {of} devices are not finite")
            }
            Self::TooLarge { loss, start } => {
                write!(f, "the training loss is {loss:.4}, and was {start:.4} in the first round")
            }
        }
    }
}

/// What is remembered of earlier rounds.
#[derive(Clone, Debug, Default)]
pub struct LossWatch {
    /// Median training loss of the first round with devices.
    pub start: Option<f64>,
    /// The model before the last step and its round, as far as they are known.
    pub before: Option<(u32, Vec<f32>)>,
}

impl LossWatch {
    /// Looks at the training losses of a round; `failed` devices had none that is finite. A factor of 0 switches it off.
    pub(super) fn check(&mut self, factor: f64, losses: &[f64], failed: usize) -> Option<Divergence> {
        let loss = median(losses);
        let found = match (loss, self.start) {
            _ if factor <= 0.0 => None,
            _ if failed > losses.len() => Some(Divergence::NotFinite { failed, of: failed + losses.len() }),
            (Some(loss), Some(start)) if !(loss <= factor * start.max(LEAST_START)) => {
                Some(Divergence::TooLarge { loss, start })
            }
            _ => None,
        };
        if found.is_none() {
            self.start = self.start.or(loss);
        }
        found
    }
}

/// Whether an answer was refused because training has diverged on the device.
pub(super) fn is_not_finite(code: Code) -> bool {
    matches!(code, Code::NonFiniteLoss | Code::NonFiniteUpdate)
}

/// The upper one of two.
fn median(values: &[f64]) -> Option<f64> {
    let mut values = values.to_vec();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_times_the_first_loss_is_too_large() {
        let mut watch = LossWatch::default();
        assert_eq!(watch.check(10.0, &[], 0), None);
        assert_eq!(watch.start, None, "an empty round has no loss");
        assert_eq!(watch.check(10.0, &[2.0, 1.0, 3.0], 0), None);
        assert_eq!(watch.start, Some(2.0));
        assert_eq!(watch.check(10.0, &[20.0, 20.0, 20.0], 0), None);
        let found = watch.check(10.0, &[20.5, 19.0, 21.0], 0);
        assert_eq!(found, Some(Divergence::TooLarge { loss: 20.5, start: 2.0 }));
        assert_eq!(watch.check(0.0, &[2e9], 5), None);
        assert_eq!(watch.start, Some(2.0));
    }

    #[test]
    fn a_minority_cannot_end_a_run() {
        let mut watch = LossWatch { start: Some(1.0), before: None };
        assert_eq!(watch.check(10.0, &[1e30, 1.0, 0.5], 0), None);
        assert_eq!(watch.check(10.0, &[1.0, 0.5], 2), None);
        assert_eq!(watch.check(10.0, &[0.5], 2), Some(Divergence::NotFinite { failed: 2, of: 3 }));
        assert_eq!(watch.check(10.0, &[], 1), Some(Divergence::NotFinite { failed: 1, of: 1 }));
        assert!(watch.check(10.0, &[f64::NAN], 0).is_some());
    }

    #[test]
    fn small_losses_may_vary() {
        let mut watch = LossWatch { start: Some(0.001), before: None };
        assert_eq!(watch.check(10.0, &[0.9], 0), None);
        assert!(watch.check(10.0, &[1.1], 0).is_some());
    }
}
