//! A run in PostgreSQL: the [`Store`] of a [`PostgresStore`].

use std::{collections::BTreeSet, ops::Range, sync::Arc};

use common::message::Ticket;
use serde::Serialize;
use strategies::device::DeviceRecord;
use tokio_postgres::types::ToSql;

use super::{
    Held, HeldUpdate, IndexKey, PostgresStore, SEGMENT, database::Answer, load::receipt_tag, unique,
};
use crate::store::{
    BestModel, Commit, Entry, KeptModel, ModelFingerprint, OpenRound, PutOutcome, RoundRecord, RunRecord,
    SavedRun, Store, StoreError, UpdateName, UpdateRecord, kept, ledger, spool, weights_digest,
};

/// Every write begins with this: it shares the row of the lease, and does nothing with another epoch. A takeover changes that
/// row, so it waits for writes that have begun, and those that begin later find another epoch.
macro_rules! fenced {
    ($statement:literal) => {
        concat!("with l as (select 1 from leader where epoch = $1 for share), ", $statement)
    };
}

/// The last column: models of this run. An earlier attempt of the same statement may have begun the run.
const BEGIN: &str = fenced!(
    "r as (insert into run (run, record, state, weights) select $2::int8, $3::bytea, $4::bytea, $5::int8 from l on conflict do nothing returning 1), \
     m as (insert into model (round, object, bytes, crc, sha256) select 0, $6::text, $7::int8, $5::int8, $8::bytea from r) \
     select (select count(*) from l), (select count(*) from r), (select count(*) from run), \
            (select count(*) from model where object = $6::text)"
);

const REGISTER: &str = fenced!(
    "d as (insert into device (device, record) select n, r from l, unnest($2::text[], $3::bytea[]) as u(n, r) \
           on conflict (device) do update set record = excluded.record) \
     select (select count(*) from l)"
);

const OPEN: &str = fenced!(
    "r as (update run set open = $3::bytea, attempt = $4::int4, began = $5::int8 from l where next_round = $2::int8 returning 1) \
     select (select count(*) from l), (select count(*) from r)"
);

/// The last column: receipts of the same segments that an earlier attempt of this statement has written.
const SETTLE: &str = fenced!(
    "s as (insert into segment (object, round, bytes) \
           select o, $2::int8, b from l, unnest($3::text[], $4::int8[]) as u(o, b) on conflict do nothing), \
     p as (insert into receipt (round, exchange, device, attempt, segment, entry) \
           select $2::int8, e, d, a, s, r from l, \
                  unnest($5::int2[], $6::text[], $7::int4[], $8::text[], $9::bytea[]) as u(e, d, a, s, r) \
           on conflict do nothing returning 1) \
     select (select count(*) from l), (select count(*) from p), \
            (select count(*) from receipt r, unnest($5::int2[], $6::text[], $8::text[]) as u(e, d, s) \
              where r.round = $2::int8 and r.exchange = u.e and r.device = u.d and r.segment = u.s)"
);

/// The last column: whether an earlier attempt of this statement has committed the round.
const COMMIT: &str = fenced!(
    "r as (update run set next_round = $2::int8 + 1, open = null, began = null, state = $7::bytea, best = $8::bytea, \
                          config = coalesce($9::text, config) \
            from l where next_round = $2::int8 and open is not null returning 1), \
     d as (update model set dropped = clock_timestamp() from r \
            where model.dropped is null and model.round < $11::int8 and not model.round = any($12::int8[])), \
     m as (insert into model (round, object, bytes, crc, sha256) select $2::int8, $3::text, $4::int8, $5::int8, $6::bytea from r), \
     p as (insert into report (round, report) select $2::int8, $10::text from r), \
     u as (delete from receipt using r where not $13::bool and not exists ( \
             select 1 from unnest($14::int8[], $15::int2[], $16::text[]) as k(round, exchange, device) \
              where k.round = receipt.round and k.exchange = receipt.exchange and k.device = receipt.device)), \
     s as (update segment set dropped = clock_timestamp() from r \
            where not $13::bool and segment.dropped is null and not segment.object = any($17::text[])) \
     select (select count(*) from l), (select count(*) from r), (select count(*) from model where object = $3::text)"
);

const BEST: &str = fenced!(
    "r as (update run set best = $2::bytea from l returning 1), \
     d as (update model set dropped = clock_timestamp() from r \
            where model.dropped is null and model.round < $3::int8 and model.round <> $4::int8) \
     select (select count(*) from l), (select count(*) from r)"
);

type Values = Arc<Vec<Box<dyn ToSql + Send + Sync>>>;

/// The values of a statement, for every attempt.
macro_rules! values {
    ($($value:expr),* $(,)?) => { Arc::new(vec![$(Box::new($value) as Box<dyn ToSql + Send + Sync>),*]) };
}

impl PostgresStore {
    /// Executes a write. `judge` gets the counts that it answers with, after that of the lease.
    fn write<T: Send + 'static>(
        &self,
        statement: &'static str,
        values: &Values,
        judge: impl Fn(&[i64]) -> Answer<T> + Clone + Send + 'static,
    ) -> Result<T, StoreError> {
        self.database.execute(|client| {
            let (values, judge) = (values.clone(), judge.clone());
            async move {
                let values: Vec<&(dyn ToSql + Sync)> =
                    values.iter().map(|value| &**value as &(dyn ToSql + Sync)).collect();
                let row = client.query_one(statement, &values).await?;
                let counts: Vec<i64> = (0..row.len()).map(|column| row.get(column)).collect();
                // The one place where a statement of another epoch is noticed.
                Ok(if counts.first() == Some(&1) { judge(&counts[1..]) } else { Answer::Fenced })
            }
        })
    }
}

impl Store for PostgresStore {
    fn begin_run(&mut self, run: &RunRecord, parameters: &[f32]) -> Result<(), StoreError> {
        if self.held.is_some() {
            return Err(StoreError::AlreadyBegun);
        }
        run.model.expect_len(parameters)?;
        let (model, weights) = (self.write_model(0, parameters)?, weights_digest(parameters));
        let values = values![
            self.epoch,
            run.run.0 as i64,
            encode("run", run)?,
            ledger::add_checksum("strategy", &[]),
            i64::from(weights),
            model.object.clone(),
            model.bytes as i64,
            model.sha256.clone(),
        ];
        let new = self.write(BEGIN, &values, |counts| match counts {
            [1, ..] | [_, _, 1] => Answer::Done(true),
            [_, 0, _] => Answer::Again,
            _ => Answer::Done(false),
        })?;
        if !new {
            return Err(StoreError::AlreadyBegun);
        }
        self.held = Some(Held {
            run: run.clone(),
            next_round: 1,
            attempt: 0,
            open: None,
            strategy_state: vec![],
            best: None,
            config: None,
            weights,
            devices: [].into(),
            models: [(0, model)].into(),
            updates: [].into(),
        });
        Ok(())
    }

    fn load(&mut self, model: &ModelFingerprint) -> Result<Option<SavedRun>, StoreError> {
        self.reload()?;
        let Some(held) = &self.held else { return Ok(None) };
        held.run.model.expect(model)?;
        let committed = held.next_round.saturating_sub(1);
        let parameters = self.parameters(committed)?.ok_or_else(|| StoreError::Cluster {
            what: format!("the database does not name the model of round {committed}"),
        })?;
        held.run.model.expect_len(&parameters)?;
        let open = match held.open.clone() {
            Some(record) => Some(OpenRound {
                updates: self.updates(record.round, record.open_exchange().exchange)?,
                record,
            }),
            None => None,
        };
        Ok(Some(SavedRun {
            run: held.run.clone(),
            next_round: held.next_round,
            attempt: held.attempt,
            parameters,
            strategy_state: held.strategy_state.clone(),
            devices: held.devices.values().cloned().collect(),
            open,
            best: held.best.clone(),
            config: held.config.clone(),
            weights: Some(held.weights),
        }))
    }

    fn register(&mut self, devices: &[DeviceRecord]) -> Result<(), StoreError> {
        // A statement cannot change a row twice; the last record of a device counts.
        let last: std::collections::BTreeMap<_, _> =
            devices.iter().map(|device| (device.device.clone(), device)).collect();
        let names: Vec<String> = last.keys().map(ToString::to_string).collect();
        let records = last.values().map(|device| encode(device.device.as_str(), *device));
        let records = records.collect::<Result<Vec<_>, _>>()?;
        let values = values![self.epoch, names, records];
        self.write(REGISTER, &values, |_| Answer::Done(()))?;
        if let Some(held) = &mut self.held {
            held.devices.extend(devices.iter().map(|device| (device.device.clone(), device.clone())));
        }
        Ok(())
    }

    fn open_round(&mut self, open: &RoundRecord) -> Result<(), StoreError> {
        let next = self.held()?.next_round;
        if open.round != next {
            return Err(StoreError::NotNext { next, got: open.round });
        }
        let values = values![
            self.epoch,
            i64::from(open.round),
            encode("open", open)?,
            i32::from(open.attempt),
            open.began.map(|began| began.0 as i64),
        ];
        let opened = self.write(OPEN, &values, |counts| Answer::Done(counts[0] == 1))?;
        if !opened {
            return Err(changed());
        }
        let held = self.held_mut()?;
        held.attempt = open.attempt;
        held.open = Some(open.clone());
        Ok(())
    }

    fn put(&mut self, update: &UpdateRecord<'_>) -> Result<PutOutcome, StoreError> {
        let held = self.held()?;
        update.check(held.run.run, held.open.as_ref().map(|open| open.round))?;
        let key = IndexKey::of(&update.header);
        if held.updates.contains_key(&key) || self.unsettled.updates.contains_key(&key) {
            return Ok(PutOutcome::Duplicate);
        }
        let full = |(_, bytes): &(_, Vec<u8>)| bytes.len() + update.payload.len() > SEGMENT;
        if self.unsettled.growing.as_ref().is_some_and(full) {
            self.finish_segment()?;
        }
        let round = update.header.ticket.round;
        let (name, bytes) = match &mut self.unsettled.growing {
            Some(growing) => growing,
            none => none.insert((format!("segments/{round:06}/{}", unique()?), vec![])),
        };
        let entry = spool::append_record(bytes, update)?;
        let segment = name.clone();
        self.unsettled.updates.insert(key, HeldUpdate { entry, segment });
        Ok(PutOutcome::New)
    }

    fn settle(&mut self) -> Result<(), StoreError> {
        if self.unsettled.updates.is_empty() {
            return Ok(());
        }
        let finished = self.finish_segment();
        let unsettled = std::mem::take(&mut self.unsettled);
        finished?;
        let Some((first, _)) = unsettled.updates.first_key_value() else { return Ok(()) };
        let round = i64::from(first.round);
        let (objects, lengths): (Vec<String>, Vec<i64>) =
            unsettled.written.into_iter().map(|(name, bytes)| (name, bytes as i64)).unzip();
        let count = unsettled.updates.len() as i64;
        let mut columns = (vec![], vec![], vec![], vec![], vec![]);
        for HeldUpdate { entry, segment } in unsettled.updates.values() {
            let Ticket { round, exchange, attempt, .. } = entry.header.ticket;
            let device = entry.header.device.as_str();
            let record = entry.encode().ok_or(StoreError::TooLong)?;
            columns.0.push(i16::from(exchange));
            columns.1.push(device.to_owned());
            columns.2.push(i32::from(attempt));
            columns.3.push(segment.clone());
            columns.4.push(ledger::add_checksum(&receipt_tag(round, exchange, device), &record));
        }
        let (exchanges, devices, attempts, segments, entries) = columns;
        let values =
            values![self.epoch, round, objects, lengths, exchanges, devices, attempts, segments, entries];
        self.write(SETTLE, &values, move |counts| match counts {
            [new, known] if new + known == count => Answer::Done(()),
            _ => Answer::Again,
        })?;
        self.held_mut()?.updates.extend(unsettled.updates);
        Ok(())
    }

    fn updates(&self, round: u32, exchange: u8) -> Result<Vec<Entry>, StoreError> {
        let Some(held) = &self.held else { return Ok(vec![]) };
        let of_exchange =
            held.updates.iter().filter(|(key, _)| (key.round, key.exchange) == (round, exchange));
        Ok(of_exchange.map(|(_, held)| held.entry.clone()).collect())
    }

    fn past(&self, before: u32) -> Result<Vec<Entry>, StoreError> {
        let Some(held) = &self.held else { return Ok(vec![]) };
        let old = held.updates.iter().filter(|(key, _)| key.round < before);
        let mut entries: Vec<Entry> = old.map(|(_, held)| held.entry.clone()).collect();
        let newest = kept(&entries, usize::MAX);
        entries.retain(|entry| newest.contains(&UpdateName::of(entry)));
        entries.sort_by(|a, b| a.header.device.cmp(&b.header.device));
        Ok(entries)
    }

    fn read_into(&mut self, entry: &Entry, payload: &mut [u8]) -> Result<(), StoreError> {
        self.read_segment(entry, |spool| spool.read(entry, payload))
    }

    fn read_part(
        &mut self,
        entry: &Entry,
        bytes: Range<usize>,
        payload: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        self.read_segment(entry, |spool| spool.read_part(entry, bytes.clone(), payload))
    }

    fn commit_round(&mut self, commit: &Commit<'_>) -> Result<(), StoreError> {
        let held = self.held()?;
        held.run.model.expect_len(commit.parameters)?;
        let open = held.open.as_ref().map(|open| open.round);
        if open != Some(commit.round) {
            return Err(StoreError::WrongRound { open, got: commit.round });
        }
        let entries: Vec<Entry> = held.updates.values().map(|held| held.entry.clone()).collect();
        let stay = kept(&entries, commit.history);
        let stays =
            |update: &HeldUpdate| self.options.keep_spool || stay.contains(&UpdateName::of(&update.entry));
        let kept: Vec<_> = held.updates.iter().filter(|&(_, update)| stays(update)).collect();
        let segments: BTreeSet<String> = kept.iter().map(|(_, update)| update.segment.clone()).collect();
        let kept: BTreeSet<IndexKey> = kept.into_iter().map(|(key, _)| key.clone()).collect();
        let oldest = self.first_kept(commit.round);
        let also = [commit.best.map(|best| best.round), commit.spared];
        let model = self.write_model(commit.round, commit.parameters)?;
        let values = values![
            self.epoch,
            i64::from(commit.round),
            model.object.clone(),
            model.bytes as i64,
            i64::from(model.crc),
            model.sha256.clone(),
            ledger::add_checksum("strategy", commit.strategy_state),
            commit.best.map(|best| encode("best", best)).transpose()?,
            commit.config.map(str::to_owned),
            commit.report.to_owned(),
            i64::from(oldest),
            also.into_iter().flatten().map(i64::from).collect::<Vec<_>>(),
            self.options.keep_spool,
            kept.iter().map(|key| i64::from(key.round)).collect::<Vec<_>>(),
            kept.iter().map(|key| i16::from(key.exchange)).collect::<Vec<_>>(),
            kept.iter().map(|key| key.device.to_string()).collect::<Vec<_>>(),
            segments.iter().cloned().collect::<Vec<_>>(),
        ];
        self.write(COMMIT, &values, |counts| match counts {
            [1, _] | [_, 1] => Answer::Done(()),
            // An earlier attempt holds the row of the run.
            _ => Answer::Again,
        })?;
        let held = self.held_mut()?;
        held.models.retain(|&round, _| round >= oldest || also.contains(&Some(round)));
        held.models.insert(commit.round, model);
        held.best = commit.best.cloned();
        if let Some(config) = commit.config {
            held.config = Some(config.to_owned());
        }
        held.strategy_state = commit.strategy_state.to_vec();
        held.open = None;
        held.next_round = commit.round.saturating_add(1);
        held.updates.retain(|key, _| kept.contains(key));
        self.history.append(commit.report)?;
        self.sweep(&segments);
        Ok(())
    }

    fn set_best(&mut self, best: &BestModel) -> Result<(), StoreError> {
        let oldest = self.first_kept(self.held()?.next_round.saturating_sub(1));
        let values = values![self.epoch, encode("best", best)?, i64::from(oldest), i64::from(best.round)];
        self.write(BEST, &values, |_| Answer::Done(()))?;
        let held = self.held_mut()?;
        held.models.retain(|&round, _| round >= oldest || round == best.round);
        held.best = Some(best.clone());
        Ok(())
    }

    fn kept_models(&self) -> Result<Vec<KeptModel>, StoreError> {
        let Some(held) = &self.held else { return Ok(vec![]) };
        Ok(held.models.iter().map(|(&round, model)| KeptModel { round, crc: model.crc }).collect())
    }

    fn parameters(&self, round: u32) -> Result<Option<Vec<f32>>, StoreError> {
        let model = self.held.as_ref().and_then(|held| held.models.get(&round));
        model.map(|model| self.read_model(model)).transpose()
    }

    fn report(&self, round: u32) -> Result<Option<String>, StoreError> {
        let Some(before) = round.checked_sub(1) else { return Ok(None) };
        let next = self.reports(before)?.into_iter().next();
        Ok(next.filter(|(found, _)| *found == round).map(|(_, report)| report))
    }

    fn history(&self) -> Result<Vec<(u32, String)>, StoreError> {
        self.reports(0)
    }
}

impl PostgresStore {
    /// The first of the last models up to a round.
    fn first_kept(&self, round: u32) -> u32 {
        let count = u32::try_from(self.options.keep_models.max(1)).unwrap_or(u32::MAX);
        round.saturating_add(1).saturating_sub(count)
    }
}

fn encode<T: Serialize>(tag: &str, value: &T) -> Result<Vec<u8>, StoreError> {
    let what = |_| StoreError::Cluster { what: format!("{tag} cannot be encoded") };
    ledger::encode(tag, value).map_err(what)
}

/// The epoch is the own one, but the run is not as this gateway has left it.
fn changed() -> StoreError {
    let what = "the run in the database was changed by something other than its leader".to_owned();
    StoreError::Cluster { what }
}
