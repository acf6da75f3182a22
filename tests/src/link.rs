//! A link in memory with faults. [`Faults`] gives their probabilities, and a seed decides.
//!
//! Frames have random delays, so they overtake one another; each may also be lost, repeated or
//! garbled, and with each the whole connection may break.

use common::rng::Rng;

/// How bad a link is; each number is a probability per frame.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Faults {
    pub lose: f64,
    pub repeat: f64,
    pub garble: f64,
    pub break_off: f64,
    /// Longest delay of a frame in milliseconds; 0 keeps the order.
    pub delay_ms: u64,
    /// Longest time until a broken link works again, in milliseconds.
    pub outage_ms: u64,
}

impl Faults {
    /// Every frame arrives at once and in order.
    pub const NONE: Self =
        Self { lose: 0.0, repeat: 0.0, garble: 0.0, break_off: 0.0, delay_ms: 0, outage_ms: 1 };

    /// Drawn from a seed: from nearly harmless to hardly usable.
    pub fn drawn(rng: &mut Rng) -> Self {
        let mut up_to = |limit: f64| limit * rng.unit_f64();
        Self {
            lose: up_to(0.15),
            repeat: up_to(0.15),
            garble: up_to(0.02),
            break_off: up_to(0.01),
            delay_ms: up_to(30.0) as u64,
            outage_ms: 1 + up_to(3000.0) as u64,
        }
    }
}

/// What happens to one frame: its copies with their delays, and whether the link breaks.
#[derive(Debug)]
pub struct Fate {
    pub copies: Vec<(u64, Vec<u8>)>,
    pub broken: bool,
}

impl Faults {
    pub fn fate(&self, frame: &[u8], rng: &mut Rng) -> Fate {
        let mut copies = vec![];
        if rng.unit_f64() >= self.lose {
            copies.push((self.delay(rng), frame.to_vec()));
        }
        if rng.unit_f64() < self.repeat {
            copies.push((self.delay(rng) + self.delay_ms, frame.to_vec()));
        }
        for (_, copy) in &mut copies {
            if rng.unit_f64() < self.garble {
                garble(copy, rng);
            }
        }
        Fate { copies, broken: rng.unit_f64() < self.break_off }
    }

    fn delay(&self, rng: &mut Rng) -> u64 {
        rng.below(self.delay_ms + 1)
    }
}

/// Flips bits, or cuts the end off.
fn garble(frame: &mut Vec<u8>, rng: &mut Rng) {
    let at = rng.below(frame.len() as u64) as usize;
    if rng.below(4) == 0 {
        frame.truncate(at);
    } else {
        frame[at] ^= 1 << rng.below(8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_faults_a_frame_is_unchanged() {
        let fate = Faults::NONE.fate(b"frame", &mut Rng::new(1));
        assert_eq!(fate.copies, [(0, b"frame".to_vec())]);
        assert!(!fate.broken);
    }

    #[test]
    fn faults_have_about_their_probabilities() {
        let faults =
            Faults { lose: 0.1, repeat: 0.2, garble: 0.05, break_off: 0.02, delay_ms: 5, outage_ms: 1 };
        let mut rng = Rng::new(3);
        let (mut lost, mut repeated, mut garbled, mut broken) = (0, 0, 0, 0);
        for _ in 0..10_000 {
            let fate = faults.fate(b"a frame of some length", &mut rng);
            lost += usize::from(fate.copies.is_empty());
            repeated += usize::from(fate.copies.len() == 2);
            garbled += fate.copies.iter().filter(|(_, copy)| copy != b"a frame of some length").count();
            broken += usize::from(fate.broken);
        }
        let near =
            |count: usize, expected: usize| assert!(count.abs_diff(expected) < expected / 4, "{count}");
        near(lost, 800);
        near(repeated, 1800);
        near(garbled, 550);
        near(broken, 200);
    }
}
