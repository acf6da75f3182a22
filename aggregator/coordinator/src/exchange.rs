//! One exchange of a Round: who was asked, who has answered, and when it may close.

use std::collections::{BTreeMap, BTreeSet};

use common::{
    Code, DeviceId, Duration, Instant, Tier,
    message::{Offer, Scalars, Score, Task, Ticket},
};

use crate::{
    announcement::{Announcement, upload},
    patience::{Patience, Tally},
    published::Published,
};
use strategies::{check::check_scalars, strategy::Kind};

mod interrupted;
mod queue;
mod roster;
mod upload;

pub use interrupted::InterruptedUploads;
pub use queue::Queue;
pub use roster::{Roster, Seat};
pub use upload::Upload;

/// What a round is for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Purpose {
    Train,
    /// Scores of the present model, nothing else.
    Evaluate,
}

#[derive(Clone, Debug)]
pub struct OpenExchange {
    pub number: u32,
    /// Exchange of the round, from 0.
    pub exchange: u8,
    pub kind: Kind,
    pub purpose: Purpose,
    pub opened: Instant,
    /// It was complete when the aggregator was started again.
    pub complete_at_start: bool,
    /// Every deadline has passed without a quorum; the round closes as soon as there is one.
    pub overdue: bool,
    /// How far the clock has been looked at.
    pub seen: Instant,
    /// When to look next whether devices have fallen silent.
    pub next_look: Option<Instant>,
    /// The last answer, and when the one before it came.
    pub last: Option<LastAnswer>,
    /// By tier: with so many updates it is content. Empty: it wants everybody.
    pub wanted: Vec<usize>,
    /// Delivered after the deadline of their tier.
    pub late: BTreeSet<DeviceId>,
    pub lr: f32,
    pub seats: Roster,
    pub parked: InterruptedUploads,
    /// What each of them is told.
    pub tasks: BTreeMap<DeviceId, Task>,
    /// A vector that is sent along, by tier; empty = none.
    pub guide: Vec<Published>,
}

/// The answer for which all others have waited.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LastAnswer {
    pub device: DeviceId,
    pub at: Instant,
    /// Longer than all other answers of the exchange took.
    pub held_up: Duration,
    /// The device's longest silence.
    pub quiet: Duration,
}

/// Who did what in a round that has ended.
#[derive(Clone, PartialEq, Debug)]
pub struct ClosedExchange {
    pub number: u32,
    pub exchange: u8,
    pub kind: Kind,
    pub lr: f32,
    pub opened: Instant,
    pub closed: Instant,
    /// Devices whose update counts, with their scalars.
    pub delivered: Vec<(DeviceId, Tier, Scalars)>,
    /// Devices whose update was refused.
    pub refused: Vec<(DeviceId, Tier, Code)>,
    /// Devices that were asked and did not answer in time.
    pub silent: Vec<(DeviceId, Tier)>,
    /// Those of the silent that had no connection any more.
    pub gone: Vec<(DeviceId, Tier)>,
    /// Those of the delivered that came after the deadline of their tier.
    pub late: Vec<(DeviceId, Tier)>,
}

impl ClosedExchange {
    /// Nothing has happened yet.
    pub fn empty(number: u32, lr: f32, opened: Instant) -> Self {
        Self {
            number,
            exchange: 0,
            kind: Kind::Train,
            lr,
            opened,
            closed: opened,
            delivered: vec![],
            refused: vec![],
            silent: vec![],
            gone: vec![],
            late: vec![],
        }
    }
}

impl OpenExchange {
    pub fn open(exchange: Announcement, purpose: Purpose, opened: Instant) -> Self {
        let Announcement { round: number, number: exchange, kind, lr, seats, guide } = exchange;
        let asked = |(device, tier, _): &(DeviceId, Tier, Task)| (device.clone(), *tier);
        Self {
            number,
            exchange,
            kind,
            purpose,
            opened,
            complete_at_start: false,
            overdue: false,
            seen: opened,
            next_look: None,
            last: None,
            wanted: vec![],
            late: BTreeSet::new(),
            lr,
            seats: Roster::new(seats.iter().map(asked)),
            parked: InterruptedUploads::default(),
            tasks: seats.into_iter().map(|(device, _, task)| (device, task)).collect(),
            guide,
        }
    }

    /// Every tier is done and something has arrived, or the round is given up; see [`crate::patience`]. What is half written is
    /// waited for in any case.
    pub fn may_close(&self, now: Instant, patience: &Patience) -> bool {
        let tallies = self.seats.tallies();
        let storing: usize = tallies.iter().map(|tally| tally.storing).sum();
        let delivered: usize = tallies.iter().map(|tally| tally.delivered).sum();
        if tallies.iter().all(Tally::is_settled) {
            return true;
        }
        let waited = now - self.opened;
        let done = (0..).map_while(Tier::new).zip(tallies).all(|(tier, tally)| {
            tally.is_complete() || self.is_content(tier, tally) || patience.may_leave(tier, tally, waited)
        });
        let over = patience.give_up().is_some_and(|limit| waited >= limit);
        storing == 0 && (delivered > 0 && done || over)
    }

    /// As many updates of a tier are there as were wanted.
    fn is_content(&self, tier: Tier, tally: &Tally) -> bool {
        let wanted = self.wanted.get(tier.index());
        wanted.is_some_and(|&wanted| tally.delivered >= wanted.min(tally.able()))
    }

    /// No update is there, and no device of whom one is expected.
    pub fn is_deserted(&self) -> bool {
        let deserted = |tally: &Tally| tally.delivered == 0 && tally.storing == 0 && tally.able() == 0;
        self.seats.tallies().iter().all(deserted)
    }

    /// A device has answered.
    pub fn note_answer(&mut self, device: &DeviceId, now: Instant, quiet: Duration) {
        let before = self.last.as_ref().map_or(self.opened, |last| last.at);
        self.last = Some(LastAnswer { device: device.clone(), at: now, held_up: now - before, quiet });
    }

    /// Looks for silent devices at this time at the latest.
    pub fn look_by(&mut self, limit: Option<Instant>) {
        self.next_look = self.next_look.into_iter().chain(limit).min();
    }

    /// The next moment at which time alone may close the round.
    pub fn next_limit(&self, patience: &Patience) -> Option<Instant> {
        let tallies = self.seats.tallies();
        let tiers = (0..).map_while(Tier::new).zip(tallies).filter(|(_, tally)| tally.asked > 0);
        let limits = tiers.map(|(tier, _)| patience.deadline(tier)).chain(patience.give_up());
        let limits = limits.map(|limit| self.opened + limit);
        limits.chain(self.next_look).filter(|&limit| limit > self.seen).min()
    }

    /// Time has passed.
    pub fn look_at(&mut self, now: Instant, patience: &Patience) {
        self.seen = self.seen.max(now);
        let last = self.seats.iter().map(|(_, tier, _)| patience.deadline(tier)).max();
        self.overdue = last.is_some_and(|last| now >= self.opened + last);
    }

    /// Notes whether an update that has just become durable is late.
    pub fn note_delivered(&mut self, device: &DeviceId, now: Instant, patience: &Patience) {
        if let Some((tier, Seat::Delivered(_))) = self.seats.get(device)
            && now > self.opened + patience.deadline(*tier)
        {
            self.late.insert(device.clone());
        }
    }

    pub fn delivered(&self) -> impl Iterator<Item = (&DeviceId, Tier, &Scalars)> {
        self.seats.iter().filter_map(|(device, tier, seat)| match seat {
            Seat::Delivered(scalars) => Some((device, tier, scalars)),
            _ => None,
        })
    }

    /// The outcome, device by device.
    pub fn settle(&self, closed: Instant, connected: impl Fn(&DeviceId) -> bool) -> ClosedExchange {
        let mut result = ClosedExchange {
            number: self.number,
            exchange: self.exchange,
            kind: self.kind,
            lr: self.lr,
            opened: self.opened,
            closed,
            delivered: vec![],
            refused: vec![],
            silent: vec![],
            gone: vec![],
            late: vec![],
        };
        for (device, tier, seat) in self.seats.iter() {
            if self.late.contains(device) {
                result.late.push((device.clone(), tier));
            }
            match seat {
                Seat::Delivered(scalars) => result.delivered.push((device.clone(), tier, scalars.clone())),
                Seat::Refused(code) => result.refused.push((device.clone(), tier, *code)),
                _ => {
                    if !connected(device) {
                        result.gone.push((device.clone(), tier));
                    }
                    result.silent.push((device.clone(), tier));
                }
            }
        }
        result
    }

    /// If somebody waits for a place: takes that of an upload whose device is gone, or else of the slowest one that is too
    /// slow. It will offer its update again and goes on where it was, as far as room for `most` of them allows. False
    /// if there is none.
    ///
    /// Turns of whoever was interrupted before get longer, so that a fleet of which everybody is slow gets done; but not
    /// for those who come for the first time.
    pub fn interrupt_upload(
        &mut self,
        now: Instant,
        most: usize,
        connected: impl Fn(&DeviceId) -> bool,
    ) -> bool {
        let queue = &self.seats.queue;
        let Some(patience) = queue.first().map(|first| queue.lost(first)) else { return false };
        let gone = self.seats.uploads().find(|(device, _)| !connected(device));
        let pace = |(device, upload): (_, &Upload)| {
            Some((upload.is_slow(now, patience.min(queue.lost(device)))?, device))
        };
        let slowest = || self.seats.uploads().filter_map(pace).min();
        let (device, slow) = match gone {
            Some((device, _)) => (device.clone(), false),
            None => match slowest() {
                Some((_, device)) => (device.clone(), true),
                None => return false,
            },
        };
        if slow {
            self.seats.queue.note_lost(&device);
        }
        if let Some(Seat::Uploading(upload)) = self.seats.set(&device, Seat::Assigned) {
            self.parked.park(device, *upload, most);
        }
        true
    }

    /// What is wrong with an offer, before a byte of it is fetched. `targets` are those of the device's test samples, by
    /// its Hello.
    pub fn review(
        &self,
        device: &DeviceId,
        offer: &Offer,
        ticket: Ticket,
        model_check: u32,
        parameters: usize,
        targets: u64,
    ) -> Result<(), Code> {
        if offer.ticket != ticket {
            return Err(Code::WrongRound);
        }
        let task = self.tasks.get(device).ok_or(Code::NotSelected)?;
        if offer.model_check != model_check {
            return Err(Code::WrongModel);
        }
        if offer.update.bytes != upload(task, parameters).1 {
            return Err(Code::WrongShape);
        }
        review_scalars(&offer.scalars, targets)
    }
}

/// The largest loss that a device can have computed. Squares of it, as in a variance, are finite.
const LARGEST_LOSS: f64 = f32::MAX as f64;

fn review_scalars(scalars: &Scalars, targets: u64) -> Result<(), Code> {
    check_scalars(scalars)?;
    let scores = || [scalars.test, scalars.personal].into_iter().flatten();
    let losses = [scalars.loss_before].into_iter().chain(scalars.loss_after);
    if !losses.chain(scores().map(|score| score.loss)).all(|loss| (0.0..=LARGEST_LOSS).contains(&loss)) {
        return Err(Code::NonFiniteLoss);
    }
    let counted = |score: Score| score.correct <= score.samples && u64::from(score.samples) <= targets;
    if scores().all(counted) { Ok(()) } else { Err(Code::ImplausibleSamples) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_must_be_possible() {
        let score = |samples, correct, loss| Score { samples, correct, loss };
        let of =
            |test, personal| Scalars { samples: 10, loss_before: 1.0, test, personal, ..Scalars::default() };
        let review = |score: Score| {
            let verdicts =
                [of(Some(score), None), of(None, Some(score))].map(|scalars| review_scalars(&scalars, 5));
            assert_eq!(verdicts[0], verdicts[1]);
            verdicts[0]
        };
        assert_eq!(review_scalars(&of(None, None), 0), Ok(()));
        for possible in [score(5, 5, 0.0), score(5, 0, 2.3), score(0, 0, 0.0), score(4, 3, f32::MAX.into())] {
            assert_eq!(review(possible), Ok(()), "{possible:?}");
        }
        for counts in [score(5, 6, 1.0), score(6, 6, 1.0), score(u32::MAX, 0, 1.0)] {
            assert_eq!(review(counts), Err(Code::ImplausibleSamples), "{counts:?}");
        }
        for loss in [-1.0, f64::NAN, f64::INFINITY, 1e300] {
            assert_eq!(review(score(5, 5, loss)), Err(Code::NonFiniteLoss), "{loss}");
            let before = Scalars { loss_before: loss, ..of(None, None) };
            let after = Scalars { loss_after: Some(loss), ..of(None, None) };
            assert_eq!(
                [before, after].map(|scalars| review_scalars(&scalars, 5)),
                [Err(Code::NonFiniteLoss); 2]
            );
        }
    }
}
