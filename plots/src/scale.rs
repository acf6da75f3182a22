//! Maps numbers to coordinates, and chooses ticks.

/// Maps a range of numbers to a range of coordinates.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Scale {
    domain: (f64, f64),
    range: (f64, f64),
    log: bool,
}

impl Scale {
    /// A scale that maps `domain` linearly to `range`.
    pub fn linear(domain: (f64, f64), range: (f64, f64)) -> Self {
        Self { domain, range, log: false }
    }

    /// A logarithmic scale for positive numbers.
    pub fn log(domain: (f64, f64), range: (f64, f64)) -> Self {
        Self { domain, range, log: true }
    }

    /// The coordinate of a number. Numbers outside the domain map to its edge, NaN to the start.
    pub fn at(&self, value: f64) -> f64 {
        let bend = |x: f64| if self.log { x.max(f64::MIN_POSITIVE).ln() } else { x };
        let (low, high) = (bend(self.domain.0), bend(self.domain.1));
        let share = (bend(value) - low) / (high - low);
        let share = if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) };
        self.range.0 + share * (self.range.1 - self.range.0)
    }

    /// Round numbers inside the domain, about `count` of them (on a log scale: 1, 2 and 5 of every
    /// decade, or fewer of each).
    pub fn ticks(&self, count: usize) -> Vec<f64> {
        let (low, high) = self.domain;
        if !(high > low && low.is_finite() && high.is_finite()) {
            return vec![];
        }
        if self.log { log_ticks(low, high, count) } else { linear_ticks(low, high, count) }
    }
}

fn linear_ticks(low: f64, high: f64, count: usize) -> Vec<f64> {
    let step = step((high - low) / count.max(1) as f64);
    let first = (low / step - 1e-9).ceil() as i64;
    let last = (high / step + 1e-9).floor() as i64;
    (first..=last).map(|number| number as f64 * step).collect()
}

fn log_ticks(low: f64, high: f64, count: usize) -> Vec<f64> {
    let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
    let inside = |x: &f64| *x >= low * (1.0 - 1e-9) && *x <= high * (1.0 + 1e-9);
    let all = |of: &[f64]| -> Vec<f64> {
        let decades = decades.clone();
        decades.flat_map(|d| of.iter().map(move |x| x * 10f64.powi(d))).filter(inside).collect()
    };
    let [fine, coarse, few] = [all(&[1.0, 2.0, 5.0]), all(&[1.0, 3.0]), all(&[1.0])];
    if fine.len() <= count {
        fine
    } else if coarse.len() <= count {
        coarse
    } else {
        few
    }
}

/// The smallest of 1, 2, 2.5, 5 times a power of ten that is at least `least`.
pub fn step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 2.5, 5.0, 10.0]
        .map(|x| x * power)
        .into_iter()
        .find(|&x| x >= least * (1.0 - 1e-9))
        .unwrap_or(power)
}

/// The label of a tick, without trailing zeros; very large and very small numbers have an exponent.
pub fn label(value: f64) -> String {
    if value.abs() >= 1e5 || (value != 0.0 && value.abs() < 1e-4) {
        // Two digits, because ticks are multiples of 1, 2, 2.5 and 5.
        let text = format!("{value:.2e}");
        let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
        return format!("{}e{power}", digits.trim_end_matches('0').trim_end_matches('.'));
    }
    let text = format!("{value:.4}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text.is_empty() || text == "-0" { "0".into() } else { text.into() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{prop_assert, proptest};

    use super::*;

    #[test]
    fn round_ticks() {
        let ticks = |low, high| Scale::linear((low, high), (0.0, 1.0)).ticks(5);
        assert_eq!(ticks(0.0, 1.0), [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]);
        assert_eq!(ticks(0.0, 250.0), [0.0, 50.0, 100.0, 150.0, 200.0, 250.0]);
        assert_eq!(Scale::log((0.05, 3.0), (0.0, 1.0)).ticks(8), [0.05, 0.1, 0.2, 0.5, 1.0, 2.0]);
        assert_eq!(ticks(1.0, 1.0), [0.0; 0]);
        assert_eq!([0.0, 0.6000000000000001, 250.0, 0.05].map(label), ["0", "0.6", "250", "0.05"]);
        assert_eq!([2.5e6, 1e30, 2e-5, -1e5].map(label), ["2.5e6", "1e30", "2e-5", "-1e5"]);
    }

    proptest! {
        #[test]
        fn coordinates_are_in_range_for_any_number(low in -1e6f64..1e6, width in 1e-6f64..1e6, value: f64) {
            let scale = Scale::linear((low, low + width), (10.0, 20.0));
            prop_assert!((10.0..=20.0).contains(&scale.at(value)));
            prop_assert!(scale.ticks(5).len() <= 12);
        }
    }
}
