//! A board: Session, seal and line combined, sans-io.
//!
//! Pass in received bytes ([`SerialDevice::handle_bytes`]) and the time, send what [`SerialDevice::poll_transmit`] returns
//! until it returns nothing, and compute while [`SerialDevice::has_work`], a batch at a time. These functions are never
//! inlined: one stack frame with room for all of them would fill most of a small board's stack.

use common::{
    Code, Duration, Instant, Versions,
    message::DataSummary,
    sealed::{BoardIdentity, Initiator, InitiatorEvent, Nonces, SEAL_HEAD, SealError},
    transfer::LinkLimits,
};

use heapless::String;

#[cfg(feature = "ask")]
use super::question::{Outcome, QUESTION, Question};
#[cfg(feature = "health")]
use super::{Health, health::Kept};
use super::{
    MAX_PACKET,
    intake::{Intake, IntakeEvent},
    line::{Decoder, Encoder},
    status::{PING, Status},
};
use crate::{
    Event, Profile, Session,
    data::{BytesShard, Shard},
    session::Arena,
    train::{Backend, TrainError},
};

/// Longest packet with its checksum.
const ROOM: usize = MAX_PACKET + 4;
/// Pause after a refusal that is not authenticated, and timeout for the next piece of samples.
const RETRY_AFTER: Duration = Duration::from_secs(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Milliseconds before a refused device hails again, for each refusal, of which this many count.
const REFUSED_PAUSE: u32 = 4000;
const MOST_REFUSALS: u8 = 5;

/// A board on a serial line; see the module for how to drive it. `SEND` is the size of the longest packet it sends: a chunk
/// and 43 bytes around it, and at least 264.
#[derive(Debug)]
pub struct SerialDevice<A, const NODES: usize, const SEND: usize = MAX_PACKET> {
    session: Session<A, NODES>,
    initiator: Initiator,
    limits: LinkLimits,
    decoder: Decoder<ROOM>,
    packet: [u8; SEND],
    /// When to send the next HAIL, while there is no session.
    hail_at: Option<Instant>,
    pause: Duration,
    /// A refusal has delayed the next HAIL.
    put_off: bool,
    /// Refusals since it joined, at most five: it waits longer after each before it tries to join again.
    refusals: u8,
    asked: bool,
    status: Status,
    intake: Intake,
    #[cfg(feature = "ask")]
    question: Question,
    #[cfg(feature = "health")]
    health: Health,
    /// The status was sent, and the health is not.
    #[cfg(feature = "health")]
    tells_health: bool,
    /// Summary of the samples in flash.
    baked: DataSummary,
}

impl<A: Arena, const NODES: usize, const SEND: usize> SerialDevice<A, NODES, SEND> {
    /// A board without a session. `nonces` must differ at every start; see [`Nonces`].
    #[inline(never)]
    pub fn new(
        identity: BoardIdentity,
        profile: Profile,
        board: &str,
        arena: A,
        limits: LinkLimits,
        nonces: Nonces,
    ) -> Self {
        const VERSION: &str = env!("CARGO_PKG_VERSION");
        let (board, version) = (String::try_from(board), String::try_from(VERSION));
        debug_assert!(board.is_ok() && version.is_ok(), "names longer than a Status has room for");
        let status = Status {
            device: identity.device.clone(),
            board: board.unwrap_or_default(),
            version: version.unwrap_or_default(),
            uptime_ms: 0,
            open: false,
            tier: None,
            round: 0,
            batches: 0,
            working: false,
            accepted: 0,
            refused: None,
            arena: u32::try_from(profile.budget.ram).unwrap_or(u32::MAX),
            train_samples: profile.data.train_samples,
            stack: 0,
            damaged: 0,
            rejected: 0,
        };
        let baked = profile.data.clone();
        Self {
            session: Session::new(profile, arena),
            initiator: Initiator::new(identity.device, identity.key, nonces),
            limits,
            decoder: Decoder::default(),
            packet: [0; SEND],
            hail_at: Some(Instant::ZERO),
            pause: limits.timeout,
            put_off: false,
            refusals: 0,
            asked: false,
            status,
            intake: Intake::default(),
            #[cfg(feature = "ask")]
            question: Question::None,
            #[cfg(feature = "health")]
            health: Health::default(),
            #[cfg(feature = "health")]
            tells_health: false,
            baked,
        }
    }

    /// The answer to the next status request.
    pub fn status(&self) -> &Status {
        &self.status
    }

    /// A status request waits for its answer.
    pub fn is_asked(&self) -> bool {
        self.asked
    }

    /// Sets the stack use that the next status reports.
    pub fn note_stack(&mut self, bytes: u32) {
        self.status.stack = bytes;
    }

    /// The device's side of the protocol.
    pub fn session(&mut self) -> &mut Session<A, NODES> {
        &mut self.session
    }

    /// How the board fares, for the next status. A board in safe mode neither joins nor computes.
    #[cfg(feature = "health")]
    pub fn set_health(&mut self, health: Health) {
        if health.safe {
            self.hail_at = None;
        }
        self.health = health;
    }

    /// Sets what the next status says of the kept model.
    #[cfg(feature = "health")]
    pub fn note_kept(&mut self, kept: Option<Kept>) {
        self.health.kept = kept;
    }

    /// Whether the board only answers status requests.
    pub fn is_safe(&self) -> bool {
        #[cfg(feature = "health")]
        return self.health.safe;
        #[cfg(not(feature = "health"))]
        false
    }

    /// What the model of the last round says of a sample; see [`Session::predict`].
    #[cfg(feature = "ask")]
    pub fn predict(
        &mut self,
        sample: &[f32],
        backend: &mut (impl Backend<f32> + ?Sized),
    ) -> Result<crate::train::Prediction, Code> {
        match self.session.input() {
            [] => Err(Code::NotReady),
            input if input.len() != sample.len() => Err(Code::WrongData),
            input => {
                input.copy_from_slice(sample);
                Ok(self.session.predict(backend)?.prediction)
            }
        }
    }

    /// Whether [`SerialDevice::work`] will answer a question, for which a keeper puts the model back.
    #[cfg(feature = "ask")]
    pub fn is_questioned(&self) -> bool {
        matches!(self.question, Question::Whole { .. })
    }

    /// Bytes of the samples that arrived over the line, once they are complete.
    pub fn arrived(&self) -> Option<usize> {
        self.intake.arrived()
    }

    /// Samples that arrived over the line; `room` is the buffer passed to [`Self::handle_bytes`].
    pub fn samples<'a>(&self, room: &'a [u8]) -> Option<BytesShard<'a>> {
        self.intake.samples(room)
    }

    /// Handles received bytes. Invalid ones are ignored. Samples among them are stored in `room`.
    #[inline(never)]
    pub fn handle_bytes(&mut self, bytes: &[u8], room: &mut [u8], now: Instant) {
        for &byte in bytes {
            match self.decoder.push(byte) {
                None => {}
                Some(Err(_)) => self.status.damaged = self.status.damaged.saturating_add(1),
                Some(Ok([PING])) => self.asked = true,
                #[cfg(feature = "health")]
                Some(Ok(_)) if self.health.safe => {}
                Some(Ok(packet)) => match self.initiator.handle(packet) {
                    InitiatorEvent::Nothing => {}
                    InitiatorEvent::Connected => {
                        (self.hail_at, self.pause) = (None, self.limits.timeout);
                        self.session.handle_connected(self.limits, Versions::OURS, now);
                    }
                    InitiatorEvent::Provisioning => {
                        self.hail_at = Some(now + RETRY_AFTER);
                        self.intake.open(room);
                    }
                    InitiatorEvent::Lost => {
                        let wait = Duration::from_millis((u32::from(self.refusals) * REFUSED_PAUSE).into());
                        (self.hail_at, self.pause) = (Some(now + wait), self.limits.timeout);
                        self.session.handle_disconnected();
                    }
                    InitiatorEvent::Frame(frame) => {
                        if self.session.handle_frame(frame, now).is_err() {
                            self.status.rejected = self.status.rejected.saturating_add(1);
                        }
                    }
                    InitiatorEvent::Piece(piece) => {
                        self.hail_at = Some(now + RETRY_AFTER);
                        #[cfg(feature = "ask")]
                        if piece.first() == Some(&QUESTION) {
                            self.question.handle(piece, self.session.input());
                            continue;
                        }
                        match self.intake.handle(piece, room) {
                            IntakeEvent::Nothing => {}
                            IntakeEvent::Begun => self.take_data(self.baked.clone()),
                            IntakeEvent::Whole => {
                                if let Some(samples) = self.intake.samples(room) {
                                    self.take_data(samples.summary());
                                }
                            }
                        }
                    }
                    // Not authenticated: any number of refusals delays a HAIL only once, and a challenge is still accepted.
                    InitiatorEvent::Refused(code) => {
                        self.status.refused = Some(code);
                        if !self.put_off {
                            (self.put_off, self.hail_at) = (true, Some(now + RETRY_AFTER));
                        }
                    }
                    InitiatorEvent::Rejected(error) => {
                        self.status.rejected = self.status.rejected.saturating_add(1);
                        // A gateway answers an unknown device with a made-up key.
                        if error == SealError::Forged && self.initiator.is_hailing() {
                            self.status.refused = Some(Code::UnknownDevice);
                        }
                    }
                },
            }
        }
        self.note_events();
    }

    /// The device has other samples from now on; the driver passes them to [`SerialDevice::work`]. The aggregator knows the
    /// summary of the old ones, so the device begins a new session and says Hello with that of the new ones. Work on the
    /// old ones is dropped.
    pub fn replace_data(&mut self, data: DataSummary, now: Instant) {
        self.baked = data.clone();
        self.take_data(data);
        if self.initiator.is_provisioning() || self.is_safe() {
            return;
        }
        if self.initiator.is_open() {
            self.initiator.hang_up();
            self.session.handle_disconnected();
        }
        (self.hail_at, self.pause, self.put_off) = (Some(now), self.limits.timeout, false);
    }

    #[inline(never)]
    fn take_data(&mut self, data: DataSummary) {
        self.status.train_samples = data.train_samples;
        self.refusals = 0;
        self.session.replace_data(data);
    }

    /// Repeats what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.session.handle_timeout(now);
        self.note_events();
    }

    /// When to call [`Self::handle_timeout`] and [`Self::poll_transmit`] at the latest.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.hail_at.into_iter().chain(self.session.poll_timeout()).min()
    }

    /// The next bytes for the line.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Encoder<'_>> {
        let len = self.next_packet(now)?;
        Some(Encoder::new(self.packet.get(..len)?))
    }

    #[inline(never)]
    fn next_packet(&mut self, now: Instant) -> Option<usize> {
        if self.asked {
            self.asked = false;
            self.status.uptime_ms = now.as_millis();
            self.status.open = self.initiator.is_open();
            self.status.working = self.session.has_work();
            #[cfg(feature = "health")]
            {
                self.tells_health = true;
            }
            return Some(self.status.encode(&mut self.packet));
        }
        #[cfg(feature = "health")]
        if core::mem::take(&mut self.tells_health) {
            return Some(self.health.encode(&mut self.packet));
        }
        if let Some(taken) = self.intake.poll_answer().filter(|_| self.initiator.is_provisioning()) {
            let len = taken.encode(self.packet.get_mut(SEAL_HEAD..)?);
            return self.initiator.seal(&mut self.packet, len);
        }
        #[cfg(feature = "ask")]
        if self.initiator.is_provisioning() {
            let inputs = self.session.input().len();
            let packet = self.packet.get_mut(SEAL_HEAD..)?;
            if let Some(len) = self.question.answer(inputs, self.session.outputs(), packet) {
                return self.initiator.seal(&mut self.packet, len);
            }
        }
        if self.hail_at.is_some_and(|at| now >= at) {
            self.put_off = false;
            self.hail_at = Some(now + self.pause);
            self.pause = self.pause.doubled(LONGEST_PAUSE);
            return Some(self.initiator.hail(&mut self.packet));
        }
        if !self.initiator.is_open() {
            return None;
        }
        let (_, len) = self.session.poll_transmit(self.packet.get_mut(SEAL_HEAD..)?)?;
        let sealed = self.initiator.seal(&mut self.packet, len);
        if sealed.is_none() {
            // The counter is exhausted, or a frame leaves no room for its seal: open a new session.
            self.initiator.hang_up();
            self.session.handle_disconnected();
            self.hail_at = Some(now);
        }
        sealed
    }

    /// True while there is something to compute.
    pub fn has_work(&self) -> bool {
        #[cfg(feature = "ask")]
        if self.initiator.is_provisioning() && self.question.is_pending() {
            return matches!(self.question, Question::Whole { .. });
        }
        self.session.has_work() && !self.is_safe()
    }

    /// Computes one batch, or answers a question.
    #[inline(never)]
    pub fn work(
        &mut self,
        shard: &(impl Shard + ?Sized),
        backend: &mut (impl Backend<f32> + ?Sized),
        now: Instant,
    ) -> Result<(), TrainError> {
        #[cfg(feature = "ask")]
        if let Question::Whole { number } = self.question {
            let loss = self.session.plan_info().map(|info| info.loss);
            let outcome = self.session.predict(backend).map(|answered| (answered.round, answered.trained));
            let outcome = match (outcome, loss) {
                (Ok((round, trained)), Some(loss)) => Ok(Outcome { round, trained, loss }),
                (Err(code), _) => Err(code),
                (Ok(_), None) => Err(Code::NotReady),
            };
            self.question = Question::Answered { number, outcome };
            return Ok(());
        }
        self.status.batches = self.status.batches.saturating_add(1);
        let outcome = self.session.work(shard, backend, now);
        self.note_events();
        outcome
    }

    fn note_events(&mut self) {
        while let Some(event) = self.session.poll_event() {
            let status = &mut self.status;
            match event {
                Event::Joined { tier, .. } => {
                    (self.refusals, status.tier, status.refused) = (0, Some(tier), None);
                }
                Event::Assigned { round } => (status.round, status.batches) = (round, 0),
                Event::Answered { refused: None, .. } => status.accepted = status.accepted.saturating_add(1),
                Event::Answered { refused, .. } => status.refused = refused,
                Event::Failed { code, .. } => status.refused = Some(code),
                Event::Refused(refusal) => {
                    self.refusals = MOST_REFUSALS.min(self.refusals + 1);
                    status.refused = Some(refusal.code);
                }
                Event::Finished { .. } => {}
            }
        }
    }
}
