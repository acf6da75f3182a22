//! Prints the output of a command in parts.

use std::io::{self, BufWriter, ErrorKind, Write};

use anyhow::Result;

/// A reader that has closed its end is not an error; see [`common::output::print`].
pub(super) fn stream(write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    let written = write(&mut out).and_then(|()| Ok(out.flush()?));
    match written {
        Err(error)
            if error.downcast_ref::<io::Error>().is_some_and(|io| io.kind() == ErrorKind::BrokenPipe) =>
        {
            // The buffered rest has no reader either.
            drop(out.into_parts());
            Ok(())
        }
        written => written,
    }
}
