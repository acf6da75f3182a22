//! Round files; readable ones are computed again, with their own strategy and with plain averaging.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use strategies::Registry;
use strategies::roundfile::{RoundFile, replay};

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(file) = RoundFile::parse(text, Path::new("no-such-directory")) else { return };
    let _ = replay(&Registry::standard(), &file, "fedavg", Default::default());
    if let Some((name, params)) = &file.strategy {
        let _ = replay(&Registry::standard(), &file, name, params.clone());
    }
});
