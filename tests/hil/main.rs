//! Boards in QEMU, with the images that would be flashed.

use std::collections::BTreeSet;

use aggregator::config::Config;
use client::{
    host::{
        board::{Arithmetic, Board},
        footprint::{Footprint, ImageSize},
    },
    train::Portable,
};
use fairtier::demo::Fleet;
use fleet::{
    hil::{
        self,
        boards::{self, BenchBoard},
        faults::{self, Badness},
        images,
        run::{self, Boards, Lines, Outcome, TRAINING},
    },
    seeds::for_seeds,
};

/// The convolutions that a board's benchmark computes.
#[allow(dead_code, reason = "the benchmark uses more of it")]
#[path = "../../edge-client/firmware/src/bin/bench/images.rs"]
mod images_of_bench;

/// Upper limit of instructions per multiply-accumulate of a convolution on a core with an FPU.
const MAX_FPU_CONVOLUTION: f64 = 4.0;
/// Upper limit of instructions of a step of `motion-cnn` on a core with an FPU: a fortieth of what it took with multiply-adds in
/// software.
const MAX_FPU_MOTION: u64 = 7_800_000;
/// Upper limit of instructions of a step of 64-32-10 on a core with an FPU.
const MAX_FPU: u64 = 160_000;

/// Bytes that the board's image leaves for its stack.
fn stack_room(board: &Board) -> u32 {
    board.memory.ram.length
        - ImageSize::read(&board.image(&boards::images())).expect("the board has been built").ram
}

fn bits(outcome: &Outcome) -> Vec<u32> {
    outcome.parameters.iter().map(|value| value.to_bits()).collect()
}

/// A run with boards and one with hosts in their place give the same bits.
fn same_bits(config: &Config, fleet: &Fleet, boards: &[BenchBoard], lines: &Lines) {
    let hosts = run::run(config, fleet, boards, Boards::StoodInFor);
    let real = run::run_with(config, fleet, boards, Boards::Real, lines);
    assert_eq!(real.reports.len(), hosts.reports.len());
    for (real, hosts) in real.reports.iter().zip(&hosts.reports) {
        for (real, host) in real.devices.iter().zip(&hosts.devices) {
            let bits = |line: &coordinator::report::DeviceLine| {
                (line.device.clone(), line.loss_before.to_bits(), line.test_loss.map(f64::to_bits))
            };
            assert_eq!(bits(real), bits(host), "round {}", hosts.round);
        }
        assert!(real.refused.is_empty() && real.silent.is_empty(), "round {}", hosts.round);
    }
    assert_eq!(bits(&real), bits(&hosts));
}

/// A fleet of the first devices in the given tiers. `boards` names the devices that are boards.
fn small(boards: &[(&str, usize)], hosts: usize) -> (Fleet, Vec<BenchBoard>) {
    let mut fleet = hil::fleet(5);
    fleet.devices.truncate(boards.len() + hosts);
    let mut bench = vec![];
    for (index, device) in fleet.devices.iter_mut().enumerate() {
        device.shard = fleet::memory::shard(index, 64);
        device.tier = 0;
        if let Some((kind, tier)) = boards.get(index) {
            device.tier = *tier;
            let device = device.device.to_string();
            bench.push(BenchBoard { device, kind: (*kind).into(), port: "emulated".into() });
        }
    }
    (fleet, bench)
}

/// Two rounds with every kind of board, with updates in f32 and in 8 bits.
#[test]
fn boards_compute_the_bits_of_a_host() {
    if !hil::boards::can_run() {
        return;
    }
    let (fleet, boards) = (hil::fleet(3), BenchBoard::all());
    for wire in ["", "wire = { down = \"f16\", up = \"int8\" }\n"] {
        let more = format!("{TRAINING}{wire}");
        let config = run::config("{ name = \"heterofl\" }", 2, fleet.devices.len(), 3, &more);
        same_bits(&config, &fleet, &boards, &Lines::Good);
    }
}

/// The micro:bit has too little memory to train the half-width model, but can train its last layer.
#[test]
fn a_board_trains_the_last_layer_of_a_wider_tier() {
    if !hil::boards::can_run() {
        return;
    }
    let (fleet, boards) = small(&[("microbit", 1), ("mps2-an386", 1)], 2);
    let more = "model = { tiers = [1.0, { rate = 0.5, last = 1 }] }\n\
                training = { epochs = 1, batch = 4, lr = 0.1 }\n";
    let config = run::config("{ name = \"heterofl\" }", 3, fleet.devices.len(), 5, more);
    let (model, _) = aggregator::run::open_model(&config, Default::default()).unwrap();
    let arena = u64::from(boards[0].board().limits.arena);
    assert!(model.plans[1].info.arena_bytes() <= arena);
    let whole = Config::parse(&toml::to_string(&config).unwrap().replace("last = 1", "")).unwrap();
    let (whole, _) = aggregator::run::open_model(&whole, Default::default()).unwrap();
    assert!(whole.plans[1].info.arena_bytes() > arena, "the board could train the whole tier");
    // The update has the numbers of the last layer only, and the first layer is not averaged with it.
    assert_eq!(model.regions.slice_len(common::Tier::new(1).unwrap()), 10 * 16 + 10);
    same_bits(&config, &fleet, &boards, &Lines::Good);
}

/// A board without samples receives some over the line, and trains on them.
#[test]
fn samples_are_sent_over_the_line() {
    if !hil::boards::can_run() {
        return;
    }
    let (fleet, boards) = small(&[("lm3s6965evb", 0), ("mps2-an500", 0)], 1);
    let more = format!("model = {{ tiers = [0.5] }}\n{TRAINING}");
    let config = run::config("{ name = \"heterofl\" }", 2, fleet.devices.len(), 5, &more);
    same_bits(&config, &fleet, &boards, &Lines::Provisioned);
}

/// A CNN for 28x28 images within 128 KB of RAM.
#[test]
fn boards_learn_images() {
    if !hil::boards::can_run() {
        return;
    }
    let (fleet, boards) = (images::fleet(None, 1), images::boards());
    same_bits(&images::config(2, 1), &fleet, &boards, &Lines::Good);
}

/// Features that a small board was built without are refused by code, and the others continue.
#[test]
fn a_small_board_refuses_missing_features() {
    if !hil::boards::can_run() {
        return;
    }
    let (fleet, boards) = small(&[("mps2-an386", 1), ("microbit", 1)], 2);
    for (strategy, training) in [
        ("{ name = \"heterofl\" }", "clip = 1.0"),
        ("{ name = \"fedavg\", params = { lsr = { Ts = 0.5, Td = 3, gamma_reg = 0.4 } } }", "momentum = 0.0"),
        ("{ name = \"ditto\" }", "momentum = 0.0"),
    ] {
        let more = format!(
            "model = {{ tiers = [1.0, 0.125] }}\ntraining = {{ epochs = 1, batch = 8, lr = 0.1, {training} }}\n"
        );
        let config = run::config(strategy, 1, fleet.devices.len(), 5, &more);
        let outcome = run::run(&config, &fleet, &boards, Boards::Real);
        let round = &outcome.reports[0];
        assert_eq!(round.devices.len(), 2, "{strategy}");
        let refused: Vec<_> = round.refused.iter().map(|line| (line.device.as_str(), line.code)).collect();
        let code = common::Code::LeftOut.number();
        assert_eq!(refused, [("t0-00", code), ("t0-01", code)], "{strategy}");
    }
}

/// HeteroFL and FairHeteroFL from the same start.
#[test]
fn boards_take_part_in_a_fair_strategy() {
    if !hil::boards::can_run() {
        return;
    }
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
    // A stack overflow would overwrite static data and silence the board for good.
    for bench in &boards {
        let board = bench.board();
        let used = [&plain, &fair].map(|outcome| outcome.carried.get(&bench.device).and_then(|it| it.stack));
        let (used, room) = (used.into_iter().flatten().max(), stack_room(&board));
        println!("{} ({}): {used:?} of {room} bytes of stack", bench.device, board.name);
        assert!(used.is_some_and(|used| used + 256 <= room), "{}: {used:?} of {room}", bench.device);
    }
    let (before, after) = (&plain.last().loss, &fair.last().loss);
    println!(
        "variance {:.4} -> {:.4}, mean {:.4} -> {:.4}",
        before.variance, after.variance, before.mean, after.mean
    );
    assert!(after.variance <= 0.8 * before.variance, "variance {} -> {}", before.variance, after.variance);
    assert!(after.mean <= 1.05 * before.mean, "mean {} -> {}", before.mean, after.mean);
}

/// Lines with faults drawn from seeds. `hil faults --in-process N` runs any number of them.
#[test]
fn no_fault_on_a_line_changes_the_model_or_stops_the_run() {
    let good = faults::in_process(Badness::NONE, 0);
    for_seeds(100_000, |seed| faults::check(seed, &good));
}

/// 50 rounds of emulated boards with bad lines and repeated resets.
#[test]
fn faults_do_not_change_what_boards_learn() {
    if !hil::boards::can_run() {
        return;
    }
    faults::in_qemu(50);
}

#[test]
fn figures_stay_within_their_limits() {
    if !hil::boards::can_run() {
        return;
    }
    let images = boards::images();
    let emulated = Board::all().into_iter().filter(|board| board.machine.is_some());
    let footprints: Vec<_> = emulated.map(|board| Footprint::measure(&board, &images).unwrap()).collect();
    println!("{}", Footprint::table(&footprints));
    let of = |name: &str| footprints.iter().find(|footprint| footprint.board.name == name).unwrap();
    let m4 = of("mps2-an386");
    assert!(m4.instructions <= MAX_FPU && m4.image.flash <= 64 << 10 && m4.image.ram <= 40 << 10, "{m4:?}");
    assert!(of("mps2-an385").instructions <= 8_900_000);
    // The 0.5 tier fits 64 KB, the 0.125 tier 16 KB, and the rest of 128 KB is stack.
    for (name, hidden, ram) in [("lm3s6965evb", 16, 64), ("microbit", 4, 16), ("mps2-an386-cnn", 32, 128)] {
        let board = of(name);
        assert!(board.hidden == hidden && board.image.ram < ram << 10, "{board:?}");
    }
    // Convolutions have the bits of a host.
    let mut arena = vec![0.0; 1 << 16];
    let mut layer = images_of_bench::Layer::new(&mut arena).unwrap();
    layer.forward(&mut Portable::fused());
    layer.input_grad(&mut Portable::fused());
    layer.weight_grad(&mut Portable::fused());
    let layer = format!("{:08x}", layer.check());
    let (loss, weights) = images_of_bench::train_motion(&mut arena, &mut Portable::fused(), || {}).unwrap();
    let convolutions: Vec<_> = footprints.iter().filter_map(|it| it.convolutions.as_ref()).collect();
    assert!(!convolutions.is_empty());
    for it in convolutions {
        assert_eq!((&it.bits, &it.motion_bits), (&layer, &format!("{loss:016x}-{weights:08x}")));
        assert!(it.per_mac().iter().all(|&count| count <= MAX_FPU_CONVOLUTION), "{it:?}");
        assert!(it.motion <= MAX_FPU_MOTION, "{it:?}");
    }
    // The same arithmetic gives the same bits on every core.
    for arithmetic in [Arithmetic::Fused, Arithmetic::Plain] {
        let same = footprints
            .iter()
            .filter(|footprint| footprint.board.arithmetic == arithmetic && footprint.hidden == 32);
        let bits: BTreeSet<_> = same.map(|footprint| (&footprint.loss, &footprint.weights)).collect();
        assert!(bits.len() <= 1, "{arithmetic:?}: {bits:?}");
    }
}
