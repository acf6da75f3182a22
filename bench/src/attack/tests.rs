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

/// Most accuracy, in points, that the guard may cost a device. `alone-in-tier` has -3.2 ± 3.1 with q = 2 and q_m = 1.
const MOST_POINTS: f64 = 4.0;
/// Most that a fifth of hostile devices may raise the mean loss, in percent. Stronger fairness gives liars more weight:
/// q = 1 and q_m = 0.1 have +14 at most, the default has +28.
const MOST_LOSS: f64 = 35.0;

/// An earlier guard (2026-11-16) cost the device with its own classes 40 points of accuracy.
#[test]
fn an_honest_minority_loses_no_accuracy_to_the_guard() {
    let names = ["rare-classes", "turned", "alone-in-tier", "wrong-labels", "much-data", "plain"];
    let result = run(&strategies::Registry::standard(), &options(&names), |_, _| {}).unwrap();
    for name in names {
        let default = cell(&result, name, "default");
        assert!(default.points.mean > -MOST_POINTS, "{name}\n{}", table(&result, 80));
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
    assert_eq!(GuardRow::all().len(), 28);
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
