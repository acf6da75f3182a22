//! EAGLE's three clients: `x | y ~ N(y * m_k, I)` in the plane, y = -1 or +1, with m = (2,2), (1,1), (1/2,1/2).
//!
//! The text rotates client 2 by 45 degrees, so that clients 0 and 1 share a separator; the figures rotate clients 1
//! and 2.
//! Classes are 0 (y = -1) and 1.

use std::f64::consts::FRAC_1_SQRT_2;

use common::rng::Rng;
use trainer::data::DataError;

use crate::data::{DataSet, Features, Records};

#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Eagle {
    /// Training points per client, half of each class.
    pub points: u32,
    /// Test points per client. Many, so that the reported gap has little sampling error.
    pub test_points: u32,
    pub rotate: Rotate,
    pub seed: u64,
}

/// Which clients are rotated.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Rotate {
    /// Client 2, as in the text.
    #[default]
    Last,
    /// Clients 1 and 2, as in the figures.
    LastTwo,
}

impl Default for Eagle {
    fn default() -> Self {
        Self { points: 100, test_points: 2000, rotate: Rotate::Last, seed: 0 }
    }
}

const MEANS: [f64; 3] = [2.0, 1.0, 0.5];

impl Eagle {
    pub fn draw(&self) -> Result<DataSet, DataError> {
        let mut rng = Rng::new(self.seed);
        let train = self.part(self.points, &mut rng)?;
        let test = self.part(self.test_points, &mut rng)?;
        let names = (0..MEANS.len()).map(|client| format!("client {client}")).collect();
        let set = DataSet::new("eagle", vec![2], 2, train, test)?.with_client_names(names)?;
        Ok(set.with_class_names(&["-1", "+1"]))
    }

    fn part(&self, points: u32, rng: &mut Rng) -> Result<Records, DataError> {
        let (mut features, mut labels, mut clients) = (Vec::new(), Vec::new(), Vec::new());
        for (client, mean) in MEANS.into_iter().enumerate() {
            let turned = client == 2 || client == 1 && self.rotate == Rotate::LastTwo;
            for point in 0..points {
                let label = point % 2;
                let center = if label == 0 { -mean } else { mean };
                let place = [center + rng.normal(), center + rng.normal()];
                let place = if turned { rotate(place) } else { place };
                features.extend(place.map(|x| x as f32));
                labels.push(label);
                clients.push(client as u32);
            }
        }
        Records::new(Features::Floats(features), labels, 2, 1)?.with_clients(clients)
    }
}

/// Rotates by 45 degrees about the origin.
fn rotate([x, y]: [f64; 2]) -> [f64; 2] {
    [FRAC_1_SQRT_2 * (x - y), FRAC_1_SQRT_2 * (x + y)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_and_spread_of_all_clients() {
        let root2 = std::f64::consts::SQRT_2;
        for (option, middle) in [(Rotate::Last, [1.0, 1.0]), (Rotate::LastTwo, [0.0, root2])] {
            let set = Eagle { points: 20_000, rotate: option, seed: 3, ..Eagle::default() }.draw().unwrap();
            let expected = [[2.0, 2.0], middle, [0.0, root2 / 2.0]];
            for (client, expected) in expected.iter().enumerate() {
                let (mut sum, mut square, mut count) = ([0.0; 2], [0.0; 2], 0.0);
                for index in 0..set.train.len() as u32 {
                    if set.train.clients()[index as usize] as usize != client {
                        continue;
                    }
                    let mut row = [0.0; 2];
                    set.train.read(index, &mut row).unwrap();
                    let sign = if set.train.label(index, 0) == Ok(1) { 1.0 } else { -1.0 };
                    for axis in 0..2 {
                        let x = sign * f64::from(row[axis]);
                        sum[axis] += x;
                        square[axis] += (x - expected[axis]).powi(2);
                    }
                    count += 1.0;
                }
                for axis in 0..2 {
                    assert!((sum[axis] / count - expected[axis]).abs() < 0.03, "{option:?} {client} {axis}");
                    assert!((square[axis] / count - 1.0).abs() < 0.05, "{option:?} {client} {axis}");
                }
            }
        }
    }

    #[test]
    fn classes_are_balanced_and_seeds_differ() {
        let set = Eagle::default().draw().unwrap();
        assert_eq!((set.train.len(), set.test.len()), (300, 6000));
        assert_eq!(set.train.labels().iter().sum::<u32>(), 150);
        assert_ne!(set.train, set.test);
        assert_eq!(Eagle::default().draw(), Ok(set.clone()));
        assert_ne!(Eagle { seed: 1, ..Eagle::default() }.draw(), Ok(set));
    }
}
