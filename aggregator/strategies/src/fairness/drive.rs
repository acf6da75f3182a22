//! One knob with its meter and its controller.

use common::Tier;

use super::{
    controller::{Controller, Rule},
    line::{Capped, FairnessLine},
    meter::Meter,
    settings::{FairnessSettings, Measure},
    state::{KnobNotes, KnobState},
    sums::{RoundSignal, SignalKind},
};
use crate::strategy::{FairnessScope, Knob};

/// See the module.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Drive {
    pub knob: Knob,
    /// Of a knob per tier.
    pub tier: Option<Tier>,
    pub scope: FairnessScope,
    pub measure: Measure,
    pub signal: SignalKind,
    target: f64,
    tiers: usize,
    rule: Rule,
    correct: bool,
    controller: Controller,
    meter: Meter,
    pub notes: KnobNotes,
}

impl Drive {
    pub fn new(
        knob: Knob,
        tier: Option<Tier>,
        target: f64,
        settings: &FairnessSettings,
        tiers: usize,
    ) -> Self {
        let scope = if knob.per_tier { FairnessScope::Inside } else { settings.scope_of(knob.scope) };
        let signal = if knob.gap { SignalKind::Gap } else { settings.signal.into() };
        Self {
            knob,
            tier,
            scope,
            measure: settings.measure,
            signal,
            target,
            tiers,
            rule: settings.into(),
            correct: settings.correct,
            controller: Controller::new(target),
            meter: Meter::new(scope, tiers),
            notes: KnobNotes::default(),
        }
    }

    /// Takes in a round. Without a measurement nothing changes.
    pub fn observe(&mut self, round: &RoundSignal) {
        if let Some(reading) = self.meter.observe(round, self.tier, self.measure, self.correct) {
            // A gap is no loss, and its mean may be negative: it says nothing of progress or price.
            let mean = (self.signal != SignalKind::Gap).then_some(reading.mean);
            self.controller.step(self.rule, reading.squared, mean, reading.sampling);
            self.notes.noise = reading.noise.or(self.notes.noise);
        }
    }

    /// Of the parameter in the next round.
    pub fn value(&self) -> f64 {
        self.knob.value(self.controller.position)
    }

    /// Devices that the guard bounds in the round that is taken in next.
    pub fn set_capped(&mut self, capped: Capped) {
        self.notes.capped = capped;
    }

    /// From now on this target.
    pub fn retarget(&mut self, target: f64) {
        self.target = target;
        self.controller.retarget(target);
    }

    /// Forgets everything.
    pub fn reset(&mut self) {
        self.controller = Controller::new(self.target);
        self.meter = Meter::new(self.scope, self.tiers);
        self.notes = KnobNotes::default();
    }

    pub fn state(&self) -> KnobState {
        KnobState {
            parameter: self.knob.parameter.to_owned(),
            tier: self.tier.map(|tier| tier.index()),
            scope: self.scope,
            measure: self.measure,
            signal: self.signal,
            controller: self.controller.clone(),
            meter: self.meter.clone(),
        }
    }

    /// Whether a state is of this knob and of the same measurement.
    pub fn owns(&self, state: &KnobState) -> bool {
        let same = state.parameter == self.knob.parameter && state.tier == self.tier.map(|tier| tier.index());
        same && (state.scope, state.measure, state.signal) == (self.scope, self.measure, self.signal)
    }

    /// Takes up a state. False: it is not possible, and nothing has changed.
    pub fn resume(&mut self, state: &KnobState, notes: &KnobNotes) -> bool {
        let noise = notes.noise.is_none_or(|noise| noise.is_sound());
        let sound = noise && state.controller.is_sound() && state.meter.fits(self.scope, self.tiers);
        if sound {
            self.notes = notes.clone();
            self.controller = state.controller.clone();
            self.meter = state.meter.clone();
            self.controller.retarget(self.target);
        }
        sound
    }

    /// `value`: of the parameter in the round that the line is about.
    pub fn line(&self, strategy: &str, value: f64, unmeasured: u64) -> FairnessLine {
        let controller = &self.controller;
        let measured = self.notes.noise.zip(controller.window_rms());
        let resolution = measured.and_then(|(noise, rms)| noise.resolution(controller.target, rms));
        FairnessLine {
            strategy: strategy.to_owned(),
            parameter: self.knob.parameter.to_owned(),
            tier: self.tier.map(Tier::index),
            scope: self.scope,
            measure: self.measure,
            signal: self.signal,
            target: controller.target,
            measured: controller.d.map(|squared| squared.max(0.0).sqrt()),
            squared: controller.d,
            window: controller.window(),
            window_rms: controller.window_rms(),
            position: controller.position,
            integrator: controller.integrator,
            value,
            next_value: self.value(),
            neutral: self.knob.neutral,
            most: self.knob.most,
            status: controller.status(),
            certified: controller.ledger.is_certified(),
            bound: controller.bound(),
            ledger: controller.ledger,
            mean_error: controller.mean_error(),
            reached: controller.reached,
            mean: controller.mean,
            best_mean: controller.best_mean,
            price_acted: controller.price_acted(),
            unmeasured,
            raising_helps: controller.raising_helps(),
            resolution,
            capped: self.notes.capped.clone(),
        }
    }
}
