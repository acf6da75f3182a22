//! Files on a shared machine: permissions, atomic replacement, and bounded reads.
//!
//! | helper | what it is for |
//! |---|---|
//! | [`AtomicFile`], [`write_file`] | replace a file as a whole or not at all; it is created with its final permissions |
//! | [`make_private_dir`], [`private`], [`tighten`] | directories and files that only their owner can access (0700, 0600) |
//! | [`read`], [`read_text`], [`open_regular`] | read a regular file up to a bound |

use std::{
    format,
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    string::String,
    vec::Vec,
};

/// Largest ONNX file in bytes: one protobuf message holds at most 2 GiB.
pub const MAX_MODEL: u64 = 2 << 30;
/// Largest certificate, key, token or board identity in bytes; real ones are far smaller.
pub const MAX_CREDENTIAL: u64 = 64 << 10;
/// Largest configuration in bytes; real ones are far smaller.
pub const MAX_CONFIG: u64 = 1 << 20;

/// Who may read a file.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Secrecy {
    /// All users of the machine (0644).
    Public,
    /// The owner and the owner's group (0640).
    Group,
    /// Only the owner (0600).
    Secret,
}

impl Secrecy {
    #[cfg(unix)]
    fn mode(self) -> u32 {
        match self {
            Self::Public => 0o644,
            Self::Group => 0o640,
            Self::Secret => 0o600,
        }
    }
}

/// A file that is written under a temporary name and then renamed. If it is dropped before that, the temporary file is removed.
#[derive(Debug)]
pub struct AtomicFile {
    file: File,
    temporary: PathBuf,
    path: PathBuf,
}

impl AtomicFile {
    /// Creates the temporary file with its final permissions. Fails early if the place cannot be written.
    pub fn create(path: &Path, secrecy: Secrecy) -> io::Result<Self> {
        if path.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        // No device's name contains this character.
        let mut temporary = path.as_os_str().to_owned();
        temporary.push("~");
        let temporary = PathBuf::from(temporary);
        // A leftover file may be readable by others, or be a symbolic link.
        let _ = fs::remove_file(&temporary);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, secrecy.mode());
        #[cfg(not(unix))]
        let _ = secrecy;
        Ok(Self { file: options.open(&temporary)?, temporary, path: path.to_owned() })
    }

    /// Writes the content and puts the file into its place, durably.
    pub fn commit(mut self, content: impl AsRef<[u8]>) -> io::Result<()> {
        self.file.write_all(content.as_ref())?;
        self.file.sync_all()?;
        self.rename()?;
        sync_parent(&self.path)
    }

    /// Writes the content and puts the file into its place. After a power cut the old file may be back.
    pub fn commit_unsynced(mut self, content: impl AsRef<[u8]>) -> io::Result<()> {
        self.file.write_all(content.as_ref())?;
        self.rename()
    }

    /// Fails if another process has replaced the temporary file since.
    fn rename(&self) -> io::Result<()> {
        if !is_file_at(&self.file, &self.temporary)? {
            return Err(io::Error::other("another process is writing this file; try again"));
        }
        fs::rename(&self.temporary, &self.path)
    }
}

/// For a file that is written in parts; `commit("")` puts it into its place.
impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        // After the rename there is no temporary file.
        if is_file_at(&self.file, &self.temporary).unwrap_or(false) {
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

#[cfg(unix)]
fn is_file_at(file: &File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let (ours, there) = (file.metadata()?, fs::symlink_metadata(path)?);
    Ok((ours.dev(), ours.ino()) == (there.dev(), there.ino()))
}

#[cfg(not(unix))]
fn is_file_at(_: &File, path: &Path) -> io::Result<bool> {
    path.try_exists()
}

/// Replaces a file durably.
pub fn write_file(path: &Path, content: impl AsRef<[u8]>, secrecy: Secrecy) -> io::Result<()> {
    AtomicFile::create(path, secrecy)?.commit(content)
}

/// Renames a file within its directory, durably. Its content is synced first.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    sync_parent(to)
}

/// Syncs the directory of a file, so that creations and renames in it are durable.
pub fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

/// Options that create a file with mode 0600.
pub fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Creates a directory with mode 0700, with its parents. An existing directory stays unchanged.
pub fn make_private_dir(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Removes the permissions of group and others from a directory and everything in it, which an earlier program may have
/// created. Links in it are not followed.
#[cfg(unix)]
pub fn tighten(dir: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let close = |path: &Path, mode: u32| {
        if mode & 0o077 == 0 {
            return Ok(());
        }
        match fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o700)) {
            // Removed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            closed => closed,
        }
    };
    // The directory first: after that, other users can open nothing in it.
    close(dir, fs::metadata(dir)?.permissions().mode())?;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let metadata = match entry.metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            metadata => metadata?,
        };
        if metadata.is_dir() {
            tighten(&entry.path())?;
        } else if metadata.is_file() {
            close(&entry.path(), metadata.permissions().mode())?;
        }
    }
    Ok(())
}

/// Does nothing where files have no Unix permissions.
#[cfg(not(unix))]
pub fn tighten(_: &Path) -> io::Result<()> {
    Ok(())
}

/// Opens a file for reading if it is a regular one: a device or a pipe may never end.
pub fn open_regular(path: &Path) -> io::Result<File> {
    // Checked before opening, because opening a pipe waits for its other end.
    expect_regular(&fs::metadata(path)?)?;
    let file = File::open(path)?;
    expect_regular(&file.metadata()?)?;
    Ok(file)
}

fn expect_regular(metadata: &fs::Metadata) -> io::Result<()> {
    if metadata.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if metadata.is_file() {
        return Ok(());
    }
    let what = "not a regular file (a device, a pipe or a socket); copy it to a file first";
    Err(io::Error::new(io::ErrorKind::InvalidInput, what))
}

/// Reads a regular file of at most `max` bytes.
pub fn read(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let file = open_regular(path)?;
    let too_large = || {
        let what = format!(
            "larger than {max} bytes, the limit for this kind of file; check that it is the right one"
        );
        io::Error::new(io::ErrorKind::InvalidInput, what)
    };
    let len = file.metadata()?.len();
    if len > max {
        return Err(too_large());
    }
    let mut bytes = Vec::with_capacity(usize::try_from(len).unwrap_or(0));
    // It may grow while it is read.
    file.take(max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max { Err(too_large()) } else { Ok(bytes) }
}

/// Reads a regular file of at most `max` bytes of text.
pub fn read_text(path: &Path, max: u64) -> io::Result<String> {
    let text = String::from_utf8(read(path, max)?);
    text.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.utf8_error()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_file_is_replaced_as_a_whole_and_only_then() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.key");
        write_file(&path, "old", Secrecy::Public).unwrap();
        let file = AtomicFile::create(&path, Secrecy::Secret).unwrap();
        // Half of a key is written, then the power fails.
        (&file.file).write_all(b"ne").unwrap();
        assert_eq!(mode(&file.temporary), 0o600);
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        drop(file);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left of it");

        let before = File::open(&path).unwrap();
        write_file(&path, "new", Secrecy::Secret).unwrap();
        assert_eq!(
            io::read_to_string(before).unwrap(),
            "old",
            "a reader sees either the old or the new file"
        );
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), mode(&path)), ("new", 0o600));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_leftover_symlink_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (path, elsewhere) = (dir.path().join("a.key"), dir.path().join("elsewhere"));
        fs::write(&elsewhere, "untouched").unwrap();
        symlink(&elsewhere, dir.path().join("a.key~")).unwrap();
        write_file(&path, "secret", Secrecy::Secret).unwrap();
        assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "untouched");
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), mode(&path)), ("secret", 0o600));
    }

    #[test]
    fn a_temporary_file_of_another_process_is_not_renamed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.key");
        let first = AtomicFile::create(&path, Secrecy::Secret).unwrap();
        let second = AtomicFile::create(&path, Secrecy::Secret).unwrap();
        first.commit("first").unwrap_err();
        assert!(!path.exists());
        second.commit("second").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "second");
    }

    #[test]
    fn create_fails_if_the_place_cannot_be_written() {
        let dir = tempfile::tempdir().unwrap();
        assert!(AtomicFile::create(&dir.path().join("missing/a.key"), Secrecy::Secret).is_err());
        fs::create_dir(dir.path().join("a.key")).unwrap();
        assert!(AtomicFile::create(&dir.path().join("a.key"), Secrecy::Secret).is_err());
    }

    #[test]
    fn a_directory_of_an_earlier_program_is_closed_to_others() {
        let dir = tempfile::tempdir().unwrap();
        let (store, outside) = (dir.path().join("store"), dir.path().join("outside"));
        fs::create_dir_all(store.join("spool")).unwrap();
        for file in [&store.join("a"), &store.join("spool/b"), &outside] {
            fs::write(file, "").unwrap();
            fs::set_permissions(file, fs::Permissions::from_mode(0o644)).unwrap();
        }
        symlink(&outside, store.join("link")).unwrap();
        for dir in [&store, &store.join("spool")] {
            fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
        }
        tighten(&store).unwrap();
        assert_eq!([mode(&store), mode(&store.join("spool"))], [0o700; 2]);
        assert_eq!([mode(&store.join("a")), mode(&store.join("spool/b"))], [0o600; 2]);
        assert_eq!(mode(&outside), 0o644, "a link is not followed");
        make_private_dir(&dir.path().join("new/dir")).unwrap();
        assert_eq!(mode(&dir.path().join("new/dir")), 0o700);
        private().create(true).append(true).open(dir.path().join("f")).unwrap();
        assert_eq!(mode(&dir.path().join("f")), 0o600);
    }

    #[test]
    fn only_regular_files_up_to_a_bound_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model");
        fs::write(&path, [7; 100]).unwrap();
        assert_eq!(read(&path, 100).unwrap(), [7; 100]);
        let error = read(&path, 99).unwrap_err().to_string();
        assert!(error.contains("larger than 99 bytes"), "{error}");
        for device in ["/dev/zero", "/dev/null"] {
            let error = read(Path::new(device), 100).unwrap_err().to_string();
            assert!(error.contains("not a regular file"), "{error}");
        }
        assert_eq!(read(dir.path(), 100).unwrap_err().kind(), io::ErrorKind::IsADirectory);
        assert_eq!(read(&dir.path().join("none"), 9).unwrap_err().kind(), io::ErrorKind::NotFound);
        // A sparse file: it takes no disk space, but reading it would take all memory.
        File::create(&path).unwrap().set_len(1 << 40).unwrap();
        assert!(read(&path, MAX_MODEL).unwrap_err().to_string().contains("larger than"));
    }
}
