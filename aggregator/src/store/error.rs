//! What can go wrong with a store, and what to do about it.

use std::{
    io,
    path::{Path, PathBuf},
};

use super::{ModelFingerprint, migrate};

/// What a store refuses, and how its files fail.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each variant has its message")]
#[non_exhaustive]
pub enum StoreError {
    #[error("{path} is damaged: {what}. {}", consequence(.path), path = .path.display())]
    Damaged { path: PathBuf, what: String },
    #[error("{path} is in use by another process; stop that one or choose another directory", path = .path.display())]
    Locked { path: PathBuf },
    #[error("{path} has format {found}, and this program reads formats {oldest} to {known}. {}",
        other_format(*.found), path = .path.display(), oldest = migrate::OLDEST)]
    Format { path: PathBuf, found: u32, known: u32 },
    #[error("the stored run is of a model with digest {:08x}, {} parameters and {} tiers, not of digest {:08x}, {} parameters and {} tiers; use the stored run's model and tiers, begin another run with `fairtier gateway run new NAME`, or use another directory",
        .stored.digest, .stored.parameters, .stored.tiers.len(), .given.digest, .given.parameters, .given.tiers.len())]
    OtherModel { stored: ModelFingerprint, given: ModelFingerprint },
    #[error("the store already holds a run; load it, or begin in another directory")]
    AlreadyBegun,
    #[error("no run has begun in this store")]
    NotBegun,
    #[error(
        "the model of round {round} is not kept; kept are those of rounds {kept:?} (store.keep_models says how many; the best one stays kept)"
    )]
    NoModel { round: u32, kept: Vec<u32> },
    #[error("round {got} does not fit: {}", .open.map_or("no round is open".to_owned(), |open| format!("round {open} is open")))]
    WrongRound { open: Option<u32>, got: u32 },
    #[error("round {got} cannot be opened; the next one is {next}")]
    NotNext { next: u32, got: u32 },
    #[error("the model has {expected} parameters, got {got}")]
    WrongLength { expected: u64, got: usize },
    #[error("an update record is too long for the spool")]
    TooLong,
    #[error("another gateway leads the cluster")]
    Fenced,
    #[error("the database of the cluster does not answer: {what}")]
    Away { what: String },
    #[error("cluster: {what}")]
    Cluster { what: String },
    #[error("{path}: {source}", path = .path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{path}: {source}", path = .path.display())]
    Database { path: PathBuf, source: Box<redb::Error> },
}

impl StoreError {
    /// Whether the disk has no room for what must be written.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_full(source))
    }
}

pub(crate) fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// The next step for a store that this version cannot read.
fn other_format(found: u32) -> &'static str {
    if found < migrate::OLDEST {
        "It was written by an older version that this one cannot migrate from; open it once with a version in between, \
         or use the version that wrote it"
    } else {
        "It was written by a newer version of this program; use that version, or another directory"
    }
}

/// What the damage of a file affects, and what each remedy keeps.
fn consequence(path: &Path) -> &'static str {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("model") => {
            "It is the model of a finished round; acknowledged updates are in other files. \
             A backup of this file keeps everything. Without one, `fairtier gateway rollback` to an earlier model keeps the rounds \
             up to that one; later rounds, and the updates of the open round, are trained again"
        }
        Some("spool") => {
            "It holds updates that were acknowledged, and at least one of them cannot be used. \
             A backup of this file keeps everything. Without one, `fairtier gateway rollback` to the last finished round keeps all \
             finished rounds; devices train the updates of the open round again"
        }
        _ => {
            "It says which updates and models count, so acknowledged updates cannot be used without it. \
             A backup of the whole directory keeps the rounds up to that backup. Without one, begin a new run in another \
             directory; the last model is in model.onnx here, and the reports are in the files of the history"
        }
    }
}
