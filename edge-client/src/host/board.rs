//! The kinds of boards: what `firmware/boards/*.toml` says of them, and how their firmware is started.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use serde::Deserialize;

/// The descriptions that the firmware was built with.
const BOARDS: [&str; 7] = [
    include_str!("../../firmware/boards/mps2-an386.toml"),
    include_str!("../../firmware/boards/mps2-an500.toml"),
    include_str!("../../firmware/boards/mps2-an385.toml"),
    include_str!("../../firmware/boards/mps2-an505.toml"),
    include_str!("../../firmware/boards/mps3-an547.toml"),
    include_str!("../../firmware/boards/lm3s6965evb.toml"),
    include_str!("../../firmware/boards/microbit.toml"),
];

/// A kind of board.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Board {
    pub name: String,
    /// What the compiler calls it.
    pub target: String,
    pub core: String,
    pub arithmetic: Arithmetic,
    /// QEMU's name for it; absent on real parts.
    pub machine: Option<String>,
    /// What `probe-rs` calls it; absent on emulated ones.
    pub chip: Option<String>,
    pub memory: Memory,
    pub clock: Clock,
    pub limits: Limits,
}

/// How multiply-accumulates are rounded.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arithmetic {
    Fused,
    Plain,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Memory {
    pub flash: Region,
    pub ram: Region,
    /// Where the identity page and the samples lie.
    pub identity: u32,
    pub shard: u32,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Region {
    pub origin: u32,
    pub length: u32,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Clock {
    pub systick_hz: u32,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Limits {
    pub arena: u32,
    pub nodes: usize,
    pub chunk: u32,
}

#[derive(Debug, thiserror::Error)]
#[error("there is no board `{name}`; there are {known}")]
pub struct UnknownBoard {
    name: String,
    known: String,
}

impl Board {
    pub fn all() -> Vec<Self> {
        BOARDS.iter().filter_map(|text| toml::from_str(text).ok()).collect()
    }

    pub fn by_name(name: &str) -> Result<Self, UnknownBoard> {
        let all = Self::all();
        let known = all.iter().map(|board| board.name.as_str()).collect::<Vec<_>>().join(", ");
        all.into_iter().find(|board| board.name == name).ok_or(UnknownBoard { name: name.into(), known })
    }

    /// Where `scripts/firmware` puts the image.
    pub fn image(&self, dir: &Path) -> PathBuf {
        dir.join(format!("{}.elf", self.name))
    }

    /// QEMU's arguments to run an image with its pages, its UART at `serial` (a chardev of QEMU).
    pub fn qemu(&self, image: &Path, page: &Path, shard: &Path, serial: &str) -> Option<Vec<OsString>> {
        let machine = self.machine.as_deref()?;
        let mut args: Vec<OsString> =
            ["-M", machine, "-display", "none", "-monitor", "none", "-nodefaults", "-nic", "none"]
                .map(OsString::from)
                .to_vec();
        args.extend(["-kernel".into(), image.into(), "-serial".into(), serial.into()]);
        for (file, address) in [(page, self.memory.identity), (shard, self.memory.shard)] {
            // QEMU doubles commas in names.
            let file = file.display().to_string().replace(',', ",,");
            args.push("-device".into());
            args.push(format!("loader,file={file},addr={address:#x},force-raw=on").into());
        }
        Some(args)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
