//! What a board needs and how long it takes: instructions of one optimiser step, flash, RAM.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use client::host::board::Board;

use super::boards::images;

/// Most instructions of a step of 64-32-10 on a core with an FPU.
pub const MAX_FPU: u64 = 160_000;

/// One kind of board.
#[derive(Clone, PartialEq, Debug)]
pub struct Figures {
    pub board: Board,
    /// Of one step of 64-H-10, batch 16, under `-icount shift=0`. Not cycles.
    pub instructions: u64,
    pub hidden: u32,
    /// Bits of the loss, and the checksum of the weights after four steps.
    pub loss: String,
    pub weights: String,
    pub flash: u32,
    /// Statically placed RAM, the arena among it.
    pub ram: u32,
}

pub fn measure(board: &Board) -> Figures {
    let dir = images();
    let (flash, ram) = sizes(&board.image(&dir));
    let output = bench(board, &dir.join(format!("{}-bench.elf", board.name)));
    let value = |key: &str| {
        let line = output.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{}: no {key} in {output:?}", board.name)).to_owned()
    };
    Figures {
        board: board.clone(),
        instructions: value("instructions").parse().unwrap(),
        hidden: value("hidden").parse().unwrap(),
        loss: value("loss"),
        weights: value("weights"),
        flash,
        ram,
    }
}

/// Bytes that the board's image leaves for its stack.
pub fn stack_room(board: &Board) -> u32 {
    board.memory.ram.length - sizes(&board.image(&images())).1
}

fn bench(board: &Board, image: &Path) -> String {
    let out = tempfile::NamedTempFile::new().unwrap();
    let serial = format!("file:{}", out.path().display());
    let mut qemu = Command::new("qemu-system-arm");
    qemu.args(["-M", board.machine.as_deref().unwrap(), "-icount", "shift=0"])
        .args(["-display", "none", "-monitor", "none", "-nodefaults", "-nic", "none", "-kernel"])
        .arg(image)
        .args(["-serial", &serial])
        .stderr(Stdio::null());
    let mut qemu = qemu.spawn().expect("qemu-system-arm is needed; run scripts/setup");
    let started = Instant::now();
    let output = loop {
        let output = fs::read_to_string(out.path()).unwrap_or_default();
        if output.contains("done") || output.contains("failed") || started.elapsed() > Duration::from_secs(60)
        {
            break output;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let _ = qemu.kill();
    let _ = qemu.wait();
    output
}

/// Bytes of flash and of static RAM that an image takes: its sections, by where they are loaded.
fn sizes(image: &Path) -> (u32, u32) {
    let file = fs::read(image).unwrap();
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    let half = |at: usize| usize::from(u16::from_le_bytes(file[at..at + 2].try_into().unwrap()));
    let (table, size, count) = (word(0x20) as usize, half(0x2e), half(0x30));
    let (mut flash, mut ram) = (0, 0);
    for section in (0..count).map(|index| table + index * size) {
        const ALLOCATED: u32 = 2;
        const WRITABLE: u32 = 1;
        const NO_BITS: u32 = 8;
        let (kind, flags, len) = (word(section + 4), word(section + 8), word(section + 20));
        if flags & ALLOCATED == 0 {
            continue;
        }
        if kind != NO_BITS {
            flash += len;
        }
        if flags & WRITABLE != 0 {
            ram += len;
        }
    }
    (flash, ram)
}

/// The same as JSON.
pub fn json(figures: &[Figures]) -> serde_json::Value {
    let line = |it: &Figures| {
        serde_json::json!({
            "board": it.board.name,
            "core": it.board.core,
            "arithmetic": format!("{:?}", it.board.arithmetic).to_lowercase(),
            "model": format!("64-{}-10", it.hidden),
            "instructions": it.instructions,
            "flash": it.flash,
            "ram": it.ram,
            "arena": it.board.limits.arena,
        })
    };
    figures.iter().map(line).collect()
}

/// The table that `hil figures` prints.
pub fn table(figures: &[Figures]) -> String {
    let mut text = format!(
        "{:<14} {:<11} {:<6} {:>9} {:>14} {:>8} {:>8} {:>8}\n",
        "board", "core", "sums", "model", "instructions", "flash", "RAM", "arena"
    );
    for Figures { board, instructions, hidden, flash, ram, .. } in figures {
        text += &format!(
            "{:<14} {:<11} {:<6} {:>9} {:>14} {:>8} {:>8} {:>8}\n",
            board.name,
            board.core,
            format!("{:?}", board.arithmetic).to_lowercase(),
            format!("64-{hidden}-10"),
            instructions,
            flash,
            ram,
            board.limits.arena,
        );
    }
    text += "instructions: one SGD step, batch 16, from gathered batch to updated weights, QEMU -icount shift=0.\n\
             An instruction count is not a cycle count. RAM is what is placed statically; the stack comes on top.\n";
    text
}
