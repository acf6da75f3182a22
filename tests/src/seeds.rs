//! Runs a test with many seeds; a failure names its seed.
//!
//! `FAIRTIER_SEED=<seed> cargo test --profile ci -p tests <name>` replays one seed. `FAIRTIER_SEEDS=<count>` sets the
//! number of seeds.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::atomic::{AtomicU64, Ordering},
};

const ONE: &str = "FAIRTIER_SEED";

/// Whether a single seed is replayed.
pub fn is_replay() -> bool {
    from_env(ONE).is_some()
}

/// The number in a variable. Panics on anything else, because ignoring it would run all seeds instead.
fn from_env(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|wrong| panic!("{name}={text}: {wrong}")))
}

/// Runs `check` for many seeds on all processors, and prints the seed of a failure.
pub fn for_seeds(count: u64, check: impl Fn(u64) + Sync) {
    let seeds = match from_env(ONE) {
        Some(seed) => seed..seed + 1,
        None => 0..from_env("FAIRTIER_SEEDS").unwrap_or(count),
    };
    let next = AtomicU64::new(seeds.start);
    let work = || {
        while let seed = next.fetch_add(1, Ordering::Relaxed)
            && seed < seeds.end
        {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| check(seed))) {
                eprintln!("failed with seed {seed}; replay with FAIRTIER_SEED={seed}");
                resume_unwind(panic);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
}
