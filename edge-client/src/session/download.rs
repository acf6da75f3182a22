//! Fetches the vectors of an Assignment: the model into the weights, then the guide into its segment.

use core::ops::Range;

use common::{
    Code, Codec, Instant, TransferId,
    brief::Product,
    message::{Assignment, Blob, Fetch, Task},
    plan::PlanInfo,
    transfer::{Arrival, Incoming},
    wire::Crc32,
};

use super::{Arena, Event, Job, QueuedMessage, Session};
use crate::train::{FULL, Work};

#[derive(Debug)]
pub(super) struct Download {
    pub assignment: Assignment,
    vector: Vector,
    incoming: Incoming,
    crc: Crc32,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Vector {
    Model,
    Guide,
}

/// The received vectors that are still unchanged in the arena.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct ReceivedVectors {
    model: Option<Content>,
    guide: Option<Content>,
}

/// Identifies the numbers of a vector by the checksum of its bytes and its codec.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "keep", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Content {
    codec: Codec,
    bytes: u32,
    check: u32,
}

impl Content {
    fn of(blob: &Blob, codec: Codec) -> Self {
        Self { codec, bytes: blob.bytes, check: blob.check }
    }
}

impl ReceivedVectors {
    /// A task begins; it may change the weights, and store its first step in the guide segment.
    pub fn begin(&mut self, task: &Task) {
        self.model = None;
        if matches!(task, Task::Train(brief) if brief.product == Product::Both) {
            self.guide = None;
        }
    }

    /// A task has ended; most restore the model.
    pub fn end(&mut self, assignment: &Assignment) {
        let moved = matches!(&assignment.task, Task::Train(brief) if brief.product != Product::Gradient);
        self.model = (!moved).then_some(Content::of(&assignment.model, assignment.codec));
    }

    /// What the weights hold, if it is a model as it was received.
    #[cfg(feature = "ask")]
    pub fn model(&self) -> Option<Content> {
        self.model
    }

    /// The weights hold this model again.
    #[cfg(feature = "keep")]
    pub fn set_model(&mut self, model: Option<Content>) {
        self.model = model;
    }

    fn of(&mut self, vector: Vector) -> &mut Option<Content> {
        match vector {
            Vector::Model => &mut self.model,
            Vector::Guide => &mut self.guide,
        }
    }
}

impl Download {
    fn new(assignment: Assignment, vector: Vector, blob: &Blob) -> Self {
        let incoming = Incoming::new(blob.transfer, blob.bytes);
        Self { assignment, vector, incoming, crc: Crc32::default() }
    }

    /// The request that starts or resumes the download.
    pub fn fetch(&mut self) -> Fetch {
        self.incoming.fetch()
    }

    fn blob(&self) -> Blob {
        match (self.vector, self.assignment.guide) {
            (Vector::Guide, Some(guide)) => guide,
            _ => self.assignment.model,
        }
    }

    /// Begins again, because the bytes that have arrived are overwritten.
    #[cfg(feature = "keep")]
    pub fn restart(&mut self) {
        let blob = self.blob();
        (self.incoming, self.crc) = (Incoming::new(blob.transfer, blob.bytes), Crc32::default());
    }

    /// The place of the vector in the arena; `None` if the Plan has no such segment.
    fn place(&self, info: &PlanInfo) -> Option<Range<usize>> {
        let at = match self.vector {
            Vector::Model => Some(0),
            Vector::Guide => info.segments.guide,
        };
        at.map(|at| at as usize..at as usize + info.params as usize)
    }
}

impl<A: Arena, const NODES: usize> Session<A, NODES> {
    #[inline(never)]
    pub(super) fn handle_assignment(&mut self, assignment: Assignment, now: Instant) {
        let present = match &self.job {
            Job::Free => None,
            // The aggregator has restarted, and the same ticket now names another model.
            Job::Downloading(download) if download.assignment.model != assignment.model => None,
            Job::Downloading(Download { assignment, .. }) | Job::Working { assignment, .. } => {
                Some(assignment.ticket)
            }
            Job::Offering { offer, .. } => Some(offer.ticket),
        };
        if present == Some(assignment.ticket) {
            // The aggregator has restarted and could not answer the device's request before.
            if self.deferred {
                self.request(now);
            }
            return;
        }
        // The receipt of the earlier round was lost. Asking for it again costs one answer. Without it, the residual of a lossy
        // codec would be lost.
        if matches!(self.job, Job::Offering { .. }) {
            return self.request(now);
        }
        let Some(store) = &self.plan else { return };
        let len = assignment.codec.encoded_len(store.info().params as usize);
        let blobs = [Some(assignment.model), assignment.guide];
        if blobs.iter().flatten().any(|blob| Some(blob.bytes) != len) {
            return self.refuse(Code::WrongShape.into(), now);
        }
        let possible = store.plan().map_err(Into::into).and_then(|plan| Work::check(&assignment.task, plan));
        let room = assignment.guide.is_none() || store.info().segments.guide.is_some();
        let code = match possible {
            Err(error) => Some(error.code()),
            Ok(()) if !FULL && assignment.guide.is_some() => Some(Code::LeftOut),
            Ok(()) if !room => Some(Code::BadPlan),
            Ok(()) if needs_guide(&assignment.task) && assignment.guide.is_none() => Some(Code::BadConfig),
            Ok(()) => self.profile.privacy.allows(&assignment.task).err(),
        };
        if let Some(code) = code {
            return self.decline(assignment.ticket.round, code, now);
        }
        self.event(Event::Assigned { round: assignment.ticket.round });
        self.fetch_next(assignment, now);
    }

    /// Fetches the next vector that is missing; if there is none, the work can begin.
    fn fetch_next(&mut self, assignment: Assignment, now: Instant) {
        let wanted = [(Vector::Model, Some(assignment.model)), (Vector::Guide, assignment.guide)];
        for (vector, blob) in wanted {
            let Some(blob) = blob.filter(|_| FULL || vector == Vector::Model) else { continue };
            let held = self.held.of(vector);
            if *held != Some(Content::of(&blob, assignment.codec)) {
                *held = None;
                if vector == Vector::Model {
                    self.note_model(None);
                }
                self.job = Job::Downloading(Download::new(assignment, vector, &blob));
                return self.request(now);
            }
        }
        self.note_model(Some(assignment.ticket.round));
        self.job = Job::Working { assignment, work: None };
        self.retry = None;
    }

    #[inline(never)]
    pub(super) fn handle_chunk(&mut self, transfer: TransferId, offset: u32, data: &[u8], now: Instant) {
        let (Job::Downloading(download), Some(plan)) = (&mut self.job, &self.plan) else { return };
        let codec = download.assignment.codec;
        let (Some(first), Some(count)) = (codec.index_at(offset), codec.count_in(data.len())) else { return };
        let Some(range) = download.place(plan.info()) else { return };
        let vector = self.arena.floats().get_mut(range);
        // Looked up before the transfer advances, so that everything that counts as received is also stored.
        let Some(place) = vector.and_then(|vector| vector.get_mut(first..first + count)) else { return };
        let incoming = &mut download.incoming;
        let answer = match incoming.handle_chunk(transfer, offset, data.len()) {
            Arrival::Fresh => {
                let _ = codec.decode(data, place);
                download.crc.update(data);
                #[cfg(feature = "keep")]
                if download.vector == Vector::Model {
                    // A kept model may have been in the weights until now.
                    (self.held.model, self.model_round) = (None, None);
                }
                incoming.poll_ack(self.limits, now).map(QueuedMessage::Ack)
            }
            Arrival::Known => Some(QueuedMessage::Ack(incoming.ack())),
            Arrival::Gap => match incoming.refetch() {
                Some(fetch) => Some(QueuedMessage::Fetch(fetch)),
                None => return,
            },
            Arrival::Foreign => return,
        };
        self.retry = Some(now + self.limits.timeout);
        if !incoming.is_done() {
            return answer.into_iter().for_each(|answer| self.say(answer));
        }
        let blob = download.blob();
        let assignment = download.assignment.clone();
        if core::mem::take(&mut download.crc).finish() == blob.check {
            *self.held.of(download.vector) = Some(Content::of(&blob, codec));
            answer.into_iter().for_each(|answer| self.say(answer));
        }
        // A damaged vector is not marked as received, so it is fetched again.
        self.fetch_next(assignment, now);
    }

    /// Refuses the assignment.
    fn decline(&mut self, round: u32, code: Code, now: Instant) {
        self.job = Job::Free;
        self.say(QueuedMessage::Refusal(code.into()));
        self.event(Event::Failed { round, code });
        self.retry = Some(now + self.limits.timeout);
    }
}

fn needs_guide(task: &Task) -> bool {
    match task {
        Task::Train(brief) => brief.objective.align > 0.0,
        Task::Try(_) => true,
        Task::Alone(alone) => alone.brief.objective.align > 0.0,
        Task::Evaluate(_) => false,
    }
}
