//! What came with format 6: the best model, the configuration of the last round, the weights that the run began with, and when
//! the open round began.
//!
//! All four are keys of the ledger's `meta`. A store of an older format has none of them.

use redb::{ReadableTable, Table, WriteTransaction};
use serde::Deserialize;

use super::{
    BestModel,
    ledger::{self, LedgerError, META, MODELS},
    model::ModelRecord,
};

/// The format that they came with.
pub(super) const SINCE: u32 = 6;

/// See the module.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Extras {
    pub best: Option<BestModel>,
    pub config: Option<String>,
    pub weights: Option<u32>,
    /// Milliseconds since 1970.
    pub began: Option<u64>,
}

/// The ledger's table of single values.
type Meta<'txn> = Table<'txn, &'static str, &'static [u8]>;

impl Extras {
    pub fn read(
        meta: &impl ReadableTable<&'static str, &'static [u8]>,
        format: u32,
    ) -> Result<Self, LedgerError> {
        if format < SINCE {
            return Ok(Self::default());
        }
        let bytes = |key: &str| {
            let value = meta.get(key)?.map(|value| value.value().to_vec());
            value.ok_or_else(|| LedgerError::Damaged(format!("{key} is missing")))
        };
        Ok(Self {
            best: ledger::decode("best", &bytes("best")?)?,
            config: ledger::decode("config", &bytes("config")?)?,
            weights: ledger::decode("weights", &bytes("weights")?)?,
            began: ledger::decode("began", &bytes("began")?)?,
        })
    }

    pub fn write(&self, meta: &mut Meta<'_>) -> Result<(), LedgerError> {
        write_best(meta, self.best.as_ref())?;
        meta.insert("config", ledger::encode("config", &self.config)?.as_slice())?;
        meta.insert("weights", ledger::encode("weights", &self.weights)?.as_slice())?;
        write_began(meta, self.began)
    }
}

pub(super) fn write_best(meta: &mut Meta<'_>, best: Option<&BestModel>) -> Result<(), LedgerError> {
    meta.insert("best", ledger::encode("best", &best)?.as_slice())?;
    Ok(())
}

pub(super) fn write_config(meta: &mut Meta<'_>, config: &str) -> Result<(), LedgerError> {
    meta.insert("config", ledger::encode("config", &Some(config))?.as_slice())?;
    Ok(())
}

pub(super) fn write_began(meta: &mut Meta<'_>, began: Option<u64>) -> Result<(), LedgerError> {
    meta.insert("began", ledger::encode("began", &began)?.as_slice())?;
    Ok(())
}

/// From 5 to 6: adds the keys to a run that has begun. Its initial weights are known if their model is still kept.
pub(super) fn add(txn: &WriteTransaction) -> Result<(), LedgerError> {
    let mut meta = txn.open_table(META)?;
    if meta.get("run")?.is_none() {
        return Ok(());
    }
    let models = txn.open_table(MODELS)?;
    let initial = models.get(0)?;
    let initial =
        initial.map(|value| ledger::decode::<ModelRecord>(&ledger::tag("model", 0, ""), value.value()));
    let weights = initial.transpose()?.map(|model| model.crc);
    Extras { weights, ..Extras::default() }.write(&mut meta)
}

/// After a rollback to a round: the best model that is left. `report`: that of the round. `kept`: rounds whose models are.
pub(super) fn after_rollback(
    best: Option<BestModel>,
    to: u32,
    report: Option<&str>,
    kept: &[u32],
) -> Option<BestModel> {
    #[derive(Deserialize)]
    struct Recorded {
        best: Option<BestModel>,
    }
    match best? {
        // The models after it that stay were measured; that of round `to` is measured again.
        best if best.round <= to => {
            Some(BestModel { unimproved: best.unimproved.min((to - best.round).saturating_sub(1)), ..best })
        }
        // The best one of that time, if it has stayed.
        _ => {
            let recorded = serde_json::from_str::<Recorded>(report?).ok()?.best;
            recorded.filter(|best| best.round <= to && kept.contains(&best.round))
        }
    }
}
