//! The boards of the tests as data, and how they are started.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use client::host::board::{Board, pack_shard, refreshed_identity};
use common::privacy::Privacy;
use fairtier::demo::FleetDevice;
use serde::Deserialize;

use crate::tools;

/// One board of the test fleet.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BenchBoard {
    /// Name of the device.
    pub device: String,
    pub kind: String,
    /// `emulated`, or the serial port of a real board.
    pub port: String,
}

impl BenchBoard {
    /// All boards of `tests/hil/boards`, in order of their file names.
    pub fn all() -> Vec<Self> {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("hil/boards");
        let mut files: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files.iter().map(|file| toml::from_str(&fs::read_to_string(file).unwrap()).unwrap()).collect()
    }

    pub fn board(&self) -> Board {
        Board::by_name(&self.kind).unwrap()
    }

    pub fn is_emulated(&self) -> bool {
        self.port == "emulated"
    }
}

/// The directory where `scripts/firmware` puts images.
pub fn images() -> PathBuf {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/firmware");
    assert!(
        target.join("mps2-an386.elf").exists(),
        "no firmware in {}; run scripts/firmware",
        target.display()
    );
    target
}

/// What is missing to emulate boards, and how to get it.
pub fn missing() -> Option<String> {
    let image = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/firmware/mps2-an386.elf");
    let qemu = Command::new("qemu-system-arm").arg("--version").output();
    match (image.exists(), qemu) {
        (false, _) => Some("there are no images of boards; run `scripts/firmware`, or use `--hosts`".into()),
        (true, Err(error)) => {
            Some(format!("qemu-system-arm: {error}; run `scripts/setup`, or use `--hosts`"))
        }
        (true, Ok(_)) => None,
    }
}

/// Whether boards can be emulated here. If not, the running test is skipped, or fails under `./test`.
pub fn can_run() -> bool {
    let image = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/firmware/mps2-an386.elf");
    if !image.exists() {
        tools::leave_out("target/firmware has no images; run scripts/firmware, or ./test");
        return false;
    }
    tools::find(&["qemu-system-arm"], "qemu-system-arm").is_some()
}

/// A running emulated board, killed on drop.
#[derive(Debug)]
pub struct Emulated {
    qemu: Child,
}

impl Drop for Emulated {
    fn drop(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

impl Emulated {
    /// Starts `board` with this identity and these samples. Its UART is the socket at `serial`, its monitor the
    /// socket `monitor` in `dir`.
    pub fn start(board: &Board, dir: &Path, identity: &[u8], shard: &[u8], serial: &str) -> Self {
        let (identity_file, shard_file) = (dir.join("identity"), dir.join("shard"));
        fs::create_dir_all(dir).unwrap();
        fs::write(&identity_file, refreshed_identity(identity, Privacy::default()).unwrap()).unwrap();
        fs::write(&shard_file, shard).unwrap();
        let flash = dir.join("flash");
        board.make_flash(&flash).unwrap();
        let image = board.image(&images());
        let mut args = board.qemu(&image, &identity_file, &shard_file, serial, &flash).unwrap();
        let monitor = args.iter().position(|arg| arg == "-monitor").unwrap();
        args[monitor + 1] = format!("unix:{},server=on,wait=off", dir.join("monitor").display()).into();
        let mut qemu = Command::new("qemu-system-arm");
        qemu.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self { qemu: qemu.spawn().expect("qemu-system-arm is needed; run scripts/setup") }
    }
}

/// A device's samples in the format of its board.
pub fn shard_file(device: &FleetDevice) -> Vec<u8> {
    use client::data::Shard;
    // Levels of the built-in digits, and of images.
    let levels = if device.shard.inputs() == 64 { 16 } else { 255 };
    pack_shard(&device.shard, levels).unwrap()
}
