//! Drives a Session over QUIC, for weeks if need be: lost links are opened again, with growing
//! pauses, and what was done so far is kept.

use std::{
    net::SocketAddr,
    path::PathBuf,
    time::{self, Duration},
};

use common::{
    Code, Instant, RunId, Tier,
    files::{Secrecy, write_file},
    message::{Refusal, ToAggregator, ToDevice},
    transfer::{Lane, LinkLimits},
    wire::{self, Frame},
};
use quinn::Endpoint;
use tracing::{debug, info, warn};

use super::{
    identity::Identity,
    pace::Pace,
    privacy::{self, PrivacyError},
    pull::{Pull, Step},
    quic::{self, LinkError, QuicLink},
    refusals::{Next, Refusals},
    renewal::Renewal,
};
use crate::{
    data::Shard,
    session::{Event, HeapArena, Profile, Session, Spent},
    train::Backend,
};

/// What [`Client::silence`] usually is.
pub const SILENCE: Duration = Duration::from_secs(60);
/// How long the end of a run may be held up by an ONNX file.
const PULL_PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    #[error("can not open a socket: {0}")]
    Socket(std::io::Error),
    #[error("refused by the aggregator: {}{}", refusal.code, advice(refusal))]
    Refused { refusal: Refusal },
    #[error("no link to the aggregator for {0:?}; is it running, and is the address right?")]
    Unreachable(Duration),
    #[error("answers with noise cannot be counted, so none is sent: {0}")]
    Count(#[from] PrivacyError),
    #[error("{path}: {source}")]
    Save { path: PathBuf, source: std::io::Error },
}

/// How a run ended for this device.
#[derive(Clone, PartialEq, Debug)]
pub struct Conclusion {
    pub tier: Option<Tier>,
    pub run: Option<RunId>,
    /// Rounds in which the device's update was accepted.
    pub rounds: u32,
    /// False if the device was told to stop before the run was over.
    pub finished: bool,
}

/// One device.
#[derive(Clone, Debug)]
pub struct Client {
    pub server: SocketAddr,
    pub identity: Identity,
    pub profile: Profile,
    /// Where answers with noise are counted, so that a restart does not forget them.
    pub spent: Option<PathBuf>,
    /// Where to put the device's sub-model at the end, and every so many rounds (0: only at the end).
    pub save_model: Option<(PathBuf, u32)>,
    /// Give up if there was no link for so long.
    pub give_up_after: Option<Duration>,
    /// A link on which nothing arrives for so long is lost; it is kept alive by four packets in this time, or in the 60 s
    /// that the gateway bears.
    pub silence: Duration,
    /// How long the gateway must have said "not enrolled" before the device ends; see [`super::refusals`].
    pub leave_after: Duration,
}

/// Why a link was left.
enum Left {
    Finished,
    Stopped,
    Lost(String),
    /// One of both ends refuses; the gateway has proved who it is.
    Refused(Refusal),
}

impl Client {
    /// Takes part until the run is over or `stop` resolves.
    pub async fn run(
        &self,
        shard: &(impl Shard + ?Sized),
        backend: &mut (impl Backend<f32> + ?Sized),
        stop: impl Future<Output = ()>,
        mut observe: impl FnMut(&Event),
    ) -> Result<Conclusion, ClientError> {
        let endpoint = quic::endpoint(self.server).map_err(ClientError::Socket)?;
        let mut driver = Driver {
            client: self,
            session: Session::new(self.profile.clone(), HeapArena::new(self.profile.budget.ram)),
            frame: vec![0; LinkLimits::QUIC.chunk as usize + wire::CHUNK_OVERHEAD],
            started: time::Instant::now(),
            end: Conclusion { tier: None, run: None, rounds: 0, finished: false },
            last_round: None,
            spent: Spent::default(),
            renewal: Renewal::new(self.identity.clone()),
            pace: Pace::new(&self.profile.device),
            refusals: Refusals::new(self.leave_after),
            carried: false,
        };
        if let Some(path) = &self.spent {
            driver.spent = privacy::load_spent(path)?;
            driver.session.resume_spent(driver.spent.clone());
        }
        let mut last_link = time::Instant::now();
        tokio::pin!(stop);
        loop {
            let attempt = driver.connect(&endpoint);
            let left = match tokio::select! { link = attempt => link, () = &mut stop => return Ok(driver.end) }
            {
                Ok(link) => {
                    let before = driver.end.rounds;
                    let left = driver.serve(link, shard, backend, &mut stop, &mut observe).await?;
                    last_link = time::Instant::now();
                    if driver.end.rounds > before || driver.carried {
                        driver.pace.reset();
                    }
                    left
                }
                Err(error) => error.into(),
            };
            let refused = matches!(left, Left::Refused(_));
            let pause = match left {
                Left::Finished | Left::Stopped => {
                    endpoint.wait_idle().await;
                    return Ok(driver.end);
                }
                Left::Lost(reason) => {
                    if let Some(limit) = self.give_up_after.filter(|&limit| last_link.elapsed() >= limit) {
                        return Err(ClientError::Unreachable(limit));
                    }
                    let pause = driver.pace.pause(driver.session.is_under_way());
                    warn!("link lost ({reason}); trying again in {pause:.1?}");
                    pause
                }
                Left::Refused(refusal) => match driver.refusals.refused(refusal.code, time::Instant::now()) {
                    Next::End => return Err(ClientError::Refused { refusal }),
                    Next::TryAgain(pause) => {
                        warn!("refused: {}{}; trying again in {pause:.1?}", refusal.code, advice(&refusal));
                        pause
                    }
                },
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = &mut stop => return Ok(driver.end),
            }
            if refused {
                driver.renewal.reload();
            }
        }
    }
}

struct Driver<'a> {
    client: &'a Client,
    session: Session<HeapArena>,
    frame: Vec<u8>,
    started: time::Instant,
    end: Conclusion,
    last_round: Option<u32>,
    /// As it is written down.
    spent: Spent,
    renewal: Renewal,
    pace: Pace,
    refusals: Refusals,
    /// The present link has moved a part of a model or of an update.
    carried: bool,
}

impl Driver<'_> {
    async fn connect(&self, endpoint: &Endpoint) -> Result<QuicLink, LinkError> {
        QuicLink::connect(endpoint, self.client.server, self.renewal.identity(), self.client.silence).await
    }

    fn now(&self) -> Instant {
        Instant::from_millis(self.started.elapsed().as_millis() as u64)
    }

    async fn serve(
        &mut self,
        mut link: QuicLink,
        shard: &(impl Shard + ?Sized),
        backend: &mut (impl Backend<f32> + ?Sized),
        stop: &mut (impl Future<Output = ()> + Unpin),
        observe: &mut impl FnMut(&Event),
    ) -> Result<Left, ClientError> {
        self.session.handle_connected(LinkLimits::QUIC, link.versions(), self.now());
        self.carried = false;
        let mut pull = Pull::default();
        let left = loop {
            match self.turn(&mut link, &mut pull, shard, backend, stop, observe).await {
                Ok(None) => {}
                Ok(Some(left)) => break left,
                Err(Trouble::Client(error)) => return Err(error),
                Err(Trouble::Link(error)) => break error.into(),
                Err(Trouble::Refused(refusal)) => break Left::Refused(refusal),
            }
        };
        self.session.handle_disconnected();
        if matches!(left, Left::Finished | Left::Stopped) {
            let _ = say(&mut link, &ToAggregator::Goodbye).await;
            link.close().await;
        }
        Ok(left)
    }

    /// Sends what there is to send, then computes a batch or waits for news.
    async fn turn(
        &mut self,
        link: &mut QuicLink,
        pull: &mut Pull,
        shard: &(impl Shard + ?Sized),
        backend: &mut (impl Backend<f32> + ?Sized),
        stop: &mut (impl Future<Output = ()> + Unpin),
        observe: &mut impl FnMut(&Event),
    ) -> Result<Option<Left>, Trouble> {
        while let Some((lane, len)) = self.session.poll_transmit(&mut self.frame) {
            let frame = &self.frame[..len];
            note_fetch(lane, frame);
            link.send(lane, frame).await?;
            self.carried |= matches!(lane, Lane::Transfer(_));
        }
        while let Some(event) = self.session.poll_event() {
            observe(&event);
            if self.handle_event(&event, link).await? {
                self.finish_pull(link, pull).await?;
                return Ok(Some(Left::Finished));
            }
        }
        if self.session.has_work() {
            while let Some(received) = link.try_receive() {
                self.handle_frame(&received?, link, pull).await?;
            }
            let now = self.now();
            if let Err(error) = self.session.work(shard, backend, now) {
                warn!("training failed: {error}");
            }
            self.keep_count()?;
            tokio::task::yield_now().await;
            return Ok(None);
        }
        self.renewal.renew_if_due(link).await;
        let wait = self.session.poll_timeout().map(|at| Duration::from_millis((at - self.now()).as_millis()));
        tokio::select! {
            received = link.receive() => self.handle_frame(&received?, link, pull).await?,
            () = sleep(wait) => {
                let now = self.now();
                self.session.handle_timeout(now);
            }
            () = sleep(self.renewal.wait()) => {}
            () = stop => return Ok(Some(Left::Stopped)),
        }
        Ok(None)
    }

    /// An answer that was computed just now is counted before it can be sent.
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
    ) -> Result<(), Trouble> {
        match pull.handle_frame(frame) {
            Step::Other => {}
            Step::Quiet => return Ok(()),
            Step::Say(message) => return Ok(say(link, &message).await?),
            Step::Done(file) => return Ok(self.save(&file)?),
        }
        match Frame::decode(frame) {
            Ok(Frame::Control(body)) => match wire::control(body).map(|(message, _)| message) {
                Ok(ToDevice::Fetch(fetch)) => debug!("update wanted from byte {}", fetch.offset),
                Ok(ToDevice::Wait(wait)) => {
                    debug!("nothing to do for {} ms", wait.as_millis());
                    self.pace.told(wait);
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
    async fn handle_event(&mut self, event: &Event, link: &mut QuicLink) -> Result<bool, Trouble> {
        if let Event::Answered { .. } = event {
            link.end_transfer();
        }
        match *event {
            Event::Joined { run, tier, parameters } => {
                info!(%run, "joined as {tier} with {parameters} parameters");
                self.refusals.joined();
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
                if let Some((_, every)) = &self.client.save_model
                    && *every > 0
                    && round % every == 0
                {
                    say(link, &ToAggregator::PullOnnx).await?;
                }
            }
            Event::Failed { round, code } => warn!(round, "could not train: {code}{}", next_step(code)),
            Event::Refused(refusal) if !is_passing(refusal.code) => return Err(Trouble::Refused(refusal)),
            Event::Refused(refusal) => warn!("refused: {}", refusal.code),
            Event::Finished { round } => {
                info!(round, "run is over");
                self.end.finished = true;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Fetches the final sub-model, if it is wanted.
    async fn finish_pull(&mut self, link: &mut QuicLink, pull: &mut Pull) -> Result<(), Trouble> {
        if self.client.save_model.is_none() {
            return Ok(());
        }
        *pull = Pull::default();
        say(link, &ToAggregator::PullOnnx).await?;
        let fetched = tokio::time::timeout(PULL_PATIENCE, async {
            loop {
                match pull.handle_frame(&link.receive().await?) {
                    Step::Say(message) => say(link, &message).await?,
                    Step::Done(file) => return Ok::<_, LinkError>(file),
                    Step::Other | Step::Quiet => {}
                }
            }
        });
        match fetched.await {
            Ok(file) => Ok(self.save(&file?)?),
            Err(_) => Err(LinkError::Lost("the sub-model did not arrive".into()).into()),
        }
    }

    fn save(&self, file: &[u8]) -> Result<(), ClientError> {
        let Some((path, _)) = &self.client.save_model else { return Ok(()) };
        let failed = |source| ClientError::Save { path: path.clone(), source };
        // For its owner alone: it was trained on this device's samples, among others. A reader sees the old file or the new one.
        write_file(path, file, Secrecy::Secret).map_err(failed)?;
        info!("sub-model saved to {}", path.display());
        Ok(())
    }
}

/// What can go wrong in a turn: with the link, with what one end asks of the other, or for good.
enum Trouble {
    Link(LinkError),
    Refused(Refusal),
    Client(ClientError),
}

impl From<LinkError> for Left {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::Refused(code) if !is_passing(code) => Self::Refused(code.into()),
            other => Self::Lost(other.to_string()),
        }
    }
}

impl From<LinkError> for Trouble {
    fn from(error: LinkError) -> Self {
        Self::Link(error)
    }
}

impl From<ClientError> for Trouble {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

async fn say(link: &mut QuicLink, message: &ToAggregator) -> Result<(), LinkError> {
    let mut frame = [0; wire::MAX_CONTROL];
    let len = wire::encode_control(message, &mut frame).map_err(|error| LinkError::lost(&error))?;
    link.send(Lane::Control, &frame[..len]).await
}

/// Whether a download begins anew or goes on is seen here alone.
fn note_fetch(lane: Lane, frame: &[u8]) {
    if lane == Lane::Control
        && let Ok(Frame::Control(body)) = Frame::decode(frame)
        && let Ok((ToAggregator::Fetch(fetch), _)) = wire::control(body)
    {
        debug!("model asked for from byte {}", fetch.offset);
    }
}

/// Refusals that say nothing about the device: the next attempt may fare better.
pub(super) fn is_passing(code: Code) -> bool {
    matches!(code, Code::Busy | Code::NotReady | Code::Unexpected | Code::BadChecksum | Code::BadFrame)
}

/// What the owner can do about a task that the device has refused.
fn next_step(code: Code) -> &'static str {
    match code {
        Code::NoiseTooWeak => {
            "; the operator can lower `eps` of the strategy, the owner can raise --max-epsilon"
        }
        Code::PrivacySpent => "; the owner can raise --max-private-rounds",
        _ => "",
    }
}

pub(super) fn advice(refusal: &Refusal) -> String {
    match refusal.code {
        Code::DoesNotFit => format!(" (needs {} bytes, the device has {})", refusal.need, refusal.have),
        Code::WrongData if refusal.need > 0 => {
            format!(" (the model takes {} numbers per sample, the data has {})", refusal.need, refusal.have)
        }
        Code::UnknownDevice => "; enrol it with `fairtier gateway enroll` and use the new identity".into(),
        Code::BadCertificate => {
            "; the certificate has expired or is of another fleet: compare the gateway's clock, or enrol again".into()
        }
        Code::WrongVersion => "; update the older one of gateway and device".into(),
        Code::TierNotAllowed => "; enrol it with other --tiers, or give it more memory".into(),
        Code::WrongIdentity => "; --device must be the name it was enrolled under".into(),
        Code::Displaced => "; this process ends, the other one goes on: enrol a name for each process".into(),
        _ => String::new(),
    }
}

async fn sleep(wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}
