//! One exchange of a Round: who was asked, who has answered, and when it may close.

use std::collections::{BTreeMap, BTreeSet};

use common::{
    Code, DeviceId, Instant, Tier,
    message::{Offer, Scalars, Task, Ticket},
    transfer::Incoming,
};

use crate::{
    combine::check_scalars,
    model::Published,
    patience::{Patience, Tally},
    stage::{Stage, upload},
    strategy::Kind,
};

/// What a round is for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Purpose {
    Train,
    /// Scores of the present model, nothing else.
    Evaluate,
}

/// Where one device stands in the round.
#[derive(Clone, Debug)]
pub enum Seat {
    /// Was told, or will be when it connects.
    Assigned,
    /// Has offered an update that waits for a place among the uploads.
    Queued(Box<Offer>),
    Uploading(Box<Upload>),
    /// Complete, not yet durable.
    Storing(Scalars),
    Delivered(Scalars),
    Refused(Code),
}

/// An update on its way in.
#[derive(Clone, Debug)]
pub struct Upload {
    pub offer: Offer,
    pub incoming: Incoming,
    pub bytes: Vec<u8>,
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
    pub seats: BTreeMap<DeviceId, (Tier, Seat)>,
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
        let empty = |(device, tier, _): &(DeviceId, Tier, Task)| (device.clone(), (*tier, Seat::Assigned));
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
            seats: seats.iter().map(empty).collect(),
            tasks: seats.into_iter().map(|(device, _, task)| (device, task)).collect(),
            guide,
        }
    }

    /// Everybody has answered; or as many as were wanted; or time is up, every tier has its quorum, and nothing
    /// is half written; or nobody is waited for any longer.
    pub fn may_close(&self, now: Instant, patience: &Patience) -> bool {
        let tallies = self.tallies();
        let storing: usize = tallies.iter().map(|tally| tally.storing).sum();
        let delivered: usize = tallies.iter().map(|tally| tally.delivered).sum();
        if tallies.iter().all(Tally::is_settled) {
            return true;
        }
        let each = |done: &dyn Fn(Tier, &Tally) -> bool| {
            (0..)
                .map_while(Tier::new)
                .zip(&tallies)
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
        let tallies = self.tallies();
        let tiers = (0..).map_while(Tier::new).zip(&tallies).filter(|(_, tally)| tally.asked > 0);
        let limits = tiers.map(|(tier, _)| patience.deadline(tier)).chain(patience.give_up());
        limits.map(|limit| self.opened + limit).filter(|&limit| limit > self.seen).min()
    }

    /// Time has passed.
    pub fn look_at(&mut self, now: Instant, patience: &Patience) {
        self.seen = self.seen.max(now);
        let last = self.seats.values().map(|(tier, _)| patience.deadline(*tier)).max();
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

    /// By tier, as far as anybody was asked.
    fn tallies(&self) -> Vec<Tally> {
        let mut tallies = Vec::new();
        for (tier, seat) in self.seats.values() {
            if tallies.len() <= tier.index() {
                tallies.resize(tier.index() + 1, Tally::default());
            }
            let Some(tally) = tallies.get_mut(tier.index()) else { continue };
            tally.asked += 1;
            match seat {
                Seat::Delivered(_) => tally.delivered += 1,
                Seat::Refused(_) => tally.refused += 1,
                Seat::Storing(_) => tally.storing += 1,
                Seat::Assigned | Seat::Queued(_) | Seat::Uploading(_) => {}
            }
        }
        tallies
    }

    pub fn delivered(&self) -> impl Iterator<Item = (&DeviceId, Tier, &Scalars)> {
        self.seats.iter().filter_map(|(device, (tier, seat))| match seat {
            Seat::Delivered(scalars) => Some((device, *tier, scalars)),
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
        for (device, (tier, seat)) in &self.seats {
            if self.late.contains(device) {
                result.late.push((device.clone(), *tier));
            }
            match seat {
                Seat::Delivered(scalars) => result.delivered.push((device.clone(), *tier, scalars.clone())),
                Seat::Refused(code) => result.refused.push((device.clone(), *tier, *code)),
                _ => {
                    if !connected(device) {
                        result.gone.push((device.clone(), *tier));
                    }
                    result.silent.push((device.clone(), *tier));
                }
            }
        }
        result
    }

    pub fn uploads(&self) -> usize {
        self.seats.values().filter(|(_, seat)| matches!(seat, Seat::Uploading(_))).count()
    }

    /// If somebody waits for a place: takes that of an upload whose device is gone. It will offer its
    /// update again. False if there is none.
    pub fn interrupt_upload(&mut self, connected: impl Fn(&DeviceId) -> bool) -> bool {
        let waiting = self.seats.values().any(|(_, seat)| matches!(seat, Seat::Queued(_)));
        let gone = self
            .seats
            .iter_mut()
            .find(|(device, (_, seat))| matches!(seat, Seat::Uploading(_)) && !connected(device));
        match gone {
            Some((_, (_, seat))) if waiting => {
                *seat = Seat::Assigned;
                true
            }
            _ => false,
        }
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
