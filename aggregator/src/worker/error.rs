//! Why a run cannot go on.

use std::{io, path::PathBuf};

use common::Code;
use coordinator::conductor::Divergence;
use models::onnx;

use crate::store::{StoreError, is_full};

/// What ends a worker. It is never the fault of a device.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each variant has its message")]
#[non_exhaustive]
pub enum WorkerError {
    #[error("{code}: {0}", code = .0.code())]
    Store(#[from] StoreError),
    #[error("the model cannot be exported: {0}")]
    Export(#[from] onnx::ExportError),
    #[error("the model cannot be sliced: {0}")]
    Slice(#[from] models::graph::SliceError),
    #[error("the model cannot be sliced: {0}")]
    Length(#[from] common::slice::WrongLength),
    #[error(transparent)]
    Schema(#[from] crate::scales::ScalesError),
    #[error("a report cannot be written as JSON: {0}")]
    Report(#[from] serde_json::Error),
    #[error(
        "{code}: {why}; round {round} is refused, and {}",
        model_of.map_or("the model stays".to_owned(), |of| format!("the model is that of round {of} again")),
        code = Code::Diverged
    )]
    Diverged { round: u32, model_of: Option<u32>, why: Divergence },
    #[error("{path}: {source}", path = .path.display())]
    Write { path: PathBuf, source: io::Error },
}

impl WorkerError {
    /// Whether stored data is damaged, or the database has failed for an unknown reason.
    pub(crate) fn is_damage(&self) -> bool {
        matches!(self, Self::Store(StoreError::Damaged { .. } | StoreError::Database { .. }))
    }

    /// Whether the disk has no room for what must be written.
    pub(crate) fn is_full(&self) -> bool {
        match self {
            Self::Store(failed) => failed.is_full(),
            Self::Write { source, .. } => is_full(source),
            _ => false,
        }
    }
}
