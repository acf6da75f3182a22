//! Seeded randomness that gives the same stream on every target.
//!
//! Written here rather than taken from a crate because its bits are part of the protocol: the order
//! of samples and the rounding of codecs must stay the same in a board flashed years ago.

/// SplitMix64's output function: a bijective hash of one word.
pub fn mix(word: u64) -> u64 {
    let mut z = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Derives a seed for a part of the work, so that parts do not share streams.
pub fn derive(seed: u64, part: u64) -> u64 {
    mix(seed ^ mix(part))
}

/// SplitMix64: 8 bytes of state, full period.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// A generator that starts with this state.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next word of the stream.
    pub fn next_u64(&mut self) -> u64 {
        let word = mix(self.state);
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        word
    }

    /// Uniform in `[0, 1)` with 24 bits.
    pub fn unit_f32(&mut self) -> f32 {
        unit_f32(self.next_u64())
    }

    /// Uniform in `[0, 1)` with 53 bits.
    pub fn unit_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Uniform in `0..bound` (0 for an empty range). Lemire's method without rejection; its bias of `bound / 2^64` is negligible.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Standard normal (Box-Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = libm::sqrt(-2.0 * libm::log(1.0 - self.unit_f64()));
        radius * libm::cos(core::f64::consts::TAU * self.unit_f64())
    }

    /// Shuffles in place (Fisher-Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(last as u64 + 1) as usize;
            items.swap(last, other);
        }
    }
}

/// The top 24 bits as a number in `[0, 1)`.
pub fn unit_f32(word: u64) -> f32 {
    (word >> 40) as f32 * (1.0 / (1u32 << 24) as f32)
}

/// A permutation of `0..len` that needs no memory: a Feistel network walked until it lands inside.
///
/// A device with 16 KB of RAM visits its samples in random order without storing the order.
#[derive(Copy, Clone, Debug)]
pub struct Permutation {
    len: u32,
    half_bits: u32,
    seed: u64,
}

impl Permutation {
    /// A permutation of `0..len`.
    pub fn new(len: u32, seed: u64) -> Self {
        let bits = 32 - len.saturating_sub(1).leading_zeros();
        Self { len, half_bits: bits.div_ceil(2).max(1), seed }
    }

    /// The image of `index`. Indices out of range map to themselves.
    pub fn at(&self, index: u32) -> u32 {
        if index >= self.len {
            return index;
        }
        let mut place = u64::from(index);
        // The domain is at most 4 times `len`, so this takes 4 turns on average; it ends because the
        // network is a bijection and `index` itself lies on the cycle.
        loop {
            place = self.network(place);
            if place < u64::from(self.len) {
                return place as u32;
            }
        }
    }

    fn network(&self, word: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let (mut left, mut right) = (word >> self.half_bits, word & mask);
        for round in 0..4 {
            let hashed = mix(self.seed ^ (right | round << 32)) & mask;
            (left, right) = (right, left ^ hashed);
        }
        left << self.half_bits | right
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Permutation, Rng};

    #[test]
    fn splitmix_reference_stream() {
        // First outputs of the reference implementation for seed 1234567.
        let mut rng = Rng::new(1_234_567);
        assert_eq!(rng.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(rng.next_u64(), 3_203_168_211_198_807_973);
        assert_eq!(rng.next_u64(), 9_817_491_932_198_370_423);
    }

    #[test]
    fn normal_has_unit_variance() {
        let mut rng = Rng::new(7);
        let draws: Vec<f64> = (0..20_000).map(|_| rng.normal()).collect();
        let mean = draws.iter().sum::<f64>() / 2e4;
        let var = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 2e4;
        assert!(mean.abs() < 0.03 && (var - 1.0).abs() < 0.05, "{mean} {var}");
    }

    #[test]
    fn permutations_differ_by_seed_and_move_things() {
        let order = |seed| (0..100).map(|i| Permutation::new(100, seed).at(i)).collect::<Vec<_>>();
        assert_ne!(order(1), order(2));
        assert!(order(1).iter().enumerate().filter(|&(i, &p)| i as u32 == p).count() < 10);
    }

    proptest! {
        #[test]
        fn permutation_is_a_bijection(len in 1u32..2000, seed: u64) {
            let permutation = Permutation::new(len, seed);
            let mut seen = vec![false; len as usize];
            for i in 0..len {
                let place = permutation.at(i) as usize;
                prop_assert!(!core::mem::replace(&mut seen[place], true));
            }
        }
    }
}
