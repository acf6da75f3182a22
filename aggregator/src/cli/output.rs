//! What a command prints.

use std::io::{self, BufWriter, ErrorKind, Write};

use anyhow::Result;

/// A reader that has closed its end, as in `| head`, has seen enough: that is no failure.
pub(super) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        printed => printed,
    }
}

/// The same for what is printed bit by bit.
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
