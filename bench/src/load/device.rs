//! One device's conversation: the messages, chunks and acknowledgements of a real Session, without an arena.

use std::time::Duration;

use common::{
    Budget, DeviceId, Instant, TransferId,
    message::{
        Assignment, Blob, DataSummary, Hello, Offer, Scalars, Task, ToAggregator, ToDevice, Validation,
    },
    plan::PlanInfo,
    transfer::{Arrival, Incoming, LinkLimits, Outgoing},
    wire::{self, Crc32},
};
use quinn::{Connection, SendStream};

use super::{
    LoadLog,
    log::Answer,
    reader::{ChunkReader, FrameReader},
    turns::Turns,
    updates::Updates,
};

/// Time after which a request is repeated, as in a Session.
const REPEAT: Duration = Duration::from_millis(LinkLimits::QUIC.timeout.as_millis());
/// Repetitions without an answer after which a device gives up.
const REPEATS: u32 = 60;
const SAMPLES: u32 = 100;

pub(super) struct Device {
    index: usize,
    connection: Connection,
    control: SendStream,
    receive: FrameReader,
    plan: Option<PlanInfo>,
}

/// The error is a description for the user.
type Outcome<T> = Result<T, String>;

impl Device {
    pub async fn open(connection: Connection, index: usize) -> Outcome<Self> {
        let (control, receive) = connection.open_bi().await.map_err(text)?;
        Ok(Self { index, connection, control, receive: FrameReader::new(receive), plan: None })
    }

    /// Says Hello and fetches the Plan.
    pub async fn join(&mut self, device: &DeviceId) -> Outcome<()> {
        let (inputs, classes) = (784, 10);
        let data = DataSummary {
            train_samples: SAMPLES,
            test_samples: 0,
            inputs,
            classes,
            ..DataSummary::default()
        };
        let hello = Hello {
            device: device.clone(),
            budget: Budget::UNLIMITED,
            data,
            max_chunk: LinkLimits::QUIC.chunk,
            max_nodes: u16::MAX,
        };
        let welcome = |message: ToDevice| match message {
            ToDevice::Welcome(welcome) => Some(welcome),
            _ => None,
        };
        let plan = self.ask(&ToAggregator::Hello(hello), welcome).await?.plan;
        let (mut node, mut step) = (0, 0);
        while node < plan.nodes || step < plan.schedule {
            let part = |message: ToDevice| match message {
                ToDevice::PlanPart(part) if (part.node, part.step) == (node, step) => Some(part),
                _ => None,
            };
            let part = self.ask(&ToAggregator::PlanRequest { node, step }, part).await?;
            node += part.nodes.len() as u16;
            step += part.steps.len() as u16;
        }
        self.plan = Some(plan);
        Ok(())
    }

    /// Delivers an update for every assignment, until the run is over.
    pub async fn take_part(&mut self, updates: &Updates, log: &LoadLog, turns: &Turns) -> Outcome<()> {
        loop {
            let work = |message: ToDevice| match message {
                ToDevice::Assignment(assignment) => Some(Some(assignment)),
                ToDevice::Finished { .. } => Some(None),
                _ => None,
            };
            let Some(assignment) = self.ask(&ToAggregator::Ready, work).await? else { break };
            log.heard(assignment.ticket.round);
            turns.before(assignment.ticket.round).await.map_err(text)?;
            log.begun(assignment.ticket.round);
            self.fetch(&assignment.model).await?;
            let answer = self.deliver(&assignment, updates).await?;
            log.answered(&assignment.ticket, answer);
        }
        self.say(&ToAggregator::Goodbye).await?;
        let _ = self.control.finish();
        let _ = tokio::time::timeout(Duration::from_secs(1), self.control.stopped()).await;
        self.connection.close(0u32.into(), b"");
        Ok(())
    }

    /// Receives a model, verifies its checksum and drops it.
    async fn fetch(&mut self, model: &Blob) -> Outcome<()> {
        let mut incoming = Incoming::new(model.transfer, model.bytes);
        let mut crc = Crc32::default();
        let mut stream: Option<ChunkReader> = None;
        let mut repeats = 0;
        let started = tokio::time::Instant::now();
        self.say(&ToAggregator::Fetch(incoming.fetch())).await?;
        while !incoming.is_done() {
            let next = async {
                loop {
                    match &mut stream {
                        Some(open) => match open.next().await? {
                            Some(chunk) => return Ok::<_, String>(chunk),
                            None => stream = None,
                        },
                        None => {
                            let opened = self.connection.accept_uni().await.map_err(text)?;
                            stream = Some(ChunkReader::new(opened));
                        }
                    }
                }
            };
            let Ok(chunk) = tokio::time::timeout(REPEAT, next).await else {
                repeats += 1;
                if repeats > REPEATS {
                    return Err("the model did not arrive in time".into());
                }
                self.say(&ToAggregator::Fetch(incoming.fetch())).await?;
                continue;
            };
            let chunk = chunk?;
            match incoming.handle_chunk(chunk.transfer, chunk.offset, chunk.len) {
                Arrival::Fresh => {
                    chunk.data.iter().for_each(|piece| crc.update(piece));
                    let now = Instant::from_millis(started.elapsed().as_millis() as u64);
                    if let Some(ack) = incoming.poll_ack(LinkLimits::QUIC, now) {
                        self.say(&ToAggregator::Ack(ack)).await?;
                    }
                }
                Arrival::Gap => {
                    if let Some(fetch) = incoming.refetch() {
                        self.say(&ToAggregator::Fetch(fetch)).await?;
                    }
                }
                Arrival::Known => self.say(&ToAggregator::Ack(incoming.ack())).await?,
                Arrival::Foreign => {}
            }
        }
        if crc.finish() == model.check { Ok(()) } else { Err("the model's checksum is wrong".into()) }
    }

    /// Offers an update and sends it; returns the answer.
    async fn deliver(&mut self, assignment: &Assignment, updates: &Updates) -> Outcome<Answer> {
        let ticket = assignment.ticket;
        let transfer = TransferId::update(ticket.exchange_id());
        let numbers = self.plan.ok_or("an assignment arrived before the Plan")?.params as usize;
        let (frames, loss_after) = match &assignment.task {
            Task::Train(brief) => {
                let numbers = numbers * brief.product.vectors();
                (Some(updates.frames(self.index, transfer, brief.codec, numbers)?), brief.loss_after)
            }
            Task::Evaluate(_) | Task::Alone(_) | Task::Try(_) => (None, false),
        };
        let (len, align) = frames.as_ref().map_or((0, 1), |frames| (frames.len, frames.align));
        let loss = 1.0 + (self.index % 10) as f64 / 10.0;
        let offer = ToAggregator::Offer(Offer {
            ticket,
            update: Blob { transfer, bytes: len, check: 0 },
            model_check: assignment.model.check,
            scalars: Scalars {
                samples: SAMPLES,
                loss_before: loss,
                loss_after: loss_after.then_some(0.9 * loss),
                steps: 1,
                validation: assignment.task.validates().then(|| Validation::new(1.1 * loss, 0.01 * loss)),
                ..Scalars::default()
            },
        });
        let mut outgoing = Outgoing::new(transfer, len, align, LinkLimits::QUIC);
        let mut stream = None;
        let answer = |message: ToDevice| match message {
            ToDevice::Fetch(_) | ToDevice::Ack(_) | ToDevice::Receipt(_) => Some(message),
            _ => None,
        };
        self.say(&offer).await?;
        loop {
            match self.hear(&offer, answer).await? {
                ToDevice::Receipt(receipt) if receipt.ticket == ticket => {
                    return Ok(match (receipt.refused, &frames) {
                        (Some(_), _) => Answer::Refused,
                        (None, Some(_)) => Answer::Update,
                        (None, None) => Answer::Numbers,
                    });
                }
                ToDevice::Fetch(fetch) => outgoing.handle_fetch(fetch, Instant::ZERO),
                ToDevice::Ack(ack) => outgoing.handle_ack(ack, Instant::ZERO),
                _ => {}
            }
            while let Some(range) = outgoing.poll_chunk() {
                let frame = frames.as_ref().and_then(|frames| frames.at(range.start));
                let Some(frame) = frame else {
                    return Err("the update was requested from the middle of a chunk".into());
                };
                let open: &mut SendStream = match &mut stream {
                    Some(open) => open,
                    None => stream.insert(self.connection.open_uni().await.map_err(text)?),
                };
                open.write_chunk(frame).await.map_err(text)?;
            }
        }
    }

    /// Repeats a request until a message of the wanted kind arrives.
    async fn ask<T>(&mut self, request: &ToAggregator, wanted: impl Fn(ToDevice) -> Option<T>) -> Outcome<T> {
        self.say(request).await?;
        self.hear(request, wanted).await
    }

    /// Waits for a message of the wanted kind, and repeats the request at intervals.
    async fn hear<T>(
        &mut self,
        request: &ToAggregator,
        wanted: impl Fn(ToDevice) -> Option<T>,
    ) -> Outcome<T> {
        let mut repeats = 0;
        loop {
            match tokio::time::timeout(REPEAT, self.receive.message()).await {
                Ok(Ok(ToDevice::Refusal(refusal))) => return Err(refusal.code.to_string()),
                Ok(Ok(message)) => {
                    if let Some(found) = wanted(message) {
                        return Ok(found);
                    }
                }
                Ok(Err(lost)) => {
                    return Err(self.connection.close_reason().map_or(lost, |reason| reason.to_string()));
                }
                Err(_) => {
                    repeats += 1;
                    if repeats > REPEATS {
                        return Err("no answer".into());
                    }
                    self.say(request).await?;
                }
            }
        }
    }

    async fn say(&mut self, message: &ToAggregator) -> Outcome<()> {
        let mut frame = [0; 4 + wire::MAX_CONTROL];
        let (prefix, rest) = frame.split_at_mut(4);
        let len = wire::encode_control(message, rest).map_err(text)?;
        prefix.copy_from_slice(&wire::frame_prefix(len));
        self.control.write_all(&frame[..4 + len]).await.map_err(text)
    }
}

fn text(error: impl std::error::Error) -> String {
    error.to_string()
}
