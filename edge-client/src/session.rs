//! The device's side of the protocol, sans-io: the same on a board, on a host and in the simulator.
//!
//! How to drive it: call [`Session::handle_connected`], [`Session::handle_frame`], [`Session::handle_timeout`] and
//! [`Session::handle_disconnected`] as these events occur, and after each of them
//! 1. send what [`Session::poll_transmit`] writes until it returns nothing;
//! 2. read [`Session::poll_event`] until it is empty;
//! 3. while [`Session::has_work`], call [`Session::work`]: one batch each time, so that the link is
//!    served in between;
//! 4. otherwise sleep until a frame arrives or [`Session::poll_timeout`].
//!
//! ```text
//! link:  Down -> Greeting -> Planning -> Up            (again after every lost connection)
//! job:   Free -> Downloading -> Working -> Offering -> Free   (survives lost connections)
//! ```
//! A round may have several exchanges, each with its own Assignment. A model or guide that is still unchanged in the arena is
//! not fetched again. Private state (a personal model, the loss that the device reaches alone) is kept as long as the Session
//! and its Plan.
//!
//! Every request is repeated until it is answered, so a link may lose frames.

use common::{
    Budget, Code, DeviceId, Duration, Instant, RunId, Tier, Versions,
    message::{Assignment, DataSummary, Offer, Progress as SignOfLife, Refusal, Scalars, Task},
    plan::{MAX_NODES, Plan, PlanInfo, PlanStore},
    privacy::Privacy,
    transfer::{Lane, LinkLimits, Outgoing},
};
use heapless::Deque;

use crate::{
    data::Shard,
    train::{Backend, PrivateState, TrainError, Work, WorkProgress},
};

mod arena;
#[cfg(feature = "ask")]
mod ask;
mod download;
mod inbox;
#[cfg(feature = "keep")]
mod kept;
mod outbox;
mod spent;
#[cfg(test)]
mod tests;
mod upload;

pub use arena::Arena;
#[cfg(feature = "host")]
pub use arena::HeapArena;
#[cfg(feature = "ask")]
pub use ask::{Answered, ModelPlace};
use download::{Download, ReceivedVectors};
#[cfg(feature = "keep")]
pub(crate) use kept::{ModelAtHand, ModelName};
use outbox::QueuedMessage;
pub use spent::Spent;

/// How often a device sends Progress during training.
const SIGN_OF_LIFE: Duration = Duration::from_secs(5);

/// Name, limits, data and privacy settings of a device.
#[derive(Clone, PartialEq, Debug)]
pub struct Profile {
    /// The name in the device's certificate or board identity.
    pub device: DeviceId,
    /// The memory and speed that it offers.
    pub budget: Budget,
    /// Numbers and shape of its samples.
    pub data: DataSummary,
    /// The secret of its noise, and what its owner allows.
    pub privacy: Privacy,
}

/// What has happened, for logs and drivers.
#[derive(Clone, PartialEq, Debug)]
#[expect(clippy::large_enum_variant, reason = "there is no heap to put the large one on")]
#[expect(missing_docs, reason = "the line of a variant explains its fields")]
pub enum Event {
    /// The device has its tier and Plan.
    Joined { run: RunId, tier: Tier, parameters: u32 },
    /// A round has begun.
    Assigned { round: u32 },
    /// The update (or evaluation) of a round was accepted, or refused with a code.
    Answered { round: u32, scalars: Scalars, refused: Option<Code> },
    /// The device cannot do what it was asked to.
    Failed { round: u32, code: Code },
    /// The aggregator refuses this device.
    Refused(Refusal),
    /// The run is over.
    Finished { round: u32 },
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Link {
    Down,
    Greeting,
    Planning,
    Up,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one, and no heap to put the large ones on")]
enum Job {
    Free,
    /// The model, then the guide if there is one.
    Downloading(Download),
    /// The model is in the weights (and the guide in its segment); `work` begins with the first call, which has the shard.
    Working {
        assignment: Assignment,
        work: Option<Work>,
    },
    Offering {
        offer: Offer,
        task: Task,
        outgoing: Outgoing,
    },
}

/// The run and Plan that the device's baseline belongs to.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct BaselineOf {
    run: RunId,
    /// Digest of the Plan.
    plan: u32,
}

/// The device's side of the protocol; see the module for how to drive it.
#[derive(Debug)]
pub struct Session<A, const NODES: usize = MAX_NODES> {
    profile: Profile,
    limits: LinkLimits,
    /// The versions that the device offers on this link.
    versions: Versions,
    /// The agreed version, once the aggregator has named it.
    version: u8,
    arena: A,
    link: Link,
    run: Option<RunId>,
    tier: Option<Tier>,
    plan: Option<PlanStore<NODES>>,
    /// The arena is laid out for this Plan and may hold a residual.
    placed: bool,
    held: ReceivedVectors,
    /// The round whose model arrived last; `None` while another one arrives.
    #[cfg(feature = "ask")]
    model_round: Option<u32>,
    own: PrivateState,
    spent: Spent,
    baseline_of: Option<BaselineOf>,
    job: Job,
    /// When to repeat the current request.
    retry: Option<Instant>,
    /// The request was answered with a Wait, although the device still needs something.
    deferred: bool,
    sign_of_life: Instant,
    messages: Deque<QueuedMessage, 4>,
    events: Deque<Event, 2>,
}

impl<A: Arena, const NODES: usize> Session<A, NODES> {
    /// A session without a link.
    pub fn new(profile: Profile, arena: A) -> Self {
        Self {
            own: PrivateState { secret: profile.privacy.secret, ..PrivateState::default() },
            spent: Spent::default(),
            profile,
            limits: LinkLimits::QUIC,
            versions: Versions::FOUR,
            version: Versions::FOUR.newest,
            arena,
            link: Link::Down,
            run: None,
            tier: None,
            plan: None,
            placed: false,
            held: ReceivedVectors::default(),
            #[cfg(feature = "ask")]
            model_round: None,
            baseline_of: None,
            job: Job::Free,
            retry: None,
            deferred: false,
            sign_of_life: Instant::ZERO,
            messages: Deque::new(),
            events: Deque::new(),
        }
    }

    /// The device's tier, once it has joined.
    pub fn tier(&self) -> Option<Tier> {
        self.tier
    }

    /// The sizes and the loss of the device's Plan, once it has joined.
    pub fn plan_info(&self) -> Option<&PlanInfo> {
        self.plan.as_ref().map(PlanStore::info)
    }

    /// The parameters in the arena; empty before the device has room for its Plan.
    pub fn weights(&mut self) -> &[f32] {
        let params = self.plan.as_ref().map_or(0, |plan| plan.info().params as usize);
        self.arena.floats().get(..params).unwrap_or_default()
    }

    /// The arena. Changing it during a job changes the result.
    pub fn arena_mut(&mut self) -> &mut A {
        &mut self.arena
    }

    /// Replaces the arena between two jobs and returns the old one. The new one must have the room that was reserved in the old
    /// one, whose content is lost.
    pub fn replace_arena(&mut self, arena: A) -> A {
        self.held = ReceivedVectors::default();
        self.note_model(None);
        core::mem::replace(&mut self.arena, arena)
    }

    /// The count of answers with noise. A driver that must keep it across restarts stores it after [`Session::work`], before
    /// anything is sent.
    pub fn spent(&self) -> &Spent {
        &self.spent
    }

    /// Restores the count that an earlier process has stored.
    pub fn resume_spent(&mut self, spent: Spent) {
        self.spent = spent;
    }

    /// The device has other samples from now on. Work on the old ones is dropped. The aggregator learns of the new ones when the
    /// driver calls [`Session::handle_connected`], which says Hello again.
    pub fn replace_data(&mut self, data: DataSummary) {
        self.profile.data = data;
        self.own.baseline = None;
        self.job = Job::Free;
    }

    /// There is a link to the aggregator. `versions` are those that Hello may name: [`Versions::FOUR`] if the other end may not
    /// read a tail.
    pub fn handle_connected(&mut self, limits: LinkLimits, versions: Versions, now: Instant) {
        self.limits = limits;
        (self.versions, self.version) = (versions, versions.oldest);
        self.link = Link::Greeting;
        self.messages.clear();
        // The aggregator states the offset from which it wants the update, in chunks that fit this link.
        if let Job::Offering { offer, task, outgoing } = &mut self.job {
            *outgoing = upload::outgoing(&offer.update, task, limits);
        }
        self.request(now);
    }

    /// The link is lost; progress is kept.
    pub fn handle_disconnected(&mut self) {
        self.link = Link::Down;
        self.retry = None;
        self.messages.clear();
    }

    /// Repeats requests and chunks that are due.
    pub fn handle_timeout(&mut self, now: Instant) {
        if let Job::Offering { outgoing, .. } = &mut self.job {
            outgoing.handle_timeout(now);
        }
        if self.retry.is_some_and(|retry| now >= retry) {
            self.request(now);
        }
    }

    /// When to call [`Session::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        let transfer = match &self.job {
            Job::Offering { outgoing, .. } if self.link == Link::Up => outgoing.poll_timeout(),
            _ => None,
        };
        self.retry.into_iter().chain(transfer).min()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Writes the next frame into `out` and returns its lane and length.
    pub fn poll_transmit(&mut self, out: &mut [u8]) -> Option<(Lane, usize)> {
        while let Some(said) = self.messages.pop_front() {
            let message = self.message(said).and_then(|message| message.for_version(self.version));
            if let Some(len) = message.and_then(|message| self.encode(&message, out)) {
                return Some((Lane::Control, len));
            }
        }
        self.poll_chunk(out)
    }

    /// True while there is something to compute.
    pub fn has_work(&self) -> bool {
        matches!(self.job, Job::Working { .. })
    }

    /// True while a round waits for a transfer or for work of this device.
    pub fn is_under_way(&self) -> bool {
        !matches!(self.job, Job::Free)
    }

    /// Computes one batch. An error ends the job and is reported to the aggregator.
    pub fn work(
        &mut self,
        shard: &(impl Shard + ?Sized),
        backend: &mut (impl Backend<f32> + ?Sized),
        now: Instant,
    ) -> Result<(), TrainError> {
        let outcome = self.advance(shard, backend, now);
        if let Err(error) = &outcome
            && let Job::Working { assignment, .. } = core::mem::replace(&mut self.job, Job::Free)
        {
            let code = error.code();
            self.say(QueuedMessage::Refusal(code.into()));
            self.event(Event::Failed { round: assignment.ticket.round, code });
            self.retry = Some(now + self.limits.timeout);
        }
        outcome
    }

    fn advance(
        &mut self,
        shard: &(impl Shard + ?Sized),
        backend: &mut (impl Backend<f32> + ?Sized),
        now: Instant,
    ) -> Result<(), TrainError> {
        let (Some(store), Job::Working { assignment, work }) = (&self.plan, &mut self.job) else {
            return Ok(());
        };
        let plan = store.plan()?;
        let arena = self.arena.floats();
        if work.is_none() {
            begin(work, self.own, assignment, plan, arena, shard)?;
            let question = work.as_ref().and_then(Work::question);
            if question.is_some_and(|question| !self.spent.may_answer(question, self.profile.privacy.most()))
            {
                return Err(TrainError::PrivacySpent);
            }
            self.held.begin(&assignment.task);
        }
        let Some(work) = work else { return Ok(()) };
        let progress = work.step(plan, arena, shard, backend);
        self.own = work.private_state();
        match progress? {
            WorkProgress::Done(scalars) => self.offer(&scalars, now),
            WorkProgress::Busy { step, steps } => {
                let ticket = assignment.ticket;
                if self.link == Link::Up && now - self.sign_of_life >= SIGN_OF_LIFE {
                    self.sign_of_life = now;
                    self.say(QueuedMessage::Progress(SignOfLife { ticket, step, steps }));
                }
                Ok(())
            }
        }
    }

    /// The work is done: offers its result to the aggregator.
    #[inline(never)]
    fn offer(&mut self, scalars: &Scalars, now: Instant) -> Result<(), TrainError> {
        let (Some(store), Job::Working { assignment, work: Some(work) }) = (&self.plan, &mut self.job) else {
            return Ok(());
        };
        let plan = store.plan()?;
        let charge = work.finish(plan, self.arena.floats())?;
        if charge.is_some_and(|charge| !self.spent.count(charge, self.profile.privacy.most())) {
            return Err(TrainError::PrivacySpent);
        }
        self.held.end(assignment);
        let (ticket, task) = (assignment.ticket, assignment.task.clone());
        if matches!(task, Task::Alone(_)) {
            self.baseline_of = Some(BaselineOf { run: ticket.run, plan: plan.info().digest });
        }
        let too_long = TrainError::Objective("update is too long for one transfer");
        let update = upload::blob(ticket, &task, plan).ok_or(too_long)?;
        let offer = Offer { ticket, update, model_check: assignment.model.check, scalars: scalars.clone() };
        let outgoing = upload::outgoing(&update, &task, self.limits);
        self.job = Job::Offering { offer, task, outgoing };
        if self.link == Link::Up {
            self.request(now);
        }
        Ok(())
    }

    /// The weights hold the model of this round, or none.
    fn note_model(&mut self, _round: Option<u32>) {
        #[cfg(feature = "ask")]
        {
            self.model_round = _round;
        }
    }

    fn event(&mut self, event: Event) {
        if self.events.is_full() {
            self.events.pop_front();
        }
        let _ = self.events.push_back(event);
    }
}

/// Never inlined, so that its stack frame is free again while the Work runs.
#[inline(never)]
fn begin(
    work: &mut Option<Work>,
    own: PrivateState,
    assignment: &Assignment,
    plan: Plan<'_>,
    arena: &mut [f32],
    shard: &(impl Shard + ?Sized),
) -> Result<(), TrainError> {
    *work = Some(Work::begin_as(own, assignment.ticket, &assignment.task, plan, arena, shard)?);
    Ok(())
}
