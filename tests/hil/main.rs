//! Boards in QEMU, with the images that would be flashed.
#![expect(clippy::unwrap_used, reason = "a panic is a failed test")]

use std::collections::BTreeSet;

use fleet::hil::{
    self,
    boards::BenchBoard,
    run::{self, Boards, Outcome},
};

const TRAINING: &str = "training = { epochs = 1, batch = 16, lr = 0.5, lr_decay = 0.99 }\n";

fn bits(outcome: &Outcome) -> Vec<u32> {
    outcome.parameters.iter().map(|value| value.to_bits()).collect()
}

/// Two rounds with every kind of board, and the same with hosts in their place.
#[test]
fn boards_compute_the_bits_of_a_host() {
    let (fleet, boards) = (hil::fleet(3), BenchBoard::all());
    let config = run::config("{ name = \"heterofl\" }", 2, fleet.devices.len(), 3, TRAINING);
    let hosts = run::run(&config, &fleet, &boards, Boards::StoodInFor);
    let real = run::run(&config, &fleet, &boards, Boards::Real);
    for (real, hosts) in real.reports.iter().zip(&hosts.reports) {
        for (real, host) in real.devices.iter().zip(&hosts.devices) {
            let bits = |line: &aggregator::report::DeviceLine| {
                (line.device.clone(), line.loss_before.to_bits(), line.test_loss.map(f64::to_bits))
            };
            assert_eq!(bits(real), bits(host), "round {}", hosts.round);
        }
    }
    assert_eq!(bits(&real), bits(&hosts));
}

/// HeteroFL and FairHeteroFL from the same start.
#[test]
fn fairness_reaches_the_boards() {
    let (fleet, boards) = (hil::fleet(hil::run::SEED), BenchBoard::all());
    assert!(boards.len() >= 8 && fleet.devices.len() - boards.len() >= 6);
    let kinds: BTreeSet<_> = boards.iter().map(|board| &board.kind).collect();
    assert!(kinds.len() >= 4, "{kinds:?}");
    let [plain, fair] = run::contest(&fleet, &boards, Boards::Real);
    for outcome in [&plain, &fair] {
        for report in &outcome.reports {
            let tiers: BTreeSet<_> = report.devices.iter().map(|line| line.tier).collect();
            assert_eq!(tiers.len(), 5, "round {}", report.round);
            assert_eq!(report.devices.len(), fleet.devices.len(), "round {}", report.round);
            assert!(report.refused.is_empty() && report.silent.is_empty());
        }
    }
    let (before, after) = (&plain.last().loss, &fair.last().loss);
    println!(
        "variance {:.4} -> {:.4}, mean {:.4} -> {:.4}",
        before.variance, after.variance, before.mean, after.mean
    );
    assert!(after.variance <= 0.8 * before.variance, "variance {} -> {}", before.variance, after.variance);
    assert!(after.mean <= 1.05 * before.mean, "mean {} -> {}", before.mean, after.mean);
}
