//! Writes an archive.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::{Component, Path, PathBuf},
};

use common::files::{self, MAX_CONFIG};
use tar::{Builder, EntryType, Header};

use super::{ArchivedFile, BackupError, CONFIG, Digest, FORMAT, MANIFEST, Manifest};
use crate::{
    ca::Authority,
    clock::since_1970,
    config::Config,
    runs::{self, RunName},
    store::Snapshot,
};

/// Files of a run that are archived if they exist.
const BESIDE: [&str; 2] = ["scales.json", "status.json"];
/// Files of the gateway that are archived if they exist.
const SHARED: [&str; 2] = ["revoked.jsonl", runs::ACTIVE_FILE];
/// The copy of the ledger while it is archived.
const LEDGER_COPY: &str = "fairtier.redb.backup";

/// Writes an archive of a gateway's directory and its run `name` to `out`. `snapshot`: of the run's store, if it has one.
pub fn write(
    dir: &Path,
    name: &RunName,
    snapshot: Option<&Snapshot>,
    out: impl Write,
) -> Result<Manifest, BackupError> {
    let (own, below) = (name.dir(dir), name.prefix());
    let mut archive = Archive { tar: Builder::new(out), files: vec![], modified: since_1970().as_secs() };
    let config = own.join(CONFIG);
    let text = files::read(&config, MAX_CONFIG).map_err(|source| failed(&config, source))?;
    let mut outside = vec![];
    // A file that cannot be read as a configuration is archived as it is.
    if let Ok(parsed) = Config::load(&config) {
        for path in [PathBuf::from(&parsed.model.source), parsed.guard.probe] {
            match inside(dir, &path).filter(|name| *name != format!("{below}{CONFIG}")) {
                _ if !path.is_file() => {}
                Some(name) => archive.add_path(&name, &path)?,
                None => outside.push(path.display().to_string()),
            }
        }
    }
    archive.add(&format!("{below}{CONFIG}"), &config, text.len() as u64, &*text)?;
    for (name, bytes) in Authority::open(dir)?.files()? {
        archive.add(&name, &dir.join(&name), bytes.len() as u64, &*bytes)?;
    }
    let beside = BESIDE.iter().map(|file| (format!("{below}{file}"), own.join(file)));
    let shared = SHARED.iter().map(|file| ((*file).to_owned(), dir.join(file)));
    for (name, path) in beside.chain(shared) {
        if path.is_file() {
            archive.add_path(&name, &path)?;
        }
    }
    if let Some(snapshot) = snapshot {
        archive.add_store(&below, &own.join("store"), snapshot)?;
    }
    let mut runs_left_out = runs::all(dir)?;
    runs_left_out.retain(|other| other != name && other.dir(dir).join(CONFIG).is_file());
    let run = snapshot.and_then(|snapshot| snapshot.run);
    let manifest = Manifest {
        format: FORMAT,
        program: env!("CARGO_PKG_VERSION").to_owned(),
        created: archive.modified,
        run: run.map(|run| run.run.to_string()),
        committed: run.map_or(0, |run| run.committed),
        open: run.and_then(|run| run.open),
        files: std::mem::take(&mut archive.files),
        outside,
        runs_left_out: runs_left_out.iter().map(ToString::to_string).collect(),
    };
    let text = serde_json::to_vec_pretty(&manifest).map_err(|error| BackupError::Write(error.into()))?;
    archive.add(MANIFEST, Path::new(MANIFEST), text.len() as u64, &*text)?;
    archive.tar.into_inner().and_then(|mut out| out.flush()).map_err(BackupError::Write)?;
    Ok(manifest)
}

/// The name of a file below the gateway's directory.
fn inside(dir: &Path, path: &Path) -> Option<String> {
    let (dir, path) = (fs::canonicalize(dir).ok()?, fs::canonicalize(path).ok()?);
    let name = path.strip_prefix(dir).ok()?;
    let plain = name.components().all(|part| matches!(part, Component::Normal(_)));
    name.to_str().filter(|_| plain).map(str::to_owned)
}

struct Archive<W: Write> {
    tar: Builder<W>,
    files: Vec<ArchivedFile>,
    /// Seconds since 1970.
    modified: u64,
}

impl<W: Write> Archive<W> {
    fn add_path(&mut self, name: &str, path: &Path) -> Result<(), BackupError> {
        if self.files.iter().any(|file| file.name == name) {
            return Ok(());
        }
        let file = File::open(path).map_err(|source| failed(path, source))?;
        let bytes = file.metadata().map_err(|source| failed(path, source))?.len();
        self.add(name, path, bytes, file)
    }

    /// Adds the first `bytes` bytes of `content`, which is read from `path`.
    fn add(&mut self, name: &str, path: &Path, bytes: u64, content: impl Read) -> Result<(), BackupError> {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_mode(0o600);
        header.set_mtime(self.modified);
        header.set_size(bytes);
        let mut content = Hashed { content: content.take(bytes), digest: Digest::new(), error: None };
        let added = self.tar.append_data(&mut header, name, &mut content);
        if let Some(source) = content.error {
            return Err(failed(path, source));
        }
        added.map_err(BackupError::Write)?;
        if content.digest.bytes != bytes {
            return Err(BackupError::Changed(path.to_owned()));
        }
        self.files.push(content.digest.file(name));
        Ok(())
    }

    fn add_store(&mut self, below: &str, store: &Path, snapshot: &Snapshot) -> Result<(), BackupError> {
        let copy = store.join(LEDGER_COPY);
        match fs::remove_file(&copy) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(&copy, error)),
            _ => {}
        }
        let _removed = RemoveOnDrop(&copy);
        snapshot.write_ledger(&copy)?;
        self.add_path(&format!("{below}store/fairtier.redb"), &copy)?;
        for file in &snapshot.files {
            let (name, path) = (format!("{below}store/{}", file.name), store.join(&file.name));
            let content = file.open().map_err(|source| failed(&path, source))?;
            self.add(&name, &path, file.bytes, content)?;
        }
        Ok(())
    }
}

/// Remembers whether reading has failed, because the archive reports errors of both sides alike.
struct Hashed<R> {
    content: R,
    digest: Digest,
    error: Option<io::Error>,
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.content.read(buffer).map_err(|error| {
            let again = io::Error::new(error.kind(), error.to_string());
            self.error = Some(error);
            again
        })?;
        self.digest.update(&buffer[..read]);
        Ok(read)
    }
}

struct RemoveOnDrop<'a>(&'a Path);

impl Drop for RemoveOnDrop<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.0);
    }
}

fn failed(path: &Path, source: io::Error) -> BackupError {
    BackupError::Io { path: path.to_owned(), source }
}
