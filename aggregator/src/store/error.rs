//! What can go wrong with a store, and what to do about it.

use std::{
    io,
    path::{Path, PathBuf},
};

use super::ModelMark;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    #[error("{path}: stored data is damaged ({what}); nothing was changed; {}", remedy(.path), path = .path.display())]
    Damaged { path: PathBuf, what: String },
    #[error("{path} is in use by another process; stop that one or choose another directory", path = .path.display())]
    Locked { path: PathBuf },
    #[error("{path} has format {found}, this program reads format {known}; use the program that wrote it or another directory", path = .path.display())]
    Format { path: PathBuf, found: u32, known: u32 },
    #[error("the stored run is of a model with digest {:08x}, {} parameters and {} tiers, not of digest {:08x}, {} parameters and {} tiers; use the stored run's model and tiers, or another directory",
        .stored.digest, .stored.parameters, .stored.tiers.len(), .given.digest, .given.parameters, .given.tiers.len())]
    OtherModel { stored: ModelMark, given: ModelMark },
    #[error("the store already holds a run; load it, or begin in another directory")]
    AlreadyBegun,
    #[error("no run has begun in this store")]
    NotBegun,
    #[error(
        "the model of round {round} is not kept; kept are those of rounds {kept:?} (store.keep_models says how many)"
    )]
    NoModel { round: u32, kept: Vec<u32> },
    #[error("round {got} does not fit: {}", .open.map_or("no round is open".to_owned(), |open| format!("round {open} is open")))]
    WrongRound { open: Option<u32>, got: u32 },
    #[error("round {got} can not be opened; the next one is {next}")]
    NotNext { next: u32, got: u32 },
    #[error("the model has {expected} parameters, got {got}")]
    WrongLength { expected: u64, got: usize },
    #[error("an update record is too long for the spool")]
    TooLong,
    #[error("{path}: {source}", path = .path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{path}: {source}", path = .path.display())]
    Database { path: PathBuf, source: Box<redb::Error> },
}

impl StoreError {
    /// Whether there is no room on the disk for what has to be written.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_full(source))
    }
}

pub(crate) fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

fn remedy(path: &Path) -> &'static str {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("model") => {
            "restore it from a backup, go back to an earlier model with `aggregator rollback`, or start a new run in another directory"
        }
        Some("spool") => {
            "restore it from a backup, give up its round with `aggregator rollback`, or start a new run in another directory"
        }
        _ => "restore it from a backup or start a new run in another directory",
    }
}
