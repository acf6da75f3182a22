//! Whole runs in memory and virtual time. With any faults of the link, the run ends, and its model equals that of an
//! undisturbed run, bit for bit.

use std::sync::Mutex;

use common::rng::{Rng, derive};
use coordinator::report::RoundReport;
use fleet::{
    memory::{Accident, CrashCounts, Outcome, Setup, World},
    seeds::{for_seeds, is_replay},
};
use strategies::strategy::PerTier;

const EXACT: &str = "run = { rounds = 3 }\ntraining = { batch = 8 }";
const LOSSY_CODEC: &str = "run = { rounds = 3 }\ntraining = { batch = 8 }\n\
     wire = { up = \"int8\", error_feedback = true }";

fn bits(parameters: &[f32]) -> Vec<u32> {
    parameters.iter().map(|value| value.to_bits()).collect()
}

/// All devices took part in every round, and every update arrived and was counted once.
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

/// Each tier uses its codec in both directions, and a bad link changes nothing.
#[test]
fn every_tier_uses_its_own_codec() {
    let calm = Setup::new(&format!(
        "{EXACT}\nwire = {{ up = [\"f32\", \"f16\", \"int8\", \"f32\", \"int8\"], \
         down = [\"f32\", \"f32\", \"f16\", \"int8\", \"int8\"] }}"
    ));
    let [expected, exact] = [&calm, &Setup::new(EXACT)].map(Setup::run);
    assert_complete(&expected, 3);
    let traffic = |outcome: &Outcome| outcome.reports[0].traffic_by_tier.clone();
    // Share of the bytes in f32: all, half, or a scale per 64 numbers and a byte per number.
    let rates = [(1.0, 1.0), (0.5, 1.0), (0.266, 0.5), (1.0, 0.266), (0.266, 0.266)];
    for (tier, ((ours, all), (up, down))) in
        traffic(&expected).iter().zip(traffic(&exact)).zip(rates).enumerate()
    {
        for (bytes, all, rate) in [(ours.up, all.up, up), (ours.down, all.down, down)] {
            let share = bytes as f64 / all as f64;
            assert!((share - rate).abs() < 0.01, "tier {tier}: {bytes} of {all} bytes");
        }
    }
    for_seeds(40, |seed| {
        let outcome = calm.disturbed(seed).run();
        assert_complete(&outcome, 3);
        assert_eq!(bits(&outcome.parameters), bits(&expected.parameters));
    });
}

#[test]
fn error_feedback_survives_a_bad_link() {
    let calm = Setup::new(LOSSY_CODEC);
    let expected = calm.run();
    assert_complete(&expected, 3);
    assert_ne!(bits(&expected.parameters), bits(&Setup::new(EXACT).run().parameters));
    for_seeds(60, |seed| {
        let outcome = calm.disturbed(seed).run();
        assert_complete(&outcome, 3);
        assert_eq!(bits(&outcome.parameters), bits(&expected.parameters));
    });
}

/// Draws up to three accidents within the first seconds from a seed.
fn draw(seed: u64, mut accident: impl FnMut(&mut Rng) -> Accident) -> Vec<(u64, Accident)> {
    let mut rng = Rng::new(derive(seed, 2));
    (0..1 + rng.below(3)).map(|_| (rng.below(8000), accident(&mut rng))).collect()
}

#[test]
fn killed_aggregators_and_devices_lose_nothing_and_count_nothing_twice() {
    let calm = Setup::new(EXACT);
    let expected = calm.run();
    let crashes = Mutex::new(CrashCounts::default());
    for_seeds(120, |seed| {
        let mut setup = calm.disturbed(seed);
        setup.accidents = draw(seed, |rng| match rng.below(4) {
            0 => Accident::Crash,
            1 => Accident::CrashUncommitted,
            2 => Accident::CrashUnsettled,
            _ => {
                let device = rng.below(5) as usize;
                Accident::Reboot { device, tier: device }
            }
        });
        let outcome = setup.run();
        assert_complete(&outcome, 3);
        assert_eq!(bits(&outcome.parameters), bits(&expected.parameters));
        *crashes.lock().unwrap() += outcome.crashes;
    });
    assert_hit(crashes.into_inner().unwrap());
}

/// Crashes have hit all states that matter. A single replayed seed need not hit them.
fn assert_hit(crashes: CrashCounts) {
    let CrashCounts { uncommitted, unsettled, undone } = crashes;
    assert!(is_replay() || uncommitted.min(unsettled).min(undone) > 0, "{crashes:?}");
}

/// Missed deadlines, one upload at a time, and devices that leave or return with other memory: the model changes, but
/// the run ends.
#[test]
fn a_run_with_short_deadlines_ends_despite_accidents() {
    let mut calm = Setup::new(EXACT);
    // A device may leave before the first round, which waits for this many.
    calm.config.run.min_devices = 4;
    calm.config.round.quorum = 0.4.into();
    calm.config.server.max_uploads = 1;
    for_seeds(150, |seed| {
        let mut setup = calm.disturbed(seed);
        let mut rng = Rng::new(derive(seed, 3));
        setup.config.round.deadline_s = (0.2 + 3.0 * rng.unit_f64()).into();
        let leaving = rng.below(5) as usize;
        setup.accidents = draw(seed, |rng| match rng.below(6) {
            0 => Accident::Crash,
            1 => Accident::CrashUncommitted,
            2 => Accident::CrashUnsettled,
            3 => Accident::Vanish { device: leaving },
            _ => Accident::Reboot { device: rng.below(5) as usize, tier: rng.below(5) as usize },
        });
        let outcome = setup.run();
        let train = outcome.reports.iter().filter(|report| report.purpose == "train");
        assert_eq!(train.map(|report| report.round).collect::<Vec<_>>(), [1, 2, 3]);
        assert!(outcome.parameters.iter().all(|value| value.is_finite()));
        for report in &outcome.reports {
            let able = report.devices.len() + report.silent.len();
            let quorum = (0.4 * able as f64).ceil() as usize;
            let enough = report.silent.is_empty() || report.devices.len() >= quorum;
            assert!(enough, "round {} closed without a quorum", report.round);
        }
    });
}

/// Draws the selection, the deadlines and the accidents of a run from a seed. The model is small, so that tens of
/// thousands of runs take seconds: only the order of events matters.
fn any_order(seed: u64) -> Setup {
    let mut rng = Rng::new(derive(seed, 4));
    let mut setup = Setup::new(
        "run = { rounds = 2 }\ntraining = { batch = 4 }\n\
         model = { source = \"mlp:64-4-10\", tiers = [1.0, 1.0, 0.5, 0.5, 0.25] }",
    )
    .disturbed(seed);
    setup.samples = 4;
    setup.limits.chunk = 1 << 10;
    setup.limits.window = 2 << 10;
    let config = &mut setup.config;
    // A device may leave before the first round, which waits for this many.
    config.run.min_devices = 3 + rng.below(2) as usize;
    config.round.participation = if rng.below(2) == 0 { 1.0 } else { 0.6 };
    config.round.over_selection = 1.0 + rng.below(3) as f64 / 2.0;
    let each = |rng: &mut Rng, least: f64, most: f64| {
        (0..5).map(|_| least + (most - least) * rng.unit_f64()).collect::<Vec<_>>()
    };
    config.round.deadline_s = PerTier::Each(each(&mut rng, 0.05, 4.0));
    config.round.quorum = PerTier::Each(each(&mut rng, 0.0, 1.0));
    config.round.give_up_s = 1.0 + 9.0 * rng.unit_f64();
    config.server.max_uploads = 1 + rng.below(4) as usize;
    let leaving = rng.below(5) as usize;
    setup.accidents = draw(seed, |rng| match rng.below(7) {
        0 | 1 => Accident::Crash,
        2 => Accident::CrashUncommitted,
        3 => Accident::CrashUnsettled,
        4 => Accident::Vanish { device: leaving },
        _ => Accident::Reboot { device: rng.below(5) as usize, tier: rng.below(5) as usize },
    });
    setup
}

/// Combines everything: deadlines and quorums per tier, over-selection, crashes before and after commits, devices
/// that leave or return with other memory, and links that lose, repeat, garble and reorder. Every run ends, and
/// acknowledged updates count exactly once. `World` compares combined with stored updates, `assert_counted` compares
/// reports with receipts.
#[test]
fn runs_with_random_orders_of_events_end_and_lose_nothing() {
    let crashes = Mutex::new(CrashCounts::default());
    for_seeds(20_000, |seed| {
        let outcome = any_order(seed).run();
        let train = outcome.reports.iter().filter(|report| report.purpose == "train");
        assert_eq!(train.map(|report| report.round).collect::<Vec<_>>(), [1, 2]);
        assert!(outcome.parameters.iter().all(|value| value.is_finite()));
        assert_counted(&outcome);
        *crashes.lock().unwrap() += outcome.crashes;
    });
    assert_hit(crashes.into_inner().unwrap());
}

/// Every accepted update is in the report of its round exactly once. Scores after the last round are not stored.
fn assert_counted(outcome: &Outcome) {
    let train =
        |round: u32| outcome.reports.iter().find(|report| report.round == round && report.purpose == "train");
    for ((device, round), answers) in &outcome.answers {
        let Some(report) = train(*round) else { continue };
        let lines = |report: &RoundReport| {
            report.devices.iter().filter(|line| line.device == device.as_str()).count()
        };
        let counted = lines(report);
        assert!(counted <= 1, "{device} counts {counted} times in round {round}");
        let accepted = answers.iter().any(Option::is_none);
        assert!(
            !accepted || counted == 1,
            "{device} has a receipt of round {round} but is not in its report"
        );
    }
}

/// A restart during a round with another configuration: work done under the old one does not count.
#[test]
fn a_changed_configuration_applies_to_the_open_round() {
    let before = Setup::new("run = { rounds = 2 }\ntraining = { batch = 8, lr = 0.3 }");
    let after = Setup::new("run = { rounds = 2 }\ntraining = { batch = 8, lr = 0.1 }").run();
    assert_ne!(bits(&before.run().parameters), bits(&after.parameters));
    let mut world = World::new(&before);
    while world.at_work() < 5 {
        assert!(world.step() && world.outcome().arrived.is_empty());
    }
    world.reconfigure(|config| config.training.lr = 0.1);
    world.run();
    assert_eq!(bits(&world.outcome().parameters), bits(&after.parameters));
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let setup = Setup::new(EXACT).disturbed(7);
    assert_eq!(setup.run(), setup.run());
}

#[test]
fn every_strategy_learns_and_gives_devices_their_slices() {
    let strategies = [
        "name = \"fedavg\"",
        "name = \"heterofl\"",
        "name = \"fairheterofl\"\nparams = { step = \"hessian\" }",
        "name = \"fairheterofl\"\nparams = { step = \"reweight\" }",
    ];
    for strategy in strategies {
        let mut setup = Setup::new(&format!(
            "run = {{ rounds = 15 }}\ntraining = {{ lr = 0.3 }}\n[strategy]\n{strategy}"
        ));
        setup.samples = 120;
        let outcome = setup.run();
        let loss = |at: usize| outcome.reports[at].loss.mean;
        let last = outcome.reports.len() - 1;
        assert_eq!(outcome.reports[last].purpose, "evaluate");
        assert!(loss(last) < 0.75 * loss(0), "{strategy}: from {} to {}", loss(0), loss(last));
        let (graph, _) = models::zoo::by_name("digits-mlp").unwrap().build(0);
        for (slice, rate) in outcome.slices.iter().zip([1.0, 0.7, 0.5, 0.25, 0.125]) {
            let mask = graph.full().at_rate(rate).unwrap();
            assert_eq!(bits(slice), bits(&graph.gather(&mask, &outcome.parameters).unwrap()), "{strategy}");
        }
    }
}
