//! A partition in numbers: samples of each client by class and group.

use serde::Serialize;

use super::{ClientSamples, Partition, Split};
use crate::data::DataSet;

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PartitionView {
    pub data: String,
    pub partition: Partition,
    pub seed: u64,
    pub classes: Vec<String>,
    /// Names of groups; empty if there are none.
    pub groups: Vec<String>,
    pub clients: Vec<ClientView>,
    /// Training samples of the smallest client.
    pub least: usize,
    pub median: usize,
    pub most: usize,
    /// Mean number of classes of a client.
    pub classes_per_client: f64,
    /// Mean distance of clients' class shares from the overall shares: total variation distance from 0 (equal) to 1.
    pub skew: f64,
    pub left_out: usize,
    pub left_out_test: usize,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ClientView {
    pub name: String,
    pub train: usize,
    pub valid: usize,
    pub test: usize,
    /// Training samples by (first) label.
    pub per_class: Vec<usize>,
    /// Training samples by group; empty if there are no groups.
    pub per_group: Vec<usize>,
}

impl PartitionView {
    pub fn new(set: &DataSet, partition: &Partition, split: &Split, seed: u64) -> Self {
        let labels: Vec<u32> = set.train.first_labels().collect();
        let groups: Vec<u32> = set.train.groups().iter().map(|&group| group.into()).collect();
        let client = |share: &ClientSamples| ClientView {
            name: share.name.clone(),
            train: share.train.len(),
            valid: share.valid.len(),
            test: share.test.len(),
            per_class: count(&share.train, &labels, set.classes as usize),
            per_group: count(&share.train, &groups, set.group_names.len()),
        };
        let clients: Vec<ClientView> = split.clients.iter().map(client).collect();
        let mut sizes: Vec<usize> = clients.iter().map(|client| client.train).collect();
        sizes.sort_unstable();
        let present = |client: &ClientView| client.per_class.iter().filter(|&&count| count > 0).count();
        let mean = |sum: f64| sum / clients.len().max(1) as f64;
        Self {
            data: set.name.clone(),
            partition: partition.clone(),
            seed,
            classes: (0..set.classes).map(|class| set.class_name(class)).collect(),
            groups: set.group_names.clone(),
            least: sizes.first().copied().unwrap_or(0),
            median: sizes.get(sizes.len() / 2).copied().unwrap_or(0),
            most: sizes.last().copied().unwrap_or(0),
            classes_per_client: mean(clients.iter().map(|client| present(client) as f64).sum()),
            skew: mean(skew(&clients)),
            left_out: split.left_out.len(),
            left_out_test: split.left_out_test.len(),
            clients,
        }
    }
}

/// Sum over clients; a client without samples counts as 0.
fn skew(clients: &[ClientView]) -> f64 {
    let classes = clients.first().map_or(0, |client| client.per_class.len());
    let mut all = vec![0.0; classes];
    for client in clients {
        all.iter_mut().zip(&client.per_class).for_each(|(all, &count)| *all += count as f64);
    }
    let total: f64 = all.iter().sum();
    let of = |client: &ClientView| {
        let own = client.train.max(1) as f64;
        let distance =
            client.per_class.iter().zip(&all).map(|(&count, all)| (count as f64 / own - all / total).abs());
        if client.train == 0 { 0.0 } else { 0.5 * distance.sum::<f64>() }
    };
    clients.iter().map(of).sum()
}

/// Number of samples with each of `len` keys; zeros if samples have no keys.
fn count(samples: &[u32], keys: &[u32], len: usize) -> Vec<usize> {
    let mut counts = vec![0; len];
    if !keys.is_empty() {
        samples.iter().for_each(|&index| counts[keys[index as usize] as usize] += 1);
    }
    counts
}
