//! What a command prints bit by bit.

use std::io::{self, BufWriter, ErrorKind, Write};

use anyhow::Result;

/// A reader that has closed its end has seen enough; see [`common::output::print`].
pub(super) fn stream(write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    let written = write(&mut out).and_then(|()| Ok(out.flush()?));
    match written {
        Err(error)
            if error.downcast_ref::<io::Error>().is_some_and(|io| io.kind() == ErrorKind::BrokenPipe) =>
        {
            // What is still buffered has no reader either.
            drop(out.into_parts());
            Ok(())
        }
        written => written,
    }
}
