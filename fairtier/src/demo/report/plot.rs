//! The plots of the demo's page. Each is one SVG element with the colours of the page's style sheet. Class `s0` is
//! the baseline; `s1` and so on are the strategies compared with it.
//!
//! | plot | shows |
//! |---|---|
//! | curves | loss by round, one panel per tier; variance by round |
//! | strip | every device's loss, by tier |
//! | histogram | the same losses without tiers |
//! | bars | accuracy by tier |
//! | target | disparity by round with the target, the knob, who gains and who pays |

mod bars;
mod curves;
mod histogram;
mod strip;
mod target;

pub use bars::bars;
pub use curves::curves;
pub use histogram::histogram;
pub use strip::{Spacing, StripPlot, strip, strip_parts};
pub use target::{disparity, gains, knob};

use plots::scale::step;

use crate::demo::{DemoResult, StrategyRun};

/// Losses of the devices on test samples, or on training samples for devices without test samples.
pub fn losses(run: &StrategyRun) -> impl Iterator<Item = f64> {
    run.devices.iter().map(|device| device.test_loss.unwrap_or(device.loss_before))
}

/// End of an axis that starts at 0 and contains the losses of all devices and runs.
fn top_loss(result: &DemoResult) -> f64 {
    let top = result.runs.iter().flat_map(losses).filter(|loss| loss.is_finite()).fold(0.0, f64::max);
    let step = step((top / 6.0).max(1e-6));
    (top / step).ceil().max(1.0) * step
}
