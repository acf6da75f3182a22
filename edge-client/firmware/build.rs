//! Reads the board's description and writes its constants for the compiler and its memory map for the linker.

use std::{env, fmt::Write, fs, path::PathBuf, process::Command};

use serde::Deserialize;

/// The keys that the host's `Board` has, too. Those that only others read are named, so that unknown ones are refused.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Board {
    name: String,
    #[serde(rename = "target")]
    _target: String,
    #[serde(rename = "core")]
    _core: String,
    #[serde(rename = "arithmetic")]
    _arithmetic: String,
    #[serde(rename = "machine")]
    _machine: String,
    /// `scripts/firmware` passes these two as features.
    #[serde(rename = "ops", default)]
    _ops: String,
    #[serde(rename = "extras", default)]
    _extras: Vec<String>,
    memory: Memory,
    uart: Uart,
    clock: Clock,
    limits: Limits,
    keep: Option<KeepSlots>,
}

/// Bytes of a slot for the model, and the rounds from one write to the next.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeepSlots {
    length: u32,
    every: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Memory {
    flash: Region,
    ram: Region,
    identity: u32,
    shard: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Region {
    origin: u32,
    length: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Uart {
    kind: String,
    base: u32,
    rx_irq: i16,
    tx_irq: i16,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Clock {
    systick_hz: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Limits {
    arena: usize,
    nodes: usize,
    chunk: u32,
    /// Bytes for samples that arrive over the serial line.
    #[serde(default)]
    samples: usize,
}

fn main() {
    println!("cargo::rerun-if-env-changed=FAIRTIER_BOARD");
    println!("cargo::rustc-check-cfg=cfg(uart, values(\"cmsdk\", \"pl011\", \"nrf51\"))");
    if env::var_os("CARGO_FEATURE_EMULATED").is_none() {
        return;
    }
    let name = env::var("FAIRTIER_BOARD").expect("FAIRTIER_BOARD names a file of boards/, as in mps2-an386");
    let path = format!("boards/{name}.toml");
    println!("cargo::rerun-if-changed={path}");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let board: Board = toml::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}"));
    let Board { name, memory, uart, clock, limits, keep, .. } = board;
    let KeepSlots { length: keep_length, every: keep_every } =
        keep.unwrap_or(KeepSlots { length: 0, every: 0 });

    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let mut map = String::from("MEMORY {\n");
    for (region, Region { origin, length }) in [("FLASH", &memory.flash), ("RAM", &memory.ram)] {
        writeln!(map, "  {region} : ORIGIN = {origin:#x}, LENGTH = {length:#x}").expect("a String takes all");
    }
    map.push_str("}\n");
    fs::write(out.join("memory.x"), map).expect("OUT_DIR can be written");
    // The interrupts are in the vector table below, not in weak symbols.
    fs::write(out.join("device.x"), "").expect("OUT_DIR can be written");
    println!("cargo::rustc-link-search={}", out.display());
    println!("cargo::rustc-cfg=uart=\"{}\"", uart.kind);

    // `scripts/firmware` says where the core library comes from.
    println!("cargo::rerun-if-env-changed=FAIRTIER_CORE");
    let compiler = Command::new(env::var_os("RUSTC").expect("cargo sets RUSTC"))
        .arg("--version")
        .output()
        .expect("the compiler prints its version");
    let compiler = String::from_utf8_lossy(&compiler.stdout);
    let core = env::var("FAIRTIER_CORE").unwrap_or_else(|_| "core of unknown origin".into());
    let toolchain = format!("{}, {core}", compiler.trim());

    let constants = format!(
        "pub const NAME: &str = {name:?};\n\
         pub const TOOLCHAIN: &str = {toolchain:?};\n\
         pub const IDENTITY: usize = {:#x};\n\
         pub const SHARD: usize = {:#x};\n\
         pub const UART: usize = {:#x};\n\
         pub const UART_RX_IRQ: i16 = {};\n\
         pub const UART_TX_IRQ: i16 = {};\n\
         pub const SYSTICK_HZ: u32 = {};\n\
         pub const ARENA: usize = {};\n\
         pub const NODES: usize = {};\n\
         pub const CHUNK: u32 = {};\n\
         pub const SAMPLES: usize = {};\n\
         pub const KEEP_LENGTH: u32 = {keep_length};\n\
         pub const KEEP_EVERY: u32 = {keep_every};\n",
        memory.identity,
        memory.shard,
        uart.base,
        uart.rx_irq,
        uart.tx_irq,
        clock.systick_hz,
        limits.arena,
        limits.nodes,
        limits.chunk,
        limits.samples,
    );
    fs::write(out.join("board.rs"), constants).expect("OUT_DIR can be written");
}
