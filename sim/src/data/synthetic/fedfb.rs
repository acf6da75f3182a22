//! FedFB's synthetic data: the position of a sample depends strongly on its group and its label.
//!
//! ```text
//! y ~ Bernoulli(0.6)
//! x | y=0 ~ N((-2,-2), [[10,1],[1,3]])      x | y=1 ~ N((2,2), [[5,1],[1,5]])
//! x' = x rotated by 45 degrees              a ~ Bernoulli(p1(x') / (p0(x') + p1(x')))
//! ```
//! p0, p1 are the two densities. A sample is (x1, x2, a), not rotated.
//!
//! The rotation is counter-clockwise: `x1' = (x1 - x2) / sqrt 2`, `x2' = (x1 + x2) / sqrt 2`. Logistic regression
//! then has a disparity (largest distance of a group's rate to the overall rate) of 0.39; the paper prints 0.42. With
//! a clockwise rotation it is 0.20, and 0.40 between the two groups.

use std::f64::consts::{FRAC_1_SQRT_2, TAU};

use common::rng::Rng;
use trainer::data::DataError;

use crate::data::{DataSet, Features, Records};

#[derive(Copy, Clone, PartialEq, Debug)]
pub struct FedFb {
    /// All samples, 70 % of them for training.
    pub samples: u32,
    pub seed: u64,
}

impl Default for FedFb {
    fn default() -> Self {
        Self { samples: 5000, seed: 0 }
    }
}

impl FedFb {
    pub fn draw(&self) -> Result<DataSet, DataError> {
        let mut rng = Rng::new(self.seed);
        let train = (f64::from(self.samples) * 0.7).round() as u32;
        let (train, test) = (part(&mut rng, train)?, part(&mut rng, self.samples - train)?);
        DataSet::new("fedfb", vec![3], 2, train, test)?.with_group_names(vec!["a=0".into(), "a=1".into()])
    }
}

fn part(rng: &mut Rng, samples: u32) -> Result<Records, DataError> {
    let (mut features, mut labels, mut groups) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..samples {
        let label = u32::from(rng.unit_f64() < 0.6);
        let place = if label == 1 { ONE.draw(rng) } else { ZERO.draw(rng) };
        let turned = [FRAC_1_SQRT_2 * (place[0] - place[1]), FRAC_1_SQRT_2 * (place[0] + place[1])];
        let (p0, p1) = (ZERO.density(turned), ONE.density(turned));
        let group = u8::from(rng.unit_f64() < p1 / (p0 + p1));
        features.extend([place[0] as f32, place[1] as f32, group.into()]);
        labels.push(label);
        groups.push(group);
    }
    Records::new(Features::Floats(features), labels, 3, 1)?.with_groups(groups)
}

/// A Gaussian in the plane with covariance `[[a, b], [b, c]]`.
struct Gaussian {
    mean: [f64; 2],
    a: f64,
    b: f64,
    c: f64,
}

const ZERO: Gaussian = Gaussian { mean: [-2.0, -2.0], a: 10.0, b: 1.0, c: 3.0 };
const ONE: Gaussian = Gaussian { mean: [2.0, 2.0], a: 5.0, b: 1.0, c: 5.0 };

impl Gaussian {
    /// Draws a point with the Cholesky factor.
    fn draw(&self, rng: &mut Rng) -> [f64; 2] {
        let (u, v) = (rng.normal(), rng.normal());
        let root = self.a.sqrt();
        let lower = self.b / root;
        [self.mean[0] + root * u, self.mean[1] + lower * u + (self.c - lower * lower).sqrt() * v]
    }

    fn density(&self, [x, y]: [f64; 2]) -> f64 {
        let (x, y) = (x - self.mean[0], y - self.mean[1]);
        let det = self.a * self.c - self.b * self.b;
        let square = (self.c * x * x - 2.0 * self.b * x * y + self.a * y * y) / det;
        libm::exp(-0.5 * square) / (TAU * det.sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Logistic regression by Newton's method: weights of x1, x2, a and 1.
    fn logistic(records: &Records) -> [f64; 4] {
        let mut w = [0.0; 4];
        for _ in 0..12 {
            let (mut gradient, mut hessian) = ([0.0; 4], [[0.0; 4]; 4]);
            for (row, label) in rows(records) {
                let p = 1.0 / (1.0 + (-dot(&w, &row)).exp());
                for i in 0..4 {
                    gradient[i] += (f64::from(label) - p) * row[i];
                    (0..4).for_each(|j| hessian[i][j] += p * (1.0 - p) * row[i] * row[j]);
                }
            }
            let step = solve(hessian, gradient);
            (0..4).for_each(|i| w[i] += step[i]);
        }
        w
    }

    fn rows(records: &Records) -> impl Iterator<Item = ([f64; 4], u32)> {
        (0..records.len() as u32).map(|index| {
            let mut row = [0.0; 3];
            records.read(index, &mut row).unwrap();
            ([row[0].into(), row[1].into(), row[2].into(), 1.0], records.label(index, 0).unwrap())
        })
    }

    fn dot(a: &[f64; 4], b: &[f64; 4]) -> f64 {
        a.iter().zip(b).map(|(a, b)| a * b).sum()
    }

    fn solve(mut m: [[f64; 4]; 4], mut b: [f64; 4]) -> [f64; 4] {
        for i in 0..4 {
            for j in i + 1..4 {
                let factor = m[j][i] / m[i][i];
                let pivot = m[i];
                (0..4).for_each(|k| m[j][k] -= factor * pivot[k]);
                b[j] -= factor * b[i];
            }
        }
        for i in (0..4).rev() {
            b[i] = (b[i] - (i + 1..4).map(|j| m[i][j] * b[j]).sum::<f64>()) / m[i][i];
        }
        b
    }

    #[test]
    fn logistic_regression_reaches_the_figures_of_the_specification() {
        let (mut accuracy, mut disparity) = (0.0, 0.0);
        for seed in 0..5 {
            let set = FedFb { seed, ..FedFb::default() }.draw().unwrap();
            assert_eq!((set.train.len(), set.test.len()), (3500, 1500));
            let w = logistic(&set.train);
            let (mut right, mut positive, mut members) = (0, [0.0; 2], [0.0; 2]);
            for (row, label) in rows(&set.test) {
                let predicted = dot(&w, &row) > 0.0;
                right += u32::from(u32::from(predicted) == label);
                members[row[2] as usize] += 1.0;
                positive[row[2] as usize] += f64::from(u8::from(predicted));
            }
            accuracy += f64::from(right) / 1500.0 / 5.0;
            let overall = (positive[0] + positive[1]) / 1500.0;
            let off = |group: usize| (positive[group] / members[group] - overall).abs();
            disparity += off(0).max(off(1)) / 5.0;
        }
        assert!((accuracy - 0.875).abs() < 0.015, "{accuracy}");
        assert!((disparity - 0.39).abs() < 0.04, "{disparity}");
    }

    #[test]
    fn a_density_sums_to_one_and_draws_have_its_covariance() {
        let step = 0.1;
        let place = |i: i32| f64::from(i) * step;
        let sum: f64 = (-250..250)
            .flat_map(|i| (-250..250).map(move |j| ZERO.density([place(i), place(j)]) * step * step))
            .sum();
        assert!((sum - 1.0).abs() < 1e-3, "{sum}");
        let mut rng = Rng::new(1);
        let draws: Vec<[f64; 2]> = (0..40_000).map(|_| ZERO.draw(&mut rng)).collect();
        let mean = |f: &dyn Fn(&[f64; 2]) -> f64| draws.iter().map(f).sum::<f64>() / draws.len() as f64;
        assert!((mean(&|x| (x[0] + 2.0).powi(2)) - 10.0).abs() < 0.3);
        assert!((mean(&|x| (x[1] + 2.0).powi(2)) - 3.0).abs() < 0.1);
        assert!((mean(&|x| (x[0] + 2.0) * (x[1] + 2.0)) - 1.0).abs() < 0.15);
    }
}
