//! Intervals and tests for a few runs: Student's t on differences that are paired by seed, and Holm's correction for several tests.
//!
//! ```text
//! interval   mean ± t(0.975, n - 1) * std / sqrt(n)
//! p          2 P(T > |mean - bound| / (std / sqrt(n))),   T with n - 1 degrees of freedom
//! within b   both one-sided tests against -b and b: p is twice the larger one
//! Holm       the i-th smallest of m values times m - i + 1, never below an earlier one, at most 1
//! Nemenyi    q sqrt(k (k + 1) / (6 n)): mean ranks of k methods over n blocks that are further apart differ;
//!            q sqrt(2) is exceeded by the range of k normal numbers with probability LEVEL
//! ```
//! A p below [`LEVEL`] is the same as an interval that excludes the bound.

use libm::{erfc, exp, lgamma, log, sqrt};
use serde::Serialize;

use common::metrics::Spread;

/// Probability with which a test that should not decide may decide.
pub const LEVEL: f64 = 0.05;

/// A 95 % confidence interval of a mean.
#[derive(Copy, Clone, PartialEq, Debug, Serialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// `None` for fewer than two runs.
    pub fn of(spread: &Spread) -> Option<Self> {
        let freedom = spread.runs.checked_sub(1).filter(|freedom| *freedom > 0)?;
        let half = quantile(LEVEL / 2.0, freedom) * error(spread);
        Some(Self { low: spread.mean - half, high: spread.mean + half })
    }
}

/// How unlikely the runs are if a statement does not hold, and if its opposite does not.
#[derive(Copy, Clone, PartialEq, Debug, Serialize)]
pub struct Odds {
    /// Two-sided p of the claimed side; 1 if the mean is on the other one.
    pub claimed: f64,
    /// The same for the other side.
    pub against: f64,
}

impl Odds {
    /// Of a statement that needs all parts, each with its own test.
    pub fn of_all(parts: &[Self]) -> Option<Self> {
        let claimed = parts.iter().map(|part| part.claimed).reduce(f64::max)?;
        let against = parts.iter().map(|part| part.against).reduce(f64::min)?;
        Some(Self { claimed, against: (against * parts.len() as f64).min(1.0) })
    }

    /// The smaller of both.
    pub fn least(&self) -> f64 {
        self.claimed.min(self.against)
    }
}

/// The mean lies below a bound (`below`), or above it. `None` for fewer than two runs.
pub fn one_side(spread: &Spread, bound: f64, below: bool, or_equal: bool) -> Option<Odds> {
    let freedom = spread.runs.checked_sub(1).filter(|freedom| *freedom > 0)?;
    let distance = if below { bound - spread.mean } else { spread.mean - bound };
    let error = error(spread);
    let p = match error > 0.0 {
        true => (2.0 * tail(distance.abs() / error, freedom)).min(1.0),
        // Equal runs: the mean is exact.
        false if distance == 0.0 && !or_equal => 1.0,
        false => 0.0,
    };
    let holds = distance > 0.0 || (distance == 0.0 && or_equal);
    Some(if holds { Odds { claimed: p, against: 1.0 } } else { Odds { claimed: 1.0, against: p } })
}

/// The mean is at most `bound` from 0. `None` for fewer than two runs.
pub fn within(spread: &Spread, bound: f64) -> Option<Odds> {
    let low = one_side(spread, -bound, false, true)?;
    let high = one_side(spread, bound, true, true)?;
    Some(Odds { claimed: low.claimed.max(high.claimed), against: low.against.min(high.against) })
}

/// The p values corrected for their number, in the given order.
pub fn holm(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let (mut corrected, mut least) = (vec![1.0; values.len()], 0.0f64);
    for (place, index) in order.into_iter().enumerate() {
        least = least.max((values[index] * (values.len() - place) as f64).min(1.0));
        corrected[index] = least;
    }
    corrected
}

/// The critical difference of mean ranks of `methods` over `blocks`, at [`LEVEL`].
pub fn nemenyi(methods: usize, blocks: usize) -> f64 {
    let k = methods as f64;
    let (mut low, mut high) = (0.0, 20.0);
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if 1.0 - range(middle, methods) > LEVEL {
            low = middle;
        } else {
            high = middle;
        }
    }
    high / std::f64::consts::SQRT_2 * sqrt(k * (k + 1.0) / (6.0 * blocks as f64))
}

/// Probability that the range of `count` standard normal numbers is at most `width`, by Simpson's rule over the largest one.
fn range(width: f64, count: usize) -> f64 {
    const HALVES: u32 = 600;
    const END: f64 = 9.0;
    let below = |z: f64| 0.5 * erfc(-z / std::f64::consts::SQRT_2);
    let density = |z: f64| exp(-0.5 * z * z) / sqrt(2.0 * std::f64::consts::PI);
    let others = count.saturating_sub(1) as i32;
    let step = END / f64::from(HALVES);
    let at = |index: u32| {
        let z = f64::from(index) * step - END;
        let weight = match index {
            0 => 1.0,
            index if index == 2 * HALVES => 1.0,
            index if index % 2 == 1 => 4.0,
            _ => 2.0,
        };
        weight * density(z) * (below(z) - below(z - width)).powi(others)
    };
    count as f64 * (0..=2 * HALVES).map(at).sum::<f64>() * step / 3.0
}

/// Standard error of the mean.
fn error(spread: &Spread) -> f64 {
    spread.std / sqrt(spread.runs as f64)
}

/// P(T > t).
fn tail(t: f64, freedom: usize) -> f64 {
    let n = freedom as f64;
    let half = 0.5 * beta(n / 2.0, 0.5, n / (n + t * t));
    if t < 0.0 { 1.0 - half } else { half }
}

/// The t with `P(T > t) = p`, for p up to 0.5.
fn quantile(p: f64, freedom: usize) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while tail(high, freedom) > p && high < 1e12 {
        high *= 2.0;
    }
    // 200 halvings leave no bit undecided.
    for _ in 0..200 {
        let middle = 0.5 * (low + high);
        if tail(middle, freedom) > p {
            low = middle;
        } else {
            high = middle;
        }
    }
    0.5 * (low + high)
}

/// The regularised incomplete beta function I_x(a, b).
fn beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return if x <= 0.0 { 0.0 } else { 1.0 };
    }
    // The fraction converges fast on one side of the mean; the other side follows by symmetry.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - beta(b, a, 1.0 - x);
    }
    let front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log(1.0 - x));
    front * fraction(a, b, x) / a
}

/// The continued fraction of I_x(a, b), by Lentz's method.
fn fraction(a: f64, b: f64, x: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let keep = |value: f64| if value.abs() < TINY { TINY } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / keep(1.0 - (a + b) * x / (a + 1.0));
    let mut result = d;
    for step in 1..500 {
        let m = f64::from(step);
        for factor in [
            m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0)),
        ] {
            d = 1.0 / keep(1.0 + factor * d);
            c = keep(1.0 + factor / c);
            result *= d * c;
        }
        if (d * c - 1.0).abs() < 1e-16 {
            break;
        }
    }
    result
}

#[cfg(test)]
mod tests {
    //! The expected numbers come from SciPy 1.17.1 (`stats.t`, `stats.ttest_1samp`, `stats.ttest_rel`) and statsmodels
    //! (`multipletests(method="holm")`).

    use super::*;

    fn close(ours: f64, theirs: f64) {
        assert!((ours - theirs).abs() <= 1e-9 * theirs.abs().max(1e-3), "{ours} is not {theirs}");
    }

    #[test]
    fn tails_are_those_of_scipy() {
        // stats.t.sf(t, freedom)
        for (t, freedom, expected) in [
            (0.0, 3, 0.5),
            (0.5, 1, 0.352_416_382_349_566_74),
            (1.0, 1, 0.25),
            (2.0, 2, 0.091_751_709_536_136_98),
            (2.5, 4, 0.033_383_272_405_994_07),
            (-1.3, 7, 0.882_616_082_303_811_4),
            (4.604, 4, 0.005_000_357_218_007_836),
            (10.0, 19, 2.631_513_081_167_949_5e-9),
            (63.6567, 1, 0.005_000_003_232_660_575),
            (1.96, 1000, 0.025_136_592_477_874_368),
        ] {
            close(tail(t, freedom), expected);
        }
    }

    #[test]
    fn quantiles_are_those_of_scipy() {
        // stats.t.ppf(0.975, freedom)
        for (freedom, expected) in [
            (1, 12.706_204_736_174_694),
            (2, 4.302_652_729_749_462),
            (3, 3.182_446_305_283_707_8),
            (4, 2.776_445_105_197_793_4),
            (9, 2.262_157_162_798_205),
            (19, 2.093_024_054_408_308_7),
            (99, 1.984_216_951_586_417_4),
        ] {
            close(quantile(LEVEL / 2.0, freedom), expected);
        }
    }

    #[test]
    fn intervals_and_p_are_those_of_scipy() {
        // stats.ttest_1samp(values, 0), its confidence_interval(0.95), and ttest_1samp(values, -0.2)
        let spread = Spread::of(&[-0.21, -0.34, -0.18, -0.29, -0.25]);
        let interval = Interval::of(&spread).unwrap();
        close(interval.low, -0.332_823_662_832_137_5);
        close(interval.high, -0.175_176_337_167_862_52);
        let odds = one_side(&spread, 0.0, true, false).unwrap();
        close(odds.claimed, 0.000_863_285_145_413_399_3);
        assert_eq!((odds.against, odds.least()), (1.0, odds.claimed));
        assert_eq!(one_side(&spread, 0.0, false, false).unwrap().against, odds.claimed);
        close(one_side(&spread, -0.2, true, true).unwrap().claimed, 0.129_928_451_949_899_2);

        // stats.ttest_rel(y, x)
        let (x, y) = ([0.41, 0.52, 0.47, 0.60, 0.55, 0.44], [0.39, 0.49, 0.50, 0.51, 0.52, 0.45]);
        let differences: Vec<f64> = x.iter().zip(y).map(|(x, y)| y - x).collect();
        let paired = Spread::of(&differences);
        let interval = Interval::of(&paired).unwrap();
        close(interval.low, -0.064_893_564_835_997_22);
        close(interval.high, 0.021_560_231_502_663_906);
        close(one_side(&paired, 0.0, true, false).unwrap().claimed, 0.253_984_365_502_718_97);
    }

    #[test]
    fn equivalence_is_two_one_sided_tests() {
        // 2 * max of ttest_1samp(values, -0.02, "greater") and ttest_1samp(values, 0.02, "less")
        let spread = Spread::of(&[0.004, -0.006, 0.001, 0.003, -0.002]);
        close(within(&spread, 0.02).unwrap().claimed, 0.000_386_850_081_905_322_7);
        let far = within(&Spread::of(&[0.11, 0.12, 0.13]), 0.02).unwrap();
        assert!(far.claimed == 1.0 && far.against < 0.05, "{far:?}");
        let wide = within(&Spread::of(&[-0.1, 0.1, 0.05]), 0.02).unwrap();
        assert!(wide.claimed > 0.05 && wide.against > 0.05, "{wide:?}");
    }

    #[test]
    fn an_interval_excludes_the_bound_exactly_if_p_is_small() {
        for values in [&[0.1, 0.2, 0.3][..], &[0.1, 0.15, 0.2], &[-0.1, 0.5, 0.4, 0.3], &[1.0, 1.1]] {
            let spread = Spread::of(values);
            let odds = one_side(&spread, 0.0, false, false).unwrap();
            assert_eq!(odds.claimed < LEVEL, Interval::of(&spread).unwrap().low > 0.0, "{values:?}");
        }
    }

    #[test]
    fn equal_runs_are_exact_and_one_run_decides_nothing() {
        let same = Spread::of(&[0.0, 0.0, 0.0]);
        assert_eq!(one_side(&same, 0.0, true, true), Some(Odds { claimed: 0.0, against: 1.0 }));
        assert_eq!(one_side(&same, 0.0, true, false), Some(Odds { claimed: 1.0, against: 1.0 }));
        assert_eq!(within(&same, 0.1).unwrap().claimed, 0.0);
        let one = Spread::of(&[1.0]);
        assert!(one_side(&one, 0.0, false, false).is_none() && Interval::of(&one).is_none());
        assert!(within(&Spread::of(&[]), 1.0).is_none());
    }

    #[test]
    fn holm_is_that_of_statsmodels() {
        let corrected = holm(&[0.01, 0.04, 0.03, 0.005, 0.2]);
        for (ours, theirs) in corrected.iter().zip([0.04, 0.09, 0.09, 0.025, 0.2]) {
            close(*ours, theirs);
        }
        assert_eq!(holm(&[]), [0.0; 0]);
        assert_eq!(holm(&[0.9, 0.8]), [1.0, 1.0]);
    }

    #[test]
    fn critical_differences_are_those_of_scipy() {
        // stats.studentized_range.ppf(0.95, k, inf) / sqrt(2), with k (k + 1) / (6 n) = 1
        for (k, expected) in [
            (2, 1.959_963_984_540_053_4),
            (3, 2.343_700_586_378_409),
            (5, 2.727_774_370_870_376_3),
            (10, 3.163_683_577_053_373),
            (22, 3.592_946_136_984_789),
        ] {
            let scale = ((k * (k + 1)) as f64 / 6000.0).sqrt();
            let ours = nemenyi(k, 1000) / scale;
            assert!((ours - expected).abs() < 1e-6, "{k}: {ours} is not {expected}");
        }
        // Half as many blocks, a difference larger by the root of two.
        assert!((nemenyi(5, 10) / nemenyi(5, 20) - 2f64.sqrt()).abs() < 1e-12);
    }

    #[test]
    fn a_chain_is_as_sure_as_its_weakest_link() {
        let parts = [Odds { claimed: 0.01, against: 1.0 }, Odds { claimed: 0.3, against: 1.0 }];
        assert_eq!(Odds::of_all(&parts), Some(Odds { claimed: 0.3, against: 1.0 }));
        let broken = [Odds { claimed: 1.0, against: 0.01 }, Odds { claimed: 0.001, against: 1.0 }];
        assert_eq!(Odds::of_all(&broken).unwrap().against, 0.02);
        assert_eq!(Odds::of_all(&[]), None);
    }
}
