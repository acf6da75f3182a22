//! One exchange of a Round: who was asked, who has answered, and when it may close.

use std::collections::BTreeMap;

use common::{
    Code, DeviceId, Duration, Instant, Tier,
    message::{Offer, Scalars, Task, Ticket},
    transfer::Incoming,
};

use crate::{
    combine::check_scalars,
    model::Published,
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
    /// The deadline has passed without a quorum; the round closes as soon as there is one.
    pub overdue: bool,
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
        }
    }
}

/// When a round may end.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Patience {
    /// How long to wait for everybody.
    pub deadline: Duration,
    /// Share of the selected devices without which a round does not close.
    pub quorum: f64,
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
            lr,
            seats: seats.iter().map(empty).collect(),
            tasks: seats.into_iter().map(|(device, _, task)| (device, task)).collect(),
            guide,
        }
    }

    pub fn is_settled(&self) -> bool {
        self.seats.values().all(|(_, seat)| matches!(seat, Seat::Delivered(_) | Seat::Refused(_)))
    }

    /// Everybody has answered; or time is up, enough have, and nothing is half written.
    pub fn may_close(&self, now: Instant, patience: Patience) -> bool {
        let storing = self.seats.values().any(|(_, seat)| matches!(seat, Seat::Storing(_)));
        // A refused device can not deliver any more; counting it could keep a round open for ever.
        let refused = self.seats.values().filter(|(_, seat)| matches!(seat, Seat::Refused(_))).count();
        let able = self.seats.len() - refused;
        let needed = (patience.quorum * able as f64).ceil().max(1.0) as usize;
        let late = now >= self.opened + patience.deadline;
        self.is_settled() || late && !storing && self.delivered().count() >= needed
    }

    pub fn delivered(&self) -> impl Iterator<Item = (&DeviceId, Tier, &Scalars)> {
        self.seats.iter().filter_map(|(device, (tier, seat))| match seat {
            Seat::Delivered(scalars) => Some((device, *tier, scalars)),
            _ => None,
        })
    }

    /// The outcome, device by device.
    pub fn settle(&self, closed: Instant) -> ClosedRound {
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
        };
        for (device, (tier, seat)) in &self.seats {
            match seat {
                Seat::Delivered(scalars) => result.delivered.push((device.clone(), *tier, scalars.clone())),
                Seat::Refused(code) => result.refused.push((device.clone(), *tier, *code)),
                _ => result.silent.push((device.clone(), *tier)),
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
