//! Boards in QEMU, with the images that would be flashed.

use std::collections::BTreeSet;

use edge_client::host::board::{Arithmetic, Board};
use fleet::{
    hil::{
        self,
        boards::BenchBoard,
        faults::{self, Badness},
        figures,
        run::{self, Boards, Outcome, TRAINING},
    },
    seeds::for_seeds,
};

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

/// 100,000 lines as bad as their seeds make them.
#[test]
fn no_fault_on_a_line_changes_the_model_or_stops_the_run() {
    let good = faults::in_process(Badness::NONE, 0);
    for_seeds(100_000, |seed| {
        let badness = Badness::drawn(&mut common::rng::Rng::new(seed));
        assert_eq!(faults::in_process(badness, seed), good, "{badness:?}");
    });
}

/// 50 rounds of emulated boards whose lines are bad and who are reset again and again.
#[test]
fn faults_do_not_change_what_boards_learn() {
    faults::in_qemu(50);
}

#[test]
fn figures_stay_within_their_limits() {
    let figures: Vec<_> =
        Board::all().iter().filter(|board| board.machine.is_some()).map(figures::measure).collect();
    println!("{}", figures::table(&figures));
    let of = |name: &str| figures.iter().find(|figures| figures.board.name == name).unwrap();
    let m4 = of("mps2-an386");
    assert!(m4.instructions <= figures::MAX_FPU && m4.flash <= 64 << 10 && m4.ram <= 40 << 10, "{m4:?}");
    assert!(of("mps2-an385").instructions <= 8_900_000);
    // The same arithmetic gives the same bits on every core.
    for arithmetic in [Arithmetic::Fused, Arithmetic::Plain] {
        let same =
            figures.iter().filter(|figures| figures.board.arithmetic == arithmetic && figures.hidden == 32);
        let bits: BTreeSet<_> = same.map(|figures| (&figures.loss, &figures.weights)).collect();
        assert!(bits.len() <= 1, "{arithmetic:?}: {bits:?}");
    }
}
