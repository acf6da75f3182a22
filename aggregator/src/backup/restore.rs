//! Restores an archive into a new directory: as a whole or not at all.

use std::{
    collections::BTreeMap,
    fmt::Display,
    fs::{self, File, Permissions},
    io::{self, Read, Write},
    os::unix::fs::PermissionsExt,
    path::{Component, Path, PathBuf},
};

use common::files;
use tar::{Archive, EntryType};

use super::{ArchivedFile, BackupError, CONFIG, Digest, FORMAT, MANIFEST, Manifest};
use crate::{runs, store::DiskStore};

/// Largest manifest in bytes; a file needs about 200.
const MAX_MANIFEST: u64 = 64 << 20;
const PART: usize = 64 << 10;

/// Restores `archive` into `dir`, which must not exist or be empty.
pub fn restore(archive: &Path, dir: &Path) -> Result<Manifest, BackupError> {
    expect_empty(dir)?;
    let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(parent).map_err(|source| failed(parent, source))?;
    let staging = Staging::create(dir)?;
    let manifest = Unpacking { archive, to: &staging.0, found: BTreeMap::new() }.run()?;
    let own = runs::active_dir(&staging.0)?;
    let store = own.join("store");
    if store.is_dir() {
        let damaged = |what: String| BackupError::Damaged { archive: archive.to_owned(), what };
        let verified = DiskStore::verify(&store)?;
        if let Some(problem) = verified.problems.into_iter().next() {
            return Err(damaged(problem));
        }
        DiskStore::mark_restored(&store)?;
    }
    for (name, mode) in [(CONFIG, 0o644), ("status.json", 0o640)] {
        let path = own.join(name);
        if path.exists() {
            fs::set_permissions(&path, Permissions::from_mode(mode))
                .map_err(|source| failed(&path, source))?;
        }
    }
    sync_dirs(&staging.0)?;
    // Replaces an empty directory.
    files::rename(&staging.0, dir).map_err(|source| failed(dir, source))?;
    Ok(manifest)
}

fn expect_empty(dir: &Path) -> Result<(), BackupError> {
    match fs::read_dir(dir).map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(()),
        Ok(false) => Err(BackupError::NotEmpty(dir.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(failed(dir, source)),
    }
}

/// A directory beside the new one, which is removed unless it is renamed.
struct Staging(PathBuf);

impl Staging {
    fn create(dir: &Path) -> Result<Self, BackupError> {
        let mut path = dir.components().as_path().as_os_str().to_owned();
        path.push("~");
        let path = PathBuf::from(path);
        match fs::create_dir(&path) {
            Ok(()) => Ok(Self(path)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(BackupError::LeftOver(path)),
            Err(source) => Err(failed(&path, source)),
        }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // After the rename it does not exist under this name.
        let _ = fs::remove_dir_all(&self.0);
    }
}

struct Unpacking<'a> {
    archive: &'a Path,
    to: &'a Path,
    found: BTreeMap<String, ArchivedFile>,
}

impl Unpacking<'_> {
    fn run(mut self) -> Result<Manifest, BackupError> {
        let file = files::open_regular(self.archive).map_err(|source| failed(self.archive, source))?;
        let mut tar = Archive::new(io::BufReader::new(file));
        let mut manifest = None;
        for entry in tar.entries().map_err(|error| self.damaged(error))? {
            let mut entry = entry.map_err(|error| self.damaged(error))?;
            let path = entry.path().map_err(|error| self.damaged(error))?.into_owned();
            let plain = path.components().all(|part| matches!(part, Component::Normal(_)));
            let Some(name) = path.to_str().filter(|name| plain && !name.is_empty()) else {
                return Err(self.damaged(format!("it names the path {path:?}")));
            };
            if entry.header().entry_type() != EntryType::Regular || manifest.is_some() {
                return Err(self.damaged(format!("unexpected entry {name}")));
            }
            if name == MANIFEST {
                let mut text = Vec::new();
                let read = entry.take(MAX_MANIFEST).read_to_end(&mut text);
                read.map_err(|error| self.damaged(error))?;
                manifest = Some(self.manifest(&text)?);
            } else {
                self.unpack(name, &mut entry)?;
            }
        }
        let manifest =
            manifest.ok_or_else(|| self.damaged(format!("{MANIFEST} is missing: the file is incomplete")))?;
        self.compare(&manifest)?;
        Ok(manifest)
    }

    fn manifest(&self, text: &[u8]) -> Result<Manifest, BackupError> {
        let value: serde_json::Value =
            serde_json::from_slice(text).map_err(|error| self.damaged(format!("{MANIFEST}: {error}")))?;
        // Before the rest, which another format may state in another way.
        match value["format"].as_u64() {
            Some(found) if found > u64::from(FORMAT) => {
                let found = u32::try_from(found).unwrap_or(u32::MAX);
                Err(BackupError::Format { archive: self.archive.to_owned(), found })
            }
            _ => serde_json::from_value(value).map_err(|error| self.damaged(format!("{MANIFEST}: {error}"))),
        }
    }

    fn unpack(&mut self, name: &str, content: &mut impl Read) -> Result<(), BackupError> {
        let path = self.to.join(name);
        if let Some(parent) = path.parent().filter(|parent| *parent != self.to) {
            files::make_private_dir(parent).map_err(|source| failed(parent, source))?;
        }
        let created = files::private().write(true).create_new(true).open(&path);
        let mut file = created.map_err(|source| failed(&path, source))?;
        let (mut digest, mut part) = (Digest::new(), vec![0; PART]);
        loop {
            let read = content.read(&mut part).map_err(|error| self.damaged(format!("{name}: {error}")))?;
            if read == 0 {
                break;
            }
            digest.update(&part[..read]);
            file.write_all(&part[..read]).map_err(|source| failed(&path, source))?;
        }
        file.sync_all().map_err(|source| failed(&path, source))?;
        self.found.insert(name.to_owned(), digest.file(name));
        Ok(())
    }

    /// Fails if any file is missing, changed, or not in the manifest.
    fn compare(&mut self, manifest: &Manifest) -> Result<(), BackupError> {
        for stated in &manifest.files {
            match self.found.remove(&stated.name) {
                Some(file) if file == *stated => {}
                Some(_) => return Err(self.damaged(format!("{} does not match its checksum", stated.name))),
                None => return Err(self.damaged(format!("{} is missing", stated.name))),
            }
        }
        match self.found.keys().next() {
            Some(name) => Err(self.damaged(format!("{name} is not in {MANIFEST}"))),
            None => Ok(()),
        }
    }

    fn damaged(&self, what: impl Display) -> BackupError {
        BackupError::Damaged { archive: self.archive.to_owned(), what: what.to_string() }
    }
}

/// Makes the names in all directories durable.
fn sync_dirs(dir: &Path) -> Result<(), BackupError> {
    let wrap = |source| failed(dir, source);
    for entry in fs::read_dir(dir).map_err(wrap)? {
        let entry = entry.map_err(wrap)?;
        if entry.file_type().map_err(wrap)?.is_dir() {
            sync_dirs(&entry.path())?;
        }
    }
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(wrap)
}

fn failed(path: &Path, source: io::Error) -> BackupError {
    BackupError::Io { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use tar::{Builder, Header};

    use super::*;
    use crate::{backup, ca::Authority};

    /// A gateway's directory without a store, and its backup.
    fn backup_of_a_new_gateway() -> (tempfile::TempDir, Vec<u8>) {
        let dir = tempfile::tempdir().unwrap();
        let gateway = dir.path().join("gw");
        fs::create_dir(&gateway).unwrap();
        Authority::create(&gateway).unwrap().enroll(&"cam-1".parse().unwrap()).unwrap();
        fs::write(gateway.join(CONFIG), "[run]\nrounds = 7\n").unwrap();
        let mut archive = vec![];
        backup::write(&gateway, &runs::RunName::first(), None, &mut archive).unwrap();
        (dir, archive)
    }

    fn restore_bytes(dir: &Path, archive: &[u8]) -> Result<Manifest, String> {
        let (file, to) = (dir.join("backup.tar"), dir.join("new"));
        fs::write(&file, archive).unwrap();
        let restored = restore(&file, &to).map_err(|error| error.to_string());
        assert!(!dir.join("new~").exists(), "the staging directory stays");
        assert_eq!(to.exists(), restored.is_ok(), "a half restored directory stays");
        if restored.is_ok() {
            fs::remove_dir_all(&to).unwrap();
        }
        restored
    }

    #[test]
    fn any_damaged_or_missing_byte_of_a_backup_is_detected() {
        let (dir, archive) = backup_of_a_new_gateway();
        restore_bytes(dir.path(), &archive).unwrap();
        // In the content of every file, and a cut at every block.
        for block in (0..archive.len()).step_by(512) {
            // The last two blocks only mark the end.
            if block < archive.len() - 1024 {
                let cut = restore_bytes(dir.path(), &archive[..block]);
                assert!(cut.is_err(), "cut at {block} of {}", archive.len());
            }
        }
        let mut refused = 0;
        for at in (0..archive.len()).step_by(97) {
            let mut damaged = archive.clone();
            damaged[at] ^= 0x10;
            // Bytes of headers that are not used, and padding, may differ. What is restored must not.
            match restore_bytes(dir.path(), &damaged) {
                Ok(manifest) => assert_eq!(manifest.files.len(), 5),
                Err(_) => refused += 1,
            }
        }
        assert!(refused > 20, "{refused}");
    }

    #[test]
    fn an_archive_writes_nothing_outside_its_directory() {
        for (name, kind) in [
            ("../evil", EntryType::Regular),
            ("/tmp/evil", EntryType::Regular),
            ("evil", EntryType::Symlink),
            ("evil", EntryType::Directory),
        ] {
            let (dir, _) = backup_of_a_new_gateway();
            let mut tar = Builder::new(vec![]);
            let mut header = Header::new_gnu();
            header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_entry_type(kind);
            header.set_size(0);
            header.set_cksum();
            tar.append(&header, io::empty()).unwrap();
            let error = restore_bytes(dir.path(), &tar.into_inner().unwrap()).unwrap_err();
            assert!(error.contains("unexpected entry") || error.contains("names the path"), "{error}");
            assert!(!dir.path().join("evil").exists() && !Path::new("/tmp/evil").exists());
        }
    }

    #[test]
    fn only_an_empty_directory_is_restored_into() {
        let (dir, archive) = backup_of_a_new_gateway();
        let (file, to) = (dir.path().join("backup.tar"), dir.path().join("new"));
        fs::write(&file, archive).unwrap();
        fs::create_dir(&to).unwrap();
        restore(&file, &to).unwrap();
        assert!(to.join("identity/devices/cam-1.crt").exists());
        assert_eq!(fs::read_to_string(to.join(CONFIG)).unwrap(), "[run]\nrounds = 7\n");
        let again = restore(&file, &to).unwrap_err();
        assert!(matches!(again, BackupError::NotEmpty(_)), "{again}");
    }
}
