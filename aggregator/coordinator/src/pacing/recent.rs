//! The usual value of a figure: the median of the last exchanges of the same kind.

use std::collections::VecDeque;

use super::HISTORY_LEN;
use strategies::strategy::Kind;

/// The last figures of each kind of exchange. A loss takes far less time than training, so kinds are kept apart.
#[derive(Clone, Debug)]
pub struct RecentByKind<T>(Vec<(Kind, VecDeque<T>)>);

impl<T> Default for RecentByKind<T> {
    fn default() -> Self {
        Self(vec![])
    }
}

impl<T: Copy> RecentByKind<T> {
    /// Adds a figure and drops the oldest one beyond [`HISTORY_LEN`].
    pub fn push(&mut self, kind: Kind, figure: T) {
        let at = self.0.iter().position(|(other, _)| *other == kind).unwrap_or_else(|| {
            self.0.push((kind, VecDeque::with_capacity(HISTORY_LEN)));
            self.0.len() - 1
        });
        let figures = &mut self.0[at].1;
        if figures.len() >= HISTORY_LEN {
            figures.pop_front();
        }
        figures.push_back(figure);
    }

    /// The median of one property of the figures; none without figures.
    pub fn median<V: Ord>(&self, kind: Kind, property: impl Fn(T) -> V) -> Option<V> {
        let (_, figures) = self.0.iter().find(|(other, _)| *other == kind)?;
        let mut values: Vec<V> = figures.iter().copied().map(property).collect();
        values.sort_unstable();
        let middle = values.len() / 2;
        values.into_iter().nth(middle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_outliers_do_not_move_the_median_and_a_lasting_change_does() {
        let mut times = RecentByKind::default();
        assert_eq!(times.median(Kind::Train, |time: u64| time), None);
        for time in [10, 10, 900, 10, 900, 10, 10, 900] {
            times.push(Kind::Train, time);
            times.push(Kind::Losses, 1);
        }
        assert_eq!(times.median(Kind::Train, |time| time), Some(10));
        (0..5).for_each(|_| times.push(Kind::Train, 70));
        assert_eq!(times.median(Kind::Train, |time| time), Some(70));
        assert_eq!(
            (times.median(Kind::Losses, |time| time), times.median(Kind::Try, |time| time)),
            (Some(1), None)
        );
    }
}
