//! Devices that leave, stop or are slow, and how long rounds wait for them. Virtual time, with the Coordinator and
//! the Sessions of the real programs.

use fleet::memory::{Accident, Outcome, Setup};

/// Milliseconds of every batch.
const FAST_MS: u64 = 50;
const ROUNDS: u32 = 40;

/// Five devices, one per tier, with the default deadlines and quorums.
fn usual() -> Setup {
    let mut setup = Setup::new(&format!("run = {{ rounds = {ROUNDS} }}\ntraining = {{ batch = 8 }}"));
    let default = aggregator::config::Config::default().round;
    (setup.config.round.deadline_s, setup.config.round.quorum) = (default.deadline_s, default.quorum);
    setup.batch_ms = vec![FAST_MS; 5];
    setup.limits = common::transfer::LinkLimits::QUIC;
    setup
}

/// Number of devices that delivered in each round of training.
fn heard(outcome: &Outcome) -> Vec<usize> {
    let train = outcome.reports.iter().filter(|report| report.purpose == "train");
    let heard: Vec<_> = train.map(|report| report.devices.len()).collect();
    assert_eq!(heard.len(), ROUNDS as usize);
    heard
}

/// Runs with these accidents. Also returns the additional seconds compared with a run without them.
fn disturbed(accidents: Vec<(u64, Accident)>) -> (Outcome, f64) {
    let calm = usual().run();
    assert!(heard(&calm).iter().all(|&devices| devices == 5));
    let outcome = Setup { accidents, ..usual() }.run();
    let longer = (outcome.millis as f64 - calm.millis as f64) / 1000.0;
    (outcome, longer)
}

#[test]
fn a_device_that_is_killed_and_alone_in_its_tier_costs_seconds_not_minutes() {
    let (outcome, longer) = disturbed(vec![(5_000, Accident::Stop { device: 2 })]);
    assert!(longer < 10.0, "{longer} s longer");
    let heard = heard(&outcome);
    assert!(heard[0] == 5 && heard[20..].iter().all(|&devices| devices == 4), "{heard:?}");
}

#[test]
fn a_device_that_leaves_and_is_alone_in_its_tier_costs_seconds_not_minutes() {
    let (outcome, longer) = disturbed(vec![(5_000, Accident::Vanish { device: 2 })]);
    assert!(longer < 10.0, "{longer} s longer");
    assert!(heard(&outcome)[20..].iter().all(|&devices| devices == 4));
}

#[test]
fn a_device_that_leaves_after_hello_does_not_delay_the_first_round() {
    // It is connected when the round begins, and has done no work.
    let (outcome, longer) = disturbed(vec![(30, Accident::Vanish { device: 2 })]);
    assert!(longer < 10.0, "{longer} s longer");
    assert!(heard(&outcome).iter().all(|&devices| devices == 4));
}

#[test]
fn a_round_does_not_wait_for_a_revoked_device() {
    let (outcome, longer) = disturbed(vec![(5_000, Accident::Revoke { device: 2 })]);
    assert!(longer < 1.0, "{longer} s longer");
    let refused = outcome.reports.iter().flat_map(|report| &report.refused).filter(|line| line.code == 30);
    assert!(refused.count() <= 1);
    assert!(heard(&outcome)[20..].iter().all(|&devices| devices == 4));
}

/// The device alternates between two seconds stopped and two seconds at work.
#[test]
fn a_repeatedly_stopped_device_costs_a_small_share_of_the_time() {
    let calm = usual().run().millis;
    let accidents = (0..200).flat_map(|turn| {
        let at = 1_000 + 4_000 * turn;
        [(at, Accident::Stop { device: 2 }), (at + 2_000, Accident::Continue { device: 2 })]
    });
    let (outcome, longer) = disturbed(accidents.collect());
    assert!(longer < calm as f64 / 1000.0 / 4.0 + 5.0, "{longer} s longer than {calm} ms");
    assert!(heard(&outcome).iter().all(|&devices| devices >= 4));
}

/// A device that is twenty times slower than all others, and alone in its tier.
#[test]
fn a_tier_that_is_twenty_times_slower_takes_part_in_every_round() {
    let mut setup = usual();
    setup.batch_ms[4] = 20 * FAST_MS;
    let outcome = setup.run();
    assert!(heard(&outcome).iter().all(|&devices| devices == 5), "{:?}", heard(&outcome));
    // So slow that it is silent for ten seconds between two batches.
    setup.batch_ms[4] = 200 * FAST_MS;
    setup.config.round.deadline_s = 3600.0.into();
    let outcome = setup.run();
    assert!(heard(&outcome).iter().all(|&devices| devices == 5), "{:?}", heard(&outcome));
}

/// The round waits for it until the deadline, long after the others are done.
#[test]
fn a_slow_new_device_takes_part_in_its_first_round() {
    let mut setup = usual();
    setup.batch_ms[4] = 100 * FAST_MS;
    assert_eq!(heard(&setup.run())[0], 5);
}
