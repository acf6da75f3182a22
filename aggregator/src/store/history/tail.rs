//! Reads a file of lines from its end, because it may hold the reports of years.

use std::{fs::File, io, os::unix::fs::FileExt};

use super::{line, reader::LONGEST};

/// Bytes that are searched for a line end at a time.
const BLOCK: u64 = 1 << 16;

/// Where the last `count` lines start, and how many of them there are. Bytes after the last line end are not a line.
pub(super) fn last_lines(file: &File, count: usize) -> io::Result<(u64, usize)> {
    let len = file.metadata()?.len();
    let mut start = end_of_lines(file, len)?;
    let mut found = 0;
    while found < count && start > 0 {
        start = start_of_line(file, start)?;
        found += 1;
    }
    Ok((start, found))
}

/// The last round that a line states; `None` if no line does.
pub(super) fn last_round(file: &File) -> io::Result<Option<u32>> {
    let mut end = file.metadata()?.len();
    while end > 0 {
        let start = start_of_line(file, end)?;
        if let Some(round) = round(file, start, end)? {
            return Ok(Some(round));
        }
        end = start;
    }
    Ok(None)
}

/// Where the lines of rounds before `first` end, if the file begins after round `before`.
///
/// A damaged line does not state its round. Each round has one line, so the missing rounds before `first` tell how many damaged
/// lines belong there. These lines stay: they are all that is left of their reports.
pub(super) fn end_before(file: &File, first: u32, before: u32) -> io::Result<u64> {
    let mut end = file.metadata()?.len();
    // Ends of the damaged lines between the last line of a round before `first` and the first of a later one.
    let mut damaged = Vec::new();
    let mut kept = (0, before);
    while end > 0 {
        let start = start_of_line(file, end)?;
        match round(file, start, end)? {
            Some(round) if round < first => {
                kept = (end, round);
                break;
            }
            Some(_) => damaged.clear(),
            None if ends_line(file, end)? => damaged.push(end),
            None => {}
        }
        end = start;
    }
    let (end, last) = kept;
    let missing = first.saturating_sub(1).saturating_sub(last) as usize;
    let stay = missing.min(damaged.len());
    Ok(if stay == 0 { end } else { damaged[damaged.len() - stay] })
}

/// Where the last whole line ends.
fn end_of_lines(file: &File, len: u64) -> io::Result<u64> {
    if len == 0 || ends_line(file, len)? { Ok(len) } else { start_of_line(file, len) }
}

fn ends_line(file: &File, end: u64) -> io::Result<bool> {
    let mut last = [0];
    file.read_exact_at(&mut last, end.saturating_sub(1))?;
    Ok(last == *b"\n")
}

/// The round of the line between two offsets; `None` if the line is damaged or has no end.
fn round(file: &File, start: u64, end: u64) -> io::Result<Option<u32>> {
    if end - start > LONGEST as u64 {
        return Ok(None);
    }
    let mut line = vec![0; (end - start) as usize];
    file.read_exact_at(&mut line, start)?;
    Ok(line
        .pop()
        .filter(|&byte| byte == b'\n')
        .and_then(|_| line::parse(&mut line).ok())
        .map(|line| line.round))
}

/// Where the line that ends at `end` starts.
fn start_of_line(file: &File, end: u64) -> io::Result<u64> {
    // The last byte is the end of this line, or the line has no end.
    let mut until = end.saturating_sub(1);
    while until > 0 {
        let from = until.saturating_sub(BLOCK);
        let mut block = vec![0; (until - from) as usize];
        file.read_exact_at(&mut block, from)?;
        if let Some(at) = block.iter().rposition(|&byte| byte == b'\n') {
            return Ok(from + at as u64 + 1);
        }
        until = from;
    }
    Ok(0)
}
