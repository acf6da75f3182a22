//! Messages to the aggregator, and when they are repeated.

use common::{
    Instant, Versions,
    message::{Ack, Fetch, Hello, Progress as SignOfLife, Refusal, ToAggregator},
    plan::PlanStore,
    wire,
};

use super::{Arena, Job, Link, Session};

/// A message that waits to be sent. Requests are built when they are sent, because a board has no room for several long ones.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(super) enum QueuedMessage {
    /// The current request of the device.
    Request,
    Fetch(Fetch),
    Ack(Ack),
    Progress(SignOfLife),
    Refusal(Refusal),
}

impl<A: Arena, const NODES: usize> Session<A, NODES> {
    /// Queues the current request, and sets the time of its repetition.
    pub(super) fn request(&mut self, now: Instant) {
        self.deferred = false;
        match (self.link, &self.job) {
            (Link::Down, _) => {}
            (Link::Up, Job::Working { .. }) => self.retry = None,
            _ => {
                self.say(QueuedMessage::Request);
                self.retry = Some(now + self.limits.timeout);
            }
        }
    }

    /// Builds a queued message.
    pub(super) fn message(&mut self, said: QueuedMessage) -> Option<ToAggregator> {
        Some(match said {
            QueuedMessage::Request => return self.wish(),
            QueuedMessage::Fetch(fetch) => ToAggregator::Fetch(fetch),
            QueuedMessage::Ack(ack) => ToAggregator::Ack(ack),
            QueuedMessage::Progress(progress) => ToAggregator::Progress(progress),
            QueuedMessage::Refusal(refusal) => ToAggregator::Refusal(refusal),
        })
    }

    /// Encodes a message. Hello gets a tail with the versions if the other end reads it; other messages bring their own tail.
    pub(super) fn encode(&self, message: &ToAggregator, out: &mut [u8]) -> Option<usize> {
        let encoded = match message {
            ToAggregator::Hello(_) if self.versions != Versions::FOUR => {
                wire::encode_control(&(message, self.versions), out)
            }
            message => message.encode(out),
        };
        encoded.ok()
    }

    fn wish(&mut self) -> Option<ToAggregator> {
        Some(match (self.link, &mut self.job) {
            (Link::Down, _) | (Link::Up, Job::Working { .. }) => return None,
            (Link::Greeting, _) => ToAggregator::Hello(Hello {
                device: self.profile.device.clone(),
                budget: self.profile.budget,
                data: self.profile.data.clone(),
                max_chunk: self.limits.chunk,
                max_nodes: NODES.min(usize::from(u16::MAX)) as u16,
            }),
            (Link::Planning, _) => {
                let (node, step) = self.plan.as_ref().map_or((0, 0), PlanStore::received);
                ToAggregator::PlanRequest { node: node as u16, step: step as u16 }
            }
            (Link::Up, Job::Free) => ToAggregator::Ready,
            (Link::Up, Job::Downloading(download)) => ToAggregator::Fetch(download.fetch()),
            (Link::Up, Job::Offering { offer, .. }) => ToAggregator::Offer(offer.clone()),
        })
    }

    /// Queues a message. The queue overflows only if the link is blocked. Then the oldest message is dropped, because requests
    /// are repeated.
    pub(super) fn say(&mut self, message: QueuedMessage) {
        if self.messages.is_full() {
            self.messages.pop_front();
        }
        let _ = self.messages.push_back(message);
    }
}
