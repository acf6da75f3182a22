//! One data set divided among many devices, unequally on purpose. Deterministic in the seed.
//!
//! | partition | samples of a device |
//! |---|---|
//! | [`iid`] | shuffle, equal slices |
//! | [`dominant_class`] | device `i` gets a share from class `i mod classes`, the rest from all other classes in turn |
//! | [`label_shards`] | sort by label, cut into `devices x per_device` parts, each device gets `per_device` at random |
//!
//! Every sample goes to exactly one device. Sizes of devices differ by at most one (for `label_shards`, by at most one per
//! part). Results are, for each device, indices into the data set.

use common::rng::{Rng, derive};

/// Equal random parts.
pub fn iid(samples: usize, devices: usize, seed: u64) -> Vec<Vec<u32>> {
    let mut order = indices(samples);
    Rng::new(seed).shuffle(&mut order);
    cut(&order, devices)
}

/// Every device first draws `round(share * s)` samples of its dominant class, then the rest one by one from the other classes
/// in turn. Instead of an exhausted class it draws from the one with the most samples left.
pub fn dominant_class(labels: &[u32], devices: usize, share: f64, seed: u64) -> Vec<Vec<u32>> {
    let mut pools = Pools::new(labels, seed);
    let mut parts: Vec<Vec<u32>> = vec![Vec::new(); devices];
    let sizes: Vec<usize> = (0..devices).map(|device| size(labels.len(), devices, device)).collect();
    for (device, (part, &size)) in parts.iter_mut().zip(&sizes).enumerate() {
        let dominant = (share.clamp(0.0, 1.0) * size as f64).round() as usize;
        part.extend((0..dominant).map_while(|_| pools.draw(device % pools.len())));
    }
    for (device, (part, &size)) in parts.iter_mut().zip(&sizes).enumerate() {
        let others = pools.len().saturating_sub(1).max(1);
        let rest = size.saturating_sub(part.len());
        part.extend((0..rest).map_while(|turn| pools.draw((device + 1 + turn % others) % pools.len())));
    }
    parts
}

/// With `per_device` = 2: at most about two classes on each device.
pub fn label_shards(labels: &[u32], devices: usize, per_device: usize, seed: u64) -> Vec<Vec<u32>> {
    let mut order = indices(labels.len());
    Rng::new(seed).shuffle(&mut order);
    order.sort_by_key(|&index| labels.get(index as usize));
    let mut stretches = cut(&order, devices * per_device);
    Rng::new(derive(seed, 1)).shuffle(&mut stretches);
    let mut parts: Vec<Vec<u32>> = stretches.chunks(per_device.max(1)).map(<[_]>::concat).collect();
    parts.resize(devices, Vec::new());
    parts
}

/// Divides one device's samples into `(train, test)`.
pub fn hold_out(samples: &[u32], test_fraction: f64, seed: u64) -> (Vec<u32>, Vec<u32>) {
    let mut order = samples.to_vec();
    Rng::new(seed).shuffle(&mut order);
    let train = order.split_off(held_out(order.len(), test_fraction));
    (train, order)
}

/// `round(fraction * n)`, but at least one sample stays for training.
pub(super) fn held_out(samples: usize, fraction: f64) -> usize {
    ((fraction.clamp(0.0, 1.0) * samples as f64).round() as usize).min(samples.saturating_sub(1))
}

/// The remaining samples of each class, in random order.
struct Pools(Vec<Vec<u32>>);

impl Pools {
    fn new(labels: &[u32], seed: u64) -> Self {
        let mut classes: Vec<u32> = labels.to_vec();
        classes.sort_unstable();
        classes.dedup();
        let mut order = indices(labels.len());
        Rng::new(seed).shuffle(&mut order);
        let mut pools = vec![Vec::new(); classes.len().max(1)];
        for (index, label) in order.iter().filter_map(|&index| Some((index, labels.get(index as usize)?))) {
            // Labels without samples do not become a dominant class.
            let class = classes.partition_point(|class| class < label);
            if let Some(pool) = pools.get_mut(class) {
                pool.push(index);
            }
        }
        Self(pools)
    }

    /// Number of classes; never 0.
    fn len(&self) -> usize {
        self.0.len()
    }

    fn draw(&mut self, class: usize) -> Option<u32> {
        let drawn = self.0.get_mut(class).and_then(Vec::pop);
        // Of classes with equally many samples, the lowest.
        drawn.or_else(|| self.0.iter_mut().rev().max_by_key(|pool| pool.len()).and_then(Vec::pop))
    }
}

fn indices(samples: usize) -> Vec<u32> {
    (0..u32::try_from(samples).unwrap_or(u32::MAX)).collect()
}

fn cut(order: &[u32], parts: usize) -> Vec<Vec<u32>> {
    let mut rest = order;
    let mut cut = Vec::with_capacity(parts);
    for part in 0..parts {
        let (head, tail) = rest.split_at(size(order.len(), parts, part).min(rest.len()));
        cut.push(head.to_vec());
        rest = tail;
    }
    cut
}

/// The first `samples mod parts` parts are one larger.
fn size(samples: usize, parts: usize, part: usize) -> usize {
    samples / parts.max(1) + usize::from(part < samples % parts.max(1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn balanced() -> Vec<u32> {
        (0..6000).map(|index| index % 10).collect()
    }

    fn classes(labels: &[u32], part: &[u32]) -> [usize; 10] {
        let mut counts = [0; 10];
        part.iter().for_each(|&index| counts[labels[index as usize] as usize] += 1);
        counts
    }

    #[test]
    fn dominant_class_holds_four_fifths() {
        let labels = balanced();
        for (device, part) in dominant_class(&labels, 100, 0.8, 5).iter().enumerate() {
            let counts = classes(&labels, part);
            assert_eq!((part.len(), counts[device % 10]), (60, 48), "device {device}");
        }
    }

    #[test]
    fn the_rest_is_spread_over_the_other_classes() {
        // 54 samples, of which round(0.5 * 54) = 27 are dominant and 27 = 9 * 3 the rest.
        let labels: Vec<u32> = (0..540).map(|index| index % 10).collect();
        let first = &dominant_class(&labels, 10, 0.5, 1)[0];
        assert_eq!(classes(&labels, first), [27, 3, 3, 3, 3, 3, 3, 3, 3, 3]);
    }

    #[test]
    fn two_shards_hold_two_classes_of_balanced_data() {
        let labels = balanced();
        for part in label_shards(&labels, 100, 2, 9) {
            assert_eq!(part.len(), 60);
            assert!(classes(&labels, &part).iter().filter(|&&count| count > 0).count() <= 2);
        }
    }

    #[test]
    fn iid_mixes_classes() {
        let labels = balanced();
        let parts = iid(labels.len(), 10, 2);
        assert!(parts.iter().all(|part| classes(&labels, part).iter().all(|&count| count > 30)));
    }

    #[test]
    fn training_keeps_the_last_sample() {
        assert_eq!(hold_out(&[7], 0.9, 0), (vec![7], vec![]));
        assert_eq!(hold_out(&[], 0.9, 0), (vec![], vec![]));
        assert_eq!(hold_out(&[1, 2, 3], f64::NAN, 0).1.len(), 0);
    }

    proptest! {
        #[test]
        fn partitions_conserve_samples(
            labels in prop::collection::vec(0u32..7, 0..300),
            devices in 1usize..40,
            share in 0.0f64..1.0,
            seed: u64,
        ) {
            for parts in [
                iid(labels.len(), devices, seed),
                dominant_class(&labels, devices, share, seed),
                label_shards(&labels, devices, 2, seed),
            ] {
                prop_assert_eq!(parts.len(), devices);
                let sizes = parts.iter().map(Vec::len);
                prop_assert!(sizes.clone().max().unwrap() - sizes.min().unwrap() <= 2);
                let mut all = parts.concat();
                all.sort_unstable();
                prop_assert_eq!(all, indices(labels.len()));
            }
            prop_assert_eq!(
                dominant_class(&labels, devices, share, seed),
                dominant_class(&labels, devices, share, seed)
            );
        }

        #[test]
        fn holding_out_conserves_samples(len in 0usize..200, fraction in 0.0f64..1.0, seed: u64) {
            let (mut train, test) = hold_out(&indices(len), fraction, seed);
            prop_assert_eq!(test.len(), held_out(len, fraction));
            train.extend(test);
            train.sort_unstable();
            prop_assert_eq!(train, indices(len));
        }
    }
}
