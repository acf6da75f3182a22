//! Reads what the database says of the run, when a gateway has taken the lead.

use std::collections::BTreeMap;

use coordinator::wall::WallTime;
use serde::de::DeserializeOwned;
use tokio_postgres::Row;

use super::{Held, HeldModel, HeldUpdate, IndexKey, PostgresStore, Unsettled, database::Answer};
use crate::store::{
    Entry, StoreError,
    ledger::{self, LedgerError},
};

const RUN: &str = "select record, next_round, attempt, open, began, state, best, config, weights from run";
const DEVICES: &str = "select device, record from device";
const MODELS: &str = "select round, object, bytes, crc, sha256 from model where dropped is null";
const RECEIPTS: &str = "select round, exchange, device, segment, entry from receipt";
/// Read last: as long as the epoch is the own one, nothing else can have changed.
const EPOCH: &str = "select epoch from leader";

impl PostgresStore {
    /// Replaces what is known of the run. What was not settled is forgotten.
    pub(super) fn reload(&mut self) -> Result<(), StoreError> {
        self.unsettled = Unsettled::default();
        let epoch = self.epoch;
        let rows = self.database.execute(move |client| async move {
            let mut tables = vec![];
            for query in [RUN, DEVICES, MODELS, RECEIPTS] {
                tables.push(client.query(query, &[]).await?);
            }
            let now: i64 = client.query_one(EPOCH, &[]).await?.get(0);
            Ok(if now == epoch { Answer::Done(tables) } else { Answer::Fenced })
        })?;
        let [run, devices, models, receipts] = &rows[..] else {
            return Err(StoreError::Cluster { what: "the database has answered too little".to_owned() });
        };
        self.held = match run.first() {
            None => None,
            Some(run) => Some(Held {
                devices: decoded(devices, |row| {
                    let name: &str = row.get(0);
                    let device: strategies::device::DeviceRecord = decode(name, row.get(1))?;
                    Ok((device.device.clone(), device))
                })?,
                models: decoded(models, model)?,
                updates: decoded(receipts, update)?,
                ..of_run(run)?
            }),
        };
        Ok(())
    }

    /// Reports of rounds after this one, ascending.
    pub(super) fn reports(&self, after: u32) -> Result<Vec<(u32, String)>, StoreError> {
        let after = i64::from(after);
        let rows = self.database.execute(move |client| async move {
            let query = "select round, report from report where round > $1 order by round";
            Ok(Answer::Done(client.query(query, &[&after]).await?))
        })?;
        rows.iter().map(|row| Ok((number(row.get(0))?, row.get(1)))).collect()
    }
}

fn of_run(row: &Row) -> Result<Held, StoreError> {
    let mut open: Option<crate::store::RoundRecord> =
        row.get::<_, Option<&[u8]>>(3).map(|bytes| decode("open", bytes)).transpose()?;
    if let Some(open) = &mut open {
        let began: Option<i64> = row.get(4);
        open.began = began.map(number).transpose()?.map(WallTime);
    }
    let best: Option<&[u8]> = row.get(6);
    Ok(Held {
        run: decode("run", row.get(0))?,
        next_round: number(row.get(1))?,
        attempt: number(row.get::<_, i32>(2).into())?,
        open,
        strategy_state: known("strategy", ledger::strip_checksum("strategy", row.get(5)))?.to_vec(),
        best: best.map(|bytes| decode("best", bytes)).transpose()?,
        config: row.get(7),
        weights: number(row.get(8))?,
        devices: BTreeMap::new(),
        models: BTreeMap::new(),
        updates: BTreeMap::new(),
    })
}

fn model(row: &Row) -> Result<(u32, HeldModel), StoreError> {
    let held = HeldModel {
        object: row.get(1),
        bytes: number(row.get(2))?,
        crc: number(row.get(3))?,
        sha256: row.get(4),
    };
    Ok((number(row.get(0))?, held))
}

fn update(row: &Row) -> Result<(IndexKey, HeldUpdate), StoreError> {
    let (round, device): (i64, &str) = (row.get(0), row.get(2));
    let tag = receipt_tag(number(round)?, number(row.get::<_, i16>(1).into())?, device);
    let bytes = known(&tag, ledger::strip_checksum(&tag, row.get(4)))?;
    let entry = Entry::decode(bytes).ok_or_else(|| damaged(&tag))?;
    Ok((IndexKey::of(&entry.header), HeldUpdate { entry, segment: row.get(3) }))
}

/// The key of a receipt in its checksum.
pub(super) fn receipt_tag(round: u32, exchange: u8, device: &str) -> String {
    ledger::tag(&format!("update {exchange}"), round, device)
}

fn decoded<K: Ord, V>(
    rows: &[Row],
    decode: impl Fn(&Row) -> Result<(K, V), StoreError>,
) -> Result<BTreeMap<K, V>, StoreError> {
    rows.iter().map(decode).collect()
}

fn decode<T: DeserializeOwned>(tag: &str, bytes: &[u8]) -> Result<T, StoreError> {
    known(tag, ledger::decode(tag, bytes))
}

fn known<T>(tag: &str, decoded: Result<T, LedgerError>) -> Result<T, StoreError> {
    decoded.map_err(|_| damaged(tag))
}

fn damaged(tag: &str) -> StoreError {
    StoreError::Cluster { what: format!("the database is damaged: {tag} does not match its checksum") }
}

pub(super) fn number<T: TryFrom<i64>>(value: i64) -> Result<T, StoreError> {
    let what = || StoreError::Cluster { what: format!("the database is damaged: {value} is out of range") };
    T::try_from(value).map_err(|_| what())
}
