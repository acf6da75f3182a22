//! Weights that grow with the exponential of a value, without overflow or 0/0.
//!
//! ```text
//! p_i = pi_i exp(F_i / tau) / sum_j pi_j exp(F_j / tau)
//! ```
//! The largest value is subtracted before anything is divided or exponentiated. On tiers this is repeated in every region over
//! C(j), the participants that hold it. So a region of low-loss devices has weights even if those devices have none among all.

use crate::{cohort::Cohort, kernel::sum};

/// Smaller losses count as this, so that their logarithm exists.
const LEAST_LOSS: f64 = 1e-10;

/// `ln sum exp`; minus infinity without terms.
pub(super) fn log_sum_exp(terms: impl Iterator<Item = f64> + Clone) -> f64 {
    let top = greatest(terms.clone());
    if top == f64::NEG_INFINITY { top } else { top + sum(terms.map(|term| (term - top).exp())).ln() }
}

/// See the module. `prior` need not sum to 1; an infinite tau gives the prior.
pub(super) fn softmax(values: &[f64], tau: f64, prior: &[f64]) -> Vec<f64> {
    let top = greatest(values.iter().copied());
    // Avoids 0 / 0 if an annealed temperature underflows.
    let tau = tau.max(f64::MIN_POSITIVE);
    let log = |(value, prior): (&f64, &f64)| (value - top) / tau + prior.ln();
    exp_shares(&values.iter().zip(prior).map(log).collect::<Vec<_>>())
}

/// `exp(log_i) / sum_j exp(log_j)`; all 0 if every logarithm is minus infinity.
pub(super) fn exp_shares(logs: &[f64]) -> Vec<f64> {
    let top = greatest(logs.iter().copied());
    if top == f64::NEG_INFINITY {
        return vec![0.0; logs.len()];
    }
    let raw: Vec<f64> = logs.iter().map(|log| (log - top).exp()).collect();
    let all = sum(raw.iter().copied());
    raw.iter().map(|raw| raw / all).collect()
}

/// F_i, floored.
pub(super) fn floored_loss(cohort: &Cohort, index: usize) -> f64 {
    cohort.participants()[index].loss().max(LEAST_LOSS)
}

/// The values of some participants.
pub(super) fn of_members(values: &[f64], members: &[usize]) -> Vec<f64> {
    members.iter().map(|&member| values[member]).collect()
}

pub(super) fn greatest(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(f64::NEG_INFINITY, f64::max)
}

#[cfg(test)]
mod tests {
    use super::{super::fleet::assert_close, *};

    #[test]
    fn worked_numbers() {
        let losses = [0.5, 1.0, 2.0];
        let plain = [0.1402443832, 0.2312238976, 0.6285317192];
        assert_close(&softmax(&losses, 1.0, &[1.0; 3]), &plain, 1e-10);
        let prior = [0.2644167697, 0.2615697315, 0.4740134987];
        assert_close(&softmax(&losses, 1.0, &[50.0, 30.0, 20.0]), &prior, 1e-10);
        assert_eq!(softmax(&losses, f64::INFINITY, &[1.0, 2.0, 1.0]), [0.25, 0.5, 0.25]);
    }

    #[test]
    fn extremes() {
        assert_eq!(softmax(&[0.0, 1e300, 1e300], 1e-300, &[1.0; 3]), [0.0, 0.5, 0.5]);
        assert_eq!(softmax(&[1.0, 2.0], 0.0, &[1.0; 2]), [0.0, 1.0]);
        assert_eq!(exp_shares(&[f64::NEG_INFINITY; 2]), [0.0; 2]);
        assert_eq!(exp_shares(&[f64::NEG_INFINITY, -1e300]), [0.0, 1.0]);
        assert!(softmax(&[], 1.0, &[]).is_empty());
        assert_eq!(log_sum_exp([].into_iter()), f64::NEG_INFINITY);
        assert!((log_sum_exp([-1000.0, -1000.0].into_iter()) - (2f64.ln() - 1000.0)).abs() < 1e-12);
    }
}
