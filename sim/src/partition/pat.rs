//! Pat-k: every client has exactly k classes, and every class is divided among its clients in equal parts.
//!
//! Classes are assigned in order, each to the first clients that still need one. If `clients * k` is a multiple of
//! the classes, the first `clients * k / classes` clients share classes 0 to k-1, and so on. A client that needs all
//! remaining classes goes first; otherwise it could end up with too few.

use super::{PartitionError, deal, dirichlet::apportion, pools};

pub fn pat(
    labels: &[u32],
    clients: usize,
    classes: usize,
    seed: u64,
) -> Result<Vec<Vec<u32>>, PartitionError> {
    let pools = pools(labels, seed);
    let present = pools.len();
    if classes == 0 || classes > present || clients.saturating_mul(classes) < present {
        return Err(PartitionError::Pat { clients, classes, present });
    }
    let mut parts = vec![Vec::new(); clients];
    let mut needs = vec![classes; clients];
    // Larger quotas come first, so that no later class needs more clients than are left.
    let quotas = apportion(&vec![1.0; present], clients * classes);
    for (done, ((_, pool), quota)) in pools.iter().zip(quotas).enumerate() {
        let chosen = choose(&needs, quota, present - done);
        let shares: Vec<f64> = chosen.iter().map(|&chosen| u8::from(chosen).into()).collect();
        deal(&mut parts, pool, &apportion(&shares, pool.len()));
        needs.iter_mut().zip(chosen).for_each(|(need, chosen)| *need -= usize::from(chosen));
    }
    Ok(parts)
}

/// The clients that get a part of the next of `left` classes.
fn choose(needs: &[usize], quota: usize, left: usize) -> Vec<bool> {
    let urgent = needs.iter().filter(|&&need| need == left).count();
    let mut spare = quota.saturating_sub(urgent);
    let mut take = |&need: &usize| {
        if need == left {
            return true;
        }
        let taken = need > 0 && spare > 0;
        spare -= usize::from(taken);
        taken
    };
    needs.iter().map(&mut take).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

    use super::*;

    fn classes_of(labels: &[u32], part: &[u32]) -> BTreeMap<u32, usize> {
        let mut classes = BTreeMap::new();
        part.iter().for_each(|&index| *classes.entry(labels[index as usize]).or_default() += 1);
        classes
    }

    #[test]
    fn twenty_clients_per_class_as_in_the_source() {
        let labels: Vec<u32> = (0..10_000).map(|index| index % 10).collect();
        let parts = pat(&labels, 100, 2, 5).unwrap();
        for (client, part) in parts.iter().enumerate() {
            let first = 2 * (client as u32 / 20);
            assert_eq!(classes_of(&labels, part), BTreeMap::from([(first, 50), (first + 1, 50)]));
        }
        let parts = pat(&labels, 100, 1, 5).unwrap();
        assert!(parts.iter().enumerate().all(|(client, part)| {
            classes_of(&labels, part) == BTreeMap::from([(client as u32 / 10, 100)])
        }));
    }

    #[test]
    fn impossible_numbers_of_classes_are_refused() {
        let labels: Vec<u32> = (0..100).map(|index| index % 10).collect();
        for (clients, classes) in [(10, 0), (10, 11), (4, 2)] {
            assert!(matches!(pat(&labels, clients, classes, 0), Err(PartitionError::Pat { .. })));
        }
    }

    proptest! {
        #[test]
        fn exactly_k_classes_each(clients in 1usize..40, classes in 1usize..8, present in 1u32..8, seed: u64) {
            let labels: Vec<u32> = (0..present * 400).map(|index| index % present).collect();
            if let Ok(parts) = pat(&labels, clients, classes, seed) {
                prop_assert_eq!(parts.iter().map(Vec::len).sum::<usize>(), labels.len());
                for part in &parts {
                    prop_assert_eq!(classes_of(&labels, part).len(), classes);
                }
            } else {
                prop_assert!(classes > present as usize || clients * classes < present as usize);
            }
        }
    }
}
