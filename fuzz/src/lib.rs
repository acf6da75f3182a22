//! Helpers of several targets.
#![forbid(unsafe_code)]

use std::{
    fs,
    path::{Path, PathBuf},
};

use common::wire::{self, FRAME_FORMAT};

mod folder;
pub mod protobuf;

pub use folder::ModelFolder;

/// A frame around this kind and body with a valid version and checksum, which a fuzzer would not find.
pub fn frame(kind_and_body: &[u8]) -> Vec<u8> {
    let mut frame = [&[FRAME_FORMAT], kind_and_body].concat();
    let sum = wire::crc32(&frame);
    frame.extend_from_slice(&sum.to_le_bytes());
    frame
}

/// Splits an input into pieces: each has a length byte before it, the last is the rest.
pub fn pieces(mut data: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (&len, rest) = data.split_first()?;
        let (piece, rest) = rest.split_at(rest.len().min(len.into()));
        data = rest;
        Some(piece)
    })
}

/// Writes the input to a file (in memory, if the system has `/dev/shm`) and calls `read` with its path.
pub fn with_file<T>(name: &str, content: &[u8], read: impl FnOnce(&Path) -> T) -> T {
    let path = place().join(format!("fairtier-fuzz-{}-{name}", std::process::id()));
    fs::write(&path, content).expect("the directory for temporary files can be written to");
    let result = read(&path);
    let _ = fs::remove_file(&path);
    result
}

pub fn place() -> PathBuf {
    let shm = PathBuf::from("/dev/shm");
    if shm.is_dir() { shm } else { std::env::temp_dir() }
}
