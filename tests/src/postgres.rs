//! A PostgreSQL cluster of its own for a test: Debian's package, an unprivileged user, a temporary directory, a Unix socket.
//!
//! The store's own tests include this file, so it uses nothing of this crate.

use std::{
    env, fs,
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

/// Nothing that works takes this long, even on a slow machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running server. It ends with this value, and with the process of the test.
#[derive(Debug)]
pub struct Postgres {
    dir: TempDir,
    bin: PathBuf,
    server: Option<Child>,
    settings: &'static [&'static str],
}

/// Where Debian's package has its programs; `None` if it is not installed.
pub fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    let mut bins: Vec<_> = versions.flatten().map(|version| version.path().join("bin")).collect();
    bins.sort();
    bins.into_iter().rev().find(|bin| bin.join("initdb").is_file())
}

impl Postgres {
    /// A new server that keeps what it acknowledges, with an empty database `fleet`. `None` if the package is not installed.
    pub fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    /// The same with settings such as `fsync=off`.
    pub fn start_with(settings: &'static [&'static str]) -> Option<Self> {
        let bin = programs()?;
        let dir = TempDir::new().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let data = dir.path().join("data");
        fs::create_dir(&data).unwrap();
        fs::set_permissions(&data, fs::Permissions::from_mode(0o700)).unwrap();
        if let Some([user, group]) = unprivileged() {
            for path in [dir.path(), &data] {
                chown(path, Some(user), Some(group)).unwrap();
            }
        }
        let mut this = Self { dir, bin, server: None, settings };
        let made = this
            .command("initdb")
            .args(["--no-sync", "--auth=trust", "--username=fairtier", "--encoding=UTF8", "--locale=C", "-D"])
            .arg(&data)
            .output()
            .unwrap();
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        this.run();
        this.sql_in("postgres", "create database fleet");
        Some(this)
    }

    /// The connection string of the database.
    pub fn url(&self) -> String {
        self.url_at(self.dir.path())
    }

    /// The same through a socket in another directory.
    pub fn url_at(&self, dir: &Path) -> String {
        let dir = dir.to_str().unwrap().replace('/', "%2F");
        format!("postgres://fairtier@{dir}/fleet")
    }

    /// The socket of the server.
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join(".s.PGSQL.5432")
    }

    /// Executes statements, and returns what they print: columns with `|` between them.
    pub fn sql(&self, statements: &str) -> String {
        self.sql_in("fleet", statements)
    }

    fn sql_in(&self, database: &str, statements: &str) -> String {
        let dir = self.dir.path().to_str().unwrap();
        let args = ["-h", dir, "-U", "fairtier", "-d", database, "-XAtq", "-v", "ON_ERROR_STOP=1", "-c"];
        let done = self.command("psql").args(args).arg(statements).output().unwrap();
        assert!(done.status.success(), "{statements}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap().trim().to_owned()
    }

    /// Ends the server as a power cut would, and starts it again: it recovers from its log.
    pub fn restart_immediately(&mut self) {
        self.end("QUIT");
        self.run();
    }

    /// Ends the server as a power cut would.
    pub fn end_immediately(&mut self) {
        self.end("QUIT");
    }

    /// Starts it, and waits until it answers.
    pub fn run(&mut self) {
        let dir = self.dir.path().to_str().unwrap().to_owned();
        let mut server = self.command("postgres");
        server.args(["-D", &format!("{dir}/data"), "-k", &dir, "-c", "listen_addresses="]);
        server.args(["-c", "max_connections=40", "-c", "shared_buffers=16MB"]);
        for setting in self.settings {
            server.args(["-c", setting]);
        }
        let log = fs::File::options().create(true).append(true).open(self.dir.path().join("log")).unwrap();
        self.server = Some(server.stderr(log).stdout(Stdio::null()).spawn().unwrap());
        let start = Instant::now();
        loop {
            let ready =
                self.command("pg_isready").args(["-q", "-h", &dir, "-d", "postgres"]).status().unwrap();
            if ready.success() {
                return;
            }
            let log = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
            assert!(start.elapsed() < PATIENCE, "the server does not answer:\n{log}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// SIGQUIT ends all sessions at once, without writing anything.
    fn end(&mut self, signal: &str) {
        let Some(mut server) = self.server.take() else { return };
        let _ = Command::new("kill").args([&format!("-{signal}"), &server.id().to_string()]).status();
        let _ = server.wait();
    }

    /// A program of the package, as another user than root, which ends with the thread that has started it.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("setpriv");
        if let Some([user, group]) = unprivileged() {
            command.args([&format!("--reuid={user}"), &format!("--regid={group}"), "--clear-groups"]);
        }
        command.args(["--pdeathsig", "QUIT"]).arg(self.bin.join(program));
        command.env("LC_ALL", "C").current_dir(self.dir.path()).stdin(Stdio::null());
        command
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.end("QUIT");
    }
}

/// User and group of `postgres`, if this process is root: PostgreSQL refuses root.
fn unprivileged() -> Option<[u32; 2]> {
    let root = fs::metadata("/proc/self").is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) == 0);
    let users = root.then(|| fs::read_to_string("/etc/passwd").unwrap())?;
    let line = users.lines().find(|line| line.starts_with("postgres:")).expect("the package makes this user");
    let ids: Vec<u32> = line.split(':').skip(2).take(2).map(|id| id.parse().unwrap()).collect();
    Some([ids[0], ids[1]])
}

/// Why a test with PostgreSQL is left out, for a message. Under `./test` it fails instead.
pub fn missing() -> &'static str {
    let reason = "initdb is not below /usr/lib/postgresql; install postgresql, or run ./test";
    assert!(env::var_os("FAIRTIER_TEST_ALL").is_none(), "{reason}");
    reason
}
