//! Whether training diverges, without I/O.
//!
//! ```text
//! witness    a device that delivers with a loss > factor x its reference
//!            or, if no device delivers with a smaller one, a device whose training is not finite
//! reference  the largest of: its first loss, the median of all first losses, 0.1
//!            of a newcomer: the largest first loss, once those of 8 devices are known
//! suspect    a round in which most of the compared devices are witnesses, or
//!            no update was accepted and most refusals are not finite
//! diverged   3 suspect rounds in a row; their witnesses are most of the fleet, or gave 16 answers
//! ```
//! A refused update never counts against an accepted one: one device with an acceptable loss ends a series of refusals. The losses
//! of a round are those of the model that it began with. So the last acceptable model is the one before the last step.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use common::{Code, DeviceId};
use serde::{Deserialize, Serialize};

#[cfg(test)]
mod tests;

/// Suspect rounds in a row before a run ends.
pub(crate) const PATIENCE: u32 = 3;
/// So many answers of witnesses suffice where rounds ask a small part of the fleet.
const ENOUGH: u32 = 16;
/// A first loss below this counts as this: a small loss grows tenfold by chance.
const LEAST: f64 = 0.1;
/// With so many first losses, a newcomer has something to be compared with.
const KNOWN: usize = 8;

/// Why training diverges.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum Divergence {
    /// No update was accepted, because losses or updates are not finite.
    NotFinite {
        /// Devices that have failed.
        failed: usize,
    },
    /// The loss is many times the first one.
    TooLarge {
        /// Median over the compared devices.
        loss: f64,
        /// Median of what they are compared with.
        first: f64,
    },
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFinite { failed } => {
                write!(f, "no update is finite: training has failed on {failed} devices")
            }
            Self::TooLarge { loss, first } => {
                write!(f, "the training loss is {loss:.4}, and was {first:.4} at first")
            }
        }
    }
}

/// What a round says.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(super) enum Verdict {
    /// Its model is acceptable.
    Sound,
    /// Nothing: the round is empty for another reason.
    Silent,
    /// The round is refused.
    Suspect(Divergence),
    /// The same, and the run ends.
    Diverged(Divergence),
}

/// The answers of a round.
#[derive(Debug)]
pub(super) struct Answers<'a> {
    /// Devices whose update was accepted, with their training losses under the model of the round.
    pub losses: Vec<(&'a DeviceId, f64)>,
    /// Devices without an accepted update whose training is not finite.
    pub failed: BTreeSet<&'a DeviceId>,
    /// All devices without an accepted update that were refused.
    pub refused: usize,
}

impl<'a> Answers<'a> {
    /// Forms the answers from what was accepted, and what was refused with its code.
    pub fn new(
        losses: Vec<(&'a DeviceId, f64)>,
        refused: impl Iterator<Item = (&'a DeviceId, Code)> + Clone,
    ) -> Self {
        let accepted: BTreeSet<_> = losses.iter().map(|(device, _)| *device).collect();
        let refused = refused.filter(|(device, _)| !accepted.contains(device));
        let not_finite = |code| matches!(code, Code::NonFiniteLoss | Code::NonFiniteUpdate);
        let failed =
            refused.clone().filter(|(_, code)| not_finite(*code)).map(|(device, _)| device).collect();
        let refused: BTreeSet<_> = refused.map(|(device, _)| device).collect();
        Self { losses, failed, refused: refused.len() }
    }
}

/// How a round is judged.
#[derive(Copy, Clone, Debug)]
pub(super) struct Rule {
    /// A loss above this many times its reference is too large. 0: nothing is judged.
    pub factor: f64,
    /// Whether losses are those of the model; with noise they are not.
    pub losses_tell: bool,
    /// Devices of the run.
    pub fleet: usize,
    /// No round follows that could confirm what the losses say.
    pub last: bool,
}

/// What is remembered of earlier rounds to notice divergence.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct LossWatch {
    seen: Seen,
    /// Parameters of the last acceptable model, as far as they are known.
    before: Option<Vec<f32>>,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
struct Seen {
    /// The loss of every device when it first took part in a sound round.
    first: BTreeMap<DeviceId, f32>,
    /// Suspect rounds in a row.
    rounds: u32,
    /// Answers of witnesses in them.
    answers: u32,
    witnesses: BTreeSet<DeviceId>,
    /// The round of the last acceptable model.
    before: Option<u32>,
}

impl LossWatch {
    /// Judges a round, and remembers what it says.
    pub(super) fn judge(&mut self, answers: &Answers<'_>, rule: Rule) -> Verdict {
        if rule.factor <= 0.0 {
            return Verdict::Silent;
        }
        let Some((why, witnesses)) = self.suspicion(answers, rule) else {
            if answers.losses.is_empty() {
                return Verdict::Silent;
            }
            self.end_series();
            let known = answers.losses.iter().filter(|_| rule.losses_tell);
            for &(device, loss) in known {
                self.seen.first.entry(device.clone()).or_insert(loss as f32);
            }
            return Verdict::Sound;
        };
        let seen = &mut self.seen;
        seen.rounds = seen.rounds.saturating_add(1);
        seen.answers = seen.answers.saturating_add(witnesses.len() as u32);
        seen.witnesses.extend(witnesses.into_iter().cloned());
        let most = seen.witnesses.len() * 2 > rule.fleet;
        let confirmed = seen.rounds >= PATIENCE && (most || seen.answers >= ENOUGH);
        let unconfirmed = rule.last && most && matches!(why, Divergence::TooLarge { .. });
        if confirmed || unconfirmed {
            self.end_series();
            return Verdict::Diverged(why);
        }
        Verdict::Suspect(why)
    }

    /// What speaks against a model after the last round.
    pub(super) fn judge_final(&self, answers: &Answers<'_>, rule: Rule) -> Option<Divergence> {
        let (why, witnesses) = self.suspicion(answers, rule).filter(|_| rule.factor > 0.0)?;
        let too_large = matches!(why, Divergence::TooLarge { .. });
        (too_large && witnesses.len() * 2 > rule.fleet).then_some(why)
    }

    /// Suspect rounds in a row so far.
    pub fn suspect_rounds(&self) -> u32 {
        self.seen.rounds
    }

    /// A sound round has begun with this model.
    pub(super) fn note_sound(&mut self, committed: u32, parameters: Vec<f32>) {
        (self.seen.before, self.before) = (Some(committed), Some(parameters));
    }

    /// The last acceptable model and its round, if it is known. It is not remembered any more.
    pub(super) fn take_before(&mut self) -> Option<(u32, Vec<f32>)> {
        let round = self.seen.before.take();
        round.zip(self.before.take())
    }

    /// The round of the last acceptable model: the store keeps it while later rounds are suspect.
    pub fn before(&self) -> Option<u32> {
        self.seen.before
    }

    /// The state for a restart, without parameters.
    pub fn save(&self) -> Vec<u8> {
        if self.seen == Seen::default() {
            return Vec::new();
        }
        postcard::to_allocvec(&self.seen).expect("numbers and names always encode")
    }

    /// Restores the result of [`LossWatch::save`]. `parameters` are those of [`LossWatch::before`]. A state that does not decode
    /// counts as none.
    pub fn restore<E>(
        bytes: &[u8],
        parameters: impl FnOnce(u32) -> Result<Option<Vec<f32>>, E>,
    ) -> Result<Self, E> {
        let seen: Seen = postcard::from_bytes(bytes).unwrap_or_default();
        let before = seen.before.map_or(Ok(None), parameters)?;
        Ok(Self { seen, before })
    }

    fn end_series(&mut self) {
        self.seen.witnesses.clear();
        (self.seen.rounds, self.seen.answers) = (0, 0);
    }

    /// Why a round is suspect, with its witnesses.
    fn suspicion<'a>(&self, answers: &Answers<'a>, rule: Rule) -> Option<(Divergence, Vec<&'a DeviceId>)> {
        let Answers { losses, failed, refused } = answers;
        if losses.is_empty() {
            let most = failed.len() * 2 > *refused;
            return most
                .then(|| (Divergence::NotFinite { failed: failed.len() }, failed.iter().copied().collect()));
        }
        if !rule.losses_tell {
            return None;
        }
        let typical = median(self.seen.first.values().map(|&loss| f64::from(loss)))?;
        let largest = self.seen.first.values().copied().fold(0.0, f32::max);
        let newcomer = (self.seen.first.len() >= KNOWN).then_some(largest);
        let reference = |device: &DeviceId| {
            let own = self.seen.first.get(device).copied().or(newcomer)?;
            Some(f64::from(own).max(typical).max(LEAST))
        };
        let compared: Vec<(&DeviceId, f64, f64)> =
            losses.iter().filter_map(|&(device, loss)| Some((device, loss, reference(device)?))).collect();
        let too_large = compared.iter().filter(|(_, loss, first)| !(*loss <= rule.factor * first));
        let mut witnesses: Vec<_> = too_large.map(|(device, ..)| *device).collect();
        if witnesses.len() * 2 <= compared.len() {
            return None;
        }
        if witnesses.len() == losses.len() {
            witnesses.extend(failed);
        }
        let loss = median(compared.iter().map(|(_, loss, _)| *loss))?;
        let first = median(compared.iter().map(|(.., first)| *first))?;
        Some((Divergence::TooLarge { loss, first }, witnesses))
    }
}

/// The upper one of two.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}
