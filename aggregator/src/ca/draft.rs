//! Files that are there whole or not at all, also after a power cut.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

/// Who may read a file.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Secrecy {
    Public,
    /// Only the owner (0600).
    Secret,
}

/// A file on its way to its place: it is written beside it and then renamed. Dropped before that, nothing is left.
#[derive(Debug)]
pub struct Draft {
    file: File,
    part: PathBuf,
    path: PathBuf,
}

impl Draft {
    /// Fails where the file could not be written, before anything depends on it. It has its permissions from the
    /// first moment on.
    pub fn open(path: &Path, secrecy: Secrecy) -> io::Result<Self> {
        if path.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        // No device's name contains this character.
        let mut part = path.as_os_str().to_owned();
        part.push("~");
        let part = PathBuf::from(part);
        // What was left there may be readable by others, or lead elsewhere.
        let _ = fs::remove_file(&part);
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        {
            use std::os::unix::fs::OpenOptionsExt;
            options.mode(if secrecy == Secrecy::Secret { 0o600 } else { 0o644 });
        }
        Ok(Self { file: options.open(&part)?, part, path: path.to_owned() })
    }

    /// Puts the file into its place, for good.
    pub fn keep(mut self, content: impl AsRef<[u8]>) -> io::Result<()> {
        self.file.write_all(content.as_ref())?;
        self.file.sync_all()?;
        fs::rename(&self.part, &self.path)?;
        sync_parent(&self.path)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // Once it is in its place, there is none.
        let _ = fs::remove_file(&self.part);
    }
}

/// Replaces a file.
pub fn write_file(path: &Path, content: impl AsRef<[u8]>, secrecy: Secrecy) -> io::Result<()> {
    Draft::open(path, secrecy)?.keep(content)
}

/// Makes durable which files a file's directory has.
pub(super) fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_file_is_replaced_as_a_whole_and_only_then() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.key");
        write_file(&path, "old", Secrecy::Public).unwrap();
        let draft = Draft::open(&path, Secrecy::Secret).unwrap();
        // Half of a key, and then the power fails.
        (&draft.file).write_all(b"ne").unwrap();
        assert_eq!(mode(&draft.part), 0o600);
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        drop(draft);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left of it");

        let before = File::open(&path).unwrap();
        write_file(&path, "new", Secrecy::Secret).unwrap();
        assert_eq!(io::read_to_string(before).unwrap(), "old", "who reads it sees one or the other");
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), mode(&path)), ("new", 0o600));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_was_left_by_another_is_neither_used_nor_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (path, elsewhere) = (dir.path().join("a.key"), dir.path().join("elsewhere"));
        fs::write(&elsewhere, "untouched").unwrap();
        std::os::unix::fs::symlink(&elsewhere, dir.path().join("a.key~")).unwrap();
        write_file(&path, "secret", Secrecy::Secret).unwrap();
        assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "untouched");
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), mode(&path)), ("secret", 0o600));
    }

    #[test]
    fn a_place_that_can_not_be_written_is_noticed_before() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Draft::open(&dir.path().join("missing/a.key"), Secrecy::Secret).is_err());
        fs::create_dir(dir.path().join("a.key")).unwrap();
        assert!(Draft::open(&dir.path().join("a.key"), Secrecy::Secret).is_err());
    }
}
