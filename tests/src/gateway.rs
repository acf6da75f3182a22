//! A gateway's directory, created and used through its real command line.

use std::{
    fs, iter,
    net::UdpSocket,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU16, Ordering},
};

use aggregator::{
    config::Config,
    run,
    store::{DiskStore, Entry, Options, Store},
};
use serde_json::Value;
use strategies::tiered::TieredModel;
use tempfile::TempDir;

use crate::{
    older,
    process::{Process, wait_for},
};

/// An address at which a gateway can be restarted. The system assigns ports from 32768 on to any process, so such a
/// port may be taken before the gateway is back. Lower ports are safe. Every test process uses its own range, and
/// each port once.
pub fn lasting_address() -> String {
    static GIVEN: AtomicU16 = AtomicU16::new(0);
    let first = 10_000 + (process::id() % 1000) as u16 * 20;
    let next = || format!("127.0.0.1:{}", first + GIVEN.fetch_add(1, Ordering::Relaxed));
    iter::repeat_with(next).find(|address| UdpSocket::bind(address).is_ok()).unwrap()
}

/// A directory with configuration, certificates and enrolled devices.
#[derive(Debug)]
pub struct Gateway {
    dir: TempDir,
}

impl Gateway {
    /// `config` replaces what `fairtier gateway init` writes; keys that are absent have their defaults.
    pub fn new(config: &str, devices: &[&str]) -> Self {
        let this = Self { dir: tempfile::tempdir().unwrap() };
        Process::start("init", "gateway", &["init", &this.text("gw")]).succeed();
        fs::write(this.path("gw/fairtier.toml"), config).unwrap();
        if !devices.is_empty() {
            this.enroll(devices);
        }
        this
    }

    /// A directory that a program of store format 4 left, with the devices a, b and c.
    pub fn of_format_4() -> Self {
        let this = Self { dir: tempfile::tempdir().unwrap() };
        older::unpack_format_4(this.dir.path());
        this
    }

    /// The same of store format 5.
    pub fn of_format_5() -> Self {
        let this = Self { dir: tempfile::tempdir().unwrap() };
        older::unpack_format_5(this.dir.path());
        this
    }

    pub fn enroll(&self, devices: &[&str]) {
        let (dir, out) = (self.text("gw"), self.text("."));
        let args = [&["enroll", "--dir", &dir, "--out", &out], devices].concat();
        Process::start("enroll", "gateway", &args).succeed();
    }

    /// A path in the temporary directory; the aggregator's own is `gw`.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// The identity file of a device.
    pub fn identity(&self, device: &str) -> PathBuf {
        self.path(&format!("{device}.pem"))
    }

    /// Starts serving; `listen` is an address, with port 0 for any.
    pub fn serve(&self, listen: &str, more: &[&str]) -> Serving {
        self.start("serve", listen, more)
    }

    /// `fairtier gateway serve` or `fairtier gateway resume`.
    pub fn start(&self, command: &str, listen: &str, more: &[&str]) -> Serving {
        let dir = self.text("gw");
        let args = [&[command, "--dir", &dir, "--listen", listen], more].concat();
        let mut process = Process::start("aggregator", "gateway", &args);
        let address = process.wait_line("listening on ");
        Serving { process, address }
    }

    /// Runs `fairtier gateway serve`, which must fail, and returns its output.
    pub fn serve_in_vain(&self) -> String {
        let dir = self.text("gw");
        Process::start("aggregator", "gateway", &["serve", "--dir", &dir, "--listen", "127.0.0.1:0"]).fail()
    }

    /// Starts `fairtier device run` with a share of the digits, unless `more` names other samples.
    pub fn device(&self, serving: &Serving, name: &str, share: &str, more: &[&str]) -> Process {
        let identity = self.identity(name);
        let identity = identity.to_str().unwrap();
        let args = ["run", "--server", &serving.address, "--identity", identity, "--data-seed", "7"];
        let data = match more.iter().any(|arg| ["--csv", "--data", "--images"].contains(arg)) {
            true => &["--share", share][..],
            false => &["--share", share, "--data", "digits"],
        };
        Process::start(name, "device", &[&args, data, more].concat())
    }

    /// The status after the last round, if there was one.
    pub fn status(&self) -> Option<Value> {
        let text = fs::read_to_string(self.path("gw/status.json")).ok()?;
        Some(serde_json::from_str(&text).unwrap())
    }

    /// Waits until this many rounds are committed.
    pub fn wait_committed(&self, rounds: u64) -> Value {
        wait_for(&format!("round {rounds} to be committed"), || {
            self.status().filter(|status| status["committed"].as_u64() >= Some(rounds))
        })
    }

    pub fn config(&self) -> Config {
        Config::load(&self.path("gw/fairtier.toml")).unwrap()
    }

    /// The model with its tiers, as the aggregator compiles it.
    pub fn model(&self) -> TieredModel {
        let config = self.config();
        let needs = run::open_method(&strategies::Registry::standard(), &config).unwrap().needs();
        run::open_model(&config, needs).unwrap().0
    }

    /// Reports of all trained rounds. No other process may have the store open.
    pub fn history(&self) -> Vec<Value> {
        let store = DiskStore::open(&self.path("gw/store"), Options::default()).unwrap();
        let reports = store.history().unwrap().into_iter();
        reports.map(|(_, text)| serde_json::from_str(&text).unwrap()).collect()
    }

    /// The content of the store, read from a copy so that it stays unchanged. No server may run.
    pub fn look(&self) -> Stored {
        let copy = tempfile::tempdir().unwrap();
        let from = self.path("gw/store");
        for (path, content) in if from.is_dir() { files(&from) } else { vec![] } {
            let to = copy.path().join(path.strip_prefix(&from).unwrap());
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::write(to, content).unwrap();
        }
        let store = DiskStore::open(copy.path(), Options::default()).unwrap();
        let history: Vec<Value> =
            store.history().unwrap().iter().map(|(_, text)| serde_json::from_str(text).unwrap()).collect();
        let open = history.len() as u32 + 1;
        let updates = (0..u8::MAX).map(|exchange| store.updates(open, exchange).unwrap());
        let names = |entries: Vec<Entry>| -> Vec<String> {
            entries.iter().map(|entry| entry.header.device.to_string()).collect()
        };
        let exchanges = updates.map(names).take_while(|devices| !devices.is_empty()).collect();
        Stored { history, exchanges }
    }

    /// The current global model.
    pub fn parameters(&self) -> Vec<f32> {
        parameters(&self.path("gw/model.onnx"))
    }
}

/// The durable state of a store.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Reports of all closed rounds.
    pub history: Vec<Value>,
    /// Devices with a stored update, for each exchange of the open round.
    pub exchanges: Vec<Vec<String>>,
}

/// A running aggregator.
#[derive(Debug)]
pub struct Serving {
    pub process: Process,
    pub address: String,
}

/// The parameters of an ONNX file.
pub fn parameters(onnx: &Path) -> Vec<f32> {
    let file = fs::read(onnx).unwrap();
    models::Graph::from_onnx(&file).unwrap().1
}

/// Every file below a directory with its content.
pub fn files(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = vec![];
    let mut open = vec![dir.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.is_file() {
                // A killed gateway leaves its control socket.
                let content = fs::read(&path).unwrap();
                found.push((path, content));
            }
        }
    }
    found.sort();
    found
}
