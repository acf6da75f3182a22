//! Lines of separated fields, with or without double quotes.
//!
//! Inside quotes, separators are part of the field and two quotes mean one. Blanks around a field are removed, also before
//! quotes. A row is one line, so an unclosed quote is reported where it is and not at the end of the file.

use std::io::{self, Chain, Cursor, Read};

use ::csv::{ErrorKind, Reader, ReaderBuilder, Terminator};

use super::{BoundedFile, LoadError, blanks::WithoutBlanks};

pub use ::csv::StringRecord as CsvRow;

/// The lines already read, the others, and a line break for the last line.
type Input = Chain<WithoutBlanks<Chain<Cursor<Vec<u8>>, Rest>>, &'static [u8]>;

/// A byte order mark, as spreadsheets write it.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// Ends at the limit without an error; the limit is checked afterwards.
#[derive(Debug)]
struct Rest(BoundedFile);

impl Read for Rest {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.reader.read(bytes)
    }
}

/// The rows of a file; empty lines are skipped.
#[derive(Debug)]
pub struct CsvRows {
    reader: Reader<Input>,
    row: CsvRow,
    /// Lines of the file before the first one that is read here.
    before: usize,
}

impl CsvRows {
    /// Lines that start with `comment` are skipped.
    pub fn new(source: BoundedFile, separator: u8, comment: Option<u8>) -> Self {
        Self::behind(Vec::new(), source, separator, comment)
    }

    /// The separator is the first comma, semicolon or tab outside quotes in the first line.
    pub fn detect(mut source: BoundedFile) -> Result<Self, LoadError> {
        let (mut head, mut from) = (Vec::new(), 0);
        while source.line_bytes(&mut head)? && head[from..].trim_ascii().is_empty() {
            from = head.len();
        }
        if head.starts_with(MARK) {
            head.drain(..MARK.len());
            from = from.saturating_sub(MARK.len());
        }
        let first = head[from..].trim_ascii_start();
        let mut quoted = false;
        let separator = first.iter().find(|byte| {
            quoted ^= **byte == b'"';
            !quoted && b",;\t".contains(byte)
        });
        let separator = separator.copied().unwrap_or(b',');
        Ok(Self::behind(head, source, separator, None))
    }

    fn behind(head: Vec<u8>, source: BoundedFile, separator: u8, comment: Option<u8>) -> Self {
        let mut builder = ReaderBuilder::new();
        builder.has_headers(false).flexible(true).delimiter(separator).comment(comment);
        // A carriage return before the line break is removed with the blanks.
        builder.terminator(Terminator::Any(b'\n'));
        let input = WithoutBlanks::new(Cursor::new(head).chain(Rest(source)), separator);
        let input = input.chain(b"\n".as_slice());
        Self { reader: builder.from_reader(input), row: CsvRow::new(), before: 0 }
    }

    /// Adds `before` to line numbers, for a file of which as many lines were already read.
    pub fn after(self, before: usize) -> Self {
        Self { before, ..self }
    }

    /// The next row and its line, counted from 1; `None` after the last.
    pub fn read(&mut self) -> Result<Option<(usize, &CsvRow)>, LoadError> {
        loop {
            let read = self.reader.read_record(&mut self.row);
            let line = self.before + self.reader.position().line() as usize;
            let (_, Rest(source)) = self.reader.get_ref().get_ref().0.inner.get_ref();
            source.check_limit()?;
            let path = || source.path.clone();
            let failed = |error: ::csv::Error| match error.kind() {
                ErrorKind::Utf8 { pos, err } => LoadError::Line {
                    path: path(),
                    line: pos.as_ref().map_or(line, |at| self.before + at.line() as usize),
                    problem: format!(
                        "column {} is no text in UTF-8; save the file as UTF-8, or convert it: iconv -f latin1 -t utf-8 {}",
                        err.field() + 1,
                        path().display()
                    ),
                },
                _ => LoadError::Read { path: path(), source: io::Error::from(error) },
            };
            if !read.map_err(failed)? {
                return Ok(None);
            }
            if self.row.as_slice().contains('\n') {
                let start = self.row.position().map_or(line, |start| self.before + start.line() as usize);
                let problem = "has a quote that is not closed".into();
                return Err(LoadError::Line { path: source.path.clone(), line: start, problem });
            }
            self.row.trim();
            if self.row.len() > 1 || self.row.get(0).is_some_and(|field| !field.is_empty()) {
                return Ok(Some((line - 1, &self.row)));
            }
        }
    }
}
