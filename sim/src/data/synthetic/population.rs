//! FedFB's studies with one feature: `a ~ Bernoulli(q)`, `x | a ~ N(mean_a, deviation_a)` on each client, and
//! `P(y = 1 | x) = 1 / (1 + exp(-x))` on all. A sample is (x, a).

use common::rng::Rng;
use trainer::data::DataError;

use crate::data::{DataSet, Features, Records};

#[derive(Clone, PartialEq, Debug)]
pub struct Population {
    pub clients: Vec<PopulationClient>,
    /// Training samples per client; there are half as many test samples.
    pub samples: u32,
    pub seed: u64,
}

#[derive(Copy, Clone, PartialEq, Debug)]
pub struct PopulationClient {
    /// Share of samples with a = 1.
    pub q: f64,
    /// Mean and standard deviation of x, for a = 0 and a = 1.
    pub x: [(f64, f64); 2],
}

impl Population {
    /// On one client the attribute has no effect, on the other a large one.
    pub fn study_a(seed: u64) -> Self {
        let client = |x| PopulationClient { q: 0.5, x };
        Self::of(vec![client([(0.0, 70.0), (0.0, 70.0)]), client([(3.0, 1.0), (-1.0, 1.0)])], seed)
    }

    /// The clients are far apart, and the groups of each are close together.
    pub fn study_b(seed: u64) -> Self {
        let client = |x| PopulationClient { q: 0.2, x };
        Self::of(vec![client([(10.0, 0.2), (9.8, 0.2)]), client([(0.2, 0.2), (0.0, 0.2)])], seed)
    }

    /// The trade-off between accuracy and parity: two or three clients with these shares of a = 1.
    pub fn study_c(q: &[f64], seed: u64) -> Self {
        let x = [[(3.0, 1.0), (5.0, 1.0)], [(1.0, 1.0), (-1.0, 1.0)], [(1.0, 1.0), (2.0, 1.0)]];
        Self::of(q.iter().zip(x).map(|(&q, x)| PopulationClient { q, x }).collect(), seed)
    }

    fn of(clients: Vec<PopulationClient>, seed: u64) -> Self {
        Self { clients, samples: 5000, seed }
    }

    pub fn draw(&self) -> Result<DataSet, DataError> {
        let mut rng = Rng::new(self.seed);
        let (train, test) = (self.part(&mut rng, self.samples)?, self.part(&mut rng, self.samples / 2)?);
        DataSet::new("fedfb-population", vec![2], 2, train, test)?
            .with_group_names(vec!["a=0".into(), "a=1".into()])?
            .with_client_names((0..self.clients.len()).map(|client| format!("client {client}")).collect())
    }

    fn part(&self, rng: &mut Rng, samples: u32) -> Result<Records, DataError> {
        let (mut features, mut labels) = (Vec::new(), Vec::new());
        let (mut groups, mut clients) = (Vec::new(), Vec::new());
        for (number, client) in self.clients.iter().enumerate() {
            for _ in 0..samples {
                let group = u8::from(rng.unit_f64() < client.q);
                let (mean, deviation) = if group == 0 { client.x[0] } else { client.x[1] };
                let x = mean + deviation * rng.normal();
                labels.push(u32::from(rng.unit_f64() < 1.0 / (1.0 + libm::exp(-x))));
                features.extend([x as f32, group.into()]);
                groups.push(group);
                clients.push(number as u32);
            }
        }
        Records::new(Features::Floats(features), labels, 2, 1)?.with_groups(groups)?.with_clients(clients)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_have_their_means_shares_and_labels() {
        let set = Population::study_c(&[0.2, 0.5, 0.8], 4).draw().unwrap();
        assert_eq!((set.client_names.len(), set.train.len(), set.test.len()), (3, 15_000, 7500));
        let mut cells = [[(0.0f32, 0.0f32, 0.0f32); 2]; 3];
        for index in 0..set.train.len() {
            let mut row = [0.0; 2];
            set.train.read(index as u32, &mut row).unwrap();
            let group = usize::from(set.train.groups()[index]);
            assert_eq!(row[1], group as f32);
            let cell = &mut cells[set.train.clients()[index] as usize][group];
            *cell = (cell.0 + 1.0, cell.1 + row[0], cell.2 + set.train.labels()[index] as f32);
        }
        let means = [[3.0, 5.0], [1.0, -1.0], [1.0, 2.0]];
        for (client, q) in [0.2, 0.5, 0.8].into_iter().enumerate() {
            assert!((cells[client][1].0 / 5000.0 - q).abs() < 0.03);
            for group in 0..2 {
                let (count, sum, positive) = cells[client][group];
                assert!((sum / count - means[client][group]).abs() < 0.1, "{client} {group}");
                let more = positive / count > 0.5;
                assert_eq!(more, means[client][group] > 0.0);
            }
        }
    }

    #[test]
    fn studies_a_and_b() {
        let a = Population::study_a(1).draw().unwrap();
        let (low, high) = a.train.features().range().unwrap();
        assert!(low < -150.0 && high > 150.0, "deviation 70: {low} {high}");
        let b = Population::study_b(1).draw().unwrap();
        let share = b.train.groups().iter().filter(|&&group| group == 1).count() as f64 / 10_000.0;
        assert!((share - 0.2).abs() < 0.02, "{share}");
        assert_eq!(Population::study_b(1).draw(), Ok(b));
    }
}
