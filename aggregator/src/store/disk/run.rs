//! A run on disk: the [`Store`] of a [`DiskStore`].

use std::{collections::BTreeSet, ops::Range};

use common::message::Ticket;
use redb::WriteTransaction;
use strategies::device::DeviceRecord;

use super::{DiskStore, Options, update_tag};
use crate::store::{
    BestModel, Commit, Entry, KeptModel, ModelFingerprint, OpenRound, PutOutcome, RoundRecord, RunRecord,
    SavedRun, Snapshot, Store, StoreError, UpdateHeader, UpdateName, UpdateRecord,
    extras::{self, Extras},
    history::{HistoryLine, Report},
    kept,
    ledger::{self, DEVICES, LedgerError, META, MODELS, REPORTS, UPDATES},
    model::ModelRecord,
    spool::{self, SpareFile, Spool},
};

/// Reports leave the ledger this many rounds at a time, because their file must be durable first.
const FORGET_EVERY: u32 = 16;

impl Store for DiskStore {
    fn begin_run(&mut self, run: &RunRecord, parameters: &[f32]) -> Result<(), StoreError> {
        if self.run.is_some() {
            return Err(StoreError::AlreadyBegun);
        }
        run.model.expect_len(parameters)?;
        let model = self.models.write(0, parameters)?;
        self.ledger.write(|txn| {
            let mut meta = txn.open_table(META)?;
            meta.insert("run", ledger::encode("run", run)?.as_slice())?;
            meta.insert("next", ledger::encode("next", &1u32)?.as_slice())?;
            meta.insert("attempt", ledger::encode("attempt", &0u16)?.as_slice())?;
            meta.insert("open", ledger::encode("open", &None::<RoundRecord>)?.as_slice())?;
            meta.insert("strategy", ledger::add_checksum("strategy", &[]).as_slice())?;
            Extras { weights: Some(model.crc), ..Extras::default() }.write(&mut meta)?;
            insert_model(txn, 0, &model)
        })?;
        self.run = Some(run.run);
        Ok(())
    }

    fn load(&mut self, model: &ModelFingerprint) -> Result<Option<SavedRun>, StoreError> {
        let Some(meta) = self.meta()? else { return Ok(None) };
        meta.run.model.expect(model)?;
        let parameters = self.parameters(meta.next_round.saturating_sub(1))?;
        let parameters = parameters.ok_or_else(|| self.damaged("the model of the last round is missing"))?;
        meta.run.model.expect_len(&parameters).map_err(|error| self.damaged(&error.to_string()))?;
        let open = match meta.open {
            Some(record) => Some(OpenRound {
                updates: self.updates(record.round, record.open_exchange().exchange)?,
                record,
            }),
            None => None,
        };
        Ok(Some(SavedRun {
            run: meta.run,
            next_round: meta.next_round,
            attempt: meta.attempt,
            parameters,
            strategy_state: meta.strategy_state,
            devices: self.devices()?,
            open,
            best: meta.extras.best,
            config: meta.extras.config,
            weights: meta.extras.weights,
        }))
    }

    fn register(&mut self, devices: &[DeviceRecord]) -> Result<(), StoreError> {
        self.ledger.write(|txn| {
            let mut table = txn.open_table(DEVICES)?;
            for device in devices {
                let key = device.device.as_str();
                table.insert(key, ledger::encode(key, device)?.as_slice())?;
            }
            Ok(())
        })
    }

    fn open_round(&mut self, open: &RoundRecord) -> Result<(), StoreError> {
        let next = self.begun()?.next_round;
        if open.round != next {
            return Err(StoreError::NotNext { next, got: open.round });
        }
        if self.open_number() != Some(open.round) {
            self.spool = Some(Spool::open(&self.spools, open.round, &[], self.spare.take())?);
        }
        self.ledger.write(|txn| {
            let mut meta = txn.open_table(META)?;
            meta.insert("open", ledger::encode("open", &Some(open))?.as_slice())?;
            meta.insert("attempt", ledger::encode("attempt", &open.attempt)?.as_slice())?;
            extras::write_began(&mut meta, open.began.map(|began| began.0))
        })
    }

    fn put(&mut self, update: &UpdateRecord<'_>) -> Result<PutOutcome, StoreError> {
        let run = self.run.ok_or(StoreError::NotBegun)?;
        update.check(run, self.open_number())?;
        let UpdateHeader { ticket, device, .. } = &update.header;
        let same = |Entry { header, .. }: &Entry| {
            header.device == *device && header.ticket.exchange == ticket.exchange
        };
        let key = (ticket.round, ticket.exchange, device.as_str());
        let known = self.unsettled.iter().any(same)
            || self.ledger.read(|txn| Ok(txn.open_table(UPDATES)?.get(key)?.is_some()))?;
        let Some(spool) = self.spool.as_mut().filter(|_| !known) else { return Ok(PutOutcome::Duplicate) };
        self.unsettled.push(spool.write(update)?);
        Ok(PutOutcome::New)
    }

    fn settle(&mut self) -> Result<(), StoreError> {
        let entries = std::mem::take(&mut self.unsettled);
        let Some(spool) = self.spool.as_mut().filter(|_| !entries.is_empty()) else { return Ok(()) };
        let settled = spool.sync().and_then(|()| {
            self.ledger.write(|txn| {
                let mut index = txn.open_table(UPDATES)?;
                for entry in &entries {
                    let Ticket { round, exchange, .. } = entry.header.ticket;
                    let device = entry.header.device.as_str();
                    let record =
                        entry.encode().ok_or_else(|| LedgerError::Store(Box::new(StoreError::TooLong)))?;
                    let value = ledger::add_checksum(&update_tag(round, exchange, device), &record);
                    index.insert((round, exchange, device), value.as_slice())?;
                }
                Ok(())
            })
        });
        settled.inspect_err(|_| spool.rewind(&entries))
    }

    fn updates(&self, round: u32, exchange: u8) -> Result<Vec<Entry>, StoreError> {
        let mut entries = self.of_rounds(round, round)?;
        entries.retain(|entry| entry.header.ticket.exchange == exchange);
        Ok(entries)
    }

    fn past(&self, before: u32) -> Result<Vec<Entry>, StoreError> {
        let Some(last) = before.checked_sub(1) else { return Ok(vec![]) };
        let mut entries = self.of_rounds(0, last)?;
        let newest = kept(&entries, usize::MAX);
        entries.retain(|entry| newest.contains(&UpdateName::of(entry)));
        entries.sort_by(|a, b| a.header.device.cmp(&b.header.device));
        Ok(entries)
    }

    fn read_into(&mut self, entry: &Entry, payload: &mut [u8]) -> Result<(), StoreError> {
        self.spool_of(entry, |spool| spool.read(entry, payload))
    }

    fn read_part(
        &mut self,
        entry: &Entry,
        bytes: Range<usize>,
        payload: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        self.spool_of(entry, |spool| spool.read_part(entry, bytes, payload))
    }

    fn commit_round(&mut self, commit: &Commit<'_>) -> Result<(), StoreError> {
        self.begun()?.run.model.expect_len(commit.parameters)?;
        let open = self.open_number();
        if open != Some(commit.round) {
            return Err(StoreError::WrongRound { open, got: commit.round });
        }
        let options = self.options;
        let entries = self.of_rounds(0, commit.round)?;
        let kept = kept(&entries, commit.history);
        let stays = |entry: &Entry| kept.contains(&UpdateName::of(entry));
        let dropped: Vec<_> = entries.iter().filter(|entry| !options.keep_spool && !stays(entry)).collect();
        let model = self.models.write(commit.round, commit.parameters)?;
        if forgets(commit.round) {
            self.history.sync()?;
        }
        self.ledger.write(|txn| write_commit(txn, commit, &model, &options, &dropped))?;
        let files = (self.spool.take(), std::mem::take(&mut self.old));
        // Files that a snapshot may still read are removed after a later round.
        if !options.keep_spool && !self.is_held() {
            let needed: BTreeSet<u32> = kept.iter().map(|update| update.ticket.round).collect();
            if !needed.contains(&commit.round) {
                self.spare = SpareFile::set_aside(&self.spools, commit.round);
            }
            // The round is closed even if this fails; a file that stays is removed on the next start.
            let _ = spool::sweep(&self.spools, |round| needed.contains(&round));
        }
        let oldest = first_kept(commit.round, options.keep_models);
        if !self.is_held() {
            let kept = [commit.best.map(|best| best.round), commit.spared];
            let _ = self.models.sweep(|round| round >= oldest || kept.contains(&Some(round)));
        }
        // Closing the last handle frees the blocks, which takes longer than the commit, so another thread does it.
        let _ = std::thread::Builder::new().spawn(move || drop(files));
        self.history.append(commit.report)?;
        self.archive_history(commit.round);
        Ok(())
    }

    fn set_best(&mut self, best: &BestModel) -> Result<(), StoreError> {
        let oldest = first_kept(self.begun()?.next_round.saturating_sub(1), self.options.keep_models);
        self.ledger.write(|txn| keep_models(txn, oldest, Some(best), None))?;
        // A file that stays is removed on the next start.
        let _ = self.models.sweep(|round| round >= oldest || round == best.round);
        Ok(())
    }

    fn kept_models(&self) -> Result<Vec<KeptModel>, StoreError> {
        self.model_records()
    }

    fn parameters(&self, round: u32) -> Result<Option<Vec<f32>>, StoreError> {
        let kept = self.ledger.read(|txn| {
            let value = txn.open_table(MODELS)?.get(round)?;
            value.map(|value| ledger::decode(&ledger::tag("model", round, ""), value.value())).transpose()
        })?;
        kept.map(|kept| self.models.read(round, kept)).transpose()
    }

    fn report(&self, round: u32) -> Result<Option<String>, StoreError> {
        self.ledger_report(round)
    }

    fn history(&self) -> Result<Vec<(u32, String)>, StoreError> {
        let committed = self.meta()?.map_or(0, |meta| meta.next_round.saturating_sub(1));
        let mut reports = Vec::new();
        let walked = self.each_report(0, |line| {
            if let HistoryLine::Report(Report { round, text }) = line
                && round <= committed
            {
                reports.push((round, text.to_owned()));
            }
            Ok(())
        })?;
        walked.unreadable.into_iter().next().map_or(Ok(reports), Err)
    }

    fn snapshot(&self) -> Result<Option<Snapshot>, StoreError> {
        self.take_snapshot().map(Some)
    }
}

fn write_commit(
    txn: &WriteTransaction,
    commit: &Commit<'_>,
    model: &ModelRecord,
    options: &Options,
    dropped: &[&Entry],
) -> Result<(), LedgerError> {
    let next = commit.round.saturating_add(1);
    let mut meta = txn.open_table(META)?;
    meta.insert("strategy", ledger::add_checksum("strategy", commit.strategy_state).as_slice())?;
    meta.insert("next", ledger::encode("next", &next)?.as_slice())?;
    meta.insert("open", ledger::encode("open", &None::<RoundRecord>)?.as_slice())?;
    if let Some(config) = commit.config {
        extras::write_config(&mut meta, config)?;
    }
    drop(meta);
    insert_model(txn, commit.round, model)?;
    keep_models(txn, first_kept(commit.round, options.keep_models), commit.best, commit.spared)?;
    let report = ledger::add_checksum(&ledger::tag("report", commit.round, ""), commit.report.as_bytes());
    let mut reports = txn.open_table(REPORTS)?;
    reports.insert(commit.round, report.as_slice())?;
    if forgets(commit.round) {
        reports.retain_in(..first_kept(commit.round, options.keep_reports), |_, _| false)?;
    }
    let mut updates = txn.open_table(UPDATES)?;
    for Entry { header, .. } in dropped {
        updates.remove((header.ticket.round, header.ticket.exchange, header.device.as_str()))?;
    }
    Ok(())
}

/// Names the best model, and forgets those that are neither it nor among the last ones.
fn keep_models(
    txn: &WriteTransaction,
    oldest: u32,
    best: Option<&BestModel>,
    spared: Option<u32>,
) -> Result<(), LedgerError> {
    extras::write_best(&mut txn.open_table(META)?, best)?;
    let kept = [best.map(|best| best.round), spared];
    txn.open_table(MODELS)?.retain(|round, _| round >= oldest || kept.contains(&Some(round)))?;
    Ok(())
}

/// Whether old reports leave the ledger with this round.
fn forgets(round: u32) -> bool {
    round.is_multiple_of(FORGET_EVERY)
}

/// The first of the last `count` rounds up to this one, which is always kept.
fn first_kept(round: u32, count: usize) -> u32 {
    let count = u32::try_from(count.max(1)).unwrap_or(u32::MAX);
    round.saturating_add(1).saturating_sub(count)
}

fn insert_model(txn: &WriteTransaction, round: u32, model: &ModelRecord) -> Result<(), LedgerError> {
    let value = ledger::encode(&ledger::tag("model", round, ""), model)?;
    txn.open_table(MODELS)?.insert(round, value.as_slice())?;
    Ok(())
}
