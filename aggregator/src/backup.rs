//! Backups of a gateway: one tar file with everything that a run needs to go on.
//!
//! ```text
//! fairtier.toml, and the files beside it that it names   configuration, model, probe
//! identity/..  revoked.jsonl                             the fleet's certificates and keys
//! scales.json  status.json
//! store/..                                               ledger, spools, models, history: a snapshot
//! runs/active  runs/NAME/..                              instead of configuration and store: the active run, if it has a name
//! manifest.json                                          last: version, run, length and SHA-256 of every file
//! ```
//! The manifest is the last entry, so an archive without it is incomplete. Round files (`rounds/`) and `model.onnx` are left
//! out: a run does not read the former and writes the latter when it starts.

use std::{io, path::PathBuf};

use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};

use crate::{ca::CaError, runs::RunsError, store::StoreError};

mod archive;
mod restore;

pub use archive::write;
pub use restore::restore;

/// Of the archive. Raised when a file moves or its meaning changes.
pub const FORMAT: u32 = 1;
const MANIFEST: &str = "manifest.json";
const CONFIG: &str = "fairtier.toml";

/// What an archive holds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// Of the archive.
    pub format: u32,
    /// Version of the program that wrote it.
    pub program: String,
    /// Seconds since 1970.
    pub created: u64,
    /// The run, if one had begun, as in tickets and logs.
    pub run: Option<String>,
    /// Rounds that were committed.
    pub committed: u32,
    /// The round that was open.
    pub open: Option<u32>,
    pub files: Vec<ArchivedFile>,
    /// Files that the configuration names and that lie outside the gateway's directory.
    pub outside: Vec<String>,
    /// Runs of the directory that are not in the archive: all but the active one.
    #[serde(default)]
    pub runs_left_out: Vec<String>,
}

/// One file of an archive.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ArchivedFile {
    /// Below the gateway's directory.
    pub name: String,
    pub bytes: u64,
    /// Hexadecimal.
    pub sha256: String,
}

impl Manifest {
    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }
}

/// Why a backup cannot be written or restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    #[error("{path}: {source}", path = .path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("the archive cannot be written: {0}")]
    Write(io::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Authority(#[from] CaError),
    #[error(transparent)]
    Runs(#[from] RunsError),
    #[error("{path}: has become shorter while it was read; try again", path = .0.display())]
    Changed(PathBuf),
    #[error("{path} is not empty; restore into a new directory", path = .0.display())]
    NotEmpty(PathBuf),
    #[error("{path} is left of an interrupted restore; remove it, then try again", path = .0.display())]
    LeftOver(PathBuf),
    #[error("{archive}: {what}; nothing was restored: use another backup", archive = .archive.display())]
    Damaged { archive: PathBuf, what: String },
    #[error(
        "{archive}: a backup of format {found}, and this program reads up to format {FORMAT}; use the program that wrote it",
        archive = .archive.display()
    )]
    Format { archive: PathBuf, found: u32 },
}

/// Counts and hashes what passes through.
struct Digest {
    context: Context,
    bytes: u64,
}

impl Digest {
    fn new() -> Self {
        Self { context: Context::new(&SHA256), bytes: 0 }
    }

    fn update(&mut self, bytes: &[u8]) {
        self.context.update(bytes);
        self.bytes += bytes.len() as u64;
    }

    fn file(self, name: &str) -> ArchivedFile {
        let sha256 = self.context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        ArchivedFile { name: name.to_owned(), bytes: self.bytes, sha256 }
    }
}
