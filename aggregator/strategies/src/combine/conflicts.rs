//! Update conflicts: participants whose loss the step raises, to first order.
//!
//! ```text
//! g_i = -D_i, d = theta_new - theta
//! model conflict  g_i . d > 0              layer conflict  g_{i,l} . d_l > 0
//! ```
//! Zero is not a conflict; products within `1e-12 |g| |d|` count as zero. Only the parameters that a device holds are compared.
//! This costs one more pass over the updates.

use serde::Serialize;

use crate::{
    cohort::Cohort,
    error::CombineError,
    kernel::Scalar,
    updates::{UpdateRef, Updates},
};

/// How many participants are in conflict with a step.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Conflicts {
    /// Over the whole model.
    pub model: usize,
    /// By layer, in model order.
    pub layers: Vec<usize>,
}

/// Counts the conflicts of the step from one model to the next.
pub fn conflicts<P: Scalar, U: Updates>(
    cohort: &Cohort,
    before: &[P],
    after: &[P],
    updates: &mut U,
) -> Result<Conflicts, CombineError<U::Error>> {
    let regions = cohort.regions();
    for model in [before, after] {
        if model.len() != regions.parameters() {
            return Err(CombineError::Model { expected: regions.parameters(), got: model.len() });
        }
    }
    let starts: Vec<usize> = cohort.layers().iter().skip(1).map(|layer| layer.start).collect();
    let mut found = Conflicts { model: 0, layers: vec![0; starts.len() + 1] };
    let mut buffer = Vec::new();
    for (index, participant) in cohort.participants().iter().enumerate() {
        let sent = UpdateRef::Update(index, participant);
        let update = updates.read(sent, &mut buffer).map_err(CombineError::Read)?;
        sent.check_len(regions, update.len())?;
        let mut layers = vec![Products::default(); found.layers.len()];
        for piece in regions.pieces(participant.tier) {
            let range = piece.full..piece.full + piece.len;
            let (before, after) = (&before[range.clone()], &after[range.clone()]);
            let part = &update[piece.packed..piece.packed + piece.len];
            let mut layer = starts.partition_point(|&start| start <= piece.full);
            for (at, ((value, before), after)) in range.zip(part.iter().zip(before).zip(after)) {
                while starts.get(layer).is_some_and(|&start| start <= at) {
                    layer += 1;
                }
                layers[layer].add(value.wide(), after.wide() - before.wide());
            }
        }
        let whole = layers.iter().fold(Products::default(), |sum, part| sum.plus(*part));
        found.model += usize::from(whole.is_conflict());
        for (count, products) in found.layers.iter_mut().zip(&layers) {
            *count += usize::from(products.is_conflict());
        }
    }
    Ok(found)
}

#[derive(Copy, Clone, Default)]
struct Products {
    inner: f64,
    update: f64,
    step: f64,
}

impl Products {
    fn add(&mut self, update: f64, step: f64) {
        self.inner += update * step;
        self.update += update * update;
        self.step += step * step;
    }

    fn plus(self, other: Self) -> Self {
        Self {
            inner: self.inner + other.inner,
            update: self.update + other.update,
            step: self.step + other.step,
        }
    }

    fn is_conflict(self) -> bool {
        -self.inner > 1e-12 * self.update.sqrt() * self.step.sqrt()
    }
}

#[cfg(test)]
mod tests {
    use common::{Tier, TierSet, message::Scalars, region::RegionMap};

    use super::*;
    use crate::check::check_update;

    /// FedLF's example, whose plain mean conflicts with device 1 in layer 2.
    #[test]
    fn plain_averaging_conflicts_in_the_second_layer() {
        let regions = RegionMap::from_spans(4, 1, [(0, 4, TierSet::first(1))]);
        let updates = vec![vec![-0.1, -0.1, -0.2, 0.1], vec![0.1, -0.2, 0.1, -0.4]];
        let mut cohort = Cohort::new(regions.clone(), 0.1);
        let tier = Tier::new(0).unwrap();
        for (name, update) in ["a", "b"].into_iter().zip(&updates) {
            let norms = check_update(update, regions.pieces(tier), 1).unwrap();
            let scalars = Scalars { samples: 1, ..Scalars::default() };
            cohort.admit(name.parse().unwrap(), tier, scalars, &norms).unwrap();
        }
        let layers = [0..2, 2..4];
        let count = |cohort: &Cohort, step: [f64; 4]| {
            conflicts(cohort, &[0.0; 4], &step, &mut updates.as_slice()).unwrap()
        };
        let mean = [0.0, -0.15, -0.05, -0.15];
        assert_eq!(count(&cohort, mean).layers, [0], "one layer where none are stated");
        cohort.set_layers(layers.as_slice());
        assert_eq!(count(&cohort, mean), Conflicts { model: 0, layers: vec![0, 1] });
        let fair = [0.061_011_07, -0.147_293_75, -0.092_261_88, -0.116_490_11];
        assert_eq!(count(&cohort, fair), Conflicts { model: 0, layers: vec![0, 0] });
        assert_eq!(count(&cohort, mean.map(|x| -x)), Conflicts { model: 2, layers: vec![2, 1] });
        assert_eq!(count(&cohort, [0.0; 4]), Conflicts { model: 0, layers: vec![0, 0] });
        // Orthogonal up to rounding.
        assert_eq!(count(&cohort, [0.1, -0.1 * (1.0 + 1e-16), 0.0, 0.0]).layers, [0, 0]);
    }

    #[test]
    fn conflicts_count_only_parameters_that_a_device_holds() {
        let (wide, both) = (TierSet::first(1), TierSet::first(2));
        let regions = RegionMap::from_spans(3, 2, [(0, 1, both), (1, 1, wide), (2, 1, both)]);
        let updates = vec![vec![1.0, 1.0]];
        let mut cohort = Cohort::new(regions.clone(), 0.1);
        let scalars = Scalars { samples: 1, ..Scalars::default() };
        cohort.admit("a".parse().unwrap(), Tier::new(1).unwrap(), scalars, &[2.0, 0.0]).unwrap();
        let layers = [0..2, 2..3];
        cohort.set_layers(layers.as_slice());
        let step = [1.0, -100.0, -2.0];
        let found = conflicts(&cohort, &[0.0; 3], &step, &mut updates.as_slice()).unwrap();
        assert_eq!(found, Conflicts { model: 1, layers: vec![0, 1] });
        let short = vec![vec![1.0]];
        assert!(conflicts(&cohort, &[0.0; 3], &step, &mut short.as_slice()).is_err());
    }
}
