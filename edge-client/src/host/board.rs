//! The kinds of boards: their descriptions in `firmware/boards/*.toml`, and how their firmware is started.

use std::{
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    process::Command,
};

use common::{
    privacy::Privacy,
    sealed::{BoardIdentity, BoardIdentityError},
};
use serde::Deserialize;

use crate::data::{BytesShard, DataError, DataSplit, Images, Shard};

/// The descriptions that the firmware was built with.
const BOARDS: [&str; 10] = [
    include_str!("../../firmware/boards/mps2-an386.toml"),
    include_str!("../../firmware/boards/mps2-an386-cnn.toml"),
    include_str!("../../firmware/boards/mps2-an500.toml"),
    include_str!("../../firmware/boards/mps2-an385.toml"),
    include_str!("../../firmware/boards/mps2-an505.toml"),
    include_str!("../../firmware/boards/mps3-an547.toml"),
    include_str!("../../firmware/boards/lm3s6965evb.toml"),
    include_str!("../../firmware/boards/microbit.toml"),
    include_str!("../../firmware/boards/nrf52840.toml"),
    include_str!("../../firmware/boards/stm32f407.toml"),
];

/// A kind of board.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Board {
    /// Name in commands, as the file in `firmware/boards`.
    pub name: String,
    /// Target triple of the compiler.
    pub target: String,
    /// Processor core, as printed in tables.
    pub core: String,
    /// How the board's backend rounds.
    pub arithmetic: Arithmetic,
    /// QEMU's name; absent for real boards.
    pub machine: Option<String>,
    /// Name in `probe-rs`; absent for emulated boards.
    pub chip: Option<String>,
    /// The memory map.
    pub memory: Memory,
    /// Clock frequencies.
    pub clock: Clock,
    /// Sizes of the firmware's buffers.
    pub limits: Limits,
}

/// How multiply-accumulates are rounded.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arithmetic {
    /// Once per multiply-accumulate (FPU).
    Fused,
    /// After the product and after the sum (soft float).
    Plain,
}

/// The memory map of a board.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Memory {
    /// Flash of the program.
    pub flash: Region,
    /// RAM of the program.
    pub ram: Region,
    /// Address of the board identity in flash.
    pub identity: u32,
    /// Address of the samples in flash.
    pub shard: u32,
}

/// A range of addresses.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Region {
    /// First address.
    pub origin: u32,
    /// Bytes.
    pub length: u32,
}

/// Clock frequencies of a board.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Clock {
    /// Frequency of SysTick.
    pub systick_hz: u32,
}

/// Sizes of the firmware's buffers.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Limits {
    /// Bytes of the arena.
    pub arena: u32,
    /// Most nodes of a Plan.
    pub nodes: usize,
    /// Longest chunk in bytes.
    pub chunk: u32,
    /// Bytes for samples that arrive over the serial line.
    #[serde(default)]
    pub samples: u32,
}

/// A name is not the name of a board.
#[derive(Debug, thiserror::Error)]
#[error("there is no board `{name}`; known boards: {known}")]
pub struct UnknownBoard {
    name: String,
    known: String,
}

/// Why a board cannot be flashed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant has its message")]
pub enum FlashError {
    #[error("the description of {0} names neither a QEMU machine nor a probe-rs chip")]
    NoWay(String),
    #[error(
        "real boards are flashed with probe-rs; get it with `cargo install probe-rs-tools --locked` \
         and attach the board's debug probe"
    )]
    NoProbe,
    #[error("probe-rs could not write {file}")]
    Probe { file: PathBuf },
    #[error("probe-rs: {0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    BoardIdentity(#[from] BoardIdentityError),
    #[error("the operating system gives no random numbers")]
    Randomness,
}

/// Why samples cannot be packed for a board.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant has its message")]
pub enum PackError {
    #[error(transparent)]
    Data(#[from] DataError),
    #[error("{value} is not a multiple of 1/{levels} that fits a byte; try another number of levels")]
    Level { value: f32, levels: u8 },
    #[error("a label is above 255, the largest that a board can store")]
    Label,
}

/// A board identity with a new seed and the owner's privacy settings. The new seed prevents that two starts of a board use
/// the same nonces. Privacy settings in `bytes`, which the gateway wrote, are ignored.
pub fn refreshed_identity(bytes: &[u8], privacy: Privacy) -> Result<Vec<u8>, FlashError> {
    let mut identity = BoardIdentity { privacy, ..BoardIdentity::decode(bytes)? };
    let random = rustls::crypto::ring::default_provider().secure_random;
    random.fill(&mut identity.seed).map_err(|_| FlashError::Randomness)?;
    Ok(identity.encode().to_vec())
}

/// Samples as a file for a board's flash: each feature is stored as the byte `levels * feature`, which must be exact.
pub fn pack_shard(shard: &impl Shard, levels: u8) -> Result<Vec<u8>, PackError> {
    let (inputs, scale) = (shard.inputs() as usize, f32::from(levels.max(1)));
    let part = |part: DataSplit| -> Result<(Vec<u8>, Vec<u8>), PackError> {
        let (mut features, mut labels, mut row) = (vec![], vec![], vec![0.0; inputs]);
        for index in 0..shard.len(part) {
            let label = shard.sample(part, index, &mut row)?;
            labels.push(u8::try_from(label).map_err(|_| PackError::Label)?);
            for &value in &row {
                let byte = (value * scale).round();
                if !(0.0..=255.0).contains(&byte) || byte * (1.0 / scale) != value {
                    return Err(PackError::Level { value, levels });
                }
                features.push(byte as u8);
            }
        }
        Ok((features, labels))
    };
    let (train, test) = (part(DataSplit::Train)?, part(DataSplit::Test)?);
    let train = Images::new(&train.0, &train.1, inputs)?;
    Ok(BytesShard::new(train, Images::new(&test.0, &test.1, inputs)?, 1.0 / scale)?.encode())
}

impl Board {
    /// Every kind of board.
    pub fn all() -> Vec<Self> {
        BOARDS.iter().filter_map(|text| toml::from_str(text).ok()).collect()
    }

    /// The kind of board with this name.
    pub fn by_name(name: &str) -> Result<Self, UnknownBoard> {
        let all = Self::all();
        let known = all.iter().map(|board| board.name.as_str()).collect::<Vec<_>>().join(", ");
        all.into_iter().find(|board| board.name == name).ok_or(UnknownBoard { name: name.into(), known })
    }

    /// Path of the image that `scripts/firmware` writes.
    pub fn image(&self, dir: &Path) -> PathBuf {
        dir.join(format!("{}.elf", self.name))
    }

    /// QEMU's arguments to run an image with identity and samples, its UART at `serial` (a chardev of QEMU).
    pub fn qemu(&self, image: &Path, identity: &Path, shard: &Path, serial: &str) -> Option<Vec<OsString>> {
        let machine = self.machine.as_deref()?;
        let mut args: Vec<OsString> =
            ["-M", machine, "-display", "none", "-monitor", "none", "-nodefaults", "-nic", "none"]
                .map(OsString::from)
                .to_vec();
        args.extend(["-kernel".into(), image.into(), "-serial".into(), serial.into()]);
        for (file, address) in [(identity, self.memory.identity), (shard, self.memory.shard)] {
            // QEMU expects doubled commas in file names.
            let file = file.display().to_string().replace(',', ",,");
            args.push("-device".into());
            args.push(format!("loader,file={file},addr={address:#x},force-raw=on").into());
        }
        Some(args)
    }

    /// Writes image, identity and samples to a real board with probe-rs, and starts it.
    pub fn download(&self, image: &Path, identity: &Path, shard: &Path) -> Result<(), FlashError> {
        let chip = self.chip.as_deref().ok_or_else(|| FlashError::NoWay(self.name.clone()))?;
        if Command::new("probe-rs").arg("--version").output().is_err() {
            return Err(FlashError::NoProbe);
        }
        let Memory { identity: identity_at, shard: shard_at, .. } = self.memory;
        for (file, address) in [(image, None), (identity, Some(identity_at)), (shard, Some(shard_at))] {
            let mut command = Command::new("probe-rs");
            command.args(["download", "--chip", chip]);
            if let Some(address) = address {
                command.args(["--binary-format", "bin", "--base-address", &format!("{address:#x}")]);
            }
            if !command.arg(file).status()?.success() {
                return Err(FlashError::Probe { file: file.to_owned() });
            }
        }
        Command::new("probe-rs").args(["reset", "--chip", chip]).status()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_packed_exactly_and_other_numbers_are_refused() {
        use crate::data::{Samples, digits};
        let digits = Samples::of(&digits::all(), DataSplit::Test).unwrap().select(&[0, 1, 2, 3]).unwrap();
        let shard = digits.split(0.25, 1).unwrap();
        let file = pack_shard(&shard, 16).unwrap();
        let read = BytesShard::parse(&file).unwrap();
        let (mut ours, mut theirs) = ([0.0; 64], [0.0; 64]);
        for index in 0..shard.train_len() {
            let label = shard.sample(DataSplit::Train, index, &mut theirs).unwrap();
            assert_eq!(read.sample(DataSplit::Train, index, &mut ours), Ok(label));
            assert_eq!(ours, theirs);
        }
        assert!(matches!(pack_shard(&shard, 3), Err(PackError::Level { .. })));
    }

    #[test]
    fn every_description_is_read_and_consistent() {
        let boards = Board::all();
        assert_eq!(boards.len(), BOARDS.len());
        for board in boards {
            let Memory { flash, ram, identity, shard } = board.memory;
            assert!(board.limits.arena < ram.length, "{}", board.name);
            assert!(identity >= flash.origin + flash.length && shard >= identity + 0x1000, "{}", board.name);
            assert_eq!(
                board.target.ends_with("eabihf"),
                board.arithmetic == Arithmetic::Fused,
                "{}",
                board.name
            );
            assert!(board.limits.chunk <= crate::serial::MAX_CHUNK);
        }
        assert!(Board::by_name("toaster").unwrap_err().to_string().contains("microbit"));
    }
}
