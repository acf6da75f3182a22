//! Clients by the values of a column, or by a file: one each, or several values on one client.

use super::PartitionError;
use crate::data::DataSet;

/// The client of each value.
pub struct Grouping {
    client: Vec<usize>,
    clients: usize,
}

impl Grouping {
    /// One client per value. With fewer clients, the largest value that is left goes to the client with the fewest samples.
    pub fn new(set: &DataSet, clients: Option<usize>) -> Result<Self, PartitionError> {
        let there = set.client_names.len();
        let wanted = clients.unwrap_or(there);
        if wanted == 0 || wanted > there {
            return Err(PartitionError::TooFewValues { there, wanted });
        }
        if wanted == there {
            return Ok(Self { client: (0..there).collect(), clients: there });
        }
        let mut sizes = vec![0; there];
        for &value in set.train.clients() {
            sizes[value as usize] += 1;
        }
        let mut values: Vec<usize> = (0..there).collect();
        values.sort_by_key(|&value| (std::cmp::Reverse(sizes[value]), value));
        let (mut client, mut loads) = (vec![0; there], vec![(0, 0); wanted]);
        for value in values {
            // A client without a value comes first, so none stays empty.
            let fewest = (0..wanted).min_by_key(|&at| loads[at]).unwrap_or_default();
            client[value] = fewest;
            loads[fewest] = (loads[fewest].0 + sizes[value], loads[fewest].1 + 1);
        }
        Ok(Self { client, clients: wanted })
    }

    /// Training samples of each client.
    pub fn parts(&self, set: &DataSet) -> Vec<Vec<u32>> {
        let mut parts = vec![Vec::new(); self.clients];
        for (index, &value) in (0..).zip(set.train.clients()) {
            parts[self.client[value as usize]].push(index);
        }
        parts
    }

    /// The values of each client, joined.
    pub fn names(&self, values: &[String]) -> Vec<String> {
        let mut names = vec![Vec::new(); self.clients];
        for (value, &client) in values.iter().zip(&self.client) {
            names[client].push(value.as_str());
        }
        names.iter().map(|values| values.join("_")).collect()
    }
}
