use std::io::Write;

use serde_json::json;

use super::*;

fn line(round: u32) -> String {
    json!({
        "round": round, "purpose": "train", "seconds": 1.5,
        "loss": { "count": 2, "mean": 1.5 },
        "loss_by_tier": [{ "count": 1, "mean": 1.0 }, { "count": 1, "mean": 3.0 }, { "count": 0 }],
        "devices": [
            { "device": "a", "tier": 0, "samples": 5, "loss_before": 1.0, "weight": 0.25 },
            { "device": "b", "tier": 1, "samples": 6, "loss_before": 9.0, "test_loss": 3.0 },
        ],
        "silent": [{ "device": "c", "tier": 1 }],
        "refused": [{ "device": "d", "tier": 2, "code": 12, "why": "update holds NaN" }],
        "guard": [{ "device": "b", "tier": 1, "what": "loss", "said": 9.0, "counted": 3.0, "why": "far off" }],
        "fairness": [{ "of": "another version" }],
    })
    .to_string()
        + "\n"
}

fn write(dir: &Path, rounds: impl Iterator<Item = u32>) {
    let store = dir.join("store");
    fs::create_dir_all(&store).unwrap();
    let mut file = fs::File::options().create(true).append(true).open(store.join("history.jsonl")).unwrap();
    rounds.for_each(|round| file.write_all(line(round).as_bytes()).unwrap());
}

#[test]
fn new_rounds_are_added_once_however_many_there_are() {
    let dir = tempfile::tempdir().unwrap();
    let mut history = RunHistory::new(dir.path());
    history.refresh().unwrap();
    assert_eq!(history.committed(), 0);
    let mut written = 0;
    // From one line to more than are read at first.
    for more in [1, 1, 3, 40, 1] {
        write(dir.path(), written + 1..=written + more);
        written += more;
        assert!(history.is_stale());
        history.refresh().unwrap();
        assert!(!history.is_stale());
        assert_eq!(history.committed(), written);
        let counted = ["a", "b", "c", "d"].map(|name| {
            let device = &history.devices[name];
            [device.delivered, device.dropped, device.refused, device.held]
        });
        assert_eq!(
            counted,
            [[written, 0, 0, 0], [written, 0, 0, written], [0, written, 0, 0], [0, 0, written, 0]]
        );
    }
    assert_eq!(history.disparity.back(), Some(&Some(0.5)), "tiers without devices do not count");
    assert_eq!(["a", "b", "c"].map(|name| history.place(&history.devices[name])), [Some(1), Some(2), None]);
    let refusal = history.devices["d"].last_refusal.clone().unwrap();
    assert_eq!((refusal.round, refusal.code, &*refusal.why), (46, 12, "update holds NaN"));
    assert_eq!(report_of(dir.path(), 7, 46).unwrap().map(|report| report.round), Some(7));
    for absent in [0, 47] {
        assert!(report_of(dir.path(), absent, 46).unwrap().is_none());
    }
}

#[test]
fn memory_does_not_grow_with_the_length_of_a_run() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), 1..=ROUNDS as u32 + 200);
    let mut history = RunHistory::new(dir.path());
    history.refresh().unwrap();
    assert_eq!((history.rounds.len(), history.committed()), (ROUNDS, ROUNDS as u32 + 200));
    assert_eq!(history.devices["a"].points.len(), 64);
    // Rounds of a device never outnumber those that it is compared with.
    write(dir.path(), ROUNDS as u32 + 201..=ROUNDS as u32 + 201);
    history.refresh().unwrap();
    assert_eq!((history.rounds.len(), history.counted), (ROUNDS, ROUNDS + 1));
    assert_eq!(history.devices["a"].delivered, ROUNDS as u32 + 1);
}

#[test]
fn a_page_of_a_large_fleet_reads_a_bounded_number_of_bytes() {
    let rounds = [0, 1_000, 1_000_000, 100_000_000].map(|each| rounds_within(READ, each));
    assert_eq!(rounds, [ROUNDS, ROUNDS, 268, FIRST_READ]);
}

#[test]
fn final_scores_are_shown_in_place_of_the_last_round() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), 1..=2);
    let scores = json!({ "finished": true, "committed": 2, "last_round": {
        "round": 3, "purpose": "evaluate", "loss": { "count": 1, "mean": 0.5 },
        "devices": [{ "device": "a", "tier": 0, "test_loss": 0.5 }],
    } });
    fs::write(dir.path().join("status.json"), scores.to_string()).unwrap();
    let mut history = RunHistory::new(dir.path());
    history.refresh().unwrap();
    assert_eq!(history.shown().unwrap().loss.mean, Some(0.5));
    let device = &history.devices["a"];
    assert_eq!((device.loss, device.delivered), (Some(0.5), 2), "scores are no round");
    let places = ["a", "b"].map(|name| history.place(&history.devices[name]));
    assert_eq!(places, [Some(1), None], "b has no score, and its earlier loss is of another model");
}
