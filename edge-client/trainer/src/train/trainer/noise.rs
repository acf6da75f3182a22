//! Laplace noise: `-b * sgn(u) * ln(1 - 2|u|)` with `u` uniform in (-1/2, 1/2).
//!
//! It follows from the device's secret and the seed of the round, so that a test can repeat it and the
//! aggregator can not. SplitMix64 is no cryptographic generator: who knows many draws exactly can find the
//! others of the same round.

use common::rng::{Rng, derive};

/// What the noise is for; no two share a stream.
#[derive(Copy, Clone, Debug)]
pub(super) enum Use {
    Sums = 1,
    Update = 2,
}

#[derive(Clone, Debug)]
pub(super) struct Noise(Rng);

impl Noise {
    pub fn new(secret: u64, seed: u64, of: Use) -> Self {
        Self(Rng::new(derive(derive(secret, seed), of as u64)))
    }

    /// One draw with scale `b`.
    pub fn draw(&mut self, scale: f32) -> f64 {
        // In the middle of 2^52 equal steps, so that neither end is ever drawn.
        let u = ((self.0.next_u64() >> 12) as f64 + 0.5) * (1.0 / (1u64 << 52) as f64) - 0.5;
        let size = -f64::from(scale) * libm::log(1.0 - 2.0 * u.abs());
        if u < 0.0 { -size } else { size }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_and_tails_of_laplace() {
        let mut noise = Noise::new(3, 4, Use::Sums);
        let draws: Vec<f64> = (0..40_000).map(|_| noise.draw(2.0)).collect();
        let mean = draws.iter().sum::<f64>() / 4e4;
        // Mean 0, mean size b, variance 2 b^2; beyond t lies exp(-t/b).
        let size = draws.iter().map(|x| x.abs()).sum::<f64>() / 4e4;
        let variance = draws.iter().map(|x| x * x).sum::<f64>() / 4e4;
        let tail = draws.iter().filter(|x| x.abs() > 6.0).count() as f64 / 4e4;
        assert!(mean.abs() < 0.05 && (size - 2.0).abs() < 0.05, "{mean} {size}");
        assert!((variance - 8.0).abs() < 0.4 && (tail - (-3f64).exp()).abs() < 0.005, "{variance} {tail}");
    }

    #[test]
    fn secret_seed_and_use_decide() {
        let first = |secret, seed, of| Noise::new(secret, seed, of).draw(1.0);
        let base = first(1, 2, Use::Sums);
        assert_eq!(base, first(1, 2, Use::Sums));
        for other in [first(2, 2, Use::Sums), first(1, 3, Use::Sums), first(1, 2, Use::Update)] {
            assert_ne!(base, other);
        }
        assert_eq!(Noise::new(1, 2, Use::Sums).draw(0.0), 0.0);
    }
}
