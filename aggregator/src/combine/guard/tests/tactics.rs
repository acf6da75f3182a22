//! Lies that are made to be believed: in small steps, in a tier of one's own, in small company, by way of sample counts, and
//! updates that point the other way.

use super::*;

/// Losses that differ so much between peers that they alone would allow nearly everything.
fn skewed() -> Vec<Device> {
    let mut fleet = fleet(6);
    fleet.iter_mut().enumerate().for_each(|(at, device)| device.loss = 2.0 * (at % 5) as f64 + 0.2);
    fleet
}

fn believed(guard: &mut Guard, fleet: &[Device], index: usize) -> f64 {
    let regions = regions();
    let mut cohort = cohort(&regions, fleet);
    let verdict = guard.inspect(&mut cohort, Kind::Train);
    guard.learn(verdict);
    cohort.participants()[index].loss()
}

#[test]
fn who_climbs_in_small_steps_does_not_get_far() {
    let (mut guard, mut fleet) = (Guard::default(), skewed());
    let mut most: f64 = 0.0;
    for _ in 0..12 {
        most = most.max(believed(&mut guard, &fleet, 1));
        fleet[1].loss *= 3.9;
    }
    let usual = fleet[3].loss;
    assert!(most <= 4.0 * 1.2 * usual, "{most} was believed, {usual} is usual");
    // A device that is really worse off than ever before is believed up to the factor at once, and a little more each round.
    assert!(most > usual);
}

#[test]
fn liars_with_a_tier_of_their_own_are_held_against_everybody() {
    let mut fleet: Vec<Device> = (0..12)
        .map(|at| {
            let tier = usize::from(at >= 8);
            let update = vec![1.0; if tier == 0 { 6 } else { 4 }];
            Device { name: format!("d{at:02}"), tier, samples: 20, loss: 2.0 + 0.1 * at as f64, update }
        })
        .collect();
    assert_eq!(names(&round(&mut Guard::default(), &fleet)), []);
    for device in &mut fleet[8..] {
        device.loss *= 1e6;
        device.samples *= 1_000;
        device.update.iter_mut().for_each(|value| *value *= 1e5);
    }
    let regions = regions();
    let mut cohort = cohort(&regions, &fleet);
    let verdict = Guard::default().inspect(&mut cohort, Kind::Train);
    for liar in &cohort.participants()[8..] {
        assert!(liar.loss() < 4.0 && liar.samples() <= 20.0, "{liar:?}");
        assert!(verdict.scales[&liar.device] < 1e-4);
    }
    assert!(verdict.lines.iter().all(|line| line.tier == 1));
}

#[test]
fn three_at_a_time_are_held_against_those_of_other_rounds() {
    let (mut guard, mut fleet) = (Guard::default(), fleet(3));
    let next = |guard: &mut Guard, fleet: &[Device], at: [usize; 3]| {
        let regions = regions();
        let three: Vec<Device> = at.iter().map(|&at| fleet[at].clone()).collect();
        let mut cohort = cohort(&regions, &three);
        let verdict = guard.inspect(&mut cohort, Kind::Train);
        guard.learn(verdict.clone());
        verdict
    };
    for at in [[0, 1, 2], [3, 4, 5], [6, 7, 8]] {
        assert_eq!(names(&next(&mut guard, &fleet, at)), []);
    }
    // One that has never been there before.
    fleet[9].loss *= 1e6;
    fleet[9].update.iter_mut().for_each(|value| *value *= 1e4);
    let verdict = next(&mut guard, &fleet, [0, 1, 9]);
    assert_eq!(names(&verdict), [("d9", "loss"), ("d9", "loss_after"), ("d9", "norm")]);
}

#[test]
fn claimed_samples_make_no_room_for_a_longer_update() {
    let regions = regions();
    let mut fleet = fleet(4);
    // As many as are believed, and an update as long as so many would explain.
    fleet[2].samples = 90;
    fleet[2].update.iter_mut().for_each(|value| *value *= 3.0 * 3.9);
    let verdict = Guard::default().inspect(&mut cohort(&regions, &fleet), Kind::Train);
    assert_eq!(names(&verdict), [("d2", "norm")]);
}

/// One round with everything: what counts of a device, and what is said of whom.
fn screened(guard: &mut Guard, fleet: &[Device], index: usize) -> (f64, Vec<(String, &'static str)>) {
    let regions = regions();
    let mut cohort = cohort(&regions, fleet);
    let mut verdict = guard.inspect(&mut cohort, Kind::Train);
    let cosines = screen::cosines(&cohort, &mut updates(fleet).as_slice()).unwrap();
    guard.screen(&cosines, &mut verdict);
    let named = verdict.lines.iter().map(|line| (line.device.clone(), line.action)).collect();
    guard.learn(verdict);
    (cohort.credit(index), named)
}

#[test]
fn an_update_that_points_away_counts_a_tenth_from_the_third_round_on_and_comes_back() {
    let (mut guard, mut fleet) = (Guard::default(), fleet(7));
    assert!(guard.screens());
    assert_eq!(screened(&mut guard, &fleet, 3), (1.0, vec![]));
    let turn = |fleet: &mut Vec<Device>| fleet[3].update.iter_mut().for_each(|value| *value = -*value);
    turn(&mut fleet);
    let rounds: Vec<_> = (0..8).map(|_| screened(&mut guard, &fleet, 3)).collect();
    assert_eq!(rounds[2], (1.0, vec![("d3".to_owned(), "noted")]));
    for (credit, named) in &rounds[3..] {
        assert!((credit - 0.1).abs() < 1e-6);
        assert_eq!(named[0], ("d3".to_owned(), "counted less"));
        // Nor is it believed in what would make up for it.
        assert!(named[1..].iter().all(|(device, action)| device == "d3" && *action == "clipped"));
    }
    // What is remembered survives a restart.
    let mut restored = Guard::default();
    restored.restore(&guard.save());
    assert_eq!(restored, guard);
    turn(&mut fleet);
    let credits: Vec<f64> = (0..8).map(|_| screened(&mut restored, &fleet, 3).0).collect();
    assert_eq!(credits[7], 1.0, "{credits:?}");
}

/// Near the end of training updates cancel out, and the others' sum points away from everybody.
#[test]
fn updates_that_cancel_out_are_nobodys_fault() {
    let (mut guard, mut rng) = (Guard::default(), Rng::new(5));
    for _ in 0..50 {
        let mut fleet = fleet(8);
        fleet.iter_mut().for_each(|device| device.update.iter_mut().for_each(|value| *value = rng.normal()));
        for at in 0..6 {
            let holders: Vec<usize> = (0..10).filter(|&index| fleet[index].update.len() > at).collect();
            let mean =
                holders.iter().map(|&index| fleet[index].update[at]).sum::<f64>() / holders.len() as f64;
            holders.iter().for_each(|&index| fleet[index].update[at] -= mean);
        }
        let (_, named) = screened(&mut guard, &fleet, 0);
        assert_eq!(named, []);
    }
}

/// What somebody loses goes to the others of its tier; a tier of which everybody is found out loses nearly all.
#[test]
fn credit_counts_with_every_strategy_that_averages() {
    let regions = regions();
    let mut fleet = fleet(9);
    fleet.iter_mut().for_each(|device| device.update.iter_mut().for_each(|value| *value = 1.0));
    fleet[2].update.iter_mut().for_each(|value| *value = -1.0);
    let raw = updates(&fleet);
    for strategy in ["fedavg", "heterofl", "qffl", "afl", "fedeba_plus", "fedfb", "eagle"] {
        let step = |credit: f32| {
            let mut cohort = cohort(&regions, &fleet);
            cohort.set_credit(2, credit);
            let mut theta = vec![0.0f64; PARAMETERS];
            let mut method = by_name(strategy, serde_json::Value::Null).unwrap();
            let outcome = combine(&mut method, &cohort, &[], &mut raw.as_slice(), &mut theta).unwrap();
            (theta[4], outcome.weights[2])
        };
        let ((whole, share), (less, tenth)) = (step(1.0), step(0.1));
        assert!(share == 0.0 || tenth < 0.2 * share, "{strategy}: {share} and {tenth}");
        assert!(share == 0.0 || less.abs() > whole.abs(), "{strategy}: {whole} and {less}");
    }
}
