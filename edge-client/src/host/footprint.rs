//! Resources that a kind of board needs: flash and RAM of its image, and the instructions of one training step, counted by
//! QEMU.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::board::{Arithmetic, Board};

/// Timeout of a measurement, which takes a few seconds at most.
const LIMIT: Duration = Duration::from_secs(60);

/// Measurements of one kind of board.
#[derive(Clone, PartialEq, Debug)]
pub struct Footprint {
    /// The kind of board.
    pub board: Board,
    /// Instructions of one SGD step of 64-H-10, batch 16, under `-icount shift=0`. Not cycles.
    pub instructions: u64,
    /// Hidden units of the model that was trained.
    pub hidden: u32,
    /// Bits of the loss after four steps.
    pub loss: String,
    /// Checksum of the weights after four steps.
    pub weights: String,
    /// The compiler of the images, with its version, and where its `core` comes from.
    pub toolchain: String,
    /// Measurements of convolutions, on boards that have them.
    pub convolutions: Option<Convolutions>,
    /// Size of the firmware's image.
    pub image: ImageSize,
}

/// Instructions of convolutions, under `-icount shift=0`. Not cycles.
#[derive(Clone, PartialEq, Debug)]
pub struct Convolutions {
    /// Multiply-accumulates of each part of the layer: 8 -> 16 channels, 3x3, padded, 14x14 pixels.
    pub macs: u64,
    /// Instructions of forward, input gradient and weight gradient of the layer.
    pub parts: [u64; 3],
    /// Checksum of the layer's numbers afterwards.
    pub bits: String,
    /// Instructions of one SGD step of `motion-cnn`, batch 2.
    pub motion: u64,
    /// Bits of the loss and checksum of the weights after two steps.
    pub motion_bits: String,
}

impl Convolutions {
    /// Instructions per multiply-accumulate of each part.
    pub fn per_mac(&self) -> [f64; 3] {
        self.parts.map(|instructions| instructions as f64 / self.macs as f64)
    }
}

/// Bytes that an image takes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ImageSize {
    /// Code, constants and initial values of data.
    pub flash: u32,
    /// Statically allocated RAM, including the arena but not the stack.
    pub ram: u32,
}

/// Why a board cannot be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant has its message")]
pub enum FootprintError {
    #[error("{} is missing; `scripts/firmware` builds the images, --images names their directory", .0.display())]
    NoImage(PathBuf),
    #[error("{}: not a 32-bit ELF image; `scripts/firmware` builds the images", .0.display())]
    NotAnImage(PathBuf),
    #[error("qemu-system-arm is missing; install it with `apt install qemu-system-arm`")]
    NoQemu,
    #[error("{0} is a real board; only emulated boards are measured")]
    NotEmulated(String),
    #[error("{board}: QEMU printed no `{key}` within {} s, only {output:?}", LIMIT.as_secs())]
    NoResult { board: String, key: &'static str, output: String },
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

impl Footprint {
    /// Measures a board with the images that `scripts/firmware` has put into a directory.
    pub fn measure(board: &Board, images: &Path) -> Result<Self, FootprintError> {
        let image = ImageSize::read(&board.image(images))?;
        let output = run_benchmark(board, &images.join(format!("{}-bench.elf", board.name)))?;
        let missing =
            |key| FootprintError::NoResult { board: board.name.clone(), key, output: output.clone() };
        let find = |key: &str| output.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
        let value = |key: &'static str| find(key).ok_or_else(|| missing(key));
        let count = |key: &'static str| value(key)?.parse().map_err(|_| missing(key));
        let convolutions = match find("conv-macs") {
            None => None,
            Some(_) => Some(Convolutions {
                macs: count("conv-macs")?,
                parts: [count("conv-forward")?, count("conv-input-grad")?, count("conv-weight-grad")?],
                bits: value("conv-bits")?.to_owned(),
                motion: count("motion-instructions")?,
                motion_bits: value("motion-bits")?.to_owned(),
            }),
        };
        Ok(Self {
            board: board.clone(),
            instructions: count("instructions")?,
            hidden: value("hidden")?.parse().map_err(|_| missing("hidden"))?,
            loss: value("loss")?.to_owned(),
            weights: value("weights")?.to_owned(),
            toolchain: value("toolchain")?.to_owned(),
            convolutions,
            image,
        })
    }

    /// The model whose training was measured.
    pub fn model(&self) -> String {
        format!("64-{}-10", self.hidden)
    }

    fn arithmetic(&self) -> &'static str {
        match self.board.arithmetic {
            Arithmetic::Fused => "fused",
            Arithmetic::Plain => "plain",
        }
    }

    /// The measurements that tables show, by name.
    pub fn json(&self) -> Value {
        json!({
            "board": self.board.name,
            "core": self.board.core,
            "arithmetic": self.arithmetic(),
            "model": self.model(),
            "instructions": self.instructions,
            "flash": self.image.flash,
            "ram": self.image.ram,
            "arena": self.board.limits.arena,
            "toolchain": self.toolchain,
            "convolutions": self.convolutions.as_ref().map(|it| json!({
                "macs": it.macs,
                "forward": it.parts[0],
                "input_gradient": it.parts[1],
                "weight_gradient": it.parts[2],
                "motion_cnn_step": it.motion,
            })),
        })
    }

    /// Tables of boards, 80 columns wide.
    pub fn table(footprints: &[Self]) -> String {
        let line = |cells: [&str; 8]| {
            let [board, core, sums, model, instructions, flash, ram, arena] = cells;
            format!(
                "{board:<14} {core:<11} {sums:<6} {model:>9} {instructions:>12} {flash:>7} {ram:>7} {arena:>7}\n"
            )
        };
        let mut text = line(["board", "core", "sums", "model", "instructions", "flash", "RAM", "arena"]);
        for it in footprints {
            let numbers = [it.image.flash, it.image.ram, it.board.limits.arena].map(|n| n.to_string());
            let [flash, ram, arena] = numbers.each_ref().map(String::as_str);
            text += &line([
                &it.board.name,
                &it.board.core,
                it.arithmetic(),
                &it.model(),
                &it.instructions.to_string(),
                flash,
                ram,
                arena,
            ]);
        }
        text += "instructions: one SGD step, batch 16, from gathered batch to updated weights,\n\
                 QEMU -icount shift=0. An instruction count is not a cycle count.\n\
                 RAM is allocated statically, in bytes, and does not include the stack.\n";
        text += &Self::convolutions(footprints);
        let toolchains: BTreeSet<_> = footprints.iter().map(|it| &it.toolchain).collect();
        toolchains.iter().for_each(|toolchain| text += &format!("images: {toolchain}\n"));
        text
    }

    /// A table of the boards that have convolutions; empty without any.
    fn convolutions(footprints: &[Self]) -> String {
        let mut text = String::new();
        for (board, it) in footprints.iter().filter_map(|it| Some((&it.board, it.convolutions.as_ref()?))) {
            if text.is_empty() {
                text += &format!(
                    "\n{:<14} {:<11} {:>9} {:>12} {:>13} {:>16}\n",
                    "convolution", "core", "forward", "input grad", "weight grad", "motion-cnn step"
                );
            }
            let [forward, input, weight] = it.per_mac();
            text += &format!(
                "{:<14} {:<11} {forward:>9.2} {input:>12.2} {weight:>13.2} {:>16}\n",
                board.name, board.core, it.motion
            );
        }
        if !text.is_empty() {
            text += "convolution: instructions per multiply-accumulate of 8 -> 16 channels, 3x3, on\n\
                     14x14 padded pixels. motion-cnn step: instructions of one SGD step, batch 2.\n";
        }
        text
    }
}

impl ImageSize {
    /// Sums up the sections of an ELF image by where they are loaded.
    pub fn read(path: &Path) -> Result<Self, FootprintError> {
        if !path.exists() {
            return Err(FootprintError::NoImage(path.to_owned()));
        }
        let file = fs::read(path).map_err(|source| FootprintError::Io { path: path.to_owned(), source })?;
        Self::of(&file).ok_or_else(|| FootprintError::NotAnImage(path.to_owned()))
    }

    fn of(file: &[u8]) -> Option<Self> {
        const MAGIC_32_BIT: &[u8] = b"\x7fELF\x01";
        const ALLOCATED: u32 = 2;
        const WRITABLE: u32 = 1;
        const NO_BITS: u32 = 8;
        let word = |at: usize| file.get(at..)?.first_chunk().copied().map(u32::from_le_bytes);
        let half = |at: usize| file.get(at..)?.first_chunk().copied().map(u16::from_le_bytes);
        if !file.starts_with(MAGIC_32_BIT) {
            return None;
        }
        let (table, size, count) = (word(0x20)? as usize, usize::from(half(0x2e)?), usize::from(half(0x30)?));
        let (mut flash, mut ram) = (0_u32, 0_u32);
        for section in (0..count).map(|index| table.saturating_add(index * size)) {
            let field = |offset: usize| word(section.saturating_add(offset));
            let (kind, flags, len) = (field(4)?, field(8)?, field(20)?);
            if flags & ALLOCATED == 0 {
                continue;
            }
            if kind != NO_BITS {
                flash = flash.checked_add(len)?;
            }
            if flags & WRITABLE != 0 {
                ram = ram.checked_add(len)?;
            }
        }
        Some(Self { flash, ram })
    }
}

/// Runs the benchmark of a board in QEMU and returns its output.
fn run_benchmark(board: &Board, image: &Path) -> Result<String, FootprintError> {
    let machine = board.machine.as_deref().ok_or_else(|| FootprintError::NotEmulated(board.name.clone()))?;
    if !image.exists() {
        return Err(FootprintError::NoImage(image.to_owned()));
    }
    let io = |source| FootprintError::Io { path: image.to_owned(), source };
    let out = tempfile::NamedTempFile::new().map_err(io)?;
    let mut qemu = Command::new("qemu-system-arm");
    qemu.args(["-M", machine, "-icount", "shift=0"])
        .args(["-display", "none", "-monitor", "none", "-nodefaults", "-nic", "none", "-kernel"])
        .arg(image)
        .args(["-serial", &format!("file:{}", out.path().display())])
        .stderr(Stdio::null());
    let mut qemu = qemu.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => FootprintError::NoQemu,
        _ => io(error),
    })?;
    let started = Instant::now();
    let output = loop {
        let output = fs::read_to_string(out.path());
        let over = |text: &String| text.contains("done") || text.contains("failed");
        if output.is_err() || output.as_ref().is_ok_and(over) || started.elapsed() > LIMIT {
            break output;
        }
        thread::sleep(Duration::from_millis(50));
    };
    let _ = qemu.kill();
    let _ = qemu.wait();
    output.map_err(io)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF header and sections of (kind, flags, length).
    fn elf(sections: &[(u32, u32, u32)]) -> Vec<u8> {
        let mut file = vec![0; 0x34];
        file[..5].copy_from_slice(b"\x7fELF\x01");
        file[0x20..0x24].copy_from_slice(&0x34_u32.to_le_bytes());
        file[0x2e..0x30].copy_from_slice(&40_u16.to_le_bytes());
        file[0x30..0x32].copy_from_slice(&(sections.len() as u16).to_le_bytes());
        for (kind, flags, len) in sections {
            let mut section = [0; 40];
            section[4..8].copy_from_slice(&kind.to_le_bytes());
            section[8..12].copy_from_slice(&flags.to_le_bytes());
            section[20..24].copy_from_slice(&len.to_le_bytes());
            file.extend(section);
        }
        file
    }

    #[test]
    fn initialised_data_counts_as_flash_and_as_ram() {
        // Code, data with its initial values, zeroed data, and debugging information that is not loaded.
        let file = elf(&[(1, 2, 1000), (1, 3, 100), (8, 3, 10), (1, 0, 5000)]);
        assert_eq!(ImageSize::of(&file), Some(ImageSize { flash: 1100, ram: 110 }));
    }

    #[test]
    fn files_that_are_no_image_are_refused() {
        let file = elf(&[(1, 2, 1000)]);
        for bad in [&b""[..], b"\x7fELF\x02", &file[..0x20], &file[..file.len() - 30]] {
            assert_eq!(ImageSize::of(bad), None);
        }
        let mut far = file;
        far[0x20..0x24].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(ImageSize::of(&far), None);
    }

    #[test]
    fn a_missing_image_names_the_script_that_builds_it() {
        let dir = tempfile::tempdir().unwrap();
        let board = Board::by_name("microbit").unwrap();
        let error = Footprint::measure(&board, dir.path()).unwrap_err().to_string();
        assert!(error.contains("microbit.elf is missing; `scripts/firmware`"), "{error}");
    }

    #[test]
    fn the_table_fits_a_terminal() {
        let board = Board::by_name("mps2-an386-cnn").unwrap();
        let image = ImageSize { flash: 74_396, ram: 116_404 };
        let footprint = Footprint {
            board,
            instructions: 7_547_200,
            hidden: 32,
            loss: String::new(),
            weights: String::new(),
            toolchain: "rustc 1.95.0 (59807616e 2026-04-14), core built for size".into(),
            convolutions: Some(Convolutions {
                macs: 204_800,
                parts: [67_993_600, 75_571_200, 64_921_600],
                bits: String::new(),
                motion: 200_000_000,
                motion_bits: String::new(),
            }),
            image,
        };
        let table = Footprint::table(std::slice::from_ref(&footprint));
        assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
        assert!(
            table.contains("mps2-an386-cnn Cortex-M4F  fused   64-32-10      7547200   74396  116404"),
            "{table}"
        );
        assert!(table.contains("mps2-an386-cnn Cortex-M4F     332.00       369.00        317.00"), "{table}");
        assert!(
            table.ends_with("images: rustc 1.95.0 (59807616e 2026-04-14), core built for size\n"),
            "{table}"
        );
    }
}
