//! Where a device's updates have pointed, round after round.
//!
//! ```text
//! m = median of all cosines of the round
//! m >= screen   lean += cosine / m, within [-1, 1]       the fleet agrees, so the round can tell
//! otherwise     lean *= 0.9                              it does not: forget slowly
//! found out     when lean <= -1.9; believed again when lean > -1
//! ```
//! A cosine alone says little: near the end of training the others' sum points away from everybody, and an honest device with
//! unusual data points away now and then. Whoever sends its update with the sign flipped has minus the usual cosine, in every round
//! in which there is a usual one.

use serde::{Deserialize, Serialize};

const FOUND_OUT: f32 = -1.9;
const BELIEVED_AGAIN: f32 = -1.0;
/// What is remembered at most. Good conduct can not be saved up for long.
const MOST: (f32, f32) = (-6.0, 3.0);
const FORGET: f32 = 0.9;

#[derive(Copy, Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Lean {
    pub sum: f32,
    /// It was found out and is not believed again yet.
    pub away: bool,
}

impl Lean {
    /// One round more; true if it is found out now. `agreed` is the middle from which on a round can tell.
    pub fn turn(&mut self, cosine: f64, middle: f64, agreed: f64) -> bool {
        if middle >= agreed && middle > 0.0 {
            let against = (cosine / middle).clamp(-1.0, 1.0) as f32;
            self.sum = (self.sum + against).clamp(MOST.0, MOST.1);
        } else {
            self.sum *= FORGET;
        }
        let was = self.away;
        self.away = if was { self.sum <= BELIEVED_AGAIN } else { self.sum <= FOUND_OUT };
        self.away && !was
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGREED: f64 = 0.15;

    fn after(lean: &mut Lean, rounds: usize, cosine: f64, middle: f64) -> bool {
        (0..rounds).for_each(|_| _ = lean.turn(cosine, middle, AGREED));
        lean.away
    }

    #[test]
    fn who_flips_is_found_out_and_who_stops_is_believed_again() {
        let mut lean = Lean::default();
        assert!(!lean.turn(-0.4, 0.4, AGREED));
        assert!(lean.turn(-0.4, 0.4, AGREED), "two rounds are enough");
        assert!(!lean.turn(-0.4, 0.4, AGREED), "and are told once");
        assert!(after(&mut lean, 20, -0.4, 0.4));
        assert!(!after(&mut lean, 6, 0.4, 0.4));
    }

    #[test]
    fn good_conduct_is_not_saved_up() {
        let mut lean = Lean::default();
        assert!(!after(&mut lean, 1000, 0.9, 0.4));
        assert!(after(&mut lean, 5, -0.4, 0.4));
    }

    #[test]
    fn where_nobody_agrees_nobody_is_found_out() {
        let mut lean = Lean::default();
        assert!(!after(&mut lean, 1000, -0.9, 0.1));
        assert!(!after(&mut lean, 1000, -0.9, -0.5));
        // Nor does a guard that looks at everything trip over a middle of nothing.
        assert!(!lean.turn(-1.0, 0.0, 0.0) && lean.sum.is_finite());
    }

    #[test]
    fn who_stands_aside_is_not_against() {
        let mut lean = Lean::default();
        assert!((0..100).all(|round| !lean.turn(if round % 2 == 0 { 0.1 } else { -0.1 }, 0.5, AGREED)));
    }
}
