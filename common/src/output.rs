//! What a command prints. `println!` panics when the reader has gone.

use std::io::{self, ErrorKind, Write};

/// A reader that has closed its end, as in `| head`, has seen enough: that is no failure.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        printed => printed,
    }
}
