//! Pairs the numbers of samples with a few numbers that are spread over them ([`common::plan::Spread`]).

/// Calls `f` with every value of `values` and the number that belongs to it.
pub(super) fn spread_mut<T: Copy>(inner: usize, numbers: &[T], values: &mut [T], f: impl Fn(&mut T, T)) {
    if inner == 1 {
        for row in values.chunks_exact_mut(numbers.len().max(1)) {
            row.iter_mut().zip(numbers).for_each(|(value, &number)| f(value, number));
        }
    } else {
        for (stretch, &number) in values.chunks_exact_mut(inner.max(1)).zip(numbers.iter().cycle()) {
            stretch.iter_mut().for_each(|value| f(value, number));
        }
    }
}

/// The same for pairs of values.
pub(super) fn spread_pairs<T: Copy>(
    inner: usize,
    numbers: &[T],
    values: &mut [T],
    seconds: &[T],
    f: impl Fn(&mut T, T, T),
) {
    let pairs = values.chunks_mut(inner.max(1)).zip(seconds.chunks(inner.max(1)));
    for ((values, seconds), &number) in pairs.zip(numbers.iter().cycle()) {
        values.iter_mut().zip(seconds).for_each(|(value, &second)| f(value, second, number));
    }
}
