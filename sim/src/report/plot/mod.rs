//! The plots of a report. Each is one SVG element that takes its colours from the page's style sheet:
//! class `s0` is the baseline, `s1` and so on are what is compared with it.
//!
//! | plot | shows | file |
//! |---|---|---|
//! | curves | loss by round, one panel per tier; variance by round | `curves` |
//! | strip | every device's loss, by tier | `strip` |
//! | histogram | the same losses without tiers | `histogram` |
//! | bars | accuracy by tier | `bars` |
//! | shares | who has which samples | `shares` |
//! | lines | anything by round, with a band over seeds | `lines` |
//! | spread | every device of every arm over a box of quartiles | `spread` |
//! | pareto | fairness against accuracy | `pareto` |
//! | lorenz | who has how much of the whole | `lorenz` |
//! | columns | anything by tier | `columns` |
//!
//! Those of experiments take any number of series, with the styles of `series`.

mod bars;
pub mod columns;
mod curves;
mod frame;
mod histogram;
pub mod lines;
pub mod lorenz;
pub mod pareto;
pub mod series;
mod shares;
pub mod spread;
mod strip;

pub use bars::bars;
pub use curves::curves;
pub use histogram::histogram;
pub use shares::{Stack, shares, shares_parts};
pub use strip::{Place, Spacing, strip, strip_parts};

use crate::demo::{DemoResult, StrategyRun};

/// The losses that reports are about: on samples a device has not trained on, where it has such.
pub fn losses(run: &StrategyRun) -> impl Iterator<Item = f64> {
    run.devices.iter().map(|device| device.test_loss.unwrap_or(device.loss_before))
}

/// The end of an axis for losses that starts at 0 and holds every device of every run.
fn top_loss(result: &DemoResult) -> f64 {
    let top = result.runs.iter().flat_map(losses).filter(|loss| loss.is_finite()).fold(0.0, f64::max);
    let step = super::scale::step((top / 6.0).max(1e-6));
    (top / step).ceil().max(1.0) * step
}
