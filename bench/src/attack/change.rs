//! A difference over seeds with its interval.

use serde::Serialize;

/// Mean of paired differences, and the half width of its 95 % interval.
#[derive(Copy, Clone, PartialEq, Debug, Serialize)]
pub struct PairedChange {
    /// In percent or in points, as the field says that holds it.
    pub mean: f64,
    /// `None` with one seed.
    pub half_width: Option<f64>,
}

/// 97.5 % quantiles of Student's t with 1, 2, .. degrees of freedom. Beyond the list, the normal distribution is
/// used.
const T: [f64; 12] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179];
const NORMAL: f64 = 1.96;

impl PairedChange {
    pub(crate) fn of(differences: impl Iterator<Item = f64>) -> Self {
        let all: Vec<f64> = differences.collect();
        let count = all.len() as f64;
        let mean = all.iter().sum::<f64>() / count;
        let squares = all.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
        let half_width = (all.len() > 1).then(|| {
            let t = T.get(all.len() - 2).copied().unwrap_or(NORMAL);
            t * (squares / (count - 1.0) / count).sqrt()
        });
        Self { mean, half_width }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_of_five_seeds_uses_students_t() {
        let change = PairedChange::of([1.0, 2.0, 3.0, 4.0, 5.0].into_iter());
        assert_eq!(change.mean, 3.0);
        assert!((change.half_width.unwrap() - 2.776 * 0.5f64.sqrt()).abs() < 1e-12);
        assert_eq!(PairedChange::of([7.0].into_iter()), PairedChange { mean: 7.0, half_width: None });
    }
}
