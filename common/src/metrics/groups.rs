//! Group fairness of a binary classifier: label y in {0, 1}, prediction yhat, attribute a in 0..A.
//!
//! ```text
//! dp     rate(a) = P(yhat=1 | a)          against P(yhat=1)
//! eo     tpr(a)  = P(yhat=1 | y=1, a)     against P(yhat=1 | y=1)
//! eodds  the larger of that for y = 0 and y = 1
//! disparity = max_a |rate(a) - overall|        pair = max_a rate(a) - min_a rate(a)     (SPD for dp)
//! ```
//! The two kinds of numbers are not comparable: with two groups the disparity lies between half the pair
//! difference and all of it. Groups without samples in the condition are left out.

/// Disparities of a classifier.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
#[cfg_attr(feature = "std", derive(serde::Serialize))]
pub struct GroupFairness {
    /// Demographic parity; its `pair` is the statistical parity difference.
    pub dp: Disparity,
    /// Equal opportunity.
    pub eo: Disparity,
    /// Equalized odds.
    pub eodds: Disparity,
    /// Share of correct predictions.
    pub accuracy: f64,
    /// Accuracy of the best constant classifier, which is always fair. An accuracy near it makes fairness figures meaningless.
    pub constant_accuracy: f64,
}

/// How far the rates of groups are apart.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
#[cfg_attr(feature = "std", derive(serde::Serialize))]
pub struct Disparity {
    /// Largest distance between the rate of a group and the overall rate.
    pub overall: f64,
    /// Largest distance between the rates of two groups.
    pub pair: f64,
}

impl GroupFairness {
    /// From the number of samples of each group (label x A + attribute) and how many of them were predicted positive. For a
    /// randomised classifier, `positive` is the mean predicted rate times the samples. `None` unless both have the same even
    /// length.
    pub fn of(positive: &[f64], counts: &[f64]) -> Option<Self> {
        let attributes = counts.len() / 2;
        if attributes == 0 || !counts.len().is_multiple_of(2) || positive.len() != counts.len() {
            return None;
        }
        let (no, yes) = (0..attributes, attributes..2 * attributes);
        let both = |values: &[f64], a: usize| values[a] + values[attributes + a];
        let given =
            |label: core::ops::Range<usize>| Disparity::of(label.map(|cell| (positive[cell], counts[cell])));
        let (fpr, eo) = (given(no.clone()), given(yes.clone()));
        let all: f64 = counts.iter().sum();
        let negatives: f64 = counts[no.clone()].iter().sum();
        let right: f64 = no.map(|cell| counts[cell] - positive[cell]).sum::<f64>()
            + yes.map(|cell| positive[cell]).sum::<f64>();
        Some(Self {
            dp: Disparity::of((0..attributes).map(|a| (both(positive, a), both(counts, a)))),
            eo,
            eodds: Disparity { overall: fpr.overall.max(eo.overall), pair: fpr.pair.max(eo.pair) },
            accuracy: if all > 0.0 { right / all } else { 0.0 },
            constant_accuracy: if all > 0.0 { negatives.max(all - negatives) / all } else { 0.0 },
        })
    }

    /// From the number of wrong predictions of each group: a wrong prediction is positive where the label is 0. `positive` is
    /// scratch space of the same length.
    pub fn of_errors(errors: &[f64], counts: &[f64], positive: &mut [f64]) -> Option<Self> {
        if errors.len() != counts.len() || positive.len() != counts.len() {
            return None;
        }
        for (cell, ((slot, &wrong), &count)) in positive.iter_mut().zip(errors).zip(counts).enumerate() {
            *slot = if cell < counts.len() / 2 { wrong } else { count - wrong };
        }
        Self::of(positive, counts)
    }
}

impl Disparity {
    /// From `(positive, count)` of each group.
    pub fn of(groups: impl Iterator<Item = (f64, f64)> + Clone) -> Self {
        let groups = groups.filter(|&(_, count)| count > 0.0);
        let (positive, count) =
            groups.clone().fold((0.0, 0.0), |(p, n), (positive, count)| (p + positive, n + count));
        if count == 0.0 {
            return Self::default();
        }
        let rates = groups.map(|(positive, count)| positive / count);
        let middle = positive / count;
        let (low, high) = rates
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), rate| (low.min(rate), high.max(rate)));
        Self { overall: (middle - low).max(high - middle), pair: high - low }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn near(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-12, "{a} {b}");
    }

    /// yhat=0: y=0: (20,10), y=1: (8,6); yhat=1: y=0: (10,10), y=1: (12,24).
    #[test]
    fn worked_counts_of_the_specification() {
        let (positive, counts) = ([10.0, 10.0, 12.0, 24.0], [30.0, 20.0, 20.0, 30.0]);
        let figures = GroupFairness::of(&positive, &counts).unwrap();
        near(figures.dp.overall, 0.12);
        near(figures.dp.pair, 0.24);
        near(figures.eo.overall, 0.12);
        near(figures.eo.pair, 0.20);
        near(figures.eodds.overall, 0.12);
        let fpr = Disparity::of([(10.0, 30.0), (10.0, 20.0)].into_iter());
        near(fpr.overall, 0.1);
        near(figures.accuracy, 0.66);
        near(figures.constant_accuracy, 0.5);
        let errors = [10.0, 10.0, 8.0, 6.0];
        assert_eq!(GroupFairness::of_errors(&errors, &counts, &mut [0.0; 4]), Some(figures));
    }

    #[test]
    fn empty_groups_are_left_out() {
        let figures = GroupFairness::of(&[5.0, 0.0, 3.0, 0.0], &[10.0, 0.0, 10.0, 0.0]).unwrap();
        assert_eq!((figures.dp, figures.eo), (Disparity::default(), Disparity::default()));
        assert_eq!(GroupFairness::of(&[0.0; 4], &[0.0; 4]), Some(GroupFairness::default()));
        assert_eq!(GroupFairness::of(&[0.0; 3], &[0.0; 3]), None);
        assert_eq!(GroupFairness::of(&[0.0; 2], &[0.0; 4]), None);
        assert_eq!(GroupFairness::of(&[], &[]), None);
    }

    proptest! {
        /// With two groups of shares s0, s1: disparity = max(s0, s1) * pair.
        #[test]
        fn two_groups_link_both_kinds(cells in prop::array::uniform4((1u32..50, 0.0f64..1.0))) {
            let counts = cells.map(|(count, _)| f64::from(count));
            let positive = cells.map(|(count, rate)| f64::from(count) * rate);
            let figures = GroupFairness::of(&positive, &counts).unwrap();
            let all: f64 = counts.iter().sum();
            let share = (counts[0] + counts[2]).max(counts[1] + counts[3]) / all;
            prop_assert!((figures.dp.overall - share * figures.dp.pair).abs() < 1e-12);
        }
    }
}
