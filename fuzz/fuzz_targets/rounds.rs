//! Round files, computed again with the simplest strategy where they can be read.
#![no_main]

use std::path::Path;

use aggregator::roundfile::RoundFile;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let _ = RoundFile::parse(text, Path::new("no-such-directory"));
});
