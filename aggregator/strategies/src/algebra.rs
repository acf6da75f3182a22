//! Vectors that are known by their inner products alone.
//!
//! A combination `sum_i c_i v_i` is the list of its coefficients. Its inner products and length follow from the products of the
//! vectors. Sums cancel down to about 1e-16 of the largest product, so a length below [`NEGLIGIBLE`] times the longest vector
//! cannot be told from 0.

use crate::gram::Gram;

/// Relative to the longest vector; half the digits of a product.
pub const NEGLIGIBLE: f64 = 1e-7;

/// Inner products of some vectors.
#[derive(Clone, PartialEq, Debug)]
pub struct Products {
    len: usize,
    /// `len x len`, row-major, symmetric.
    values: Vec<f64>,
}

impl Products {
    /// Calls `at` for `j <= i` only: products are symmetric.
    pub fn new(len: usize, at: impl Fn(usize, usize) -> f64) -> Self {
        let mut values = vec![0.0; len * len];
        for i in 0..len {
            for j in 0..=i {
                let value = at(i, j);
                values[i * len + j] = value;
                values[j * len + i] = value;
            }
        }
        Self { len, values }
    }

    /// Those of the rows of one block.
    pub fn of(gram: &Gram) -> Self {
        Self { len: gram.rows.len(), values: gram.products().to_vec() }
    }

    /// Adds the products of the same vectors in a further part of the space.
    pub fn add(&mut self, other: &Self) {
        self.values.iter_mut().zip(&other.values).for_each(|(value, other)| *value += other);
    }

    /// Products of some of the vectors, each multiplied by a factor.
    pub fn select(&self, members: &[usize], factors: &[f64]) -> Self {
        Self::new(members.len(), |i, j| self.at(members[i], members[j]) * factors[i] * factors[j])
    }

    /// Adds a combination of the vectors as one more vector, the last.
    pub fn extended(&self, coefficients: &[f64]) -> Self {
        let along = self.with(coefficients);
        let own = dot(&along, coefficients).max(0.0);
        let at = |i: usize, j: usize| match (i == self.len, j == self.len) {
            (true, true) => own,
            (true, false) => along[j],
            _ => self.at(i, j),
        };
        Self::new(self.len + 1, at)
    }

    /// Number of vectors.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there are no vectors.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The product of vectors `i` and `j`.
    pub fn at(&self, i: usize, j: usize) -> f64 {
        self.row(i)[j]
    }

    /// Products of one vector with all.
    pub fn row(&self, i: usize) -> &[f64] {
        &self.values[i * self.len..(i + 1) * self.len]
    }

    /// Length of one vector.
    pub fn length(&self, i: usize) -> f64 {
        self.at(i, i).max(0.0).sqrt()
    }

    /// Length of the longest vector.
    pub fn longest(&self) -> f64 {
        (0..self.len).map(|i| self.length(i)).fold(0.0, f64::max)
    }

    /// Products of every vector with a combination.
    pub fn with(&self, coefficients: &[f64]) -> Vec<f64> {
        let mut all = vec![0.0; self.len];
        for (i, &coefficient) in coefficients.iter().enumerate().filter(|(_, c)| **c != 0.0) {
            add_scaled(&mut all, coefficient, self.row(i));
        }
        all
    }

    /// Length of a combination.
    pub fn norm(&self, coefficients: &[f64]) -> f64 {
        dot(coefficients, &self.with(coefficients)).max(0.0).sqrt()
    }

    /// Length of the mean of the first `count` vectors.
    pub fn mean_norm(&self, count: usize) -> f64 {
        let count = count.min(self.len);
        let mean = vec![1.0 / count.max(1) as f64; count];
        self.norm(&mean)
    }
}

/// Inner product of two lists, in lanes so that additions need not wait for each other.
pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    const LANES: usize = 8;
    let len = a.len().min(b.len());
    let ((a, a_rest), (b, b_rest)) = (a[..len].as_chunks::<LANES>(), b[..len].as_chunks::<LANES>());
    let mut lanes = [0.0; LANES];
    for (a, b) in a.iter().zip(b) {
        for ((lane, a), b) in lanes.iter_mut().zip(a).zip(b) {
            *lane += a * b;
        }
    }
    let rest: f64 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    lanes.iter().sum::<f64>() + rest
}

/// `into += factor * values`
pub fn add_scaled(into: &mut [f64], factor: f64, values: &[f64]) {
    into.iter_mut().zip(values).for_each(|(into, value)| *into += factor * value);
}

/// How unequal losses are, and which change of them makes them more equal.
///
/// With `Fh = F/||F||` and `r = 1/sqrt(m)`: `v = (r.Fh) Fh - r`, the gradient of `-cos(F, 1)` up to the factor
/// `1/||F||`. With F = a + e around the mean a this is `(m a e_i - ||e||^2) / (sqrt(m) ||F||^2)`, which is
/// exactly 0 for equal losses.
#[derive(Clone, PartialEq, Debug)]
pub struct Guidance {
    /// By loss: how much raising it makes losses more unequal.
    pub v: Vec<f64>,
    /// Between F and 1, in radians.
    pub angle: f64,
    /// `||F||`
    pub norm: f64,
}

/// Smallest loss that is divided by.
const FLOOR: f64 = 1e-10;

impl Guidance {
    /// For losses F. A loss below 1e-10 counts as that.
    pub fn of(losses: &[f64]) -> Self {
        let top = losses.iter().copied().fold(FLOOR, f64::max);
        let losses: Vec<f64> = losses.iter().map(|loss| loss.max(FLOOR) / top).collect();
        let count = losses.len().max(1) as f64;
        let mean = losses.iter().sum::<f64>() / count;
        // Equal losses are their mean only up to rounding.
        let noise = 8.0 * f64::EPSILON * mean;
        let beside = |loss: &f64| if (loss - mean).abs() <= noise { 0.0 } else { loss - mean };
        let spread: Vec<f64> = losses.iter().map(beside).collect();
        let (spread2, norm2) = (dot(&spread, &spread), dot(&losses, &losses));
        let at = |e: &f64| (count * mean * e - spread2) / (count.sqrt() * norm2);
        let v = if norm2 > 0.0 { spread.iter().map(at).collect() } else { vec![0.0; spread.len()] };
        Self { v, angle: spread2.sqrt().atan2(mean * count.sqrt()), norm: norm2.sqrt() * top }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guidance_is_orthogonal_to_the_losses() {
        let guidance = Guidance::of(&[1.0, 2.0]);
        let q: Vec<f64> = guidance.v.iter().map(|v| v / guidance.norm).collect();
        assert!((q[0] + 0.1264911064).abs() < 1e-10 && (q[1] - 0.0632455532).abs() < 1e-10, "{q:?}");
        assert!((q[0] + 2.0 * q[1]).abs() < 1e-15);
        assert!((guidance.angle.cos() - 3.0 / 10f64.sqrt()).abs() < 1e-12);
        for equal in [0.0, 1e-12, 0.3, 7.0, 1e300] {
            let guidance = Guidance::of(&[equal; 7]);
            assert_eq!((guidance.v, guidance.angle), (vec![0.0; 7], 0.0));
        }
    }

    #[test]
    fn combinations_are_measured_by_products() {
        let vectors = [[1.0, 2.0], [3.0, -1.0], [0.5, 0.25]];
        let products = Products::new(3, |i, j| dot(&vectors[i], &vectors[j]));
        // 2 v0 - v1 + 4 v2 = (1, 6)
        assert_eq!(products.norm(&[2.0, -1.0, 4.0]), 37f64.sqrt());
        assert_eq!(products.with(&[2.0, -1.0, 4.0]), [13.0, -3.0, 2.0]);
        assert_eq!(products.mean_norm(2), (4.0f64 + 0.25).sqrt());
        assert_eq!(products.longest(), 10f64.sqrt());
        let ten: Vec<f64> = (0..10).map(f64::from).collect();
        assert_eq!(dot(&ten, &ten), 285.0);
    }
}
