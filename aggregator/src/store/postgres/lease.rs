//! Who leads: one row of the database, with an epoch that every write is checked against.
//!
//! A gateway takes the lease when it is over by the database's clock, or when the session that holds it no longer exists. Safety
//! rests on the epoch alone; lease and session only decide how soon. Clocks of gateways decide nothing.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::watch;
use tokio_postgres::Client;
use tracing::{debug, info, warn};

use super::{
    PostgresOptions,
    database::{Access, Executor, Failure, connect},
    schema,
};
use crate::store::StoreError;

/// How often a gateway without the lease looks at it.
pub(super) const LOOK: Duration = Duration::from_millis(200);
/// A gateway tells the others that it is there this often.
const GREET: Duration = Duration::from_secs(5);
/// A leader that could not renew for this many leases lets its devices go elsewhere.
const LEASES: u32 = 3;

/// Takes the lease if it is free. Answers with the new epoch.
const LEAD: &str = "update leader l set epoch = epoch + 1, node = $1, pid = pg_backend_pid(), \
     until = clock_timestamp() + make_interval(secs => $2), \
     started = (select backend_start from pg_stat_activity where pid = pg_backend_pid()) \
     where epoch = $3 and (until < clock_timestamp() or not exists ( \
       select 1 from pg_stat_activity a where a.pid = l.pid and a.backend_start = l.started)) \
     returning epoch";

const RENEW: &str = "update leader set until = clock_timestamp() + make_interval(secs => $2), pid = pg_backend_pid(), \
     started = (select backend_start from pg_stat_activity where pid = pg_backend_pid()) \
     where epoch = $1 returning epoch";

const RESIGN: &str = "update leader set until = '-infinity', pid = 0 where epoch = $1";

/// Ends the session of the leader before, so that a gateway that was stopped notices.
const END_SESSION: &str = "select pg_terminate_backend(pid) from pg_stat_activity \
     where pid = $1 and backend_start = $2::text::timestamptz and pid <> pg_backend_pid()";

const GREETING: &str = "insert into gateway (node, version, schema, address) values ($1, $2, $3, $4) \
     on conflict (node) do update set version = excluded.version, schema = excluded.schema, \
     address = excluded.address, seen = clock_timestamp()";

/// The lead of a cluster, until it is lost or given up.
#[derive(Debug)]
pub struct Lead {
    pub(super) epoch: i64,
    lost: watch::Receiver<bool>,
    ending: Arc<AtomicBool>,
    renewals: tokio::task::JoinHandle<()>,
    executor: Arc<Executor>,
}

impl Lead {
    /// Raised with every change of the leader.
    pub fn epoch(&self) -> i64 {
        self.epoch
    }

    /// Resolves when another gateway leads, or the database could not be reached for several leases.
    pub fn lost(&self) -> impl Future<Output = ()> + use<> {
        let mut lost = self.lost.clone();
        async move {
            // Without a sender the renewals have ended, and the lease ends with them.
            let _ = lost.wait_for(|lost| *lost).await;
        }
    }

    /// From now on a statement that cannot be answered is not repeated.
    pub fn end_soon(&self) -> impl Fn() + use<> {
        let ending = self.ending.clone();
        move || ending.store(true, Ordering::Relaxed)
    }

    pub(super) fn ending(&self) -> Arc<AtomicBool> {
        self.ending.clone()
    }

    pub(super) fn executor(&self) -> Arc<Executor> {
        self.executor.clone()
    }

    /// Gives the lease up, so that another gateway need not wait for its end.
    pub async fn resign(&self, options: &PostgresOptions) {
        self.renewals.abort();
        let (access, epoch) = (options.access(), self.epoch);
        let resigned = tokio::time::timeout(Duration::from_secs(5), async move {
            let client = connect(&access).await.map_err(Failure::into_store_error)?;
            client.execute(RESIGN, &[&epoch]).await.map_err(|error| Failure::of(error).into_store_error())
        });
        match resigned.await {
            Ok(Ok(_)) => info!(epoch, "the lease is given up"),
            Ok(Err(error)) => debug!("the lease was not given up: {error}"),
            Err(_) => debug!("the lease was not given up: no answer"),
        }
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        self.renewals.abort();
    }
}

/// A gateway of a cluster that does not lead.
#[derive(Debug)]
pub struct Candidate {
    options: PostgresOptions,
    access: Access,
    session: Option<Client>,
    /// The highest epoch and the next round that this process has seen.
    seen: (i64, i64),
    greeted: Option<Instant>,
    away: bool,
    leader: String,
}

impl Candidate {
    /// Connects with the first call of [`Candidate::wait`].
    pub fn new(options: PostgresOptions) -> Self {
        let access = options.access();
        Self {
            options,
            access,
            session: None,
            seen: (0, 0),
            greeted: None,
            away: false,
            leader: String::new(),
        }
    }

    /// Waits until this gateway leads. Fails only if the database must not be used; one that is away is waited for. Needs a
    /// tokio runtime around it; dropping the future keeps what was seen.
    pub async fn wait(&mut self) -> Result<Lead, StoreError> {
        loop {
            match self.look().await {
                Ok(Some(epoch)) => return self.begin(epoch),
                Ok(None) => self.away = false,
                Err(Failure::Refused(error)) => return Err(error),
                Err(Failure::Lost(what)) => {
                    self.session = None;
                    if !std::mem::replace(&mut self.away, true) {
                        warn!("the database is away: {what}; trying again until it is there");
                    }
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn look(&mut self) -> Result<Option<i64>, Failure> {
        if self.session.as_ref().is_none_or(Client::is_closed) {
            self.session = None;
            let session = connect(&self.access).await?;
            schema::expect(&session).await?;
            expect_authority(&session, &self.options.authority).await?;
            self.greeted = None;
            self.session = Some(session);
        }
        let Some(session) = &self.session else { return Ok(None) };
        if self.greeted.is_none_or(|at| at.elapsed() >= GREET) {
            greet(session, &self.options).await?;
            self.greeted = Some(Instant::now());
        }
        let row = session
            .query_one(
                "select epoch, node, pid, started::text, coalesce((select next_round from run), 0) from leader",
                &[],
            )
            .await
            .map_err(Failure::of)?;
        let (epoch, node, round): (i64, String, i64) = (row.get(0), row.get(1), row.get(4));
        if epoch < self.seen.0 || round < self.seen.1 {
            let (before, next) = self.seen;
            return Err(Failure::Refused(StoreError::Cluster {
                what: format!(
                    "the database has gone back: epoch {before} with next round {next} was seen, now {epoch} with {round}. \
                     Acknowledged updates may be lost; find out why before the gateways are started again"
                ),
            }));
        }
        self.seen = (epoch, round);
        let (pid, started): (i32, String) = (row.get(2), row.get(3));
        let lease = self.options.lease.as_secs_f64();
        let led =
            session.query_opt(LEAD, &[&self.options.node, &lease, &epoch]).await.map_err(Failure::of)?;
        let Some(led) = led else {
            if self.leader != node {
                info!(leader = node, epoch, "standby");
                self.leader = node;
            }
            return Ok(None);
        };
        let epoch: i64 = led.get(0);
        info!(epoch, before = node, "this gateway leads");
        self.leader.clear();
        self.seen.0 = epoch;
        if pid != 0 {
            // Only for speed: the epoch already keeps that leader from writing.
            let _ = session.query(END_SESSION, &[&pid, &started]).await;
        }
        Ok(Some(epoch))
    }

    fn begin(&mut self, epoch: i64) -> Result<Lead, StoreError> {
        let (lose, lost) = watch::channel(false);
        let ending = Arc::default();
        let executor = Arc::new(Executor::new()?);
        // The session that has taken the lease keeps it.
        let renewals =
            tokio::spawn(renew(self.options.clone(), self.access.clone(), self.session.take(), epoch, lose));
        Ok(Lead { epoch, lost, ending, renewals, executor })
    }
}

/// Renews the lease until it is lost.
async fn renew(
    options: PostgresOptions,
    access: Access,
    mut session: Option<Client>,
    epoch: i64,
    lose: watch::Sender<bool>,
) {
    let (every, lease) = (options.lease / 3, options.lease.as_secs_f64());
    let mut renewed = Instant::now();
    let mut greeted: Option<Instant> = None;
    loop {
        let attempt = async {
            let client = match session.take().filter(|client| !client.is_closed()) {
                Some(client) => client,
                None => connect(&access).await?,
            };
            let row = client.query_opt(RENEW, &[&epoch, &lease]).await.map_err(Failure::of)?;
            if row.is_some() && greeted.is_none_or(|at| at.elapsed() >= GREET) {
                greet(&client, &options).await?;
                greeted = Some(Instant::now());
            }
            Ok::<_, Failure>((client, row.is_some()))
        };
        let wait = match tokio::time::timeout(options.lease, attempt).await {
            Ok(Ok((client, true))) => {
                session = Some(client);
                renewed = Instant::now();
                every
            }
            Ok(Ok((_, false))) => {
                warn!(epoch, "another gateway leads");
                break;
            }
            Ok(Err(Failure::Lost(what))) => {
                debug!("the lease was not renewed: {what}");
                LOOK / 2
            }
            Ok(Err(Failure::Refused(error))) => {
                warn!("the lease cannot be renewed: {error}");
                break;
            }
            Err(_) => LOOK / 2,
        };
        if renewed.elapsed() > options.lease * LEASES {
            warn!(epoch, "the database has not answered for {LEASES} leases; devices go to another gateway");
            break;
        }
        // Notices the end of the session, as after a restart of the database, at once.
        let until = Instant::now() + wait;
        while Instant::now() < until && !session.as_ref().is_some_and(Client::is_closed) {
            tokio::time::sleep(LOOK / 4).await;
        }
    }
    lose.send_replace(true);
}

async fn greet(client: &Client, options: &PostgresOptions) -> Result<(), Failure> {
    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
        [&options.node, &env!("CARGO_PKG_VERSION"), &schema::VERSION, &options.address];
    client.execute(GREETING, &values).await.map(drop).map_err(Failure::of)
}

/// Fails if this gateway has other certificates than the cluster: devices would trust only some of the gateways.
async fn expect_authority(client: &Client, authority: &[u8]) -> Result<(), Failure> {
    let row = client.query_opt("select authority from fleet", &[]).await.map_err(Failure::of)?;
    let what = match row {
        Some(row) if row.get::<_, &[u8]>(0) == authority => return Ok(()),
        Some(_) => {
            "identity/ holds another authority than that of the cluster; \
             `fairtier gateway cluster init` links the shared one"
        }
        None => "it belongs to no fleet yet: run `fairtier gateway cluster init`",
    };
    Err(Failure::Refused(StoreError::Cluster { what: what.to_owned() }))
}
