//! A fairness target: users state how equal the fleet shall be, and the strategy's knob follows from what is measured.
//!
//! ```text
//! losses of the received model -> sums per tier -> meter: d -> controller: I, u -> Knob::value(u) -> Strategy::turn
//! ```
//! | module | what it knows |
//! |---|---|
//! | [`settings`] | `[fairness]` of a configuration |
//! | [`sums`] | five numbers per tier and round, from which all else follows |
//! | [`meter`] | the disparity of a round, corrected for sampling |
//! | [`gains`] | how fast the controller may move |
//! | [`controller`] | the rule that moves the knob |
//! | [`ledger`] | the exact mean error, and the certificate |
//! | [`resolution`] | what so few devices and samples can tell |
//! | [`status`], [`mod@line`] | how a target fares, and the lines of a report, also in words |
//! | [`state`] | what is saved with the model |
//! | [`mod@replay`], [`history`] | the same over recorded sums, or over the reports of a run |
//!
//! A strategy declares its knobs ([`Strategy::knobs`]); no name is known here. The knob of a round follows from the rounds
//! before it, so no exchange is added.

use common::Tier;
use serde_json::{Map, Value};

use crate::{
    cohort::Cohort,
    error::{FairnessError, StrategyError},
    guard::CappedShare,
    strategy::{Knob, Strategy},
};

pub mod controller;
mod drive;
pub mod gains;
pub mod history;
pub mod ledger;
pub mod line;
pub mod meter;
pub mod replay;
pub mod resolution;
pub mod settings;
pub mod state;
pub mod status;
pub mod sums;
#[cfg(test)]
mod tests;
mod words;

use drive::Drive;
pub use history::{RecordedReport, last_stretch};
pub use line::{Capped, FairnessLine};
pub use replay::{RecordedRow, Recording, RecordingError, replay};
pub use resolution::Resolution;
pub use settings::{FairnessSettings, GainSetting, Measure, Most, ScopeSetting, Signal};
pub use state::FairnessState;
pub use status::FairnessStatus;
pub use sums::{RoundSignal, SignalKind, SignalSums};

/// A target with the knobs that it drives.
#[derive(Clone, PartialEq, Debug)]
pub struct Fairness {
    settings: FairnessSettings,
    strategy: &'static str,
    tiers: usize,
    /// That of `target` first, then those of `inside` by tier.
    drives: Vec<Drive>,
}

/// What a round says of a target.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct RoundFairness {
    /// One per knob; empty without a target.
    pub lines: Vec<FairnessLine>,
    /// What was measured, by tier; empty if nothing was.
    pub sums: Vec<SignalSums>,
}

impl Fairness {
    /// `given`: the strategy's parameters as the user states them. `None`: no target is set.
    pub fn new(
        settings: FairnessSettings,
        strategy: &dyn Strategy,
        given: &Map<String, Value>,
        tiers: usize,
    ) -> Result<Option<Self>, StrategyError> {
        settings.check()?;
        if settings.is_off() {
            return Ok(None);
        }
        let knobs = strategy.knobs();
        let choose = |per_tier: bool, key: &'static str| -> Result<Knob, FairnessError> {
            let knob = knobs.iter().find(|knob| knob.per_tier == per_tier).cloned();
            let knob = knob.ok_or(FairnessError::NoKnob { strategy: strategy.name(), key })?;
            usable(&knob, strategy.name(), &settings, given, key)?;
            Ok(knob)
        };
        let mut drives = Vec::new();
        if settings.target > 0.0 {
            let knob = choose(false, "target")?.with_most(settings.most)?;
            drives.push(Drive::new(knob, None, settings.target, &settings, tiers));
        }
        if settings.inside.values().iter().any(|&inside| inside > 0.0) {
            settings.inside.fits("fairness.inside", tiers)?;
            // `most` is that of the target where there is one.
            let most = if settings.target > 0.0 { Most::Default } else { settings.most };
            let knob = choose(true, "inside")?.with_most(most)?;
            for tier in (0..tiers).map_while(Tier::new) {
                if let Some(inside) = settings.inside.of(tier).filter(|&inside| inside > 0.0) {
                    drives.push(Drive::new(knob.clone(), Some(tier), inside, &settings, tiers));
                }
            }
        }
        Ok(Some(Self { settings, strategy: strategy.name(), tiers, drives }))
    }

    /// The `[fairness]` that it was made from.
    pub fn settings(&self) -> &FairnessSettings {
        &self.settings
    }

    /// Whether devices shall send the loss on samples that they do not train on. Those that cannot are left out of the
    /// measurement.
    pub fn wants_validation(&self) -> bool {
        self.drives.iter().any(|drive| drive.signal == SignalKind::Validation)
    }

    /// Whether the training loss is measured.
    pub fn wants_loss(&self) -> bool {
        self.drives.iter().any(|drive| drive.signal == SignalKind::Training)
    }

    /// Takes in a round that has given a new model. `capped`: devices that the guard bounds in it.
    pub fn learn(&mut self, cohort: &Cohort, capped: &[CappedShare]) -> RoundFairness {
        let Some(kind) = self.drives.first().map(|drive| drive.signal) else {
            return RoundFairness::default();
        };
        let signal = RoundSignal::of(cohort, kind);
        for drive in &mut self.drives {
            drive.set_capped(Capped::of(capped, drive.tier));
        }
        RoundFairness { lines: self.observe(&signal), sums: signal.tiers }
    }

    /// The same from the sums of the round.
    pub fn observe(&mut self, round: &RoundSignal) -> Vec<FairnessLine> {
        let strategy = self.strategy;
        let step = |drive: &mut Drive| {
            let value = drive.value();
            drive.observe(round);
            drive.line(strategy, value, round.unmeasured(drive.tier))
        };
        self.drives.iter_mut().map(step).collect()
    }

    /// Sets the parameters of the next round.
    pub fn turn(&self, strategy: &mut dyn Strategy) {
        for drive in &self.drives {
            strategy.turn(drive.knob.parameter, drive.tier, drive.value());
        }
    }

    /// The present state, with nothing measured in this round.
    pub fn lines(&self) -> Vec<FairnessLine> {
        self.drives.iter().map(|drive| drive.line(self.strategy, drive.value(), 0)).collect()
    }

    /// Another `target` from the next round on. The integrator stays, the ledger begins anew.
    pub fn retarget(&mut self, target: f64) -> Result<(), StrategyError> {
        let missing = FairnessError::NoKnob { strategy: self.strategy, key: "target" };
        let drive = self.drives.iter_mut().find(|drive| drive.tier.is_none()).ok_or(missing)?;
        if !(target.is_finite() && target > 0.0) {
            let value = target.to_string();
            return Err(FairnessError::Value { key: "target", must: "above 0", value }.into());
        }
        drive.retarget(target);
        self.settings.target = target;
        Ok(())
    }

    /// What must survive a restart.
    pub fn state(&self) -> FairnessState {
        let knobs = self.drives.iter().map(Drive::state).collect();
        let notes = self.drives.iter().map(|drive| drive.notes.clone()).collect();
        FairnessState { strategy: self.strategy.to_owned(), knobs, notes }
    }

    /// Takes up a state. A knob that it does not know, or that measured something else, starts anew. `None` is the state of a
    /// first round.
    pub fn set_state(&mut self, state: Option<&FairnessState>) -> Result<(), StrategyError> {
        let saved = state.filter(|state| state.strategy == self.strategy);
        for drive in &mut self.drives {
            let own = saved.and_then(|state| state.of(|knob| drive.owns(knob)));
            match own {
                None => drive.reset(),
                Some((own, notes)) if drive.resume(own, &notes) => {}
                Some(_) => {
                    let why = format!("fairness: the state of `{}` is not possible", drive.knob.parameter);
                    return Err(StrategyError::State { strategy: self.strategy, why });
                }
            }
        }
        Ok(())
    }
}

/// Whether a target may drive this knob.
fn usable(
    knob: &Knob,
    strategy: &'static str,
    settings: &FairnessSettings,
    given: &Map<String, Value>,
    key: &'static str,
) -> Result<(), FairnessError> {
    let parameter = knob.parameter;
    if let Some(why) = knob.unusable {
        return Err(FairnessError::Unusable { strategy, key, parameter, why });
    }
    if given.contains_key(parameter) {
        return Err(FairnessError::BothPlaces { key, parameter });
    }
    if !knob.is_sound() {
        return Err(FairnessError::Range {
            parameter,
            neutral: knob.neutral.to_string(),
            most: knob.most.to_string(),
        });
    }
    if knob.gap {
        if settings.measure != Measure::Spread {
            return Err(FairnessError::OnlySpread { strategy });
        }
        for (setting, set) in
            [("signal", settings.signal != Signal::default()), ("budget", settings.budget > 0.0)]
        {
            if set {
                return Err(FairnessError::NotOfGaps { strategy, key: setting });
            }
        }
    }
    Ok(())
}

impl Knob {
    /// With the strongest value that a configuration states.
    fn with_most(mut self, most: Most) -> Result<Self, FairnessError> {
        let Most::Value(value) = most else { return Ok(self) };
        let declared = self.most;
        self.most = value;
        let same_way = (value > self.neutral) == (declared > self.neutral);
        if self.is_sound() && same_way {
            return Ok(self);
        }
        let Self { parameter, neutral, .. } = self;
        Err(FairnessError::Range { parameter, neutral: neutral.to_string(), most: value.to_string() })
    }
}
