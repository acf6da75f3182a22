//! Devices whose numbers can not be believed.
//!
//! Fair weighting listens to whoever says that it is badly off, which invites lying. When a round closes, before
//! any weight is formed, every loss and every update's norm is held against those of the device's peers (its
//! tier; the whole round where a tier has few participants) and against the device's own past:
//!
//! ```text
//! x = ln value     c = median of the peers' x     s = 1.4826 median |x - c|
//! believed    x <= c + max(ln factor, spread * s),   or  value <= 1.25 of what was believed last
//! and, with a past,   value <= factor * max(last believed, own),         own = exp(c + last place)
//! otherwise   it counts as the middle of its peers, or as its own past where that was the reason
//! ```
//! Logarithms, because losses of honest fleets are skewed: a device may be ten times worse off than the others if
//! the others differ, too. The second way to be believed is for those whom the others have left behind: their loss
//! has not grown. Norms are taken per parameter and per square root of the samples, since more data mean more steps;
//! they differ less than losses, so half the spread is enough for them.
//!
//! What was believed, clipped, is the past of the next round and is saved with the commit. `samples` holds sample
//! counts against the first Hello and against the peers, `figures` looks at what only some strategies ask for (masses,
//! gaps, trials, losses of groups), `scores` at what only the report shows, [`screen`] finds updates that point away
//! from all others, [`robust`] combines so that a few can not decide.

use std::collections::BTreeMap;

use common::{Code, DeviceId, Tier};
use serde::{Deserialize, Serialize};

use super::{cohort::Cohort, kernel::Scalar};
use crate::{fleet::DeviceRecord, strategy::Kind};
use band::{Band, bands, bands_of, median};
use findings::Findings;
use lean::Lean;

mod band;
mod config;
mod figures;
mod findings;
mod lean;
pub mod robust;
mod samples;
pub mod scaled;
mod scores;
pub mod screen;
#[cfg(test)]
mod tests;

pub use config::{GuardConfig, Mode};
pub use findings::GuardLine;
pub use robust::Robust;
pub use scaled::Scaled;
pub use scores::count;

/// What a device that points away from the others still counts.
const SCREENED: f32 = 0.1;
/// Samples beyond this many times what is usual, which only a device's own word says it has, make no room for a longer update.
const LENGTHENING: f64 = 4.0;
/// A value that has grown no more than this is believed again.
const STEADY: f64 = 1.25;
/// What a device's own past allows may grow this much from round to round, so that a device that has really changed is
/// believed in the end, and whoever climbs in small steps is not.
const DRIFT: f64 = 1.01;

/// The rules, and what is remembered of every device.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Guard {
    config: GuardConfig,
    devices: BTreeMap<DeviceId, Past>,
}

/// What is remembered of a device.
#[derive(Copy, Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Past {
    /// Training samples at enrolment.
    samples: u32,
    tier: Tier,
    loss: Option<Place>,
    norm: Option<Place>,
    lean: Lean,
    /// Has taken part: its sample count is one of those that others are held against. Enrolment alone is not enough,
    /// or what a round gives would depend on who came while it was open.
    seen: bool,
}

/// A value that was believed, and how far above the middle of its peers it was.
#[derive(Copy, Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Place {
    value: f64,
    above: f64,
}

/// What came out of an inspection.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Verdict {
    pub lines: Vec<GuardLine>,
    /// Refused devices, with their tier.
    pub refused: Vec<(DeviceId, Tier, Code)>,
    /// Factors of updates that are too long.
    pub scales: BTreeMap<DeviceId, f64>,
    next: Vec<(DeviceId, Past)>,
}

#[derive(Copy, Clone, PartialEq, Debug)]
enum Belief {
    Whole,
    /// Counts as this, because of the peers or of its own past.
    Less(f64, &'static str),
}

const PEERS: &str = "far above its peers";
const OWN_PAST: &str = "far above its own past";
const AGAINST: &str = "has pointed away from the others whenever these agreed";

impl Guard {
    pub fn new(config: GuardConfig) -> Self {
        Self { config, devices: BTreeMap::new() }
    }

    pub fn config(&self) -> &GuardConfig {
        &self.config
    }

    /// Remembers what a device said of itself first.
    pub fn enrol(&mut self, record: &DeviceRecord) {
        if self.config.mode == Mode::Off {
            return;
        }
        let (samples, tier) = (record.data.train_samples, record.tier);
        let past = Past { samples, tier, loss: None, norm: None, lean: Lean::default(), seen: false };
        self.devices.entry(record.device.clone()).or_insert(past);
    }

    /// Clips or refuses what can not be believed. Looks only: the same cohort gives the same verdict until
    /// [`Guard::learn`].
    pub fn inspect(&self, cohort: &mut Cohort<'_>, kind: Kind) -> Verdict {
        let mut verdict = Verdict::default();
        cohort.robust = self.config.robust;
        if self.config.mode == Mode::Off {
            return verdict;
        }
        self.discount(cohort, &mut verdict);
        let mut findings = Findings { refuse: self.config.mode == Mode::Refuse, refused: vec![], verdict };
        let usual = self.check_samples(cohort, &mut findings);
        let mut next = self.pasts(cohort);
        let losses: Vec<f64> = cohort.participants().iter().map(|p| p.loss()).collect();
        for (index, (belief, place)) in
            self.beliefs(cohort, &losses, &self.config, |past| past.loss).into_iter().enumerate()
        {
            let said = losses.get(index).copied().unwrap_or(0.0);
            if let Belief::Less(counted, why) = belief {
                findings.note(cohort, index, "loss", Code::ImplausibleLoss, (said, counted), why);
                cohort.believe_loss(index, counted);
            }
            if let Some((_, past)) = next.get_mut(index) {
                past.loss = place.or(past.loss);
            }
        }
        self.check_losses_after(cohort, &mut findings);
        figures::check(&self.config, cohort, &mut findings);
        self.check_norms(cohort, kind, &usual, &mut findings, &mut next);
        let Findings { mut refused, mut verdict, .. } = findings;
        verdict.next = next;
        refused.sort_by_key(|&(index, _)| index);
        refused.dedup_by_key(|&mut (index, _)| index);
        for (index, code) in refused.into_iter().rev() {
            if let Some((device, tier)) = cohort.dismiss(index, code) {
                verdict.scales.remove(&device);
                verdict.refused.push((device, tier, code));
            }
        }
        verdict.refused.reverse();
        verdict
    }

    /// Remembers where updates have pointed, which counts from the next round on: all exchanges of a round see the same.
    /// `cosines` are those of [`screen::cosines`].
    pub fn screen(&self, cosines: &BTreeMap<DeviceId, f64>, verdict: &mut Verdict) {
        let mut all: Vec<f64> = cosines.values().copied().collect();
        if all.len() < band::PEERS {
            return;
        }
        let middle = median(&mut all);
        for (device, past) in &mut verdict.next {
            let Some(&cosine) = cosines.get(device) else { continue };
            if past.lean.turn(cosine, middle, self.config.screen) {
                verdict.lines.push(GuardLine {
                    device: device.to_string(),
                    tier: past.tier.index(),
                    what: "direction",
                    action: "noted",
                    why: AGAINST,
                    said: cosine,
                    counted: f64::from(SCREENED),
                });
            }
        }
    }

    /// Whether anybody looks where updates point.
    pub fn screens(&self) -> bool {
        self.config.mode != Mode::Off && self.config.screen > 0.0
    }

    /// The round is over: what was believed is remembered.
    pub fn learn(&mut self, verdict: Verdict) {
        if self.config.mode != Mode::Off {
            self.devices.extend(verdict.next);
        }
    }

    /// What must survive a restart; empty = nothing.
    pub fn save(&self) -> Vec<u8> {
        if self.devices.is_empty() {
            Vec::new()
        } else {
            postcard::to_allocvec(&self.devices).unwrap_or_default()
        }
    }

    /// Takes up what [`Guard::save`] gave. A past that can not be read is forgotten: it only makes belief easier.
    pub fn restore(&mut self, bytes: &[u8]) {
        self.devices = postcard::from_bytes(bytes).unwrap_or_default();
    }

    /// Pasts of a cohort's participants; a device that was never enrolled starts with what it says now.
    fn pasts(&self, cohort: &Cohort<'_>) -> Vec<(DeviceId, Past)> {
        let past = |participant: &super::Participant| {
            let fresh = || Past {
                samples: participant.samples() as u32,
                tier: participant.tier,
                loss: None,
                norm: None,
                lean: Lean::default(),
                seen: true,
            };
            let known = self.devices.get(&participant.device).copied().unwrap_or_else(fresh);
            // Another slice has other losses and norms.
            let same = known.tier == participant.tier;
            let past =
                if same { known } else { Past { tier: participant.tier, loss: None, norm: None, ..known } };
            (participant.device.clone(), Past { seen: true, ..past })
        };
        cohort.participants().iter().map(past).collect()
    }

    /// Devices that have pointed away from the others count less.
    fn discount(&self, cohort: &mut Cohort<'_>, verdict: &mut Verdict) {
        if !self.screens() {
            return;
        }
        for index in 0..cohort.participants().len() {
            let Some(participant) = cohort.participants().get(index) else { continue };
            let Some(past) = self.devices.get(&participant.device).filter(|past| past.lean.away) else {
                continue;
            };
            verdict.lines.push(GuardLine {
                device: participant.device.to_string(),
                tier: participant.tier.index(),
                what: "direction",
                action: "counted less",
                why: AGAINST,
                said: past.lean.sum.into(),
                counted: f64::from(SCREENED),
            });
            cohort.set_credit(index, SCREENED);
        }
    }

    /// What is remembered of devices that have taken part and do not now.
    fn absent(&self, cohort: &Cohort<'_>) -> impl Iterator<Item = &Past> {
        let present = cohort.participants();
        let is_absent =
            |device: &DeviceId| present.binary_search_by(|other| other.device.cmp(device)).is_err();
        let absent = self.devices.iter().filter(move |(device, past)| past.seen && is_absent(device));
        absent.map(|(_, past)| past)
    }

    /// A loss after training is also believed where it has hardly grown from the one before.
    fn check_losses_after(&self, cohort: &mut Cohort<'_>, findings: &mut Findings) {
        let after: Vec<_> = cohort.participants().iter().map(|p| Some(p.loss_after())).collect();
        let bands = bands(cohort, &after, &self.config);
        for index in 0..after.len() {
            let Some(participant) = cohort.participants().get(index) else { continue };
            let band = bands.get(participant.tier.index()).copied().flatten();
            let Some(said) = participant.reported_loss_after() else { continue };
            // Too few peers to know a middle: the loss before, as far as that was believed.
            let (limit, counted) = band.map_or_else(
                || (self.config.factor * participant.loss(), participant.loss()),
                |band| (band.limit, band.usual()),
            );
            if said > limit && said > STEADY * participant.loss() {
                findings.note(cohort, index, "loss_after", Code::ImplausibleLoss, (said, counted), PEERS);
                cohort.believe_loss_after(index, counted);
            }
        }
    }

    fn check_norms(
        &self,
        cohort: &mut Cohort<'_>,
        kind: Kind,
        usual: &[Option<f64>],
        findings: &mut Findings,
        next: &mut [(DeviceId, Past)],
    ) {
        let length = |index: usize| {
            let participant = cohort.participants().get(index)?;
            let usual = usual.get(participant.tier.index()).copied().flatten().unwrap_or(f64::INFINITY);
            let samples = participant.samples().min(LENGTHENING * usual);
            let size = cohort.regions().slice_len(participant.tier) as f64 * samples;
            (size > 0.0).then(|| (cohort.norm(index) / size).sqrt())
        };
        let norms: Vec<f64> = (0..cohort.participants().len()).map(|i| length(i).unwrap_or(0.0)).collect();
        if norms.iter().all(|&norm| norm == 0.0) {
            return;
        }
        let trained = kind == Kind::Train;
        let tight = GuardConfig { spread: self.config.spread / 2.0, ..self.config.clone() };
        let beliefs = self.beliefs(cohort, &norms, &tight, |past| past.norm.filter(|_| trained));
        for (index, (belief, place)) in beliefs.into_iter().enumerate() {
            let said = norms.get(index).copied().unwrap_or(0.0);
            if let Belief::Less(counted, why) = belief {
                let (scale, whole) = (counted / said, cohort.norm(index).sqrt());
                findings.note(cohort, index, "norm", Code::ImplausibleNorm, (whole, whole * scale), why);
                if let Some(participant) = cohort.participants().get(index) {
                    findings.verdict.scales.insert(participant.device.clone(), scale);
                }
                cohort.scale_norms(index, scale);
            }
            if let Some((_, past)) = next.get_mut(index).filter(|_| trained) {
                past.norm = place.or(past.norm);
            }
        }
    }

    /// For every participant: whether its value is believed, and its place if that is known.
    fn beliefs(
        &self,
        cohort: &Cohort<'_>,
        values: &[f64],
        config: &GuardConfig,
        past: impl Fn(&Past) -> Option<Place>,
    ) -> Vec<(Belief, Option<Place>)> {
        let present = cohort.participants().iter().map(|participant| participant.tier);
        let mut known: Vec<(Tier, f64)> = present.zip(values.iter().copied()).collect();
        // So few tell nothing of each other, but all who came before do.
        if known.len() < band::PEERS {
            known.extend(self.absent(cohort).filter_map(|known| Some((known.tier, past(known)?.value))));
        }
        let bands = bands_of(&known, cohort.regions().tiers(), config);
        let judge = |(index, (participant, &value)): (usize, (&super::Participant, &f64))| {
            let band = bands.get(participant.tier.index()).copied().flatten();
            let known = self.devices.get(&participant.device);
            let own = known.filter(|known| known.tier == participant.tier).and_then(&past);
            match band.filter(|band| cohort.credit(index) < 1.0 && value > band.usual()) {
                // Who was found out is not believed in anything that would make up for it.
                Some(band) => (Belief::Less(band.usual(), AGAINST), own),
                None => self.judge(value, band, own),
            }
        };
        cohort.participants().iter().zip(values).enumerate().map(judge).collect()
    }

    fn judge(&self, value: f64, band: Option<Band>, past: Option<Place>) -> (Belief, Option<Place>) {
        let Some(band) = band else {
            // Too few peers to know a middle: the past alone, as it was.
            let Some(past) = past else { return (Belief::Whole, Some(Place { value, above: 0.0 })) };
            if value > self.config.factor * past.value {
                let counted = DRIFT * past.value;
                return (Belief::Less(counted, OWN_PAST), Some(Place { value: counted, ..past }));
            }
            return (Belief::Whole, Some(Place { value, ..past }));
        };
        let place =
            |value: f64| Some(Place { value, above: value.max(f64::MIN_POSITIVE).ln() - band.middle });
        let steady = past.is_some_and(|past| value <= STEADY * past.value);
        if value > band.limit {
            // Whoever is believed for its past can not climb by it.
            return match past.filter(|_| steady) {
                Some(past) => (Belief::Whole, place(value.min(past.value))),
                None => (Belief::Less(band.usual(), PEERS), place(band.usual())),
            };
        }
        let Some(past) = past else { return (Belief::Whole, place(value)) };
        // Its place among the others, or its last value; and nobody is held below what is usual.
        let own = (band.middle + past.above).exp().max(past.value).max(band.usual());
        if value > self.config.factor * own {
            let counted = (DRIFT * own).min(value);
            (Belief::Less(counted, OWN_PAST), place(counted))
        } else {
            // Whoever is believed now does not become the measure of the next round, or a few steps would lead anywhere.
            (Belief::Whole, place(value.min(DRIFT * own)))
        }
    }
}

/// Multiplies numbers of any width.
fn scaled<T: Scalar>(value: T, scale: f64) -> T {
    T::narrow(value.wide() * scale)
}
