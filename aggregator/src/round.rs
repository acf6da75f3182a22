//! One exchange of a Round: who was asked, who has answered, and when it may close.

use std::collections::{BTreeMap, BTreeSet};

use common::{
    Code, DeviceId, Duration, Instant, Tier,
    message::{Offer, Scalars, Task, Ticket},
};

use crate::{
    combine::check_scalars,
    model::Published,
    patience::{Patience, Tally},
    stage::{Stage, upload},
    strategy::Kind,
};

mod seats;

pub use seats::{Seat, Seats, Upload};

/// An upload of which nothing arrives for so long gives up its place to one that waits.
const STALLED: Duration = Duration::from_secs(15);

/// What a round is for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Purpose {
    Train,
    /// Scores of the present model, nothing else.
    Evaluate,
}

#[derive(Clone, Debug)]
pub struct Round {
    pub number: u32,
    /// Exchange of the round, from 0.
    pub stage: u8,
    pub kind: Kind,
    pub purpose: Purpose,
    pub opened: Instant,
    /// Every deadline has passed without a quorum; the round closes as soon as there is one.
    pub overdue: bool,
    /// How far the clock has been looked at.
    pub seen: Instant,
    /// By tier: with so many updates it is content. Empty: it wants everybody.
    pub wanted: Vec<usize>,
    /// Delivered after the deadline of their tier.
    pub late: BTreeSet<DeviceId>,
    pub lr: f32,
    pub seats: Seats,
    /// What each of them is told.
    pub tasks: BTreeMap<DeviceId, Task>,
    /// A vector that is sent along, by tier; empty = none.
    pub guide: Vec<Published>,
}

/// Who did what in a round that has ended.
#[derive(Clone, PartialEq, Debug)]
pub struct ClosedRound {
    pub number: u32,
    pub stage: u8,
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

impl ClosedRound {
    /// Nothing has happened yet.
    pub fn empty(number: u32, lr: f32, opened: Instant) -> Self {
        Self {
            number,
            stage: 0,
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

impl Round {
    pub fn open(stage: Stage, purpose: Purpose, opened: Instant) -> Self {
        let Stage { round: number, number: stage, kind, lr, seats, guide } = stage;
        let asked = |(device, tier, _): &(DeviceId, Tier, Task)| (device.clone(), *tier);
        Self {
            number,
            stage,
            kind,
            purpose,
            opened,
            overdue: false,
            seen: opened,
            wanted: vec![],
            late: BTreeSet::new(),
            lr,
            seats: Seats::new(seats.iter().map(asked)),
            tasks: seats.into_iter().map(|(device, _, task)| (device, task)).collect(),
            guide,
        }
    }

    /// Everybody has answered; or as many as were wanted; or time is up, every tier has its quorum, and nothing
    /// is half written; or nobody is waited for any longer.
    pub fn may_close(&self, now: Instant, patience: &Patience) -> bool {
        let tallies = self.seats.tallies();
        let storing: usize = tallies.iter().map(|tally| tally.storing).sum();
        let delivered: usize = tallies.iter().map(|tally| tally.delivered).sum();
        if tallies.iter().all(Tally::is_settled) {
            return true;
        }
        let each = |done: &dyn Fn(Tier, &Tally) -> bool| {
            (0..)
                .map_while(Tier::new)
                .zip(tallies)
                .all(|(tier, tally)| tally.is_settled() || done(tier, tally))
        };
        let content = !self.wanted.is_empty()
            && each(&|tier, tally| {
                self.wanted
                    .get(tier.index())
                    .is_some_and(|&wanted| tally.delivered >= wanted.min(tally.able()))
            });
        let waited = now - self.opened;
        let late = each(&|tier, tally| patience.may_leave(tier, tally, waited));
        let over = patience.give_up().is_some_and(|limit| waited >= limit);
        storing == 0 && (delivered > 0 && (content || late) || over)
    }

    /// The next moment at which time alone may close the round.
    pub fn next_limit(&self, patience: &Patience) -> Option<Instant> {
        let tallies = self.seats.tallies();
        let tiers = (0..).map_while(Tier::new).zip(tallies).filter(|(_, tally)| tally.asked > 0);
        let limits = tiers.map(|(tier, _)| patience.deadline(tier)).chain(patience.give_up());
        limits.map(|limit| self.opened + limit).filter(|&limit| limit > self.seen).min()
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
    pub fn settle(&self, closed: Instant, connected: impl Fn(&DeviceId) -> bool) -> ClosedRound {
        let mut result = ClosedRound {
            number: self.number,
            stage: self.stage,
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

    /// If somebody waits for a place: takes that of an upload whose device is gone, or sends nothing any more.
    /// It will offer its update again. False if there is none.
    pub fn interrupt_upload(&mut self, now: Instant, connected: impl Fn(&DeviceId) -> bool) -> bool {
        if self.seats.first_queued().is_none() {
            return false;
        }
        let gone = |(device, _, seat): &(&DeviceId, Tier, &Seat)| match seat {
            Seat::Uploading(upload) => !connected(device) || now - upload.moved >= STALLED,
            _ => false,
        };
        let Some(device) = self.seats.iter().find(gone).map(|(device, ..)| device.clone()) else {
            return false;
        };
        self.seats.set(&device, Seat::Assigned);
        true
    }

    /// What is wrong with an offer, before a byte of it is fetched.
    pub fn review(
        &self,
        device: &DeviceId,
        offer: &Offer,
        ticket: Ticket,
        model_check: u32,
        parameters: usize,
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
        review_scalars(&offer.scalars)
    }
}

fn review_scalars(scalars: &Scalars) -> Result<(), Code> {
    check_scalars(scalars)?;
    let test = [scalars.test, scalars.personal].into_iter().flatten();
    let sound = test.map(|score| score.loss).all(|loss| loss.is_finite() && loss >= 0.0);
    if sound { Ok(()) } else { Err(Code::NonFiniteLoss) }
}
