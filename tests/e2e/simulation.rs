//! Whole runs in memory and virtual time. Whatever the link does to frames, the run ends, and its
//! model is the model of an undisturbed run, bit for bit.
//!
//! A failure names its seed; `FAIRTIER_SEED=<seed> cargo test --profile ci -p tests <name>` replays
//! that one, and `FAIRTIER_SEEDS=<count>` tries more than usual.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::atomic::{AtomicU64, Ordering},
};

use common::rng::{Rng, derive};
use fleet::memory::{Outcome, Setup};

const EXACT: &str = "run = { rounds = 3 }\ntraining = { batch = 8 }";
const LOSSY_CODEC: &str = "run = { rounds = 3 }\ntraining = { batch = 8 }\n\
     wire = { up = \"int8\", error_feedback = true }";

/// Runs `check` for many seeds on all processors, and says which one failed.
fn for_seeds(count: u64, check: impl Fn(u64) + Sync) {
    let from_env = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let seeds = match from_env("FAIRTIER_SEED") {
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

fn bits(parameters: &[f32]) -> Vec<u32> {
    parameters.iter().map(|value| value.to_bits()).collect()
}

/// Everybody took part in every round, and every update arrived and was counted once.
fn assert_complete(outcome: &Outcome, rounds: u32) {
    let train: Vec<_> = outcome.reports.iter().filter(|report| report.purpose == "train").collect();
    assert_eq!(train.iter().map(|report| report.round).collect::<Vec<_>>(), (1..=rounds).collect::<Vec<_>>());
    for report in &outcome.reports {
        assert_eq!(report.devices.len(), 5, "round {}", report.round);
        assert!(report.refused.is_empty() && report.silent.is_empty(), "round {}", report.round);
    }
    assert_eq!(outcome.arrived.len(), 5 * rounds as usize);
    assert!(outcome.parameters.iter().all(|value| value.is_finite()));
}

#[test]
fn a_bad_link_changes_nothing_in_the_model() {
    let calm = Setup::new(EXACT);
    let expected = calm.run();
    assert_complete(&expected, 3);
    for_seeds(200, |seed| {
        let outcome = calm.disturbed(seed).run();
        assert_complete(&outcome, 3);
        assert!(outcome.arrived.values().all(|&count| count == 1), "{:?}", outcome.arrived);
        let trained = outcome.answers.iter().filter(|((_, round), _)| *round <= 3);
        for ((device, round), answers) in trained {
            assert_eq!(answers, &[None], "{device} in round {round}");
        }
        assert_eq!(bits(&outcome.parameters), bits(&expected.parameters));
        assert_eq!(outcome.slices, expected.slices);
    });
}
