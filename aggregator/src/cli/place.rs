//! Where commands find the files of the active run.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::runs::{self, RunName};

/// A gateway's directory and its active run.
#[derive(Debug)]
pub(super) struct Place {
    /// As on the command line: certificates, and the lock of the server.
    pub gateway: PathBuf,
    /// The name of the active run.
    pub name: RunName,
    /// Its files: configuration, store, model and status.
    pub run: PathBuf,
}

impl Place {
    pub fn of(gateway: &Path) -> Result<Self> {
        let name = runs::active(gateway).with_context(|| gateway.display().to_string())?;
        Ok(Self { gateway: gateway.to_owned(), run: name.dir(gateway), name })
    }
}
