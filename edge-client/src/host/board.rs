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

use crate::data::{BytesShard, DataError, DataSplit, Images, Quantised, Shard};

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

/// Longest description of a board in bytes.
const MOST_BYTES: u64 = 1 << 16;

/// Where users put descriptions of their boards: `FAIRTIER_BOARDS`, or `fairtier/boards` in the folder for configuration.
pub fn folder() -> PathBuf {
    let of = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let config = || of("XDG_CONFIG_HOME").or_else(|| Some(of("HOME")?.join(".config")));
    of("FAIRTIER_BOARDS").unwrap_or_else(|| config().unwrap_or_default().join("fairtier/boards"))
}

/// Bytes of flash for samples, as in the firmware.
const SHARD_ROOM: u32 = 0x1f000;
/// What an emulated board is told: to run. Tests order faults in its place.
pub const ORDER: &str = "run";

/// A kind of board. The build of its firmware reads the same file; unknown keys are refused by both.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
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
    /// Which of the trainer's features are built in: `small` (default), `conv` or `all`.
    #[serde(default)]
    pub ops: Ops,
    /// What the firmware can do beyond training.
    #[serde(default)]
    pub extras: Vec<Extra>,
    /// The crate of a real board's firmware.
    pub package: Option<String>,
    /// The serial port of an emulated board.
    pub uart: Option<Uart>,
    /// The slots for the model of the last round.
    pub keep: Option<KeepSlots>,
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

/// Which of the trainer's features are built in.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ops {
    /// Dense layers, ReLU, dropout and plain SGD.
    #[default]
    Small,
    /// Also convolutions and pools.
    Conv,
    /// Everything.
    All,
}

/// What a board's firmware can do beyond training.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Extra {
    /// Predictions.
    Ask,
    /// Reset cause, record of crashes, safe mode.
    Health,
    /// The model of the last round in flash.
    Keep,
    /// Samples with a scale and a zero point for each feature.
    Quantised,
}

/// The serial port of an emulated board.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Uart {
    /// Which registers it has: `cmsdk`, `pl011` or `nrf51`.
    pub kind: String,
    /// Address of its registers.
    pub base: u32,
    /// Interrupt of a received byte.
    pub rx_irq: i16,
    /// Interrupt of a sent byte.
    pub tx_irq: i16,
}

/// Two slots in flash for the model of the last round.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeepSlots {
    /// Address of the first slot on a real board. An emulated one has a flash of its own for them.
    pub start: Option<u32>,
    /// Bytes of each slot, in whole pages.
    pub length: u32,
    /// Rounds from one write to the next; 0 keeps nothing.
    pub every: u32,
}

/// The memory map of a board.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
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
#[serde(deny_unknown_fields)]
pub struct Region {
    /// First address.
    pub origin: u32,
    /// Bytes.
    pub length: u32,
}

/// Clock frequencies of a board.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clock {
    /// Frequency of SysTick.
    pub systick_hz: u32,
}

/// Sizes of the firmware's buffers.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
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

/// Why there is no such kind of board.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant has its message")]
pub enum BoardError {
    #[error("there is no board `{name}`; known boards: {known}; yours are files NAME.toml in {}", folder.display())]
    Unknown { name: String, known: String, folder: PathBuf },
    #[error("{}: {problem}", path.display())]
    File { path: PathBuf, problem: String },
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
    #[error("the samples take {need} bytes, the board has {room} bytes of flash for them; use fewer samples")]
    ShardTooLong { need: u64, room: u32 },
    #[error(
        "the flash of an emulated board is {found} bytes long, not {expected}; remove the file to begin anew"
    )]
    OtherFlash { found: u64, expected: u64 },
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
    #[error(
        "feature {0} lies too far from zero for its range; subtract its mean first, as a schema with scaling does"
    )]
    Offset(usize),
}

/// What rounding has changed.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub struct Precision {
    /// The largest difference of a feature.
    pub largest: f32,
    /// The largest root mean square of the differences of a feature, by the standard deviation of this feature.
    pub relative: f64,
    /// The feature with this value.
    pub feature: usize,
}

/// Samples as a file for a board's flash, rounded to whole numbers of a kind: each feature has its own scale and zero point,
/// from its range. The second value says what was lost.
pub fn quantise_shard(shard: &impl Shard, kind: Quantised) -> Result<(Vec<u8>, Precision), PackError> {
    let inputs = shard.inputs() as usize;
    let parts = [DataSplit::Train, DataSplit::Test];
    let mut range = vec![(f32::INFINITY, f32::NEG_INFINITY); inputs];
    let mut row = vec![0.0; inputs];
    for part in parts {
        for index in 0..shard.len(part) {
            shard.sample(part, index, &mut row)?;
            for ((low, high), &value) in range.iter_mut().zip(&row) {
                (*low, *high) = (low.min(value), high.max(value));
            }
        }
    }
    let (first, last) = kind.range();
    let steps = (last - first) as f32;
    let mut table = vec![];
    for (feature, &(low, high)) in range.iter().enumerate() {
        // A constant feature is one step from its zero point.
        let scale = match (high - low) / steps {
            step if step > 0.0 && step.is_finite() => step,
            _ if high != 0.0 && high.is_finite() => high,
            _ => 1.0,
        };
        let zero = if high > low { first as f32 - (low / scale).round() } else { first as f32 };
        // Beyond this, a number minus its zero point is not exact.
        if zero.abs() > (1 << 23) as f32 {
            return Err(PackError::Offset(feature));
        }
        table.push((scale, zero as i32));
    }
    let (mut sums, mut largest) = (vec![[0.0f64; 3]; inputs], 0.0f32);
    let mut pack = |part: DataSplit| -> Result<(Vec<u8>, Vec<u8>), PackError> {
        let (mut features, mut labels) = (vec![], vec![]);
        for index in 0..shard.len(part) {
            let label = shard.sample(part, index, &mut row)?;
            labels.push(u8::try_from(label).map_err(|_| PackError::Label)?);
            for ((&value, &(scale, zero)), [sum, squares, errors]) in row.iter().zip(&table).zip(&mut sums) {
                let number = ((value / scale).round() as i32).saturating_add(zero).clamp(first, last);
                features.extend(number.to_le_bytes().into_iter().take(kind.width()));
                let error = value - scale * (number - zero) as f32;
                largest = largest.max(error.abs());
                *sum += f64::from(value);
                *squares += f64::from(value).powi(2);
                *errors += f64::from(error).powi(2);
            }
        }
        Ok((features, labels))
    };
    let (train, test) = (pack(DataSplit::Train)?, pack(DataSplit::Test)?);
    let count = f64::from(shard.train_len() + shard.test_len()).max(1.0);
    let mut precision = Precision { largest, ..Precision::default() };
    for (feature, [sum, squares, errors]) in sums.into_iter().enumerate() {
        let variance = squares / count - (sum / count).powi(2);
        let relative = if variance > 0.0 { (errors / count / variance).sqrt() } else { 0.0 };
        if relative > precision.relative {
            (precision.relative, precision.feature) = (relative, feature);
        }
    }
    let table: Vec<u8> =
        table.iter().flat_map(|(scale, zero)| [scale.to_le_bytes(), zero.to_le_bytes()].concat()).collect();
    let bytes = inputs * kind.width();
    let (train, test) = (Images::new(&train.0, &train.1, bytes)?, Images::new(&test.0, &test.1, bytes)?);
    Ok((BytesShard::quantised(train, test, kind, &table)?.encode(), precision))
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

    /// The kind of board with this name. A description in the user's [`folder`] comes before one that is built in.
    pub fn by_name(name: &str) -> Result<Self, BoardError> {
        Self::find(name, &folder())
    }

    fn find(name: &str, folder: &Path) -> Result<Self, BoardError> {
        // A name with a path in it is no name.
        let path = folder.join(format!("{name}.toml"));
        if path.parent() == Some(folder) && path.exists() {
            let refused = |problem: String| BoardError::File { path: path.clone(), problem };
            let bytes = common::files::read(&path, MOST_BYTES).map_err(|error| refused(error.to_string()))?;
            let text = String::from_utf8(bytes).map_err(|_| refused("is not text".into()))?;
            return toml::from_str(&text).map_err(|error| refused(error.to_string()));
        }
        let all = Self::all();
        let known = all.iter().map(|board| board.name.as_str()).collect::<Vec<_>>().join(", ");
        let unknown = BoardError::Unknown { name: name.into(), known, folder: folder.to_owned() };
        all.into_iter().find(|board| board.name == name).ok_or(unknown)
    }

    /// Path of the image that `scripts/firmware` writes.
    pub fn image(&self, dir: &Path) -> PathBuf {
        dir.join(format!("{}.elf", self.name))
    }

    /// Bytes of flash for samples.
    pub fn shard_room(&self) -> u32 {
        SHARD_ROOM
    }

    /// Refuses samples that are longer than their place in flash.
    pub fn check_shard(&self, shard: &Path) -> Result<(), FlashError> {
        let (need, room) = (std::fs::metadata(shard)?.len(), self.shard_room());
        if need > room.into() { Err(FlashError::ShardTooLong { need, room }) } else { Ok(()) }
    }

    /// Makes the file behind the flash of an emulated board, erased, if it does not exist. It holds the model that the board
    /// keeps, so it outlives the board's power.
    pub fn make_flash(&self, file: &Path) -> Result<(), FlashError> {
        let Some(keep) = self.keep.filter(|_| self.machine.is_some()) else { return Ok(()) };
        let expected = 2 * u64::from(keep.length);
        match std::fs::metadata(file) {
            Ok(there) if there.len() == expected => Ok(()),
            Ok(there) => Err(FlashError::OtherFlash { found: there.len(), expected }),
            Err(_) => {
                let blank = vec![0xff; 2 * keep.length as usize];
                Ok(common::files::write_file(file, &blank, common::files::Secrecy::Secret)?)
            }
        }
    }

    /// QEMU's arguments to run an image with identity and samples, its UART at `serial` (a chardev of QEMU). `flash` is the file
    /// that [`Board::make_flash`] has made.
    pub fn qemu(
        &self,
        image: &Path,
        identity: &Path,
        shard: &Path,
        serial: &str,
        flash: &Path,
    ) -> Option<Vec<OsString>> {
        let machine = self.machine.as_deref()?;
        let mut args: Vec<OsString> =
            ["-M", machine, "-display", "none", "-monitor", "none", "-nodefaults", "-nic", "none"]
                .map(OsString::from)
                .to_vec();
        args.extend(["-kernel".into(), image.into(), "-serial".into(), serial.into()]);
        if self.keep.is_some() {
            let file = flash.display().to_string().replace(',', ",,");
            args.push("-semihosting-config".into());
            args.push(format!("enable=on,target=native,arg={ORDER},arg={file}").into());
        }
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
    fn signed_features_are_rounded_and_the_loss_is_stated() {
        use crate::data::{Samples, VecShard};
        let rows: Vec<f32> =
            (0..40).flat_map(|x| [(x as f32 * 0.7).sin() * 9.81, x as f32 - 20.0, 3.5, 0.0]).collect();
        let samples = Samples::new(rows, vec![1; 40], 4).unwrap();
        let shard: VecShard = samples.split(0.25, 1).unwrap();
        let mut before = Precision { relative: 1.0, ..Precision::default() };
        for (kind, most) in [(Quantised::U8, 0.005), (Quantised::I8, 0.005), (Quantised::I16, 0.000_02)] {
            let (file, precision) = quantise_shard(&shard, kind).unwrap();
            let read = BytesShard::parse(&file).unwrap();
            assert_eq!((read.inputs(), read.train_len(), read.test_len()), (4, 30, 10));
            let (mut ours, mut theirs, mut largest) = ([0.0; 4], [0.0; 4], 0.0f32);
            for part in [DataSplit::Train, DataSplit::Test] {
                for index in 0..shard.len(part) {
                    let label = shard.sample(part, index, &mut theirs).unwrap();
                    assert_eq!(read.sample(part, index, &mut ours), Ok(label));
                    largest = ours.iter().zip(theirs).map(|(a, b)| (a - b).abs()).fold(largest, f32::max);
                    // Constant features are exact.
                    assert_eq!(ours[2..], [3.5, 0.0]);
                }
            }
            assert_eq!(largest, precision.largest, "{kind:?}");
            assert!(precision.relative > 0.0 && precision.relative < most, "{kind:?}: {precision:?}");
            assert!(kind != Quantised::I16 || precision.relative < before.relative);
            before = precision;
        }
        let far = Samples::new(vec![1e9, 1e9 + 64.0], vec![0, 1], 1).unwrap().split(0.5, 1).unwrap();
        assert!(matches!(quantise_shard(&far, Quantised::U8), Err(PackError::Offset(0))));
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
            // Slots are there if the firmware uses them, in whole pages, behind the program on a real board.
            assert_eq!(board.keep.is_some(), board.extras.contains(&Extra::Keep), "{}", board.name);
            if let Some(keep) = board.keep {
                assert!(keep.length.is_multiple_of(1024) && keep.start.is_some() == board.chip.is_some());
                let behind = keep.start.is_none_or(|start| {
                    start >= flash.origin + flash.length && start + 2 * keep.length <= identity
                });
                assert!(behind, "{}", board.name);
            }
        }
        assert!(Board::by_name("toaster").unwrap_err().to_string().contains("microbit"));
    }

    #[test]
    fn boards_of_the_user_are_found_and_unknown_keys_refused() {
        let dir = tempfile::tempdir().unwrap();
        let text = include_str!("../../firmware/boards/nrf52840.toml").replace("nrf52840\"", "mine\"");
        std::fs::write(dir.path().join("mine.toml"), &text).unwrap();
        std::fs::write(dir.path().join("typo.toml"), text.replace("nodes", "noodles")).unwrap();
        let mine = Board::find("mine", dir.path()).unwrap();
        assert_eq!((mine.name.as_str(), mine.chip.as_deref()), ("mine", Some("nRF52840_xxAA")));
        assert_eq!(Board::find("microbit", dir.path()).unwrap(), Board::by_name("microbit").unwrap());
        let refused = Board::find("typo", dir.path()).unwrap_err().to_string();
        assert!(refused.contains("typo.toml") && refused.contains("noodles"), "{refused}");
        let outside = dir.path().join("inner");
        std::fs::create_dir(&outside).unwrap();
        assert!(matches!(Board::find("../mine", &outside), Err(BoardError::Unknown { .. })));
        let refused = Board::find("toaster", dir.path()).unwrap_err().to_string();
        assert!(refused.contains(&dir.path().display().to_string()), "{refused}");
    }

    #[test]
    fn samples_that_are_too_long_and_flash_of_another_board_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let board = Board::by_name("mps2-an500").unwrap();
        let (shard, flash) = (dir.path().join("shard"), dir.path().join("flash"));
        std::fs::write(&shard, vec![0; board.shard_room() as usize]).unwrap();
        board.check_shard(&shard).unwrap();
        std::fs::write(&shard, vec![0; board.shard_room() as usize + 1]).unwrap();
        assert!(matches!(board.check_shard(&shard), Err(FlashError::ShardTooLong { .. })));
        board.make_flash(&flash).unwrap();
        assert!(std::fs::read(&flash).unwrap().iter().all(|&byte| byte == 0xff));
        std::fs::write(&flash, [1, 2, 3]).unwrap();
        assert!(matches!(board.make_flash(&flash), Err(FlashError::OtherFlash { found: 3, .. })));
        // What is kept is not erased.
        assert_eq!(std::fs::read(&flash).unwrap(), [1, 2, 3]);
    }
}
