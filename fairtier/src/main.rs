//! `fairtier`: gateway, devices, boards, models and simulator. See `fairtier --help`.

use std::process::ExitCode;

// glibc's heap fragments and grows over days of rounds; this allocator does not (`fairtier bench load` shows it).
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    fairtier::run(&fairtier::Registry::standard())
}
