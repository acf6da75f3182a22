//! Removes what is not needed any more: copies at once, objects after a time, so that a database that is restored to an earlier
//! hour finds its objects.

use std::{
    collections::BTreeSet,
    fs,
    time::{Duration, Instant},
};

use tracing::warn;

use super::{PostgresStore, database::Answer};
use crate::store::StoreError;

/// Between two sweeps.
const EVERY: Duration = Duration::from_secs(60);
/// Objects of one sweep, so that no round waits for long.
const MOST: i64 = 200;

const DROPPED: &str = "select object from (select object, dropped from segment union all select object, dropped from model) o \
     where dropped < clock_timestamp() - make_interval(secs => $1) order by dropped limit $2";
const FORGET: &str = "with l as (select 1 from leader where epoch = $1 for share), \
     s as (delete from segment using l where object = any($2) and dropped is not null), \
     m as (delete from model using l where object = any($2) and dropped is not null) \
     select count(*) from l";

impl PostgresStore {
    /// `segments` are still needed. A run goes on if this fails; the next sweep tries again.
    pub(super) fn sweep(&mut self, segments: &BTreeSet<String>) {
        let keep: BTreeSet<_> = segments.iter().map(|name| self.cached(name)).collect();
        for copy in fs::read_dir(&self.cache).into_iter().flatten().flatten() {
            if !keep.contains(&copy.path()) {
                let _ = fs::remove_file(copy.path());
            }
        }
        if self.swept.is_none_or(|at| at.elapsed() >= EVERY) {
            self.swept = Some(Instant::now());
            if let Err(error) = self.remove_dropped() {
                warn!("objects that are not needed any more stay for now: {error}");
            }
        }
    }

    fn remove_dropped(&self) -> Result<(), StoreError> {
        let (keep, epoch) = (self.keep_dropped.as_secs_f64(), self.epoch);
        let dropped = self.database.execute(move |client| async move {
            let rows = client.query(DROPPED, &[&keep, &MOST]).await?;
            Ok(Answer::Done(rows.iter().map(|row| row.get(0)).collect::<Vec<String>>()))
        })?;
        if dropped.is_empty() {
            return Ok(());
        }
        dropped.iter().try_for_each(|object| self.objects.delete(object))?;
        self.database.execute(move |client| {
            let dropped = dropped.clone();
            async move {
                let leads: i64 = client.query_one(FORGET, &[&epoch, &dropped]).await?.get(0);
                Ok(if leads == 1 { Answer::Done(()) } else { Answer::Fenced })
            }
        })
    }
}
