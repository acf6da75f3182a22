//! Statements on PostgreSQL whose outcome is always known in the end.
//!
//! A lost connection leaves open whether a statement was executed. Every statement here can be repeated: it does nothing the
//! second time, and its answer shows what the first one did. So [`Database::execute`] repeats a statement until it is answered.
//!
//! The worker is synchronous; a small runtime of its own drives the connection.

use std::{
    fmt,
    future::Future,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use tokio::runtime::{self, Runtime};
use tokio_postgres::{Client, Config, Error, NoTls, error::SqlState};
use tracing::{debug, warn};

use crate::store::StoreError;

/// A connection that is not there after this long is tried again.
const CONNECT: Duration = Duration::from_secs(5);
/// A statement without an answer for this long counts as lost. The server gives up a statement after 10 s.
const ANSWER: Duration = Duration::from_secs(15);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(100);
/// What every session begins with. No statement waits for ever, and none is acknowledged before it is durable.
const SESSION: &str = "set statement_timeout = '10s'; set lock_timeout = '5s'; \
     set idle_in_transaction_session_timeout = '5s'; set default_transaction_isolation = 'read committed'";

/// What a statement has answered.
#[derive(Debug)]
pub(super) enum Answer<T> {
    Done(T),
    /// The lease has another epoch: nothing was written.
    Fenced,
    /// An earlier attempt of this statement was still at work; ask again.
    Again,
}

/// How a gateway connects, and what it demands of the database.
#[derive(Clone, Debug)]
pub(super) struct Access {
    pub config: Config,
    /// Accept a database that may lose acknowledged commits.
    pub allow_loss: bool,
}

/// A small runtime that synchronous code can wait for, also inside another runtime.
#[derive(Debug)]
pub(super) struct Executor(Option<Runtime>);

impl Executor {
    pub fn new() -> Result<Self, StoreError> {
        let runtime = runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let failed = |error: std::io::Error| StoreError::Cluster { what: error.to_string() };
        Ok(Self(Some(runtime.map_err(failed)?)))
    }

    /// Waits for the result.
    pub fn wait<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let ended = || StoreError::Cluster { what: "a task has ended without a result".to_owned() };
        let (sender, result) = mpsc::sync_channel(1);
        self.0.as_ref().ok_or_else(ended)?.spawn(async move { sender.send(work.await) });
        result.recv().map_err(|_| ended())
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            // Also inside another runtime, where waiting is not allowed.
            runtime.shutdown_background();
        }
    }
}

/// One connection, made again whenever it is lost.
pub(super) struct Database {
    executor: Arc<Executor>,
    access: Access,
    client: Mutex<Option<Arc<Client>>>,
    /// Statements are repeated for this long.
    patience: Duration,
    /// Repeat nothing any more.
    ending: Arc<AtomicBool>,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").finish_non_exhaustive()
    }
}

impl Database {
    pub fn new(executor: Arc<Executor>, access: Access, patience: Duration, ending: Arc<AtomicBool>) -> Self {
        Self { executor, access, client: Mutex::default(), patience, ending }
    }

    /// Repeats a statement until it is answered.
    pub fn execute<T, F, R>(&self, statement: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Fn(Arc<Client>) -> R,
        R: Future<Output = Result<Answer<T>, Error>> + Send + 'static,
    {
        let start = Instant::now();
        loop {
            let failure = match self.client().and_then(|client| self.attempt(&client, &statement)) {
                Ok(Answer::Done(done)) => return Ok(done),
                Ok(Answer::Fenced) => return Err(StoreError::Fenced),
                Ok(Answer::Again) => "an earlier attempt was not finished".to_owned(),
                Err(Failure::Lost(what)) => {
                    *self.client.lock().unwrap_or_else(PoisonError::into_inner) = None;
                    what
                }
                Err(Failure::Refused(error)) => return Err(error),
            };
            if start.elapsed() >= self.patience || self.ending.load(Ordering::Relaxed) {
                return Err(StoreError::Away { what: failure });
            }
            debug!("a statement is repeated: {failure}");
            std::thread::sleep(PAUSE);
        }
    }

    fn attempt<T, F, R>(&self, client: &Arc<Client>, statement: &F) -> Result<Answer<T>, Failure>
    where
        T: Send + 'static,
        F: Fn(Arc<Client>) -> R,
        R: Future<Output = Result<Answer<T>, Error>> + Send + 'static,
    {
        let work = tokio_timeout(statement(client.clone()));
        self.executor.wait(work).map_err(Failure::Refused)?
    }

    fn client(&self) -> Result<Arc<Client>, Failure> {
        let mut client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = client.as_ref().filter(|client| !client.is_closed()) {
            return Ok(open.clone());
        }
        let access = self.access.clone();
        let opened =
            self.executor.wait(async move { connect(&access).await }).map_err(Failure::Refused)??;
        Ok(client.insert(Arc::new(opened)).clone())
    }
}

async fn tokio_timeout<T>(
    work: impl Future<Output = Result<Answer<T>, Error>>,
) -> Result<Answer<T>, Failure> {
    match tokio::time::timeout(ANSWER, work).await {
        Ok(answered) => answered.map_err(Failure::of),
        Err(_) => Err(Failure::Lost(format!("no answer within {ANSWER:?}"))),
    }
}

/// Why a statement has no answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// It may have been executed, or may be executed later.
    Lost(String),
    /// It was not executed, and never will be.
    Refused(StoreError),
}

impl Failure {
    #[expect(clippy::needless_pass_by_value, reason = "as `map_err` passes it")]
    pub fn of(error: Error) -> Self {
        let text = describe(&error);
        match error.code() {
            None => Self::Lost(text),
            Some(code) if passes(code) => Self::Lost(text),
            Some(code) if *code == SqlState::UNDEFINED_TABLE || *code == SqlState::UNDEFINED_COLUMN => {
                Self::Refused(StoreError::Cluster {
                    what: format!(
                        "{text}; `fairtier gateway cluster migrate` brings the database up to date"
                    ),
                })
            }
            Some(_) => Self::Refused(StoreError::Cluster { what: text }),
        }
    }

    pub fn into_store_error(self) -> StoreError {
        match self {
            Self::Lost(what) => StoreError::Away { what },
            Self::Refused(error) => error,
        }
    }
}

/// Whether an error of the server goes away by itself: it starts or stops, has no room, or two statements were in each other's way.
fn passes(code: &SqlState) -> bool {
    const CLASSES: [&str; 5] = ["08", "40", "53", "57", "55"];
    CLASSES.iter().any(|class| code.code().starts_with(class))
}

/// An error with its causes; the library's own text is often "db error" alone.
pub(super) fn describe(error: &Error) -> String {
    let mut text = match error.as_db_error() {
        Some(server) => return server.message().to_owned(),
        None => error.to_string(),
    };
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        text += &format!(": {next}");
        cause = next.source();
    }
    text
}

/// A new session, on a database that keeps what it acknowledges.
pub(super) async fn connect(access: &Access) -> Result<Client, Failure> {
    let connected = tokio::time::timeout(CONNECT, access.config.connect(NoTls)).await;
    let (client, connection) = match connected {
        Ok(connected) => connected.map_err(Failure::of)?,
        Err(_) => return Err(Failure::Lost(format!("no connection within {CONNECT:?}"))),
    };
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            debug!("connection to the database lost: {}", describe(&error));
        }
    });
    client.batch_execute(SESSION).await.map_err(Failure::of)?;
    expect_durable(&client, access.allow_loss).await?;
    Ok(client)
}

/// Refuses a database that acknowledges commits before they are durable.
async fn expect_durable(client: &Client, allow_loss: bool) -> Result<(), Failure> {
    let row = client
        .query_one(
            "select current_setting('fsync'), current_setting('full_page_writes'), \
             current_setting('synchronous_commit'), current_setting('synchronous_standby_names'), pg_is_in_recovery()",
            &[],
        )
        .await
        .map_err(Failure::of)?;
    let [fsync, pages, commit, standbys] = [0_usize, 1, 2, 3].map(|at| row.get::<_, String>(at));
    if row.get(4) {
        return Err(Failure::Lost(
            "the database is a replica; add target_session_attrs=read-write to cluster.database".to_owned(),
        ));
    }
    // `local` waits for the own disk alone, which is all there is without a synchronous replica.
    let weak = match (fsync.as_str(), pages.as_str(), commit.as_str()) {
        ("off", ..) => Some("fsync = off"),
        (_, "off", _) => Some("full_page_writes = off"),
        (.., "off") => Some("synchronous_commit = off"),
        (.., "local") if !standbys.is_empty() => {
            Some("synchronous_commit = local beside a synchronous replica")
        }
        _ => None,
    };
    match weak {
        None => Ok(()),
        Some(what) if allow_loss => {
            warn!("the database has {what}: it may lose updates that were acknowledged");
            Ok(())
        }
        Some(what) => Err(Failure::Refused(StoreError::Cluster {
            what: format!(
                "the database has {what}, so it may lose updates that were acknowledged; change it, or set \
                 cluster.allow_loss = true to accept that"
            ),
        })),
    }
}
