//! The plots of the demo's page. Each is one SVG element that takes its colours from the page's style sheet:
//! class `s0` is the baseline, `s1` and so on are what is compared with it.
//!
//! | plot | shows |
//! |---|---|
//! | curves | loss by round, one panel per tier; variance by round |
//! | strip | every device's loss, by tier |
//! | histogram | the same losses without tiers |
//! | bars | accuracy by tier |

mod bars;
mod curves;
mod histogram;
mod strip;

pub use bars::bars;
pub use curves::curves;
pub use histogram::histogram;
pub use strip::{Spacing, StripPlot, strip, strip_parts};

use sim::report::scale::step;

use crate::demo::{DemoResult, StrategyRun};

/// The losses that reports are about: on samples a device has not trained on, where it has such.
pub fn losses(run: &StrategyRun) -> impl Iterator<Item = f64> {
    run.devices.iter().map(|device| device.test_loss.unwrap_or(device.loss_before))
}

/// The end of an axis for losses that starts at 0 and holds every device of every run.
fn top_loss(result: &DemoResult) -> f64 {
    let top = result.runs.iter().flat_map(losses).filter(|loss| loss.is_finite()).fold(0.0, f64::max);
    let step = step((top / 6.0).max(1e-6));
    (top / step).ceil().max(1.0) * step
}
