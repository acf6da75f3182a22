//! The rule that moves a knob: an integrator in [0, 1] and a proportional part.
//!
//! ```text
//! e = min(max(d/c*^2 - 1, -1), 3)
//! I = clip(I + ki e, 0, 1)       u = clip(I + kp e, 0, 1)          the knob of the next round is value(u)
//! mean > (1 + budget) * best:    I = clip(I - 0.05, 0, 1),  u = clip(I + kp min(e, 0), 0, 1)
//! ```
//! I is the clipped actuator, so it cannot wind up. Warm-up rounds are measured and change neither I nor u.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::{
    gains::{Gains, Participation},
    ledger::{Entry, Ledger},
    settings::{FairnessSettings, GainSetting},
};

/// By how much the integrator falls in a round in which the price acts.
const PRICE_STEP: f64 = 0.05;
/// From here on the integrator counts as being at the end.
pub(super) const AT_END: f64 = 0.95;

/// The state of one knob.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Controller {
    /// c*
    pub target: f64,
    /// In force; absent before the first measurement.
    pub gains: Option<Gains>,
    /// What rounds have shown of participation.
    pub participation: Participation,
    /// The integrator, I.
    #[serde(rename = "I")]
    pub integrator: f64,
    /// Where the knob stands, u in [0, 1].
    #[serde(rename = "u")]
    pub position: f64,
    /// e and d of the last measurement.
    pub e: Option<f64>,
    /// d of the last measurement.
    pub d: Option<f64>,
    /// Measurements so far.
    pub rounds: u32,
    /// Mean loss in the first measurement, the lowest, and the last. Absent where the signal is no loss.
    pub first_mean: Option<f64>,
    /// The lowest mean loss.
    pub best_mean: Option<f64>,
    /// The last mean loss.
    pub mean: Option<f64>,
    /// d, the I that it was measured under, and whether the price acted, of the last `window` measurements.
    pub ring: VecDeque<(f64, f64, bool)>,
    /// Lowest root mean square of a window at the end of the knob.
    pub reached: Option<f64>,
    /// The same of the last whole window before the integrator came to the end.
    pub before_end: Option<f64>,
    /// What a certificate is computed from.
    pub ledger: Ledger,
}

/// Settings that the rule looks at.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub struct Rule {
    /// The mean may lie at most this share above its best; 0: no limit.
    pub budget: f64,
    /// Rounds that are only measured.
    pub warmup: u32,
    /// How strongly the controller reacts.
    pub gains: GainSetting,
}

impl From<&FairnessSettings> for Rule {
    fn from(settings: &FairnessSettings) -> Self {
        let &FairnessSettings { budget, warmup, gains, .. } = settings;
        Self { budget, warmup, gains }
    }
}

impl Controller {
    /// At the neutral end.
    pub fn new(target: f64) -> Self {
        Self {
            target,
            gains: None,
            participation: Participation::default(),
            integrator: 0.0,
            position: 0.0,
            e: None,
            d: None,
            rounds: 0,
            first_mean: None,
            best_mean: None,
            mean: None,
            ring: VecDeque::new(),
            reached: None,
            before_end: None,
            ledger: Ledger::default(),
        }
    }

    /// Another target: the integrator stays, the ledger begins anew.
    pub fn retarget(&mut self, target: f64) {
        if target != self.target {
            self.target = target;
            self.ledger = Ledger::starting_at(self.integrator);
        }
    }

    /// One measurement: d, the mean loss (absent where the signal is no loss), and r of the round.
    pub fn step(&mut self, rule: Rule, squared: f64, mean: Option<f64>, sampling: f64) {
        let gains = self.gains_for(sampling, rule.gains);
        let raw = squared / (self.target * self.target) - 1.0;
        let e = raw.clamp(-1.0, 3.0);
        self.rounds = self.rounds.saturating_add(1);
        (self.d, self.e) = (Some(squared), Some(e));
        let dear = self.see_mean(mean, rule.budget);
        let acts = self.rounds > rule.warmup;
        let price = dear && acts;
        // The window holds the integrator that d was measured under.
        self.ring.push_back((squared, self.integrator, price));
        if acts {
            let step = if price { -PRICE_STEP } else { gains.ki * e };
            let withheld = if price { gains.ki * e + PRICE_STEP } else { 0.0 };
            let unclipped = self.integrator + step;
            self.ledger.add(Entry { squared, raw, error: e, unclipped, withheld });
            self.integrator = unclipped.clamp(0.0, 1.0);
            let push = if price { e.min(0.0) } else { e };
            self.position = (self.integrator + gains.kp * push).clamp(0.0, 1.0);
        }
        self.trim(gains.window());
        self.judge_end(gains.window());
    }

    /// Gains of this round; new ones begin a new ledger.
    fn gains_for(&mut self, sampling: f64, setting: GainSetting) -> Gains {
        let wanted = Gains::wanted(self.participation.see(sampling), setting);
        match self.gains {
            Some(gains) if !gains.differ(&wanted, setting) => gains,
            before => {
                let same = before.is_some_and(|gains| (gains.ki, gains.kp) == (wanted.ki, wanted.kp));
                if !same {
                    self.ledger = Ledger::starting_at(self.integrator);
                }
                self.gains = Some(wanted);
                wanted
            }
        }
    }

    /// Whether the mean lies too far above the best.
    fn see_mean(&mut self, mean: Option<f64>, budget: f64) -> bool {
        self.mean = mean;
        let Some(mean) = mean else { return false };
        self.first_mean.get_or_insert(mean);
        let best = self.best_mean.map_or(mean, |best| best.min(mean));
        self.best_mean = Some(best);
        budget > 0.0 && mean > (1.0 + budget) * best
    }

    fn trim(&mut self, window: usize) {
        while self.ring.len() > window {
            self.ring.pop_front();
        }
    }

    fn judge_end(&mut self, window: usize) {
        if self.ring.len() < window {
            return;
        }
        let Some((rms, &(_, integrator, _))) = self.window_rms().zip(self.ring.back()) else { return };
        if integrator < AT_END {
            self.before_end = Some(rms);
        }
        if self.mean_integrator() >= AT_END {
            self.reached = Some(self.reached.map_or(rms, |reached| reached.min(rms)));
        }
    }

    /// Rounds of a window; 0 before the first measurement.
    pub fn window(&self) -> usize {
        self.gains.map_or(0, |gains| gains.window())
    }

    /// Root mean square of the disparity over the window so far: `sqrt(max(mean d, 0))`.
    pub fn window_rms(&self) -> Option<f64> {
        let sum: f64 = self.ring.iter().map(|&(d, ..)| d).sum();
        (!self.ring.is_empty()).then(|| (sum / self.ring.len() as f64).max(0.0).sqrt())
    }

    /// Mean of the integrator over the window so far; 0 before the first measurement.
    pub(super) fn mean_integrator(&self) -> f64 {
        let sum: f64 = self.ring.iter().map(|&(_, integrator, _)| integrator).sum();
        sum / self.ring.len().max(1) as f64
    }

    /// Rounds of the window in which the price acted.
    pub fn price_acted(&self) -> usize {
        self.ring.iter().filter(|(.., price)| *price).count()
    }

    /// Mean of d/c*^2 - 1 since the ledger began.
    pub fn mean_error(&self) -> Option<f64> {
        self.ledger.mean_error(self.integrator, self.gains?.ki)
    }

    /// What a certified ledger bounds the disparity by.
    pub fn bound(&self) -> Option<f64> {
        self.ledger.bound(self.target, self.gains?.ki)
    }

    /// Whether a saved state is possible.
    pub(super) fn is_sound(&self) -> bool {
        let unit = |number: f64| (0.0..=1.0).contains(&number);
        let numbers =
            [self.e, self.d, self.first_mean, self.best_mean, self.mean, self.reached, self.before_end];
        let finite = numbers.into_iter().flatten().chain(self.participation.r).all(f64::is_finite);
        let ring = self.ring.iter().all(|&(d, integrator, _)| d.is_finite() && unit(integrator));
        let gains = self.gains.is_none_or(|gains| gains.is_sound());
        let target = self.target.is_finite() && self.target > 0.0;
        unit(self.integrator)
            && unit(self.position)
            && finite
            && ring
            && gains
            && target
            && self.ledger.is_sound()
    }
}
