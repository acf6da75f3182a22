//! `fairtier`: gateway, devices, boards, models and simulator. See `fairtier --help`.

use std::process::ExitCode;

// glibc's heap has holes after every round and grows for days; this one does not (`fairtier bench load` shows it).
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    fairtier::run(&fairtier::Registry::standard())
}
