//! The files of the history: the live one, and those that are full.
//!
//! ```text
//! DIR/history-000001-010000.jsonl   full: no longer written, except by a rollback into it
//! DIR/history.jsonl                 live: rounds after those
//! ```

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

const LIVE: &str = "history.jsonl";

/// A full file.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Archive {
    pub first: u32,
    pub last: u32,
    pub path: PathBuf,
}

pub(super) fn live(dir: &Path) -> PathBuf {
    dir.join(LIVE)
}

/// The name of a full file.
pub(super) fn archive(dir: &Path, first: u32, last: u32) -> PathBuf {
    dir.join(format!("history-{first:06}-{last:06}.jsonl"))
}

/// The full files, by round.
pub(super) fn archives(dir: &Path) -> io::Result<Vec<Archive>> {
    let mut found = Vec::new();
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if let Some((first, last)) = entry.file_name().to_str().and_then(rounds_of) {
            found.push(Archive { first, last, path: entry.path() });
        }
    }
    found.sort_unstable();
    Ok(found)
}

fn rounds_of(name: &str) -> Option<(u32, u32)> {
    let (first, last) = name.strip_prefix("history-")?.strip_suffix(".jsonl")?.split_once('-')?;
    let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?;
    Some((number(first)?, number(last)?))
}

/// Opens a report file for writing, private to its owner.
pub(in crate::store) fn open_for_writing(path: &Path, how: &mut OpenOptions) -> io::Result<File> {
    how.mode(0o600).open(path)
}

/// Opens a file for reading, if it exists.
pub(super) fn open_for_reading(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        file => file.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_files_are_found_by_round_and_others_are_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let paths = [(1_000_001, 2_000_000), (1, 10_000), (10_001, 1_000_000)].map(|(first, last)| {
            let path = archive(dir.path(), first, last);
            fs::write(&path, "").unwrap();
            path
        });
        for name in ["history.jsonl", "history-1.jsonl", "history-a-b.jsonl", "history-+1-2.jsonl", "x"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let found: Vec<_> = archives(dir.path()).unwrap().into_iter().map(|file| file.path).collect();
        assert_eq!(found, [&paths[1], &paths[2], &paths[0]].map(Clone::clone));
        assert_eq!(archives(&dir.path().join("none")).unwrap(), []);
    }
}
