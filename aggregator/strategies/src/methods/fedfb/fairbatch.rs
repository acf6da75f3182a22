//! FairBatch: sample weights that close the gap between groups, from counts and loss sums alone.
//!
//! With `L'_{y,a} = S_{y,a}/n_{*,a}`, `L_{y,a} = S_{y,a}/n_{y,a}`, and r the reference attribute (0, or the
//! smallest one with samples):
//!
//! ```text
//! notion  lambda                   mu                                          set                       start
//! dp      a = 0..A-1               mu_a = f_a, mu_r = -sum f_a                 [0, 2 n_{*,a}/n]          n_{*,a}/n
//!           f_a = (L'_{0,a} - L'_{1,a} - n_{0,a}/n_{*,a}) - (the same of r)  = P(yhat=1|a) - P(yhat=1|r)
//! eo      a = 1..A-1 of y = 1      mu_a = L_{1,a} - L_{1,r}                    >= 0, sum <= n_{1,*}/n    n_{1,a}/n
//! eodds   a = 1..A-1 of each y     mu_{y,a} = L_{y,a} - L_{y,r}                per y as eo               n_{y,a}/n
//!
//! lambda <- nearest point of the set to  lambda + alpha_t * mu          (mu/||mu|| with `normalize`)
//!
//! dp      v(0,a) = n lambda_a/n_{*,a},  v(1,a) = 2 - v(0,a)
//! eo      v(0,.) = 1,  v(1,a) = n lambda_a/n_{1,a},  v(1,r) = n (n_{1,*}/n - sum lambda)/n_{1,r}
//! eodds   as eo for each y
//! ```
//! Sets, starts and v use the counts of all samples; mu uses the counts behind the loss sums. A cell without any samples has
//! lambda 0 and v 1. A cell without samples behind the sums has mu 0. A reference without samples gives no step (eodds: for
//! that y).

use crate::{
    kernel::sum,
    methods::{
        fedfb::{
            cells::Cells,
            step_size::{StepSize, move_by},
        },
        simplex::project_below,
    },
};

/// The quantity that is to be equal among groups.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Parity {
    /// The rate of positive predictions.
    Demographic,
    /// The loss of samples with label 1.
    Opportunity,
    /// The loss of samples with label 1, and that of those with label 0.
    Odds,
}

impl Parity {
    /// Labels whose losses are compared by attribute.
    fn labels(self) -> &'static [usize] {
        match self {
            Self::Demographic => &[],
            Self::Opportunity => &[1],
            Self::Odds => &[0, 1],
        }
    }
}

/// See the module.
#[derive(Clone, PartialEq, Debug)]
pub struct FairBatch {
    parity: Parity,
    counts: Cells,
    lambda: Vec<f64>,
}

impl FairBatch {
    /// The start, where all samples weigh 1.
    pub fn new(parity: Parity, counts: Cells) -> Self {
        let mut batch = Self { parity, counts, lambda: vec![] };
        let n = batch.counts.total().max(1.0);
        let attributes = batch.counts.attributes();
        batch.lambda = match parity {
            Parity::Demographic => (0..attributes).map(|a| batch.counts.group(a) / n).collect(),
            Parity::Opportunity | Parity::Odds => {
                let slots = parity.labels().iter().flat_map(|&y| (1..attributes).map(move |a| (y, a)));
                slots
                    .map(|(y, a)| if batch.is_free(y, a) { batch.counts.at(y, a) / n } else { 0.0 })
                    .collect()
            }
        };
        batch
    }

    /// Continues from an earlier lambda; `None` if it does not fit.
    pub fn with_lambda(mut self, lambda: &[f64]) -> Option<Self> {
        let fits = lambda.len() == self.lambda.len() && lambda.iter().all(|value| value.is_finite());
        for (slot, &value) in self.lambda.iter_mut().zip(lambda) {
            // A cell that starts at 0 has no samples, or is the reference.
            *slot = if *slot == 0.0 { 0.0 } else { value };
        }
        fits.then_some(self)
    }

    /// In the order of the module's table; eodds: first all of y = 0.
    pub fn lambda(&self) -> &[f64] {
        &self.lambda
    }

    /// Samples by label and attribute.
    pub fn counts(&self) -> &Cells {
        &self.counts
    }

    /// One step with the loss sums of round t, and the counts behind them.
    pub fn step(&mut self, losses: &Cells, counts: &Cells, step_size: StepSize, t: u32) {
        let mu = self.mu(losses, counts);
        self.advance(&mu, step_size, t);
    }

    /// The direction of a step; all 0 if no step can be computed.
    pub fn mu(&self, losses: &Cells, counts: &Cells) -> Vec<f64> {
        match self.parity {
            Parity::Demographic => {
                self.mu_of_gaps(counts, |a| self.pull(a, losses, counts) + self.offset(a, counts))
            }
            Parity::Opportunity | Parity::Odds => {
                self.parity.labels().iter().flat_map(|&y| self.mu_of_label(y, losses, counts)).collect()
            }
        }
    }

    /// mu of demographic parity from the gaps `f_a` of the attributes other than the reference.
    pub(super) fn mu_of_gaps(&self, counts: &Cells, gap: impl Fn(usize) -> f64) -> Vec<f64> {
        let mut mu = vec![0.0; self.lambda.len()];
        let Some(reference) = self.reference_group().filter(|&r| counts.group(r) > 0.0) else { return mu };
        for (a, mu) in mu.iter_mut().enumerate() {
            if a != reference && counts.group(a) > 0.0 && self.counts.group(a) > 0.0 {
                *mu = gap(a);
            }
        }
        let all = sum(mu.iter().copied());
        if let Some(mu) = mu.get_mut(reference) {
            *mu = -all;
        }
        mu
    }

    /// The part of `f_a` that depends on losses: `L'_{0,a} - L'_{1,a} - L'_{0,r} + L'_{1,r}`. Parts of several devices add up.
    pub(super) fn pull(&self, a: usize, losses: &Cells, counts: &Cells) -> f64 {
        let tilt = |a: usize| (losses.at(0, a) - losses.at(1, a)) / counts.group(a);
        self.reference_group().map_or(0.0, |r| tilt(a) - tilt(r))
    }

    /// The part of `f_a` that depends on counts alone.
    pub(super) fn offset(&self, a: usize, counts: &Cells) -> f64 {
        let negative = |a: usize| counts.at(0, a) / counts.group(a);
        self.reference_group().map_or(0.0, |r| negative(r) - negative(a))
    }

    pub(super) fn advance(&mut self, mu: &[f64], step_size: StepSize, t: u32) {
        let Some(moved) = move_by(&self.lambda, mu, step_size, t) else { return };
        let n = self.counts.total();
        let attributes = self.counts.attributes();
        self.lambda = match self.parity {
            Parity::Demographic => {
                let most = |a: usize| 2.0 * self.counts.group(a) / n;
                moved.iter().enumerate().map(|(a, value)| value.clamp(0.0, most(a))).collect()
            }
            Parity::Opportunity | Parity::Odds => {
                let of_labels = moved.chunks(attributes.saturating_sub(1).max(1)).zip(self.parity.labels());
                of_labels.flat_map(|(part, &y)| project_below(part, self.counts.label(y) / n)).collect()
            }
        };
    }

    /// v of each label and attribute: the factor of a sample's loss in training.
    pub fn sample_weights(&self) -> Cells {
        let attributes = self.counts.attributes();
        let mut weights = Cells::filled(attributes, 1.0);
        let n = self.counts.total();
        if self.parity == Parity::Demographic {
            for (a, lambda) in self.lambda.iter().enumerate().filter(|&(a, _)| self.counts.group(a) > 0.0) {
                let negative = (n * lambda / self.counts.group(a)).clamp(0.0, 2.0);
                weights.set(0, a, negative);
                weights.set(1, a, 2.0 - negative);
            }
            return weights;
        }
        for (part, &y) in self.lambda.chunks(attributes.saturating_sub(1).max(1)).zip(self.parity.labels()) {
            for (a, lambda) in (1..).zip(part).filter(|&(a, _)| self.is_free(y, a)) {
                weights.set(y, a, (n * lambda / self.counts.at(y, a)).max(0.0));
            }
            if let Some(reference) = self.reference(y) {
                let rest = self.counts.label(y) - n * sum(part.iter().copied());
                weights.set(y, reference, (rest / self.counts.at(y, reference)).max(0.0));
            }
        }
        weights
    }

    fn mu_of_label(&self, y: usize, losses: &Cells, counts: &Cells) -> Vec<f64> {
        let loss = |a: usize| losses.at(y, a) / counts.at(y, a);
        let reference = self.reference(y).filter(|&r| counts.at(y, r) > 0.0).map(loss);
        let known = |a: usize| self.is_free(y, a) && counts.at(y, a) > 0.0;
        let of = |a: usize| reference.filter(|_| known(a)).map_or(0.0, |reference| loss(a) - reference);
        (1..self.counts.attributes()).map(of).collect()
    }

    /// Whether a cell has samples and is not the reference.
    fn is_free(&self, y: usize, a: usize) -> bool {
        self.counts.at(y, a) > 0.0 && self.reference(y) != Some(a)
    }

    fn reference(&self, y: usize) -> Option<usize> {
        (0..self.counts.attributes()).find(|&a| self.counts.at(y, a) > 0.0)
    }

    fn reference_group(&self) -> Option<usize> {
        (0..self.counts.attributes()).find(|&a| self.counts.group(a) > 0.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::step_size::Decay, *};
    use crate::methods::fleet::assert_close;

    const ALL: [Parity; 3] = [Parity::Demographic, Parity::Opportunity, Parity::Odds];

    fn step_size(alpha: f64, normalize: bool) -> StepSize {
        StepSize { alpha, decay: Decay::Sqrt, normalize }
    }

    /// Counts, some of them 0, and sums of losses in [0, n].
    fn cells() -> impl proptest::strategy::Strategy<Value = (Cells, Cells)> {
        let cell = (prop_oneof![1 => Just(0.0), 5 => (1u32..60).prop_map(f64::from)], 0.0f64..1.0);
        (1usize..5)
            .prop_flat_map(move |attributes| prop::collection::vec(cell.clone(), 2 * attributes))
            .prop_map(|cells| {
                let counts = cells.iter().map(|&(n, _)| n).collect();
                let losses = cells.iter().map(|&(n, share)| (n * share).floor()).collect();
                (Cells::new(counts).unwrap(), Cells::new(losses).unwrap())
            })
    }

    fn gone(batch: &FairBatch, y: usize, a: usize) -> bool {
        let n = batch.counts();
        if batch.parity == Parity::Demographic { n.group(a) == 0.0 } else { n.at(y, a) == 0.0 }
    }

    proptest! {
        #[test]
        fn all_samples_weigh_one_at_the_start((counts, _) in cells()) {
            for parity in ALL {
                let weights = FairBatch::new(parity, counts.clone()).sample_weights();
                assert_close(weights.values(), &vec![1.0; counts.values().len()], 1e-12);
            }
        }

        #[test]
        fn sets_are_respected(
            (counts, losses) in cells(),
            heard in prop::collection::vec(0.0f64..1.0, 8),
            alpha in 0.0f64..5.0,
            normalize: bool,
        ) {
            let n = counts.total();
            let part = |cells: &Cells| {
                let values = cells.values().iter().zip(heard.iter().cycle());
                Cells::new(values.map(|(value, share)| (value * share).floor()).collect()).unwrap()
            };
            for parity in ALL {
                let mut batch = FairBatch::new(parity, counts.clone());
                for t in 1..6 {
                    let (own, seen) = if t % 2 == 0 { (part(&losses), part(&counts)) } else { (losses.clone(), counts.clone()) };
                    batch.step(&own, &seen, step_size(alpha, normalize), t);
                    let lambda = batch.lambda();
                    prop_assert!(lambda.iter().all(|value| (0.0..=2.0).contains(value)), "{lambda:?}");
                    match parity {
                        Parity::Demographic => for (a, value) in lambda.iter().enumerate() {
                            prop_assert!(*value <= 2.0 * counts.group(a) / n.max(1.0) + 1e-12);
                        },
                        _ => for (part, &y) in lambda.chunks((counts.attributes() - 1).max(1)).zip(parity.labels()) {
                            prop_assert!(part.iter().sum::<f64>() <= counts.label(y) / n.max(1.0) + 1e-12);
                        },
                    }
                    let weights = batch.sample_weights();
                    prop_assert!(weights.values().iter().all(|weight| *weight >= 0.0 && weight.is_finite()));
                    for (y, a) in (0..2).flat_map(|y| (0..counts.attributes()).map(move |a| (y, a))) {
                        prop_assert!(!gone(&batch, y, a) || weights.at(y, a) == 1.0);
                    }
                    // Reweighing never changes the total weight of all samples of a label (DP: of a group).
                    if parity == Parity::Odds && n > 0.0 {
                        prop_assert!((weights.dot(&counts) - n).abs() < 1e-9 * n);
                    }
                }
            }
        }

        /// `sum v S / n` is the inner objective of the notion.
        #[test]
        fn weights_give_the_inner_objective((counts, losses) in cells(), alpha in 0.0f64..1.0) {
            let counts = counts.zip(&counts, |n, _| n.max(1.0));
            let n = counts.total();
            for parity in ALL {
                let mut batch = FairBatch::new(parity, counts.clone());
                batch.step(&losses, &counts, step_size(alpha, false), 1);
                let lambda = batch.lambda();
                let mean = |y: usize, a: usize| losses.at(y, a) / counts.at(y, a);
                let compared = |y: usize, lambda: &[f64]| {
                    let rest = counts.label(y) / n - lambda.iter().sum::<f64>();
                    let others = (1..).zip(lambda).map(|(a, lambda)| lambda * mean(y, a));
                    others.sum::<f64>() + rest * mean(y, 0)
                };
                let inner: f64 = match parity {
                    Parity::Demographic => (0..counts.attributes()).map(|a| {
                        let group = counts.group(a);
                        let rest = 2.0 * group / n - lambda[a];
                        lambda[a] * losses.at(0, a) / group + rest * losses.at(1, a) / group
                    }).sum(),
                    Parity::Opportunity => compared(1, lambda) + losses.label(0) / n,
                    Parity::Odds => {
                        let (zero, one) = lambda.split_at(lambda.len() / 2);
                        compared(0, zero) + compared(1, one)
                    }
                };
                let weighed = batch.sample_weights().dot(&losses) / n;
                prop_assert!((weighed - inner).abs() < 1e-12 * (1.0 + inner.abs()), "{parity:?}");
            }
        }

        #[test]
        fn the_signal_is_the_difference_of_rates((counts, losses) in cells()) {
            let batch = FairBatch::new(Parity::Demographic, counts.clone());
            let mu = batch.mu(&losses, &counts);
            prop_assert!(mu.iter().sum::<f64>().abs() < 1e-12);
            let rate = |a: usize| (losses.at(0, a) + counts.at(1, a) - losses.at(1, a)) / counts.group(a);
            let Some(first) = (0..counts.attributes()).find(|&a| counts.group(a) > 0.0) else { return Ok(()) };
            for a in (first + 1..counts.attributes()).filter(|&a| counts.group(a) > 0.0) {
                prop_assert!((mu[a] - (rate(a) - rate(first))).abs() < 1e-12);
            }
        }

        #[test]
        fn two_groups_move_apart_by_alpha(n in prop::collection::vec(20u32..60, 4), seed in 0usize..20) {
            let counts = Cells::counts(&n).unwrap();
            let losses = Cells::new(vec![seed as f64, 0.0, 0.0, 5.0]).unwrap();
            let mut batch = FairBatch::new(Parity::Demographic, counts.clone());
            let (start, mu) = (batch.lambda().to_vec(), batch.mu(&losses, &counts));
            prop_assume!(mu[1].abs() > 1e-9);
            batch.step(&losses, &counts, step_size(0.01, true), 1);
            let step = 0.01 / 2f64.sqrt() * mu[1].signum();
            assert_close(batch.lambda(), &[start[0] - step, start[1] + step], 1e-12);
        }

        #[test]
        fn fair_input_moves_nothing(n in prop::collection::vec(1u32..9, 2), attributes in 1usize..5) {
            let counts = Cells::new((0..2 * attributes).map(|at| f64::from(n[at / attributes] * 10)).collect());
            let counts = counts.unwrap();
            let losses = counts.zip(&counts, |n, _| n * 0.3);
            for parity in ALL {
                let mut batch = FairBatch::new(parity, counts.clone());
                let start = batch.clone();
                batch.step(&losses, &counts, step_size(1.0, true), 1);
                prop_assert_eq!(&batch, &start);
            }
        }
    }
}
