//! Where boards are plugged in: serial ports, and sockets in their place.
//!
//! | written as | is |
//! |---|---|
//! | `/dev/ttyACM0`, `/dev/ttyUSB0@921600` | a serial port, 115,200 baud by default |
//! | `/dev/ttyACM*` | every port of that name, as they come and go |
//! | `unix:PATH`, `tcp:ADDRESS` | a socket that boards (QEMU) connect to |
//! | `connect:ADDRESS` | a socket that the bridge connects to, such as a serial server |

use std::{
    collections::HashSet,
    fs::File,
    io,
    net::SocketAddr,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    pin::Pin,
    str::FromStr,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use rustix::{
    fs::{Mode, OFlags},
    termios,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf, unix::AsyncFd},
    net::{TcpListener, TcpStream, UnixListener},
    sync::mpsc,
};
use tracing::warn;

const BAUD: u32 = 115_200;
/// Interval between two searches for ports.
const LOOK: Duration = Duration::from_millis(500);

/// An open port.
pub struct Port {
    /// Path or address, as printed in logs.
    pub name: String,
    /// The bytes of the line.
    pub stream: Stream,
}

impl std::fmt::Debug for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Port({})", self.name)
    }
}

/// A line of bytes in both directions.
pub type Stream = Box<dyn Duplex>;

/// Reads and writes bytes.
pub trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Duplex for T {}

/// Where to look for boards.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the line of a variant explains its fields")]
pub enum PortSpec {
    /// Serial ports; the file name may contain one `*`.
    Serial { path: PathBuf, baud: u32 },
    /// Listens on a Unix socket.
    Unix(PathBuf),
    /// Listens on a TCP address.
    Tcp(SocketAddr),
    /// Connects to a TCP address.
    Connect(SocketAddr),
}

/// A text is not a port.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a port is written as /dev/ttyACM0, /dev/ttyUSB*@921600, unix:PATH, tcp:ADDRESS or connect:ADDRESS")]
pub struct BadPort;

impl FromStr for PortSpec {
    type Err = BadPort;

    fn from_str(text: &str) -> Result<Self, BadPort> {
        let address = |text: &str| text.parse().map_err(|_| BadPort);
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() { Err(BadPort) } else { Ok(Self::Unix(path.into())) };
        }
        if let Some(text) = text.strip_prefix("tcp:") {
            return address(text).map(Self::Tcp);
        }
        if let Some(text) = text.strip_prefix("connect:") {
            return address(text).map(Self::Connect);
        }
        let (path, baud) = match text.split_once('@') {
            Some((path, baud)) => (path, baud.parse().map_err(|_| BadPort)?),
            None => (text, BAUD),
        };
        if path.starts_with('/') { Ok(Self::Serial { path: path.into(), baud }) } else { Err(BadPort) }
    }
}

/// Sends every port that appears to `arrived`, for ever.
pub async fn watch(spec: PortSpec, arrived: mpsc::Sender<Port>) {
    let outcome = match &spec {
        PortSpec::Serial { path, baud } => watch_serial(path, *baud, &arrived).await,
        PortSpec::Unix(path) => accept_unix(path, &arrived).await,
        PortSpec::Tcp(address) => accept_tcp(*address, &arrived).await,
        PortSpec::Connect(address) => connect_again(*address, &arrived).await,
    };
    if let Err(error) = outcome {
        warn!("{spec:?}: {error}");
    }
}

async fn accept_unix(path: &Path, arrived: &mpsc::Sender<Port>) -> io::Result<()> {
    // A socket that answers is another program's. One that does not is left from an earlier program.
    if std::os::unix::net::UnixStream::connect(path).is_ok() {
        let used = "another program, such as a bridge, uses this socket; stop it, or name another path";
        return Err(io::Error::new(io::ErrorKind::AddrInUse, used));
    }
    let _ = std::fs::remove_file(path);
    let listener = UnixListener::bind(path)?;
    for number in 0u64.. {
        let (stream, _) = listener.accept().await?;
        let port = Port { name: format!("{}#{number}", path.display()), stream: Box::new(stream) };
        if arrived.send(port).await.is_err() {
            break;
        }
    }
    Ok(())
}

async fn accept_tcp(address: SocketAddr, arrived: &mpsc::Sender<Port>) -> io::Result<()> {
    let listener = TcpListener::bind(address).await?;
    loop {
        let (stream, peer) = listener.accept().await?;
        let _ = stream.set_nodelay(true);
        if arrived.send(Port { name: peer.to_string(), stream: Box::new(stream) }).await.is_err() {
            return Ok(());
        }
    }
}

async fn connect_again(address: SocketAddr, arrived: &mpsc::Sender<Port>) -> io::Result<()> {
    let open = OpenPorts::default();
    loop {
        if let Some(claim) = open.claim(&address.to_string())
            && let Ok(stream) = TcpStream::connect(address).await
        {
            let _ = stream.set_nodelay(true);
            let port =
                Port { name: address.to_string(), stream: Box::new(ClaimedPort { stream, _claim: claim }) };
            if arrived.send(port).await.is_err() {
                return Ok(());
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn watch_serial(pattern: &Path, baud: u32, arrived: &mpsc::Sender<Port>) -> io::Result<()> {
    let open = OpenPorts::default();
    let mut complained = HashSet::new();
    loop {
        for path in matching(pattern) {
            let name = path.display().to_string();
            let Some(claim) = open.claim(&name) else { continue };
            match SerialPort::open(&path, baud) {
                Ok(stream) => {
                    complained.remove(&name);
                    let port = Port { name, stream: Box::new(ClaimedPort { stream, _claim: claim }) };
                    if arrived.send(port).await.is_err() {
                        return Ok(());
                    }
                }
                Err(error) => {
                    if complained.insert(name.clone()) {
                        warn!("{name}: {error}; check that this user may open it (group dialout)");
                    }
                }
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// The files that match a path with at most one `*` in its name.
fn matching(pattern: &Path) -> Vec<PathBuf> {
    let name = pattern.file_name().and_then(|name| name.to_str());
    let Some((before, after)) = name.and_then(|name| name.split_once('*')) else {
        return if pattern.exists() { vec![pattern.to_owned()] } else { vec![] };
    };
    let entries =
        pattern.parent().and_then(|dir| std::fs::read_dir(dir).ok()).into_iter().flatten().flatten();
    let fits = |name: &str| {
        name.len() >= before.len() + after.len() && name.starts_with(before) && name.ends_with(after)
    };
    entries.filter(|entry| entry.file_name().to_str().is_some_and(fits)).map(|entry| entry.path()).collect()
}

/// The ports in use, so that none is opened twice.
#[derive(Clone, Default)]
struct OpenPorts(Arc<Mutex<HashSet<String>>>);

/// Marks a port as in use until it is dropped.
struct PortClaim {
    open: OpenPorts,
    name: String,
}

impl OpenPorts {
    fn claim(&self, name: &str) -> Option<PortClaim> {
        let fresh = self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
        fresh.then(|| PortClaim { open: self.clone(), name: name.to_owned() })
    }
}

impl Drop for PortClaim {
    fn drop(&mut self) {
        self.open.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.name);
    }
}

struct ClaimedPort<S> {
    stream: S,
    _claim: PortClaim,
}

impl<S: AsyncRead + Unpin> AsyncRead for ClaimedPort<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ClaimedPort<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// A terminal device in raw mode.
struct SerialPort(AsyncFd<File>);

impl SerialPort {
    fn open(path: &Path, baud: u32) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let port: OwnedFd = rustix::fs::open(path, flags, Mode::empty())?;
        let mut settings = termios::tcgetattr(&port)?;
        settings.make_raw();
        settings.control_modes |= termios::ControlModes::CLOCAL | termios::ControlModes::CREAD;
        settings.set_speed(baud)?;
        termios::tcsetattr(&port, termios::OptionalActions::Now, &settings)?;
        // Discards bytes that arrived before the port was opened.
        termios::tcflush(&port, termios::QueueSelector::IOFlush)?;
        // Deprecated for types whose descriptor may change under it; a File's does not.
        #[allow(deprecated, reason = "the replacement is unsafe, which this crate forbids")]
        Ok(Self(AsyncFd::new(File::from(port))?))
    }
}

impl AsyncRead for SerialPort {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.0.poll_read_ready(cx))?;
            let room = buf.initialize_unfilled();
            let attempt = guard.try_io(|port| io::Read::read(&mut port.get_ref(), room));
            match attempt {
                Ok(Ok(len)) => {
                    buf.advance(len);
                    return Poll::Ready(Ok(()));
                }
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                Err(_) => {}
            }
        }
    }
}

impl AsyncWrite for SerialPort {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = ready!(self.0.poll_write_ready(cx))?;
            if let Ok(result) = guard.try_io(|port| io::Write::write(&mut port.get_ref(), buf)) {
                return Poll::Ready(result);
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_parsed() {
        let serial = |path: &str, baud| Ok(PortSpec::Serial { path: path.into(), baud });
        assert_eq!("/dev/ttyACM0".parse(), serial("/dev/ttyACM0", 115_200));
        assert_eq!("/dev/ttyUSB*@921600".parse(), serial("/dev/ttyUSB*", 921_600));
        assert_eq!("unix:boards.sock".parse(), Ok(PortSpec::Unix("boards.sock".into())));
        assert_eq!("tcp:127.0.0.1:5000".parse(), Ok(PortSpec::Tcp(([127, 0, 0, 1], 5000).into())));
        for bad in ["", "ttyACM0", "unix:", "tcp:localhost", "/dev/ttyACM0@fast"] {
            assert_eq!(bad.parse::<PortSpec>(), Err(BadPort), "{bad}");
        }
    }

    #[tokio::test]
    async fn a_socket_in_use_is_not_taken_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("boards.sock");
        let (arrived, _ports) = mpsc::channel(1);
        // Left by a program that was killed.
        drop(UnixListener::bind(&path).unwrap());
        let first = tokio::spawn(watch(PortSpec::Unix(path.clone()), arrived.clone()));
        while tokio::net::UnixStream::connect(&path).await.is_err() {
            tokio::task::yield_now().await;
        }
        // The second ends at once, and the first still answers.
        let refused = accept_unix(&path, &arrived).await.unwrap_err();
        assert!(refused.to_string().contains("another program"), "{refused}");
        assert!(tokio::net::UnixStream::connect(&path).await.is_ok());
        first.abort();
    }

    #[tokio::test]
    async fn a_terminal_carries_every_byte_and_is_found_again() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let board =
            rustix::pty::openpt(rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY).unwrap();
        rustix::pty::grantpt(&board).unwrap();
        rustix::pty::unlockpt(&board).unwrap();
        let path = rustix::pty::ptsname(&board, vec![]).unwrap().into_string().unwrap();
        let (arrived, mut ports) = mpsc::channel(1);
        let watcher = tokio::spawn(watch(path.parse().unwrap(), arrived));
        let mut port = ports.recv().await.unwrap();
        // Every byte value, including those that a terminal would interpret as commands.
        let all: Vec<u8> = (0..=255).collect();
        port.stream.write_all(&all).await.unwrap();
        let (mut heard, mut board) = (vec![0; 256], File::from(board));
        io::Read::read_exact(&mut board, &mut heard).unwrap();
        assert_eq!(heard, all);
        io::Write::write_all(&mut board, &all).unwrap();
        port.stream.read_exact(&mut heard).await.unwrap();
        assert_eq!(heard, all);
        // A port in use is not sent twice; once closed, it is found again.
        assert!(tokio::time::timeout(LOOK * 2, ports.recv()).await.is_err());
        drop(port);
        assert!(ports.recv().await.is_some());
        watcher.abort();
    }
}
