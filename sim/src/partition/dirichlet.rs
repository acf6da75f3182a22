//! Divides each class by a Dirichlet draw over clients.
//!
//! Gamma draws are kept as logarithms, so that a small alpha does not make all of them zero: for alpha < 1,
//! `ln Gamma(alpha) = ln Gamma(alpha + 1) + ln(U) / alpha`.

use common::rng::Rng;

use super::{PartitionError, deal, pools};

/// Attempts to draw a partition before giving up.
const TRIES: u32 = 5000;

/// Clients that already hold their equal share get nothing of later classes. Repeats the draw until every client has
/// at least as many samples as there are classes.
pub(super) fn with_floor(
    labels: &[u32],
    clients: usize,
    alpha: f64,
    seed: u64,
) -> Result<Vec<Vec<u32>>, PartitionError> {
    let pools = pools(labels, seed);
    let (least, full) = (pools.len(), labels.len() as f64 / clients.max(1) as f64);
    let mut rng = Rng::new(common::rng::derive(seed, 1));
    for _ in 0..TRIES {
        let mut sizes = vec![0usize; clients];
        // Draws only counts until they fit.
        let counts: Vec<Vec<usize>> = pools
            .iter()
            .map(|(_, pool)| {
                let open = sizes.iter().map(|&size| (size as f64) < full);
                let counts = apportion(&proportions(&mut rng, alpha, open), pool.len());
                sizes.iter_mut().zip(&counts).for_each(|(size, count)| *size += count);
                counts
            })
            .collect();
        if sizes.iter().all(|&size| size >= least) {
            let mut parts = vec![Vec::new(); clients];
            pools.iter().zip(&counts).for_each(|((_, pool), counts)| deal(&mut parts, pool, counts));
            return Ok(parts);
        }
    }
    Err(PartitionError::Floor { alpha, clients, least, tries: TRIES })
}

/// Without a minimum; some clients may get nothing.
pub(super) fn free(labels: &[u32], clients: usize, alpha: f64, seed: u64) -> Vec<Vec<u32>> {
    let mut rng = Rng::new(common::rng::derive(seed, 1));
    let mut parts = vec![Vec::new(); clients];
    for (_, pool) in pools(labels, seed) {
        let shares = proportions(&mut rng, alpha, (0..clients).map(|_| true));
        deal(&mut parts, &pool, &apportion(&shares, pool.len()));
    }
    parts
}

/// Whole numbers with sum `total` in proportion to the shares, by largest remainder; all 0 if all shares are 0.
pub(super) fn apportion(shares: &[f64], total: usize) -> Vec<usize> {
    let sum: f64 = shares.iter().sum();
    if !(sum > 0.0 && sum.is_finite()) {
        return vec![0; shares.len()];
    }
    let exact = |share: &f64| share / sum * total as f64;
    let mut counts: Vec<usize> = shares.iter().map(|share| exact(share) as usize).collect();
    let left = total.saturating_sub(counts.iter().sum());
    let mut order: Vec<(usize, f64)> = shares.iter().map(|share| exact(share).fract()).enumerate().collect();
    order.retain(|&(at, _)| shares.get(at).is_some_and(|&share| share > 0.0));
    order.sort_by(|a, b| b.1.total_cmp(&a.1));
    for (at, _) in order.iter().cycle().take(left) {
        if let Some(count) = counts.get_mut(*at) {
            *count += 1;
        }
    }
    counts
}

/// A Dirichlet draw over the open clients, with the largest share scaled to 1.
pub fn proportions(rng: &mut Rng, alpha: f64, open: impl Iterator<Item = bool>) -> Vec<f64> {
    let draws: Vec<f64> = open
        .map(|open| (log_gamma_draw(rng, alpha), open))
        .map(|(draw, open)| if open { draw } else { f64::NEG_INFINITY })
        .collect();
    let top = draws.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    draws.iter().map(|&draw| if draw.is_finite() { libm::exp(draw - top) } else { 0.0 }).collect()
}

/// Logarithm of a Gamma(alpha, 1) draw.
fn log_gamma_draw(rng: &mut Rng, alpha: f64) -> f64 {
    if alpha < 1.0 {
        let boost = libm::log(1.0 - rng.unit_f64()) / alpha;
        return boost + libm::log(gamma_draw(rng, alpha + 1.0));
    }
    libm::log(gamma_draw(rng, alpha))
}

/// Marsaglia and Tsang, for alpha >= 1.
fn gamma_draw(rng: &mut Rng, alpha: f64) -> f64 {
    let d = alpha - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = rng.normal();
        let v = (1.0 + c * x).powi(3);
        if v > 0.0 && libm::log(1.0 - rng.unit_f64()) < 0.5 * x * x + d - d * v + d * libm::log(v) {
            return d * v;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

    use super::*;

    #[test]
    fn gamma_draws_have_their_mean_and_variance() {
        let mut rng = Rng::new(3);
        for alpha in [0.1, 0.5, 1.0, 4.5] {
            let draws: Vec<f64> = (0..100_000).map(|_| log_gamma_draw(&mut rng, alpha).exp()).collect();
            let mean = draws.iter().sum::<f64>() / 1e5;
            let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 1e5;
            assert!((mean / alpha - 1.0).abs() < 0.04, "{alpha}: mean {mean}");
            assert!((variance / alpha - 1.0).abs() < 0.08, "{alpha}: variance {variance}");
        }
    }

    #[test]
    fn shares_of_a_tiny_alpha_do_not_vanish() {
        let mut rng = Rng::new(1);
        for _ in 0..100 {
            let shares = proportions(&mut rng, 1e-6, [true, true, false].into_iter());
            assert!(shares.contains(&1.0) && shares[2] == 0.0, "{shares:?}");
        }
    }

    #[test]
    fn remainders_decide() {
        assert_eq!(apportion(&[0.5, 0.3, 0.2], 10), [5, 3, 2]);
        assert_eq!(apportion(&[1.0, 1.0, 1.0], 5), [2, 2, 1]);
        assert_eq!(apportion(&[0.0, 0.26, 0.74], 2), [0, 1, 1]);
        assert_eq!(apportion(&[0.0; 3], 5), [0; 3]);
        assert_eq!(apportion(&[f64::NAN], 5), [0]);
    }

    proptest! {
        #[test]
        fn apportioning_conserves(shares in proptest::collection::vec(0.0f64..1.0, 1..50), total in 0usize..10_000) {
            let counts = apportion(&shares, total);
            let sum: f64 = shares.iter().sum();
            if sum > 0.0 {
                prop_assert_eq!(counts.iter().sum::<usize>(), total);
                for (share, &count) in shares.iter().zip(&counts) {
                    prop_assert!((share / sum * total as f64 - count as f64).abs() < 1.0 + 1e-9);
                }
            }
        }
    }
}
