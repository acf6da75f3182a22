//! A real process. Its output is collected and shown if the test fails, and it is killed with the test.

use std::{
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

/// Nothing that works takes this long, even on a slow machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Path of the program `fairtier`: in `FAIRTIER_BIN_DIR`, or beside the running test.
pub fn program() -> PathBuf {
    beside("fairtier")
}

/// Path of a program of this workspace.
pub fn beside(name: &str) -> PathBuf {
    let dir = std::env::var_os("FAIRTIER_BIN_DIR").map(PathBuf::from).or_else(|| {
        // target/<profile>/deps/<test>
        Some(std::env::current_exe().ok()?.parent()?.parent()?.to_owned())
    });
    let path = dir.unwrap_or_default().join(name);
    assert!(
        path.is_file(),
        "{} is missing; run ./test, or build the programs first: cargo build --profile ci --bins",
        path.display()
    );
    path
}

/// Waits until `ready` returns a value; panics with `what` after [`PATIENCE`].
pub fn wait_for<T>(what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = ready() {
            return value;
        }
        assert!(start.elapsed() < PATIENCE, "timed out after {PATIENCE:?} waiting for: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// The same for async code; other tasks of this thread continue.
pub async fn wait_until<T>(what: &str, mut ready: impl AsyncFnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = ready().await {
            return value;
        }
        assert!(start.elapsed() < PATIENCE, "timed out after {PATIENCE:?} waiting for: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A running program.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    output: Arc<Mutex<String>>,
    readers: Vec<thread::JoinHandle<()>>,
}

impl Process {
    /// Starts a command of a group of `fairtier`. `name` appears in failures.
    pub fn start(name: &str, group: &str, args: &[&str]) -> Self {
        Self::start_program(name, &program(), &[&[group], args].concat())
    }

    /// Starts any program.
    pub fn start_program(name: &str, program: &Path, args: &[&str]) -> Self {
        let mut child = Command::new(program)
            .args(args)
            .env("NO_COLOR", "1")
            .env("FAIRTIER_LOG", "debug")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = Arc::new(Mutex::new(String::new()));
        let out = child.stdout.take().map(|stream| read(stream, output.clone()));
        let err = child.stderr.take().map(|stream| read(stream, output.clone()));
        let readers = out.into_iter().chain(err).collect();
        Self { name: name.to_owned(), child, output, readers }
    }

    /// Everything written so far to stdout and stderr.
    pub fn output(&self) -> String {
        self.output.lock().unwrap().clone()
    }

    /// Waits for a line that contains `marker` and returns the rest of the line.
    pub fn wait_line(&mut self, marker: &str) -> String {
        let start = Instant::now();
        loop {
            let output = self.output();
            let found = output.lines().find_map(|line| Some(line.split_once(marker)?.1.trim().to_owned()));
            if let Some(rest) = found {
                return rest;
            }
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "{} has ended ({ended:?}) without `{marker}`:\n{output}", self.name);
            assert!(start.elapsed() < PATIENCE, "{} never wrote `{marker}`:\n{output}", self.name);
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits for the end; returns the exit status and the output.
    pub fn finish(mut self) -> (ExitStatus, String) {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(start.elapsed() < PATIENCE, "{} does not end:\n{}", self.name, self.output());
            thread::sleep(Duration::from_millis(10));
        };
        for reader in self.readers.drain(..) {
            reader.join().unwrap();
        }
        let output = self.output();
        (status, output)
    }

    /// Waits for the end, which must be exit code 0; returns the output.
    pub fn succeed(self) -> String {
        let name = self.name.clone();
        let (status, output) = self.finish();
        assert!(status.success(), "{name} ended with {status}:\n{output}");
        output
    }

    /// Waits for the end, which must be exit code 1; returns the output.
    pub fn fail(self) -> String {
        let name = self.name.clone();
        let (status, output) = self.finish();
        assert_eq!(status.code(), Some(1), "{name} ended with {status}:\n{output}");
        output
    }

    /// Sends SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        self.signal("TERM");
    }

    /// Sends any signal, for example `STOP`.
    pub fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args([&format!("-{name}"), &id]).status().unwrap();
        assert!(sent.success());
    }

    /// Peak memory in bytes.
    pub fn peak(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            let output = self.output.lock().map(|output| output.clone()).unwrap_or_default();
            let from = output.len().saturating_sub(6000);
            let shown = output.get(from..).unwrap_or(&output);
            eprintln!("---- {} ----\n{shown}", self.name);
        }
    }
}

fn read(stream: impl Read + Send + 'static, output: Arc<Mutex<String>>) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        for line in BufReader::new(stream).lines() {
            let Ok(line) = line else { return };
            let mut output = output.lock().unwrap();
            output.push_str(&line);
            output.push('\n');
        }
    })
}
