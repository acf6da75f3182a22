//! Local self-regularisation against noisy labels. With `z` the logits of a sample, `z'` those of its augmented
//! copy, `r` the share of the first in the mixture, `a = 1/sharpen`:
//!
//! ```text
//! p = softmax(z), p' = softmax(z')        m = r p + (1-r) p'       s_c = m_c^a / sum_k m_k^a
//! q = softmax(z/soften), q' likewise      U = (q + q')/2
//! l = -ln s_y + gamma * (KL(q||U) + KL(q'||U)) / 2
//! ```
//! Gradients, with `<u, v>` the sum over classes:
//!
//! ```text
//! G_c = a (s_c - [c = y]) / m_c           D_c = ln(q_c / U_c) / 2
//! dz_c = r p_c (G_c - <p, G>) + gamma/soften * q_c (D_c - <q, D>)        and the same for z' with 1-r
//! ```
//! Probabilities are clamped to at least 1e-12 inside logarithms and divisions. Exponentials are recomputed wherever they are
//! needed, because there is no room to keep them.

use common::{brief::SelfRegular, plan::PlanInfo};

use super::{Float, LossTally, Truth, capped, label};
use crate::{data::DataError, train::part::value};

const TINY: f64 = 1e-12;

pub(in crate::train) fn score<T: Float>(
    info: &PlanInfo,
    classes: usize,
    terms: &SelfRegular,
    mix: f64,
    clean: &[T],
    noisy: &[T],
    truth: &(impl Truth + ?Sized),
) -> Result<LossTally, DataError> {
    let mut tally = LossTally::default();
    let per_row = (info.outputs as usize / classes.max(1)).max(1);
    let pairs = clean.chunks_exact(classes.max(1)).zip(noisy.chunks_exact(classes.max(1)));
    for (at, (clean, noisy)) in pairs.enumerate() {
        let label = label(truth, at / per_row, at % per_row, classes as u32)?;
        let (loss, correct) = Pair::new(terms, mix, clean, noisy).loss(clean, noisy, label);
        tally.add(loss, correct);
    }
    tally.samples = tally.targets / per_row as u32;
    Ok(tally)
}

/// Replaces both halves of logits by `scale * v * dl/dz`.
#[expect(clippy::too_many_arguments, reason = "two halves of what a loss takes")]
pub(in crate::train) fn gradient<T: Float>(
    info: &PlanInfo,
    classes: usize,
    terms: &SelfRegular,
    mix: f64,
    scale: T,
    clean: &mut [T],
    noisy: &mut [T],
    truth: &(impl Truth + ?Sized),
) -> Result<LossTally, DataError> {
    let mut tally = LossTally::default();
    let per_row = (info.outputs as usize / classes.max(1)).max(1);
    let pairs = clean.chunks_exact_mut(classes.max(1)).zip(noisy.chunks_exact_mut(classes.max(1)));
    for (at, (clean, noisy)) in pairs.enumerate() {
        let row = at / per_row;
        let label = label(truth, row, at % per_row, classes as u32)?;
        let weight = truth.weight(row)?;
        let pair = Pair::new(terms, mix, clean, noisy);
        let (loss, correct) = pair.loss(clean, noisy, label);
        pair.gradient(clean, noisy, label, T::from_f32(weight) * scale);
        tally.add(f64::from(weight) * loss, correct);
    }
    tally.samples = tally.targets / per_row as u32;
    Ok(tally)
}

/// The sums that turn two rows of logits into probabilities.
struct Pair<T> {
    mix: T,
    power: T,
    soften: T,
    gamma: T,
    /// Largest logit, sum of exponentials and sum of softened exponentials of each row.
    rows: [(T, T, T); 2],
    /// `sum_k m_k^a`.
    sharp: T,
}

/// Probabilities of one class.
struct Class<T> {
    p: [T; 2],
    q: [T; 2],
    mixed: T,
    /// `ln(q / U) / 2` of each row.
    gap: [T; 2],
}

impl<T: Float> Pair<T> {
    fn new(terms: &SelfRegular, mix: f64, clean: &[T], noisy: &[T]) -> Self {
        let soften = T::from_f32(terms.soften);
        let sums = |row: &[T]| {
            let max = row.iter().fold(value(row, 0), |max, &z| if z > max { z } else { max });
            let sum = |by: T| row.iter().fold(T::ZERO, |sum, &z| sum + ((z - max) / by).exp());
            (max, sum(T::ONE), sum(soften))
        };
        let mut pair = Self {
            mix: T::from_f64(mix),
            power: T::ONE / T::from_f32(terms.sharpen),
            soften,
            gamma: T::from_f32(terms.gamma),
            rows: [sums(clean), sums(noisy)],
            sharp: T::ZERO,
        };
        for (&z, &other) in clean.iter().zip(noisy) {
            let mixed = pair.class(z, other).mixed;
            pair.sharp += pair.sharpened(mixed);
        }
        pair
    }

    fn class(&self, z: T, other: T) -> Class<T> {
        let [clean, noisy] = self.rows;
        let p = |z: T, (max, sum, _): (T, T, T)| (z - max).exp() / sum;
        let q = |z: T, (max, _, sum): (T, T, T)| ((z - max) / self.soften).exp() / sum;
        let (p, q) = ([p(z, clean), p(other, noisy)], [q(z, clean), q(other, noisy)]);
        let half = T::from_f64(0.5);
        let middle = held(half * (q[0] + q[1]));
        let mixed = held(self.mix * p[0] + (T::ONE - self.mix) * p[1]);
        Class { p, q, mixed, gap: q.map(|q| half * (held(q) / middle).ln()) }
    }

    fn sharpened(&self, mixed: T) -> T {
        (self.power * mixed.ln()).exp()
    }

    fn loss(&self, clean: &[T], noisy: &[T], wanted: usize) -> (f64, bool) {
        let (mut best, mut own, mut distance) = ((0, None), None, T::ZERO);
        for (at, (&z, &other)) in clean.iter().zip(noisy).enumerate() {
            let class = self.class(z, other);
            distance += class.q[0] * class.gap[0] + class.q[1] * class.gap[1];
            if best.1.is_none_or(|largest| z > largest) {
                best = (at, Some(z));
            }
            if at == wanted {
                own = Some(self.power * class.mixed.ln());
            }
        }
        let own = own.map_or(f64::NAN, |own| (self.sharp.ln() - own).to_f64());
        (capped(own + (self.gamma * distance).to_f64()), best.0 == wanted)
    }

    fn gradient(&self, clean: &mut [T], noisy: &mut [T], wanted: usize, scale: T) {
        let push = |class: &Class<T>, at: usize| {
            let sharp = self.sharpened(class.mixed) / self.sharp;
            let hit = if at == wanted { T::ONE } else { T::ZERO };
            self.power * (sharp - hit) / class.mixed
        };
        let (mut pushed, mut parted) = ([T::ZERO; 2], [T::ZERO; 2]);
        for (at, (&z, &other)) in clean.iter().zip(&*noisy).enumerate() {
            let class = self.class(z, other);
            let push = push(&class, at);
            for side in 0..2 {
                pushed[side] += class.p[side] * push;
                parted[side] += class.q[side] * class.gap[side];
            }
        }
        let shares = [self.mix, T::ONE - self.mix];
        for (at, (z, other)) in clean.iter_mut().zip(noisy).enumerate() {
            let class = self.class(*z, *other);
            let push = push(&class, at);
            let slope = |side: usize| {
                let own = shares[side] * class.p[side] * (push - pushed[side]);
                let apart = class.q[side] * (class.gap[side] - parted[side]);
                scale * (own + self.gamma / self.soften * apart)
            };
            (*z, *other) = (slope(0), slope(1));
        }
    }
}

fn held<T: Float>(probability: T) -> T {
    let tiny = T::from_f64(TINY);
    if probability < tiny { tiny } else { probability }
}

#[cfg(test)]
mod tests {
    use common::brief::Augment;

    use super::*;

    const TERMS: SelfRegular =
        SelfRegular { sharpen: 0.5, soften: 3.0, gamma: 0.4, augment: Augment::Noise(0.05) };

    fn loss(clean: &[f64], noisy: &[f64]) -> f64 {
        Pair::new(&TERMS, 0.3, clean, noisy).loss(clean, noisy, 1).0
    }

    #[test]
    fn both_gradients_match_finite_differences() {
        let (clean, noisy) = ([0.3, -1.2, 2.0, 0.9], [0.5, -0.7, 1.5, -0.2]);
        let (mut dz, mut other) = (clean, noisy);
        Pair::new(&TERMS, 0.3, &clean, &noisy).gradient(&mut dz, &mut other, 1, 0.25);
        for at in 0..4 {
            let moved = |values: [f64; 4], by: f64| {
                let mut values = values;
                values[at] += by;
                values
            };
            let slope = (loss(&moved(clean, 1e-6), &noisy) - loss(&moved(clean, -1e-6), &noisy)) / 2e-6;
            assert!((0.25 * slope - dz[at]).abs() < 1e-9, "{at}: {slope} {}", dz[at]);
            let slope = (loss(&clean, &moved(noisy, 1e-6)) - loss(&clean, &moved(noisy, -1e-6))) / 2e-6;
            assert!((0.25 * slope - other[at]).abs() < 1e-9, "{at}: {slope} {}", other[at]);
        }
    }

    #[test]
    fn equal_rows_and_no_sharpening_give_cross_entropy() {
        let terms = SelfRegular { sharpen: 1.0, ..TERMS };
        let z = [0.3f64, -1.2, 2.0];
        let sum: f64 = z.iter().map(|z| z.exp()).sum();
        let got = Pair::new(&terms, 0.7, &z, &z).loss(&z, &z, 0).0;
        assert!((got - (sum.ln() - 0.3)).abs() < 1e-12);
    }

    #[test]
    fn extreme_logits_stay_finite() {
        let (clean, noisy) = ([500.0f32, -500.0], [-500.0, 500.0]);
        let pair = Pair::new(&TERMS, 0.5, &clean, &noisy);
        assert!(pair.loss(&clean, &noisy, 1).0.is_finite());
        let (mut dz, mut other) = (clean, noisy);
        pair.gradient(&mut dz, &mut other, 1, 1.0);
        assert!(dz.iter().chain(&other).all(|value| value.is_finite()));
    }
}
