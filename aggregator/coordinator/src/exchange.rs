//! One exchange of a round: which devices are asked, which have answered, and when it may close.

use std::collections::BTreeSet;

use common::{DeviceId, Duration, ExchangeId, Instant, Tier};

use crate::{
    announcement::Announcement,
    pacing::{Deadlines, TierCounts},
    published::Published,
};
use strategies::strategy::Kind;

mod closed;
mod interrupted;
mod review;
mod roster;
mod upload;
mod upload_queue;

pub use closed::ClosedExchange;
pub use interrupted::InterruptedUploads;
pub use review::ExpectedOffer;
pub use roster::{AnswerState, Roster, RosterEntry};
pub use upload::Upload;
pub use upload_queue::UploadQueue;

/// What an exchange is for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// Part of a round.
    Train,
    /// Scores of the final model, nothing else.
    Evaluate,
}

/// An exchange that devices have been told of.
#[derive(Clone, Debug)]
pub struct OpenExchange {
    /// Its round and number.
    pub id: ExchangeId,
    /// What it asks for.
    pub kind: Kind,
    /// Whether a round follows from it.
    pub purpose: Purpose,
    /// When devices were told of it.
    pub opened: Instant,
    /// It was complete when the aggregator was restarted.
    pub complete_at_start: bool,
    /// Every deadline has passed without a quorum; the exchange closes as soon as there is one.
    pub overdue: bool,
    /// Deadlines up to here have been checked.
    pub checked_until: Instant,
    /// When to check next whether devices have fallen silent.
    pub next_silence_check: Option<Instant>,
    /// `None` until a device has answered.
    pub last_answer: Option<LastAnswer>,
    /// Updates of each tier that are enough; empty: all.
    pub wanted: Vec<usize>,
    /// Delivered after the deadline of their tier.
    pub late: BTreeSet<DeviceId>,
    /// Learning rate of the round.
    pub lr: f32,
    /// The devices that are asked.
    pub roster: Roster,
    /// Uploads that can be resumed.
    pub interrupted: InterruptedUploads,
    /// A vector that is sent along, by tier; empty: none.
    pub guide: Vec<Published>,
}

/// The answer that came last.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LastAnswer {
    /// The device that answered.
    pub device: DeviceId,
    /// When it answered.
    pub at: Instant,
    /// Time since the answer before it.
    pub delay: Duration,
    /// The device's longest silence.
    pub silence: Duration,
}

impl OpenExchange {
    /// An exchange of which devices are told now.
    pub fn open(announcement: Announcement, purpose: Purpose, opened: Instant) -> Self {
        let Announcement { id, kind, lr, asked, guide } = announcement;
        Self {
            id,
            kind,
            purpose,
            opened,
            complete_at_start: false,
            overdue: false,
            checked_until: opened,
            next_silence_check: None,
            last_answer: None,
            wanted: vec![],
            late: BTreeSet::new(),
            lr,
            roster: Roster::new(asked),
            interrupted: InterruptedUploads::default(),
            guide,
        }
    }

    /// Every tier is done and something has arrived, or the exchange is given up; see [`crate::pacing`]. Updates that are
    /// being written are waited for in any case.
    pub fn may_close(&self, now: Instant, deadlines: &Deadlines) -> bool {
        let tiers = self.roster.tier_counts();
        let storing: usize = tiers.iter().map(|counts| counts.storing).sum();
        let delivered: usize = tiers.iter().map(|counts| counts.delivered).sum();
        if tiers.iter().all(TierCounts::is_settled) {
            return true;
        }
        let waited = now - self.opened;
        let done = self.tiers().all(|(tier, counts)| {
            counts.is_complete() || self.has_wanted(tier, counts) || deadlines.may_close(tier, counts, waited)
        });
        let over = deadlines.give_up().is_some_and(|limit| waited >= limit);
        storing == 0 && (delivered > 0 && done || over)
    }

    /// As many devices of a tier have delivered as are wanted.
    fn has_wanted(&self, tier: Tier, counts: &TierCounts) -> bool {
        let wanted = self.wanted.get(tier.index());
        wanted.is_some_and(|&wanted| counts.delivered >= wanted.min(counts.eligible()))
    }

    /// No update has arrived, and none is expected.
    pub fn is_deserted(&self) -> bool {
        let deserted =
            |counts: &TierCounts| counts.delivered == 0 && counts.storing == 0 && counts.eligible() == 0;
        self.roster.tier_counts().iter().all(deserted)
    }

    /// A device has answered.
    pub fn note_answer(&mut self, device: &DeviceId, now: Instant, silence: Duration) {
        let before = self.last_answer.as_ref().map_or(self.opened, |last| last.at);
        self.last_answer = Some(LastAnswer { device: device.clone(), at: now, delay: now - before, silence });
    }

    /// Checks for silent devices at this time at the latest.
    pub fn check_silence_by(&mut self, limit: Option<Instant>) {
        self.next_silence_check = self.next_silence_check.into_iter().chain(limit).min();
    }

    /// The next moment at which time alone may close the exchange.
    pub fn next_limit(&self, deadlines: &Deadlines) -> Option<Instant> {
        let asked = self.tiers().filter(|(_, counts)| counts.asked > 0);
        let limits = asked.map(|(tier, _)| deadlines.deadline(tier)).chain(deadlines.give_up());
        let limits = limits.map(|limit| self.opened + limit);
        limits.chain(self.next_silence_check).filter(|&limit| limit > self.checked_until).min()
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant, deadlines: &Deadlines) {
        self.checked_until = self.checked_until.max(now);
        let last = self.roster.iter().map(|(_, entry)| deadlines.deadline(entry.tier)).max();
        self.overdue = last.is_some_and(|last| now >= self.opened + last);
    }

    /// Notes whether an update that has just become durable is late.
    pub fn note_delivered(&mut self, device: &DeviceId, now: Instant, deadlines: &Deadlines) {
        if let Some(RosterEntry { tier, state: AnswerState::Delivered(_), .. }) = self.roster.get(device)
            && now > self.opened + deadlines.deadline(*tier)
        {
            self.late.insert(device.clone());
        }
    }

    /// Makes room for an upload that waits: interrupts one whose device is disconnected, or else the slowest of those that
    /// are too slow. False if there is none.
    ///
    /// The device will offer its update again. The upload resumes where it was, unless more than `most` are interrupted.
    /// The turn of a device doubles with each interruption, so that a fleet of slow devices makes progress. It does not
    /// double while a device waits that was never interrupted.
    pub fn interrupt_upload(
        &mut self,
        now: Instant,
        most: usize,
        connected: impl Fn(&DeviceId) -> bool,
    ) -> bool {
        let queue = &self.roster.queue;
        let Some(first_lost) = queue.first().map(|first| queue.lost_turns(first)) else { return false };
        let gone = self.roster.uploads().find(|(device, _)| !connected(device));
        let pace = |(device, upload): (_, &Upload)| {
            Some((upload.slow_pace(now, first_lost.min(queue.lost_turns(device)))?, device))
        };
        let slowest = || self.roster.uploads().filter_map(pace).min();
        let (device, slow) = match gone {
            Some((device, _)) => (device.clone(), false),
            None => match slowest() {
                Some((_, device)) => (device.clone(), true),
                None => return false,
            },
        };
        if slow {
            self.roster.queue.note_lost_turn(&device);
        }
        if let Some(AnswerState::Uploading(upload)) = self.roster.set(&device, AnswerState::Assigned) {
            self.interrupted.keep(device, *upload, most);
        }
        true
    }

    fn tiers(&self) -> impl Iterator<Item = (Tier, &TierCounts)> {
        (0..).map_while(Tier::new).zip(self.roster.tier_counts())
    }
}
