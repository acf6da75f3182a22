use super::*;

fn rows(names: &[&str]) -> Vec<GuardRow> {
    names.iter().map(|name| name.parse().unwrap()).collect()
}

fn options(names: &[&str]) -> AttackOptions {
    let guards = AttackOptions::default().guards.into_iter().take(2).collect();
    AttackOptions { rows: rows(names), guards, ..AttackOptions::default() }
}

fn cell<'r>(result: &'r AttackResult, row: &str, guard: &str) -> &'r GuardCell {
    let row = result.rows.iter().find(|one| one.row.to_string() == row).unwrap();
    row.cells.iter().find(|cell| cell.guard == guard).unwrap()
}

/// Most accuracy, in points, that the guard may cost a device.
const MOST_POINTS: f64 = 2.0;
/// The same for a device with rare classes in the narrowest tier, which has -5.4 ± 11.6; the guard of 2026-11-17 cost it about 50.
const MOST_POINTS_NARROW: f64 = 8.0;
/// Most that a fifth of hostile devices may raise the mean loss, in percent. It is +51 at most; narrower bounds have +28, and
/// silence devices with rare classes.
const MOST_LOSS: f64 = 60.0;

/// An earlier guard (2026-11-16) cost the device with its own classes 40 points of accuracy.
#[test]
fn an_honest_minority_loses_no_accuracy_to_the_guard() {
    let names = [
        "rare-classes",
        "rare-middle",
        "rare-narrow",
        "turned",
        "alone-in-tier",
        "wrong-labels",
        "much-data",
        "plain",
    ];
    let result = run(&strategies::Registry::standard(), &options(&names), |_, _| {}).unwrap();
    for name in names {
        let default = cell(&result, name, "default");
        let most = if name == "rare-narrow" { MOST_POINTS_NARROW } else { MOST_POINTS };
        assert!(default.points.mean > -most, "{name}\n{}", table(&result, 80));
    }
}

/// With the guard of 2026-11-17 a device with rare classes lost 31 points in a fleet of one tier.
#[test]
fn a_minority_in_a_fleet_of_one_tier_loses_no_accuracy_and_a_fifth_of_liars_stays_bounded() {
    let names = ["rare-classes", "loss-x1e6:20"];
    let options = AttackOptions { tiers: vec![1.0], ..options(&names) };
    let result = run(&strategies::Registry::standard(), &options, |_, _| {}).unwrap();
    let default = |row: &str| cell(&result, row, "default");
    assert!(default("rare-classes").points.mean > -MOST_POINTS, "{}", table(&result, 80));
    assert!(default("loss-x1e6:20").loss.mean < 20.0, "{}", table(&result, 80));
}

#[test]
fn a_row_moves_the_device_with_rare_classes_to_another_tier() {
    let tier = |row: &str| {
        let row: GuardRow = row.parse().unwrap();
        let fleet = fleet::AttackFleet::new(&AttackOptions::default(), row, 1).unwrap();
        let mut tiers = [0; 3];
        fleet.members.iter().for_each(|member| tiers[member.tier.index()] += 1);
        (fleet.members[0].tier.index(), tiers)
    };
    for (row, expected) in [("rare-classes", 0), ("rare-middle", 1), ("rare-narrow", 2)] {
        assert_eq!(tier(row), (expected, [7, 7, 6]), "{row}");
    }
}

#[test]
fn false_losses_counts_and_lengths_have_little_effect() {
    let names = ["loss-x10:20", "loss-x1e6:20", "count-x25:20", "count-x100:20", "update-x10:20", "ramp:20"];
    let result = run(&strategies::Registry::standard(), &options(&names), |_, _| {}).unwrap();
    for name in names {
        assert!(cell(&result, name, "default").loss.mean < MOST_LOSS, "{name}\n{}", table(&result, 80));
    }
    let unguarded = cell(&result, "loss-x1e6:20", "off").loss.mean;
    assert!(unguarded > 50.0, "the attack has no effect without the guard\n{}", table(&result, 80));
}

#[test]
fn every_row_has_a_name_that_is_read_back() {
    for row in GuardRow::all() {
        assert_eq!(row.to_string().parse::<GuardRow>().unwrap(), row);
    }
    assert_eq!(GuardRow::all().len(), 30);
    for wrong in ["flipped", "flipped:0", "flipped:101", "nothing", "nothing:5"] {
        assert!(wrong.parse::<GuardRow>().is_err(), "{wrong}");
    }
}

#[test]
fn a_row_is_about_at_least_200_test_samples() {
    for row in GuardRow::all().into_iter().filter(|row| row.honest() != Honest::Plain) {
        let options = AttackOptions::default();
        let shards = digits::shards(&options, row.honest(), 1).unwrap();
        let subjects = digits::subjects(row.honest(), options.devices);
        let tests: u32 = shards.iter().take(subjects).map(|shard| shard.test_len()).sum();
        assert!(tests >= 200, "{row}: {tests}");
    }
}
