//! Drives a Session over QUIC. It reconnects after lost links, with growing pauses, and keeps the progress of transfers and
//! training.

use std::{
    path::PathBuf,
    time::{self, Duration},
};

use common::{RunId, Tier, message::Refusal, transfer::LinkLimits, wire};
use tracing::warn;

use super::{
    advice::advice,
    backoff::ReconnectBackoff,
    gateways::{GatewayAddresses, Route, Turn},
    identity::Identity,
    privacy::{self, PrivacyError},
    quic::Sockets,
    refusals::{Next, Refusals},
    renewal::Renewal,
    watch::SampleSource,
};
use crate::{
    session::{Event, HeapArena, Profile, Session, Spent},
    train::Backend,
};

mod driver;

use driver::ClientDriver;

/// Default of [`Client::silence`].
pub const SILENCE: Duration = Duration::from_secs(60);

/// Why a device ends.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant has its message")]
pub enum ClientError {
    #[error("cannot open a socket: {0}")]
    Socket(std::io::Error),
    #[error("refused by the aggregator: {}{}", refusal.code, advice(refusal))]
    Refused { refusal: Refusal },
    #[error("no link to the aggregator for {0:?}; check that it is running and that the address is right")]
    Unreachable(Duration),
    #[error(
        "the run reads files by another schema than this device has read its samples by; start the device again with --schema gateway"
    )]
    OtherSchema,
    #[error("cannot count answers with noise, so none is sent: {0}")]
    Count(#[from] PrivacyError),
    #[error("{path}: {source}")]
    Save { path: PathBuf, source: std::io::Error },
}

/// How a run ended for this device.
#[derive(Clone, PartialEq, Debug)]
pub struct Conclusion {
    /// The tier of the device, if it has joined.
    pub tier: Option<Tier>,
    /// The run that it has joined.
    pub run: Option<RunId>,
    /// Rounds in which the device's update was accepted.
    pub rounds: u32,
    /// False if the device was stopped before the end of the run.
    pub finished: bool,
}

/// One device.
#[derive(Clone, Debug)]
pub struct Client {
    /// Addresses of the fleet's gateways.
    pub gateways: GatewayAddresses,
    /// Key and certificate.
    pub identity: Identity,
    /// Name, limits and data of the device.
    pub profile: Profile,
    /// File in which answers with noise are counted across restarts.
    pub spent: Option<PathBuf>,
    /// Where to put the device's sub-model.
    pub save_model: Option<SaveModel>,
    /// Give up after this time without a link.
    pub give_up_after: Option<Duration>,
    /// A link on which nothing arrives for this long counts as lost. Keep-alive packets are sent at a quarter of this time, or of
    /// the gateway's 60 s if that is shorter.
    pub silence: Duration,
    /// How long the gateway must answer "not enrolled" before the device exits; see [`super::refusals`].
    pub leave_after: Duration,
}

/// Where and when a device saves its sub-model as ONNX.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SaveModel {
    /// The file that is replaced.
    pub path: PathBuf,
    /// Rounds between two saves; 0: only at the end of the run.
    pub every: u32,
}

/// Why a link ended.
enum LinkEnd {
    Finished,
    Stopped,
    Lost {
        reason: String,
        /// The gateway has no room, or stops.
        turned_away: bool,
    },
    /// One of both ends refuses; the gateway is authenticated.
    Refused(Refusal),
}

impl Client {
    /// Takes part until the run is over or `stop` resolves. A reference to a shard is a source of samples that never change.
    pub async fn run(
        &self,
        mut source: impl SampleSource,
        backend: &mut (impl Backend<f32> + ?Sized),
        stop: impl Future<Output = ()>,
        mut observe: impl FnMut(&Event),
    ) -> Result<Conclusion, ClientError> {
        let mut route = Route::new(&self.gateways, self.profile.device.as_str());
        let mut sockets = Sockets::open(route.addresses()).map_err(ClientError::Socket)?;
        let mut driver = ClientDriver {
            client: self,
            session: Session::new(self.profile.clone(), HeapArena::new(self.profile.budget.ram)),
            frame: vec![0; LinkLimits::QUIC.chunk as usize + wire::CHUNK_OVERHEAD],
            started: time::Instant::now(),
            end: Conclusion { tier: None, run: None, rounds: 0, finished: false },
            last_round: None,
            looked: None,
            spent: Spent::default(),
            renewal: Renewal::new(self.identity.clone()),
            backoff: ReconnectBackoff::new(&self.profile.device),
            refusals: Refusals::new(self.leave_after),
            carried: false,
            compared: None,
            joined: false,
        };
        if let Some(path) = &self.spent {
            driver.spent = privacy::load_spent(path)?;
            driver.session.resume_spent(driver.spent.clone());
        }
        let mut last_link = time::Instant::now();
        tokio::pin!(stop);
        loop {
            (driver.carried, driver.joined) = (false, false);
            let attempt = driver.connect(&mut sockets, route.address());
            let end = match tokio::select! { link = attempt => link, () = &mut stop => return Ok(driver.end) }
            {
                Ok(link) => {
                    let before = driver.end.rounds;
                    let end = driver.serve(link, &mut source, backend, &mut stop, &mut observe).await?;
                    last_link = time::Instant::now();
                    if driver.end.rounds > before || driver.carried {
                        driver.backoff.reset();
                        route.note_progress();
                    }
                    end
                }
                Err(error) => error.into(),
            };
            let last = route.address();
            let refused = matches!(end, LinkEnd::Refused(_));
            let pause = match end {
                LinkEnd::Finished | LinkEnd::Stopped => {
                    sockets.wait_idle().await;
                    return Ok(driver.end);
                }
                LinkEnd::Lost { reason, turned_away } => {
                    if let Some(limit) = self.give_up_after.filter(|&limit| last_link.elapsed() >= limit) {
                        return Err(ClientError::Unreachable(limit));
                    }
                    let pause = match route.note_end(turned_away, driver.joined) {
                        Turn::AtOnce => None,
                        Turn::AfterPause => Some(driver.backoff.pause(driver.session.is_under_way())),
                    };
                    let when = pause.map_or("now".to_owned(), |pause| format!("in {pause:.1?}"));
                    warn!("link lost ({reason}); trying {} {when}", route.next_after(last));
                    pause.unwrap_or_default()
                }
                LinkEnd::Refused(refusal) => {
                    route.note_end(false, false);
                    match driver.refusals.refused(refusal.code, time::Instant::now()) {
                        Next::End => return Err(ClientError::Refused { refusal }),
                        Next::TryAgain(pause) => {
                            warn!(
                                "refused: {}{}; trying again in {pause:.1?}",
                                refusal.code,
                                advice(&refusal)
                            );
                            pause
                        }
                    }
                }
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
