//! Laplace noise of scale b from ChaCha20: `+-b E`, where E is exponential.
//!
//! ```text
//! u = (1 + f) / 2^(g+1)      f: 52 bits; g: number of zeros before the first one in random bits
//! E = -ln u = (g + 1) ln 2 - ln(1 + f)
//! hidden = nearest multiple of G to (value + noise)      G: a power of two in (b/2^13, b/2^12]
//! ```
//! The low bits of a floating-point sum would reveal its summands (Mironov, 2012), so the result is a multiple of G. Possible
//! draws are less than b/2^51 apart everywhere, including the tails. So at least 2^38 of them lead to each multiple, from any
//! value. The deviation from ideal noise costs less than 1e-9 of epsilon for each hidden number.

use chacha20::{
    ChaCha20,
    cipher::{KeyIvInit, StreamCipher},
};

/// The grid is this many powers of two below the scale.
const FINER: f64 = 1.0 / 4096.0;

/// A stream of noise. It is used once, for the values that its key was derived for.
pub(super) struct Noise(ChaCha20);

impl Noise {
    /// The stream of this key.
    pub fn new(key: [u8; 32]) -> Self {
        Self(ChaCha20::new(&key.into(), &[0; 12].into()))
    }

    /// The value with noise, on the grid. With scale 0, the unchanged value.
    pub fn hide(&mut self, value: f64, scale: f32) -> f64 {
        if scale == 0.0 {
            return value;
        }
        let scale = f64::from(scale);
        let noisy = value + scale * self.laplace();
        // The largest power of two up to the scale.
        let grid = f64::from_bits(scale.to_bits() & 0x7ff0_0000_0000_0000) * FINER;
        libm::rint(noisy / grid) * grid
    }

    /// One draw with scale 1.
    fn laplace(&mut self) -> f64 {
        let first = self.word();
        let fraction = ((first & ((1 << 52) - 1)) as f64 + 0.5) * (1.0 / (1u64 << 52) as f64);
        let mut zeros = 0;
        let mut word = self.word();
        // More than a thousand zeros do not occur; the bound guarantees that the loop ends.
        while word == 0 && zeros < 1024 {
            zeros += u64::BITS;
            word = self.word();
        }
        zeros += word.leading_zeros();
        let size = f64::from(zeros + 1) * core::f64::consts::LN_2 - libm::log(1.0 + fraction);
        if first >> 63 == 1 { -size } else { size }
    }

    fn word(&mut self) -> u64 {
        let mut bytes = [0; 8];
        self.0.apply_keystream(&mut bytes);
        u64::from_le_bytes(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_and_tails_of_laplace() {
        let mut noise = Noise::new([3; 32]);
        let draws: Vec<f64> = (0..40_000).map(|_| noise.hide(0.0, 2.0)).collect();
        let mean = draws.iter().sum::<f64>() / 4e4;
        // Mean 0, mean absolute value b, variance 2 b^2; a share of exp(-t/b) is beyond t.
        let size = draws.iter().map(|x| x.abs()).sum::<f64>() / 4e4;
        let variance = draws.iter().map(|x| x * x).sum::<f64>() / 4e4;
        assert!(mean.abs() < 0.05 && (size - 2.0).abs() < 0.05, "{mean} {size}");
        assert!((variance - 8.0).abs() < 0.4, "{variance}");
        for (beyond, tolerance) in [(0.1, 0.01), (2.0, 0.01), (6.0, 0.005), (12.0, 0.002)] {
            let tail = draws.iter().filter(|x| x.abs() > beyond).count() as f64 / 4e4;
            assert!((tail - (-beyond / 2.0).exp()).abs() < tolerance, "{beyond}: {tail}");
        }
    }

    /// The result is a multiple of the same power of two for every value.
    #[test]
    fn the_grid_of_results_does_not_depend_on_the_value() {
        for (scale, grid) in
            [(1.0f32, 1.0 / 4096.0), (1.99, 1.0 / 4096.0), (2.0, 1.0 / 2048.0), (1e-4, 2f64.powi(-26))]
        {
            let mut noise = Noise::new([5; 32]);
            for value in [0.0, 0.1, -1.0 / 3.0, 1e-9, 7.7777] {
                let cells = noise.hide(value, scale) / grid;
                assert_eq!(cells, cells.round(), "{value} {scale}");
            }
        }
        assert_eq!(Noise::new([5; 32]).hide(0.1, 0.0), 0.1);
    }

    #[test]
    fn the_key_determines_the_noise() {
        let draws = |key| {
            let mut noise = Noise::new(key);
            [(); 3].map(|()| noise.hide(0.0, 1.0))
        };
        assert_eq!(draws([1; 32]), draws([1; 32]));
        let other = draws([2; 32]);
        assert!(draws([1; 32]).iter().zip(other).all(|(one, other)| *one != other));
    }
}
