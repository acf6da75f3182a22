//! The control socket of a running server, for commands that need what only the server has open: `DIR/store/control.sock`.
//!
//! ```text
//! command | "backup\n"
//! server  | kind u8 | length u32, little-endian | bytes | .. until kind is `Done` or `Failed`
//! ```
//! The server sends the archive and the command writes the file. So a backup belongs to the user who made it, and the server
//! needs no permission to write elsewhere. Both sides accept only a peer of the same user, or root. The socket is in a
//! directory that only its owner can access.

use std::{
    fs::{self, File, Permissions},
    io::{self, BufReader, BufWriter, Read, Write},
    os::{
        fd::AsRawFd,
        unix::{
            fs::{MetadataExt, PermissionsExt},
            net::UnixStream,
        },
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt},
    net::{UnixListener, unix::UCred},
    sync::Semaphore,
};
use tracing::{info, warn};

use crate::{
    backup::{self, Manifest},
    driver::Driver,
    runs::RunName,
};

const NAME: &str = "control.sock";
const BACKUP: &str = "backup";
/// A command that neither reads nor writes for this long is given up.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of a command, at most.
const MAX_COMMAND: u64 = 64;
/// Bytes of one part of an archive.
const PART: usize = 256 << 10;

const DATA: u8 = 0;
const DONE: u8 = 1;
const FAILED: u8 = 2;

/// A socket in a directory. Its path may be longer than the 108 bytes that an address has room for.
struct Place {
    path: PathBuf,
    short: PathBuf,
    _store: File,
}

impl Place {
    fn of(dir: &Path) -> io::Result<Self> {
        let store = File::open(dir.join("store"))?;
        let short = PathBuf::from(format!("/proc/self/fd/{}", store.as_raw_fd())).join(NAME);
        Ok(Self { path: dir.join("store").join(NAME), short, _store: store })
    }
}

/// The socket of a server; removed on drop.
#[derive(Debug)]
pub(crate) struct Control {
    listener: UnixListener,
    path: PathBuf,
    owner: u32,
}

impl Control {
    /// Listens in the directory of a server. It has the store open, so a socket that is there is left from a killed one.
    pub fn listen(dir: &Path) -> io::Result<Self> {
        let place = Place::of(dir)?;
        match fs::remove_file(&place.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&place.short)?;
        fs::set_permissions(&place.path, Permissions::from_mode(0o600))?;
        let owner = fs::metadata(&place.path)?.uid();
        Ok(Self { listener, path: place.path, owner })
    }

    /// Answers commands for ever.
    pub async fn serve(self, dir: PathBuf, run: RunName, driver: Arc<Driver>) {
        // One command at a time; others wait.
        let places = Arc::new(Semaphore::new(1));
        loop {
            let stream = match self.listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    warn!("the control socket fails: {error}");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    continue;
                }
            };
            if !stream.peer_cred().is_ok_and(|peer| self.trusts(&peer)) {
                continue;
            }
            let (dir, run, driver, places) = (dir.clone(), run.clone(), driver.clone(), places.clone());
            tokio::spawn(async move {
                let Ok(_place) = places.acquire().await else { return };
                if let Err(error) = answer(stream, dir, run, driver).await {
                    warn!("a command on the control socket has ended early: {error}");
                }
            });
        }
    }

    fn trusts(&self, peer: &UCred) -> bool {
        peer.uid() == 0 || peer.uid() == self.owner
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

async fn answer(
    stream: tokio::net::UnixStream,
    dir: PathBuf,
    run: RunName,
    driver: Arc<Driver>,
) -> io::Result<()> {
    let mut command = String::new();
    let mut reader = tokio::io::BufReader::new(stream).take(MAX_COMMAND);
    tokio::time::timeout(PATIENCE, reader.read_line(&mut command)).await??;
    let stream = reader.into_inner().into_inner().into_std()?;
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let work = move || match command.trim() {
        BACKUP => send_backup(&stream, &dir, &run, &driver),
        other => send(&stream, FAILED, format!("unknown command {other:?}").as_bytes()),
    };
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

fn send_backup(stream: &UnixStream, dir: &Path, run: &RunName, driver: &Driver) -> io::Result<()> {
    let written = match driver.snapshot() {
        Some(Ok(snapshot)) => {
            let parts = BufWriter::with_capacity(PART, Parts(stream));
            backup::write(dir, run, snapshot.as_ref(), parts).map_err(|error| error.to_string())
        }
        Some(Err(error)) => Err(error.to_string()),
        None => Err("the server is stopping".to_owned()),
    };
    match written {
        Ok(manifest) => {
            info!(
                files = manifest.files.len(),
                bytes = manifest.bytes(),
                committed = manifest.committed,
                "backup"
            );
            send(stream, DONE, &serde_json::to_vec(&manifest)?)
        }
        Err(error) => {
            warn!("no backup: {error}");
            send(stream, FAILED, error.as_bytes())
        }
    }
}

fn send(mut stream: &UnixStream, kind: u8, bytes: &[u8]) -> io::Result<()> {
    let len = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    stream.write_all(&[&[kind][..], &len.to_le_bytes()].concat())?;
    stream.write_all(bytes)
}

struct Parts<'a>(&'a UnixStream);

impl Write for Parts<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let part = &bytes[..bytes.len().min(PART)];
        send(self.0, DATA, part).map(|()| part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Why a running server gave no backup.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ControlError {
    #[error(
        "the server in {dir} does not answer at {NAME}: {source}; it may be of an older version, or starting: try again",
        dir = .dir.display()
    )]
    Connect { dir: PathBuf, source: io::Error },
    #[error("the server has ended the backup: {0}")]
    Server(String),
    #[error("the server has ended while it sent the backup: {0}; try again")]
    Link(io::Error),
    #[error("the backup cannot be written: {0}")]
    Write(io::Error),
}

/// Has the running server of a directory write a backup to `out`.
pub(crate) fn request_backup(dir: &Path, out: &mut impl Write) -> Result<Manifest, ControlError> {
    let connected = Place::of(dir).and_then(|place| UnixStream::connect(&place.short));
    let mut stream = connected.map_err(|source| ControlError::Connect { dir: dir.to_owned(), source })?;
    let asked = stream.set_read_timeout(Some(PATIENCE)).and_then(|()| stream.write_all(b"backup\n"));
    asked.map_err(ControlError::Link)?;
    let mut stream = BufReader::new(stream);
    loop {
        let mut head = [0; 5];
        stream.read_exact(&mut head).map_err(ControlError::Link)?;
        let [kind, len @ ..] = head;
        let len = u32::from_le_bytes(len).into();
        let mut part = vec![];
        let read = (&mut stream).take(len).read_to_end(&mut part).map_err(ControlError::Link)?;
        if read as u64 != len {
            return Err(ControlError::Link(io::ErrorKind::UnexpectedEof.into()));
        }
        match kind {
            DATA => out.write_all(&part).map_err(ControlError::Write)?,
            DONE => return serde_json::from_slice(&part).map_err(|error| ControlError::Link(error.into())),
            _ => return Err(ControlError::Server(String::from_utf8_lossy(&part).into_owned())),
        }
    }
}
