//! What is usual: the middle of what was seen lately, for each kind of exchange.

use std::collections::VecDeque;

use super::REMEMBERED;
use strategies::strategy::Kind;

/// The last figures of each kind of exchange. A loss takes far less time than training, so kinds are kept apart.
#[derive(Clone, Debug)]
pub struct ByKind<T>(Vec<(Kind, VecDeque<T>)>);

impl<T> Default for ByKind<T> {
    fn default() -> Self {
        Self(vec![])
    }
}

impl<T: Copy> ByKind<T> {
    pub fn push(&mut self, kind: Kind, figure: T) {
        let at = self.0.iter().position(|(other, _)| *other == kind).unwrap_or_else(|| {
            self.0.push((kind, VecDeque::with_capacity(REMEMBERED)));
            self.0.len() - 1
        });
        let figures = &mut self.0[at].1;
        if figures.len() >= REMEMBERED {
            figures.pop_front();
        }
        figures.push_back(figure);
    }

    /// The middle of one property of them; none without figures.
    pub fn usual<V: Ord>(&self, kind: Kind, property: impl Fn(T) -> V) -> Option<V> {
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
    fn a_few_outliers_are_not_usual_and_what_has_changed_is() {
        let mut times = ByKind::default();
        assert_eq!(times.usual(Kind::Train, |time: u64| time), None);
        for time in [10, 10, 900, 10, 900, 10, 10, 900] {
            times.push(Kind::Train, time);
            times.push(Kind::Losses, 1);
        }
        assert_eq!(times.usual(Kind::Train, |time| time), Some(10));
        (0..5).for_each(|_| times.push(Kind::Train, 70));
        assert_eq!(times.usual(Kind::Train, |time| time), Some(70));
        assert_eq!(
            (times.usual(Kind::Losses, |time| time), times.usual(Kind::Try, |time| time)),
            (Some(1), None)
        );
    }
}
