//! Leaves out blanks before a field, so that quotes behind them count: `1, "a, b"` has two fields.

use std::io::{self, Read};

/// Where in a line the next byte stands.
#[derive(Copy, Clone, Debug)]
enum Place {
    /// Before the first byte of a field.
    Start,
    /// In a field, where quotes have no meaning.
    Plain,
    Quoted,
    /// Behind a quote that ends the quoted part, unless another one follows.
    Closed,
}

/// Reads without the blanks before fields.
#[derive(Debug)]
pub(super) struct WithoutBlanks<R> {
    pub(super) inner: R,
    separator: u8,
    place: Place,
}

impl<R> WithoutBlanks<R> {
    pub(super) fn new(inner: R, separator: u8) -> Self {
        Self { inner, separator, place: Place::Start }
    }

    /// Whether the byte is kept.
    fn keep(&mut self, byte: u8) -> bool {
        let ends = byte == self.separator || byte == b'\n';
        self.place = match (self.place, byte) {
            (Place::Start, b' ') => return false,
            (Place::Start | Place::Closed, b'"') => Place::Quoted,
            (Place::Quoted, b'"') => Place::Closed,
            (Place::Quoted, _) => Place::Quoted,
            _ if ends => Place::Start,
            _ => Place::Plain,
        };
        true
    }
}

impl<R: Read> Read for WithoutBlanks<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.inner.read(bytes)?;
            let mut kept = 0;
            for at in 0..read {
                if self.keep(bytes[at]) {
                    bytes[kept] = bytes[at];
                    kept += 1;
                }
            }
            // Nothing but blanks is not the end.
            if kept > 0 || read == 0 {
                return Ok(kept);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn without(text: &str, step: usize) -> String {
        let (mut reader, mut out, mut part) =
            (WithoutBlanks::new(text.as_bytes(), b','), vec![], vec![0; step]);
        loop {
            match reader.read(&mut part).unwrap() {
                0 => return String::from_utf8(out).unwrap(),
                kept => out.extend_from_slice(&part[..kept]),
            }
        }
    }

    #[test]
    fn blanks_before_fields_are_left_out() {
        for step in [1, 2, 64] {
            assert_eq!(without("1,  \"a,  b\", c d , \n  2,\" x\"", step), "1,\"a,  b\",c d ,\n2,\" x\"");
            assert_eq!(without("\"a \"\",  b\"\"\", x\"y, z\"", step), "\"a \"\",  b\"\"\",x\"y,z\"");
        }
    }
}
