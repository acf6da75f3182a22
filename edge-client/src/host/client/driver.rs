//! Drives a Session over one link after another.

use std::{
    net::SocketAddr,
    time::{self, Duration},
};

use common::{
    Instant, RunId,
    files::{Secrecy, write_file},
    message::{Refusal, ToAggregator, ToDevice},
    plan::{Loss, PlanInfo},
    transfer::{Lane, LinkLimits},
    wire::{self, Frame},
};
use tracing::{debug, info, warn};

use super::{Client, ClientError, Conclusion, LinkEnd, SaveModel};
use crate::{
    data::Shard,
    host::{
        advice::{is_passing, next_step},
        backoff::ReconnectBackoff,
        privacy,
        pull::{Pull, PullStep},
        quic::{LinkError, QuicLink, Sockets},
        refusals::Refusals,
        renewal::Renewal,
        schema::SchemaLink,
        watch::{ReadBy, SampleSource},
    },
    session::{Event, HeapArena, Session, Spent},
    train::Backend,
};

/// How long the end of a run waits for an ONNX file.
const PULL_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) struct ClientDriver<'a> {
    pub client: &'a Client,
    pub session: Session<HeapArena>,
    pub frame: Vec<u8>,
    pub started: time::Instant,
    pub end: Conclusion,
    pub last_round: Option<u32>,
    /// The round at whose beginning the driver last looked for changed samples.
    pub looked: Option<u32>,
    /// The count as it is stored.
    pub spent: Spent,
    pub renewal: Renewal,
    pub backoff: ReconnectBackoff,
    pub refusals: Refusals,
    /// The present link has carried a part of a model or of an update.
    pub carried: bool,
    /// The run whose schema suits the samples.
    pub compared: Option<RunId>,
    /// The gateway has admitted the device on the present link.
    pub joined: bool,
}

impl ClientDriver<'_> {
    pub async fn connect(&self, sockets: &mut Sockets, server: SocketAddr) -> Result<QuicLink, LinkError> {
        QuicLink::connect(sockets, server, self.renewal.identity(), self.client.silence).await
    }

    fn now(&self) -> Instant {
        Instant::from_millis(self.started.elapsed().as_millis() as u64)
    }

    pub async fn serve(
        &mut self,
        mut link: QuicLink,
        source: &mut impl SampleSource,
        backend: &mut (impl Backend<f32> + ?Sized),
        stop: &mut (impl Future<Output = ()> + Unpin),
        observe: &mut impl FnMut(&Event),
    ) -> Result<LinkEnd, ClientError> {
        self.refresh(source);
        self.session.handle_connected(LinkLimits::QUIC, link.versions(), self.now());
        let mut pull = Pull::default();
        let end = loop {
            match self.turn(&mut link, &mut pull, source, backend, stop, observe).await {
                Ok(None) => {}
                Ok(Some(end)) => break end,
                Err(TurnError::Client(error)) => return Err(error),
                Err(TurnError::Link(error)) => break error.into(),
                Err(TurnError::Refused(refusal)) => break LinkEnd::Refused(refusal),
            }
        };
        self.session.handle_disconnected();
        if matches!(end, LinkEnd::Finished | LinkEnd::Stopped) {
            let _ = say(&mut link, &ToAggregator::Goodbye).await;
            link.close().await;
        }
        Ok(end)
    }

    /// Sends everything that is due, then computes a batch or waits for a frame.
    async fn turn(
        &mut self,
        link: &mut QuicLink,
        pull: &mut Pull,
        source: &mut impl SampleSource,
        backend: &mut (impl Backend<f32> + ?Sized),
        stop: &mut (impl Future<Output = ()> + Unpin),
        observe: &mut impl FnMut(&Event),
    ) -> Result<Option<LinkEnd>, TurnError> {
        while let Some((lane, len)) = self.session.poll_transmit(&mut self.frame) {
            let frame = &self.frame[..len];
            note_fetch(lane, frame);
            link.send(lane, frame).await?;
            self.carried |= matches!(lane, Lane::Transfer(_));
        }
        while let Some(event) = self.session.poll_event() {
            observe(&event);
            if let Event::Joined { run, .. } = event {
                tokio::select! {
                    compared = self.compare_schema(run, source.read_by()) => compared?,
                    () = &mut *stop => return Ok(Some(LinkEnd::Stopped)),
                }
            }
            if self.handle_event(&event, link).await? {
                self.finish_pull(link, pull).await?;
                return Ok(Some(LinkEnd::Finished));
            }
        }
        if self.session.has_work() {
            while let Some(received) = link.try_receive() {
                self.handle_frame(&received?, link, pull, source).await?;
            }
            let now = self.now();
            if let Err(error) = self.session.work(source.shard(), backend, now) {
                warn!("training failed: {error}");
            }
            self.keep_count()?;
            tokio::task::yield_now().await;
            return Ok(None);
        }
        self.renewal.renew_if_due(link).await;
        let wait = self.session.poll_timeout().map(|at| Duration::from_millis((at - self.now()).as_millis()));
        tokio::select! {
            received = link.receive() => self.handle_frame(&received?, link, pull, source).await?,
            () = sleep(wait) => {
                let now = self.now();
                self.session.handle_timeout(now);
            }
            () = sleep(self.renewal.wait()) => {}
            () = stop => return Ok(Some(LinkEnd::Stopped)),
        }
        Ok(None)
    }

    /// Reads samples again if they have changed and no answer is under way. True if there are others now.
    fn refresh(&mut self, source: &mut impl SampleSource) -> bool {
        let classes = self.session.plan_info().and_then(|plan| match plan.loss {
            Loss::Softmax { classes } => Some(classes),
            Loss::Sigmoid | Loss::Squared => None,
        });
        let changed = !self.session.is_under_way() && source.refresh(classes);
        if changed {
            self.session.replace_data(source.shard().summary());
        }
        changed
    }

    /// Ends the device before it trains on samples that the run reads in another way. A device that stays connected may join
    /// another run than before.
    async fn compare_schema(&mut self, run: RunId, read_by: ReadBy<'_>) -> Result<(), TurnError> {
        if self.compared == Some(run) {
            return Ok(());
        }
        let link = SchemaLink {
            gateways: &self.client.gateways,
            identity: self.renewal.identity(),
            device: &self.client.profile.device,
            silence: self.client.silence,
            give_up_after: None,
        };
        match link.suits(read_by).await {
            Ok(true) => {}
            Ok(false) => return Err(ClientError::OtherSchema.into()),
            Err(error) => warn!("the schema of the run is not known: {error}"),
        }
        self.compared = Some(run);
        Ok(())
    }

    /// Counts an answer that was just computed, before it can be sent.
    fn keep_count(&mut self) -> Result<(), ClientError> {
        if *self.session.spent() == self.spent {
            return Ok(());
        }
        self.spent = self.session.spent().clone();
        if let Some(path) = &self.client.spent {
            privacy::save_spent(path, &self.spent)?;
        }
        if let Some(most) = self.client.profile.privacy.most() {
            info!("answer {} of {most} with noise", self.spent.answers());
        }
        Ok(())
    }

    async fn handle_frame(
        &mut self,
        frame: &[u8],
        link: &mut QuicLink,
        pull: &mut Pull,
        source: &mut impl SampleSource,
    ) -> Result<(), TurnError> {
        match pull.handle_frame(frame) {
            PullStep::Other => {}
            PullStep::Quiet => return Ok(()),
            PullStep::Say(message) => return Ok(say(link, &message).await?),
            PullStep::Done(file) => return Ok(self.save(&file)?),
        }
        match Frame::decode(frame) {
            Ok(Frame::Control(body)) => match wire::control(body).map(|(message, _)| message) {
                Ok(ToDevice::Fetch(fetch)) => debug!("update wanted from byte {}", fetch.offset),
                Ok(ToDevice::Wait(wait)) => {
                    debug!("nothing to do for {} ms", wait.as_millis());
                    self.backoff.told(wait);
                }
                Ok(ToDevice::Assignment(assignment)) => {
                    let begins =
                        self.looked.replace(assignment.ticket.round) != Some(assignment.ticket.round);
                    if begins && self.refresh(source) {
                        // The gateway must know the number of samples first. It repeats the assignment afterwards.
                        self.session.handle_connected(LinkLimits::QUIC, link.versions(), self.now());
                        return Ok(());
                    }
                }
                _ => {}
            },
            Ok(Frame::Chunk { .. }) => self.carried = true,
            Err(_) => {}
        }
        let now = self.now();
        self.session.handle_frame(frame, now).map_err(|code| LinkError::Lost(code.to_string()).into())
    }

    /// True once the run is over.
    async fn handle_event(&mut self, event: &Event, link: &mut QuicLink) -> Result<bool, TurnError> {
        if let Event::Answered { .. } = event {
            link.end_transfer();
        }
        match *event {
            Event::Joined { run, tier, parameters } => {
                let ram = self.ram();
                info!(%run, "joined as {tier} with {parameters} parameters{ram}");
                self.refusals.joined();
                self.joined = true;
                self.end.tier = Some(tier);
                self.end.run = Some(run);
            }
            Event::Assigned { round } => debug!(round, "assigned"),
            Event::Answered { round, refused: Some(code), .. } => warn!(round, "update refused: {code}"),
            Event::Answered { round, ref scalars, refused: None } => {
                debug!(round, loss = scalars.loss_before, "update accepted");
                // A round may have several exchanges.
                if self.last_round.replace(round) == Some(round) {
                    return Ok(false);
                }
                self.end.rounds += 1;
                if let Some(SaveModel { every: every @ 1.., .. }) = self.client.save_model
                    && round % every == 0
                {
                    say(link, &ToAggregator::PullOnnx).await?;
                }
            }
            Event::Failed { round, code } => warn!(round, "could not train: {code}{}", next_step(code)),
            Event::Refused(refusal) if !is_passing(refusal.code) => return Err(TurnError::Refused(refusal)),
            Event::Refused(refusal) => warn!("refused: {}", refusal.code),
            Event::Finished { round } => {
                // Final scores have the number of the round that would follow.
                if self.last_round > Some(round) {
                    self.end.rounds = self.end.rounds.saturating_sub(1);
                }
                info!(round, "run is over");
                self.end.finished = true;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// What training takes of the memory that the device has offered. It says why a small model is in the widest tier everywhere.
    fn ram(&self) -> String {
        let Some(need) = self.session.plan_info().map(PlanInfo::arena_bytes) else { return String::new() };
        match self.client.profile.budget.ram {
            u64::MAX => format!("; training takes {need} bytes of RAM"),
            offered => format!("; training takes {need} of {offered} bytes of RAM"),
        }
    }

    /// Fetches the final sub-model, if it is wanted.
    async fn finish_pull(&mut self, link: &mut QuicLink, pull: &mut Pull) -> Result<(), TurnError> {
        if self.client.save_model.is_none() {
            return Ok(());
        }
        *pull = Pull::default();
        say(link, &ToAggregator::PullOnnx).await?;
        let fetched = tokio::time::timeout(PULL_TIMEOUT, async {
            loop {
                match pull.handle_frame(&link.receive().await?) {
                    PullStep::Say(message) => say(link, &message).await?,
                    PullStep::Done(file) => return Ok::<_, LinkError>(file),
                    PullStep::Other | PullStep::Quiet => {}
                }
            }
        });
        match fetched.await {
            Ok(file) => Ok(self.save(&file?)?),
            Err(_) => Err(LinkError::Lost("the sub-model did not arrive".into()).into()),
        }
    }

    fn save(&self, file: &[u8]) -> Result<(), ClientError> {
        let Some(SaveModel { path, .. }) = &self.client.save_model else { return Ok(()) };
        let failed = |source| ClientError::Save { path: path.clone(), source };
        // Readable by its owner only, because it was trained on this device's samples. A reader sees the old file or the new one.
        write_file(path, file, Secrecy::Secret).map_err(failed)?;
        info!("sub-model saved to {}", path.display());
        Ok(())
    }
}

/// What ends a turn: the link is lost, one end refuses, or a final error.
enum TurnError {
    Link(LinkError),
    Refused(Refusal),
    Client(ClientError),
}

impl From<LinkError> for LinkEnd {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::Refused(code) if !is_passing(code) => Self::Refused(code.into()),
            other => Self::Lost { turned_away: other.is_turned_away(), reason: other.to_string() },
        }
    }
}

impl From<LinkError> for TurnError {
    fn from(error: LinkError) -> Self {
        Self::Link(error)
    }
}

impl From<ClientError> for TurnError {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

async fn say(link: &mut QuicLink, message: &ToAggregator) -> Result<(), LinkError> {
    let mut frame = [0; wire::MAX_CONTROL];
    let len = wire::encode_control(message, &mut frame).map_err(|error| LinkError::lost(&error))?;
    link.send(Lane::Control, &frame[..len]).await
}

/// Logs where a download starts, which shows whether it resumes.
fn note_fetch(lane: Lane, frame: &[u8]) {
    if lane == Lane::Control
        && let Ok(Frame::Control(body)) = Frame::decode(frame)
        && let Ok((ToAggregator::Fetch(fetch), _)) = wire::control(body)
    {
        debug!("model asked for from byte {}", fetch.offset);
    }
}

async fn sleep(wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}
