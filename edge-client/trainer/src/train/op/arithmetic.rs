//! `y = x + c`, `x - c`, `x * c` or `x / c` with constants. Backward needs the constants only: `dx = dy`, `dy * c` or `dy / c`.

use common::plan::ArithmeticKind;

use super::spread::{spread_mut, spread_pairs};
use crate::train::Float;

/// The constants of a node.
#[derive(Copy, Clone, Debug)]
pub(in crate::train) enum Constants<'a, T> {
    One(T),
    /// Each for `inner` neighbours.
    Each {
        numbers: &'a [T],
        inner: usize,
    },
}

pub(in crate::train) fn forward<T: Float>(kind: ArithmeticKind, with: Constants<'_, T>, values: &mut [T]) {
    match kind {
        ArithmeticKind::Add => apply(with, values, |x, c| x + c),
        ArithmeticKind::Sub => apply(with, values, |x, c| x - c),
        ArithmeticKind::Mul => apply(with, values, |x, c| x * c),
        ArithmeticKind::Div => apply(with, values, |x, c| x / c),
    }
}

pub(in crate::train) fn backward_in_place<T: Float>(
    kind: ArithmeticKind,
    with: Constants<'_, T>,
    gradient: &mut [T],
) {
    match kind {
        ArithmeticKind::Add | ArithmeticKind::Sub => {}
        ArithmeticKind::Mul | ArithmeticKind::Div => forward(kind, with, gradient),
    }
}

pub(in crate::train) fn backward<T: Float>(
    kind: ArithmeticKind,
    with: Constants<'_, T>,
    dy: &[T],
    add: bool,
    dx: &mut [T],
) {
    match kind {
        ArithmeticKind::Add | ArithmeticKind::Sub => super::add::backward(dy, add, dx),
        ArithmeticKind::Mul => chain(with, dy, add, dx, |dy, c| dy * c),
        ArithmeticKind::Div => chain(with, dy, add, dx, |dy, c| dy / c),
    }
}

fn apply<T: Float>(with: Constants<'_, T>, values: &mut [T], f: impl Fn(T, T) -> T) {
    match with {
        Constants::One(number) => values.iter_mut().for_each(|value| *value = f(*value, number)),
        Constants::Each { numbers, inner } => {
            spread_mut(inner, numbers, values, |value, number| *value = f(*value, number));
        }
    }
}

fn chain<T: Float>(with: Constants<'_, T>, dy: &[T], add: bool, dx: &mut [T], f: impl Fn(T, T) -> T) {
    match with {
        Constants::One(number) => super::each(dx, dy, dy, add, |dy, _| f(dy, number)),
        Constants::Each { numbers, inner } => spread_pairs(inner, numbers, dx, dy, |dx, dy, number| {
            let gradient = f(dy, number);
            *dx = if add { *dx + gradient } else { gradient };
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [ArithmeticKind; 4] =
        [ArithmeticKind::Add, ArithmeticKind::Sub, ArithmeticKind::Mul, ArithmeticKind::Div];

    #[test]
    fn each_channel_has_its_constant() {
        let x = [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
        let results = KINDS.map(|kind| {
            let mut y = x;
            forward(kind, Constants::Each { numbers: &[2.0, 4.0], inner: 2 }, &mut y);
            y
        });
        assert_eq!(results[0], [3.0, 4.0, 7.0, 8.0, 7.0, 8.0, 11.0, 12.0]);
        assert_eq!(results[1], [-1.0, 0.0, -1.0, 0.0, 3.0, 4.0, 3.0, 4.0]);
        assert_eq!(results[2], [2.0, 4.0, 12.0, 16.0, 10.0, 12.0, 28.0, 32.0]);
        assert_eq!(results[3], [0.5, 1.0, 0.75, 1.0, 2.5, 3.0, 1.75, 2.0]);
        // One per feature.
        let mut y = x;
        forward(ArithmeticKind::Sub, Constants::Each { numbers: &[1.0, 2.0, 3.0, 4.0], inner: 1 }, &mut y);
        assert_eq!(y, [0.0, 0.0, 0.0, 0.0, 4.0, 4.0, 4.0, 4.0]);
    }

    #[test]
    fn in_place_gives_the_same() {
        let numbers = [2.0f32, 4.0];
        for kind in KINDS {
            for with in [Constants::One(0.3), Constants::Each { numbers: &numbers, inner: 1 }] {
                let (mut dx, mut gradient) = ([9.0; 4], [1.0f32, 2.0, 3.0, 4.0]);
                backward(kind, with, &gradient, false, &mut dx);
                let mut added = dx;
                backward(kind, with, &gradient, true, &mut added);
                backward_in_place(kind, with, &mut gradient);
                assert_eq!(gradient, dx);
                assert_eq!(added, dx.map(|dx| dx + dx));
            }
        }
    }
}
