//! What an operator does with the database of a cluster: `fairtier gateway cluster`.

use tokio_postgres::Client;

use super::{
    PostgresOptions,
    database::{Failure, connect},
    schema,
};
use crate::store::StoreError;

/// The database of a cluster, for commands. Needs a tokio runtime around it.
#[expect(missing_debug_implementations, reason = "a connection")]
pub struct ClusterDatabase(Client);

/// Where a cluster stands.
#[derive(Clone, Debug)]
pub struct ClusterStatus {
    /// Version of the tables.
    pub schema: i32,
    /// Raised with every change of the leader; 0 before the first one.
    pub epoch: i64,
    /// The gateway that has led last.
    pub leader: String,
    /// It holds the lease: in time, and with a session that exists.
    pub leads: bool,
    /// Seconds until the lease ends by the database's clock, if it does.
    pub lease_s: Option<f64>,
    /// Rounds that are committed; `None` before a run has begun.
    pub committed: Option<i64>,
    /// Whether a round is open, and its receipts.
    pub open: Option<i64>,
    /// Registered devices.
    pub devices: i64,
    /// Name, version, address and seconds since the last sign of life, by name.
    pub gateways: Vec<(String, String, String, f64)>,
}

impl ClusterDatabase {
    /// Connects once. Fails if the database may lose what it acknowledges.
    pub async fn connect(options: &PostgresOptions) -> Result<Self, StoreError> {
        connect(&options.access()).await.map(Self).map_err(Failure::into_store_error)
    }

    /// Brings the tables up to date; the versions before and after.
    pub async fn migrate(&self) -> Result<(i32, i32), StoreError> {
        schema::migrate(&self.0).await.map_err(Failure::into_store_error)
    }

    /// Names the fleet's authority. `false` if the database belongs to another fleet.
    pub async fn adopt_authority(&self, authority: &[u8]) -> Result<bool, StoreError> {
        let failed = |error| Failure::of(error).into_store_error();
        let insert = "insert into fleet (authority) values ($1) on conflict do nothing";
        self.0.execute(insert, &[&authority]).await.map_err(failed)?;
        let row =
            self.0.query_one("select authority = $1 from fleet", &[&authority]).await.map_err(failed)?;
        Ok(row.get(0))
    }

    /// Where the cluster stands.
    pub async fn status(&self) -> Result<ClusterStatus, StoreError> {
        let failed = |error| Failure::of(error).into_store_error();
        schema::expect(&self.0).await.map_err(Failure::into_store_error)?;
        let leader = "select epoch, node, until > clock_timestamp() and exists ( \
               select 1 from pg_stat_activity a where a.pid = l.pid and a.backend_start = l.started), \
             case when isfinite(until) then extract(epoch from until - clock_timestamp())::float8 end, \
             (select count(*) from device) from leader l";
        let row = self.0.query_one(leader, &[]).await.map_err(failed)?;
        let run = "select next_round - 1, case when open is not null then \
             (select count(*) from receipt where round = next_round) end from run";
        let run = self.0.query_opt(run, &[]).await.map_err(failed)?;
        let gateways = "select node, version, address, \
             extract(epoch from clock_timestamp() - seen)::float8 from gateway order by node";
        let gateways = self.0.query(gateways, &[]).await.map_err(failed)?;
        Ok(ClusterStatus {
            schema: schema::VERSION,
            epoch: row.get(0),
            leader: row.get(1),
            leads: row.get(2),
            lease_s: row.get(3),
            committed: run.as_ref().map(|run| run.get(0)),
            open: run.and_then(|run| run.get(1)),
            devices: row.get(4),
            gateways: gateways.iter().map(|row| (row.get(0), row.get(1), row.get(2), row.get(3))).collect(),
        })
    }
}
