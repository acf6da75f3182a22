//! The loudest fifth of the devices of a region together: at most `fifth` average devices each, on average.
//!
//! ```text
//! k     = n / 5, at least 1                  so many devices, those with the largest shares
//! cap   = share / n; if the k largest shares sum to more than k * fifth / n, the largest cap at which they do not
//! ```
//! One cap for all: the more devices claim large shares, the lower it is, down to `fifth / n`. At that cap the k largest shares
//! cannot sum to more. Devices with trusted counts keep their own cap and are not counted among the loudest.

use super::fit_shares;
use crate::kernel::sum;

/// Relative error of the sum, always on the safe side.
const CLOSE: f64 = 1e-9;
/// Steps to the cap; about eight are needed.
const MOST_STEPS: u32 = 60;

/// The shares of a region that are to be fitted.
pub(super) struct Fleet<'a> {
    pub wanted: &'a [f64],
    pub least: &'a [f64],
    /// The largest share of each device.
    pub cap: &'a [f64],
    /// Devices that the common cap does not concern.
    pub trusted: &'a [bool],
    /// Largest mean share of the loudest fifth.
    pub mean: f64,
}

impl Fleet<'_> {
    /// The shares, and the caps that gave them.
    pub fn fit(&self) -> (Vec<f64>, Vec<f64>) {
        let (counted, _) = fit_shares(self.wanted, self.least, self.cap);
        let largest = self.cap.iter().zip(self.trusted).filter(|(_, trusted)| !**trusted);
        let mut above = largest.map(|(cap, _)| *cap).fold(0.0, f64::max);
        let excess = self.excess(&counted);
        if excess <= 0.0 || above <= self.mean {
            return (counted, self.cap.to_vec());
        }
        // The sum of the loudest falls with the cap: regula falsi (Illinois) between a cap that is low enough and one that is not.
        let mut below = self.mean;
        let (mut under, mut over) = (self.excess(&self.fit_to(below).0), excess);
        let (mut short, mut last) = (-under, 0);
        for _ in 0..MOST_STEPS {
            if short <= CLOSE || above - below <= CLOSE * below {
                break;
            }
            let middle = (below * over - above * under) / (over - under);
            let found = self.excess(&self.fit_to(middle).0);
            if found > 0.0 {
                (above, over) = (middle, found);
                under *= if last > 0 { 0.5 } else { 1.0 };
                last = 1;
            } else {
                (below, under, short) = (middle, found, -found);
                over *= if last < 0 { 0.5 } else { 1.0 };
                last = -1;
            }
        }
        self.fit_to(below)
    }

    fn fit_to(&self, common: f64) -> (Vec<f64>, Vec<f64>) {
        let lowered = |(cap, trusted): (&f64, &bool)| if *trusted { *cap } else { cap.min(common) };
        let cap: Vec<f64> = self.cap.iter().zip(self.trusted).map(lowered).collect();
        (fit_shares(self.wanted, self.least, &cap).0, cap)
    }

    /// By how much the loudest fifth counts more than it may; relative.
    fn excess(&self, counted: &[f64]) -> f64 {
        let loud = (counted.len() / 5).max(1);
        let bounded = counted.iter().zip(self.trusted).filter(|(_, trusted)| !**trusted);
        let mut shares: Vec<f64> = bounded.map(|(share, _)| *share).collect();
        let at = loud.min(shares.len());
        if at < shares.len() {
            shares.select_nth_unstable_by(at, |a, b| b.total_cmp(a));
        }
        sum(shares.into_iter().take(at)) / (loud as f64 * self.mean) - 1.0
    }
}
