//! The history of a run that was computed elsewhere, as a store has it.

use std::{io, path::Path};

use common::files::{Secrecy, write_file};

use super::{files, line::with_checksum};

/// Writes reports, in the order of their rounds, as the history of a store without a ledger: for commands and pages that read.
pub fn write_history(store: &Path, reports: &[String]) -> io::Result<()> {
    let text: String = reports.iter().map(|report| with_checksum(report)).collect();
    write_file(&files::live(store), text, Secrecy::Secret)
}
