//! Reads the reports of all rounds one after another; this takes the memory of the longest line.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    fs::File,
    io::{self, BufRead, BufReader, Seek, SeekFrom},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use super::{
    files,
    line::{self, FaultReason, ParsedLine},
    tail,
};
use crate::store::StoreError;

/// Bytes beyond which a line is not kept in memory; a report of a hundred thousand devices is shorter.
pub(super) const LONGEST: usize = 1 << 28;
/// Faults that are listed; the others are counted.
const NAMED: usize = 100;

/// Which lines may lack a checksum.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(in crate::store) enum ChecksumRule {
    /// All: the store has format 4.
    Any,
    /// Those before the first line with one: the format is unknown.
    First,
    None,
}

/// A line that is not a report, and its place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LineFault {
    pub file: String,
    /// From 1; absent where reading began in the middle of the file.
    pub line: Option<usize>,
    /// The last round before it.
    pub after: Option<u32>,
    pub why: FaultReason,
}

impl fmt::Display for LineFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        match (self.line, self.after) {
            (Some(line), Some(round)) => write!(f, ", line {line}, after round {round}")?,
            (Some(line), None) => write!(f, ", line {line}")?,
            (None, Some(round)) => write!(f, ", the line after round {round}")?,
            (None, None) => f.write_str(", the first line that was read")?,
        }
        write!(f, ": {}", self.why)
    }
}

/// The lines that were skipped.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LineFaults {
    pub named: Vec<LineFault>,
    /// Number of faults that are not listed.
    pub more: usize,
}

impl LineFaults {
    fn add(&mut self, fault: LineFault) {
        if self.named.len() < NAMED {
            self.named.push(fault);
        } else {
            self.more += 1;
        }
    }

    pub fn is_empty(&self) -> bool {
        self.named.is_empty()
    }
}

/// A report of a round, as it was committed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Report<'a> {
    pub round: u32,
    /// JSON in one line.
    pub text: &'a str,
}

/// A line that was read.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(in crate::store) enum HistoryLine<'a> {
    Report(Report<'a>),
    /// Its bytes, as far as they are kept in memory.
    Damaged(&'a [u8]),
}

/// Reads the files of a store's history in order, also while a server writes to them.
pub struct ReportReader {
    waiting: VecDeque<QueuedFile>,
    /// Identifies the live file: if it becomes full meanwhile, it is the same file under another name.
    live: Option<(u64, u64)>,
    current: Option<OpenFile>,
    rule: ChecksumRule,
    /// A line with a checksum was read.
    seen_checksum: bool,
    last: Option<u32>,
    line: Vec<u8>,
    faults: LineFaults,
}

impl fmt::Debug for ReportReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReportReader").field("last", &self.last).finish_non_exhaustive()
    }
}

/// A file that is read later.
struct QueuedFile {
    path: PathBuf,
    /// Only the live one is open from the beginning.
    file: Option<File>,
    /// Start of its first wanted line.
    start: u64,
}

/// The file that is being read.
struct OpenFile {
    name: String,
    path: PathBuf,
    source: Box<dyn BufRead + Send>,
    /// Lines so far; absent if reading began in the middle.
    lines: Option<usize>,
    /// The file is no longer written: bytes after the last line end are damage.
    full: bool,
}

impl ReportReader {
    /// All reports of a store's directory; `None` if there is no file.
    pub fn open(dir: &Path) -> Result<Option<Self>, StoreError> {
        Self::with_rule(dir, ChecksumRule::First)
    }

    /// The reports of the last `count` lines, which are found from the end.
    pub fn last(dir: &Path, count: usize) -> Result<Option<Self>, StoreError> {
        let Some(mut reader) = Self::open(dir)? else { return Ok(None) };
        let mut wanted = VecDeque::new();
        let mut missing = count;
        while let Some(mut waiting) = reader.waiting.pop_back().filter(|_| missing > 0) {
            let Some(file) = reader.open_next(&mut waiting)? else { continue };
            let (start, found) = tail::last_lines(&file, missing).map_err(|e| failed(&waiting.path, e))?;
            missing -= found;
            // A full file is opened when it is read: there may be many.
            let file = (waiting.path == files::live(dir)).then_some(file);
            wanted.push_front(QueuedFile { path: waiting.path, file, start });
        }
        reader.waiting = wanted;
        Ok(Some(reader))
    }

    pub(in crate::store) fn with_rule(dir: &Path, rule: ChecksumRule) -> Result<Option<Self>, StoreError> {
        let path = files::live(dir);
        // Opened before the others are listed, so that no line is missed if it becomes full in between.
        let file = files::open_for_reading(&path).map_err(|source| failed(&path, source))?;
        Self::with_live(dir, file, rule)
    }

    pub(super) fn with_live(
        dir: &Path,
        file: Option<File>,
        rule: ChecksumRule,
    ) -> Result<Option<Self>, StoreError> {
        let path = files::live(dir);
        let identity = file.as_ref().map(identity).transpose().map_err(|source| failed(&path, source))?;
        let archives = files::archives(dir).map_err(|source| failed(dir, source))?;
        let full =
            archives.into_iter().map(|archive| QueuedFile { path: archive.path, file: None, start: 0 });
        let mut waiting: VecDeque<_> = full.collect();
        if file.is_some() {
            waiting.push_back(QueuedFile { path, file, start: 0 });
        }
        let (current, line, faults) = (None, Vec::new(), LineFaults::default());
        let reader =
            Self { waiting, live: identity, current, rule, seen_checksum: false, last: None, line, faults };
        Ok((!reader.waiting.is_empty()).then_some(reader))
    }

    /// The lines of one file alone.
    pub(super) fn of_file(path: PathBuf, file: File) -> Self {
        Self::of_source(path, Box::new(BufReader::new(file)))
    }

    fn of_source(path: PathBuf, source: Box<dyn BufRead + Send>) -> Self {
        let name = path.display().to_string();
        let current = Some(OpenFile { name, path, source, lines: Some(0), full: false });
        let (waiting, line, faults) = (VecDeque::new(), Vec::new(), LineFaults::default());
        Self {
            waiting,
            live: None,
            current,
            rule: ChecksumRule::First,
            seen_checksum: false,
            last: None,
            line,
            faults,
        }
    }

    /// The next report. Other lines are skipped: see [`ReportReader::faults`].
    pub fn read_next(&mut self) -> Result<Option<Report<'_>>, StoreError> {
        loop {
            match self.step()? {
                None => return Ok(None),
                Some(Some(round)) => return Ok(Some(Report { round, text: self.text()? })),
                Some(None) => {}
            }
        }
    }

    /// The next line of any kind, except empty ones.
    pub(in crate::store) fn next_line(&mut self) -> Result<Option<HistoryLine<'_>>, StoreError> {
        Ok(match self.step()? {
            None => None,
            Some(Some(round)) => Some(HistoryLine::Report(Report { round, text: self.text()? })),
            Some(None) => Some(HistoryLine::Damaged(&self.line)),
        })
    }

    /// The report that was read last.
    fn text(&self) -> Result<&str, StoreError> {
        let path = self.current.as_ref().map_or(Path::new("history"), |file| &file.path);
        str::from_utf8(&self.line)
            .map_err(|error| failed(path, io::Error::new(io::ErrorKind::InvalidData, error)))
    }

    /// The lines that were skipped so far.
    pub fn faults(&self) -> &LineFaults {
        &self.faults
    }

    pub fn into_faults(self) -> LineFaults {
        self.faults
    }

    /// Bytes that are held for lines and faults.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.line.capacity() + size_of::<LineFault>() * self.faults.named.capacity()
    }

    /// Reads a line into `self.line`. Returns its round; the inner `None` means that it is not a report.
    fn step(&mut self) -> Result<Option<Option<u32>>, StoreError> {
        loop {
            if self.current.is_none() && !self.open_following()? {
                return Ok(None);
            }
            let Some(part) = self.current.as_mut() else { continue };
            let read = read_line(&mut part.source, &mut self.line);
            let ended = match read.map_err(|source| failed(&part.path, source))? {
                LineEnd::Nothing => {
                    self.current = None;
                    continue;
                }
                ended => ended,
            };
            part.lines = part.lines.map(|lines| lines + 1);
            let whole = match ended {
                // It is being written. Its end may exist by now, but the end alone is not a line.
                LineEnd::InTheMiddle if !part.full => {
                    self.current = None;
                    continue;
                }
                LineEnd::InTheMiddle => Err(FaultReason::CutOff),
                LineEnd::TooLong => Err(FaultReason::TooLong),
                _ if self.line.is_empty() => continue,
                _ => Ok(()),
            };
            let after = self.last;
            let judged = whole.and_then(|()| line::parse(&mut self.line)).and_then(|line| self.judge(line));
            return match (judged, &self.current) {
                (Err(why), Some(OpenFile { name, lines, .. })) => {
                    self.faults.add(LineFault { file: name.clone(), line: *lines, after, why });
                    Ok(Some(None))
                }
                (judged, _) => Ok(Some(judged.ok())),
            };
        }
    }

    fn judge(&mut self, line: ParsedLine) -> Result<u32, FaultReason> {
        let allowed = match self.rule {
            ChecksumRule::Any => true,
            ChecksumRule::First => !self.seen_checksum,
            ChecksumRule::None => false,
        };
        self.seen_checksum |= line.has_checksum;
        if !line.has_checksum && !allowed {
            return Err(FaultReason::NoChecksum);
        }
        let round = line.round;
        // Also if it is out of order, so that one wrong number does not exclude all later lines.
        let before = self.last.replace(round);
        if before.is_some_and(|before| before >= round) {
            return Err(FaultReason::OutOfOrder { round });
        }
        Ok(round)
    }

    /// Opens the next file, if there is one more.
    fn open_following(&mut self) -> Result<bool, StoreError> {
        while let Some(mut waiting) = self.waiting.pop_front() {
            let full = waiting.file.is_none();
            let Some(mut file) = self.open_next(&mut waiting)? else { continue };
            let QueuedFile { path, start, .. } = waiting;
            file.seek(SeekFrom::Start(start)).map_err(|source| failed(&path, source))?;
            let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
            let lines = (start == 0).then_some(0);
            let source = Box::new(BufReader::with_capacity(1 << 16, file));
            self.current = Some(OpenFile { name, path, source, lines, full });
            return Ok(true);
        }
        Ok(false)
    }

    /// `None` if the file is gone, or is the live file under its new name.
    fn open_next(&self, waiting: &mut QueuedFile) -> Result<Option<File>, StoreError> {
        if let Some(file) = waiting.file.take() {
            return Ok(Some(file));
        }
        let wrap = |source| failed(&waiting.path, source);
        let Some(file) = files::open_for_reading(&waiting.path).map_err(wrap)? else { return Ok(None) };
        let same = self.live == Some(identity(&file).map_err(wrap)?);
        Ok((!same).then_some(file))
    }
}

/// The contents of a short history.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Reports {
    /// By round.
    pub reports: BTreeMap<u32, String>,
    /// Numbers of lines that are not reports, from 1.
    pub damaged: Vec<usize>,
}

impl Reports {
    /// Reads every report that is intact. `damaged` lists at most 100 lines.
    pub fn parse(bytes: &[u8]) -> Self {
        let mut reader = ReportReader::of_source(
            PathBuf::from("history.jsonl"),
            Box::new(io::Cursor::new(bytes.to_vec())),
        );
        let mut reports = BTreeMap::new();
        while let Ok(Some(Report { round, text })) = reader.read_next() {
            reports.insert(round, text.to_owned());
        }
        let damaged = reader.into_faults().named.into_iter().filter_map(|fault| fault.line).collect();
        Self { reports, damaged }
    }
}

fn identity(file: &File) -> io::Result<(u64, u64)> {
    file.metadata().map(|file| (file.dev(), file.ino()))
}

fn failed(path: &Path, source: io::Error) -> StoreError {
    StoreError::Io { path: path.to_owned(), source }
}

/// How a line ended.
enum LineEnd {
    AtItsEnd,
    /// At the end of the file: it is being written, or was cut off by a crash.
    InTheMiddle,
    /// Only its beginning is kept.
    TooLong,
    /// There is no further line.
    Nothing,
}

/// Replaces `line` by the next one, without its end.
fn read_line(source: &mut dyn BufRead, line: &mut Vec<u8>) -> io::Result<LineEnd> {
    line.clear();
    let mut too_long = false;
    let mut any = false;
    loop {
        let bytes = match source.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            bytes => bytes?,
        };
        if bytes.is_empty() {
            return Ok(if any { LineEnd::InTheMiddle } else { LineEnd::Nothing });
        }
        any = true;
        let end = bytes.iter().position(|&byte| byte == b'\n');
        let part = &bytes[..end.unwrap_or(bytes.len())];
        too_long |= line.len() + part.len() > LONGEST;
        if !too_long {
            line.extend_from_slice(part);
        }
        let used = part.len() + usize::from(end.is_some());
        source.consume(used);
        if end.is_some() {
            return Ok(if too_long { LineEnd::TooLong } else { LineEnd::AtItsEnd });
        }
    }
}
