//! The tables of a cluster, and how they are brought up to date.

use tokio_postgres::{Client, error::SqlState};

use super::database::{Failure, describe};
use crate::store::StoreError;

/// By version, from 1.
const MIGRATIONS: [&str; 1] = [include_str!("0001_standby.sql")];

/// The version that this program reads and writes.
pub(super) const VERSION: i32 = MIGRATIONS.len() as i32;

/// Gateways that were heard of within this time must speak the new version.
const LIVE: &str = "interval '30 s'";

/// The version of the tables; 0 if there are none.
pub(super) async fn version(client: &Client) -> Result<i32, Failure> {
    match client.query_one("select coalesce(max(version), 0) from schema_version", &[]).await {
        Ok(row) => Ok(row.get(0)),
        Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => Ok(0),
        Err(error) => Err(Failure::of(error)),
    }
}

/// Fails if the tables are not those of this program.
pub(super) async fn expect(client: &Client) -> Result<(), Failure> {
    let remedy = match version(client).await? {
        VERSION => return Ok(()),
        0 => "it has no tables yet: `fairtier gateway cluster init` makes them".to_owned(),
        found if found < VERSION => {
            format!("its tables have version {found}, not {VERSION}: run `fairtier gateway cluster migrate`")
        }
        found => {
            format!("its tables have version {found}, and this program knows {VERSION}: use a newer program")
        }
    };
    Err(Failure::Refused(StoreError::Cluster { what: remedy }))
}

/// Applies what is missing, all of it or nothing. Returns the versions before and after.
pub(super) async fn migrate(client: &Client) -> Result<(i32, i32), Failure> {
    let before = version(client).await?;
    if before > VERSION {
        return expect(client).await.map(|()| (before, before));
    }
    if before > 0 && before < VERSION {
        let query = format!(
            "select string_agg(node, ', ') from gateway where schema < $1 and seen > clock_timestamp() - {LIVE}"
        );
        let row = client.query_one(&query, &[&VERSION]).await.map_err(Failure::of)?;
        if let Some(nodes) = row.get::<_, Option<String>>(0) {
            let what = format!("gateways of an older version still run: {nodes}; stop them first");
            return Err(Failure::Refused(StoreError::Cluster { what }));
        }
    }
    let mut script = String::from(
        "begin; select pg_advisory_xact_lock(4660823); \
         create table if not exists schema_version \
         (version int primary key, applied timestamptz not null default clock_timestamp());",
    );
    for (at, migration) in (1..).zip(MIGRATIONS) {
        if at > before {
            // Fails if another process has applied it meanwhile.
            script += &format!("insert into schema_version (version) values ({at});\n{migration}\n");
        }
    }
    script += "commit;";
    if before < VERSION
        && let Err(error) = client.batch_execute(&script).await
    {
        let what = describe(&error);
        let _ = client.batch_execute("rollback").await;
        return Err(Failure::Refused(StoreError::Cluster { what }));
    }
    Ok((before, VERSION))
}
