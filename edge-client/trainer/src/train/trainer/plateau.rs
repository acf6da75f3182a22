//! When training alone ends.

use common::message::Alone;

/// The best loss so far, and the number of epochs since it improved by more than the tolerance. This is equivalent to
/// comparing the best loss of the last `window` epochs with the best one before, and needs no list of losses.
#[derive(Copy, Clone, Debug)]
pub struct Plateau {
    best: Option<f64>,
    epochs: u32,
    window: u32,
    tolerance: f64,
}

impl Plateau {
    /// A plateau that is never reached.
    pub const NEVER: Self = Self { best: None, epochs: 0, window: u32::MAX, tolerance: 0.0 };

    /// With the window and tolerance of the task.
    pub fn new(alone: &Alone) -> Self {
        Self { window: alone.window.into(), tolerance: alone.tolerance.into(), ..Self::NEVER }
    }

    /// Adds the mean loss of an epoch.
    pub fn note(&mut self, loss: f64) {
        if self.best.is_none_or(|best| best - loss > self.tolerance * best.abs()) {
            *self = Self { best: Some(loss), epochs: 0, ..*self };
        } else {
            self.epochs = self.epochs.saturating_add(1);
        }
    }

    /// True after `window` epochs without improvement.
    pub fn is_reached(&self) -> bool {
        self.epochs >= self.window
    }
}

#[cfg(test)]
mod tests {
    use common::brief::Brief;

    use super::*;

    fn end(losses: impl IntoIterator<Item = f64>) -> Option<usize> {
        let alone = Alone { brief: Brief::sgd(1, 1, 0.1, 0), window: 3, tolerance: 0.01 };
        let mut plateau = Plateau::new(&alone);
        losses.into_iter().position(|loss| {
            plateau.note(loss);
            plateau.is_reached()
        })
    }

    #[test]
    fn ends_after_a_window_without_improvement() {
        assert_eq!(end([1.0, 0.9, 0.9, 0.9, 0.9, 0.9]), Some(4));
        assert_eq!(end([1.0, 0.995, 0.993, 0.991, 0.5]), Some(3), "improvements below the tolerance");
        assert_eq!(end([1.0, 1.2, 1.2, 0.9, 1.0, 1.0]), None, "a late improvement counts");
        assert_eq!(end((0..50).map(|epoch| 0.994f64.powi(epoch))), None, "slow but steady");
        assert_eq!(end([0.0; 5]), Some(3));
    }
}
