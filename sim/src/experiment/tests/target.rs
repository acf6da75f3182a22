//! Experiments with a fairness target.

use std::path::Path;

use strategies::Registry;

use super::super::*;
use crate::results::{FinalScores, UnitResult};

const TARGETED: &str = r#"
title = "targets"
model = "digits-mlp"
rounds = 24
seeds = [1]
data = { set = "digits", partition = "dominant:0.8", clients = 12, testing = 0.2, validation = 0.25, samples = 900 }
fleet = { tiers = [1, 0.25] }
training = { lr = 0.1 }

[[strategies]]
id = "heterofl"
name = "heterofl"

[[strategies]]
id = "q0"
name = "fairheterofl"
params = { q = 0, q_m = 0 }

[[strategies]]
id = "q10"
name = "fairheterofl"
params = { q = 10, q_m = 0 }

[[strategies]]
id = "fair"
name = "fairheterofl"
role = "ours"
params = { q_m = 0 }
"#;

fn open(keys: &[&str]) -> LoadedExperiment {
    let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
    LoadedExperiment::parse("targets", TARGETED, "quick", &keys).unwrap()
}

fn start(dir: &Path, keys: &[&str], twin: bool) -> Result<RunOutcome, ExperimentError> {
    let options = RunOptions {
        out: dir.into(),
        data: None,
        threads: 2,
        registry: Registry::standard(),
        twin,
        runs: None,
    };
    run(&open(keys), &options, &mut |_| {})
}

fn unit<'a>(ran: &'a RunOutcome, id: &str) -> &'a UnitResult {
    ran.units.iter().find(|unit| unit.unit.setting == id).unwrap()
}

/// Losses of all devices; the same run gives the same bits.
fn losses(last: &FinalScores) -> Vec<f64> {
    last.devices.iter().map(|device| device.loss).collect()
}

#[test]
fn a_target_drives_the_parameter_and_its_twin_is_neutral() {
    let dir = tempfile::tempdir().unwrap();
    let ran = start(dir.path(), &["fairness.target=0.05"], true).unwrap();
    let ids: Vec<&str> = ran.record.settings.iter().map(|setting| setting.id.as_str()).collect();
    assert_eq!(ids, ["heterofl", "q0", "q10", "fair", "fair-twin"], "only one has a free parameter");
    let (fair, twin) = (unit(&ran, "fair"), unit(&ran, "fair-twin"));
    for untargeted in ["heterofl", "q0", "q10"] {
        let unit = unit(&ran, untargeted);
        assert!(unit.fairness.is_empty() && unit.rounds.iter().all(|round| round.fairness.is_empty()));
    }
    assert_eq!(losses(&twin.last), losses(&unit(&ran, "q0").last), "the neutral end is q = 0");
    assert_ne!(losses(&fair.last), losses(&twin.last));

    let [target] = &fair.fairness[..] else { panic!("one knob") };
    assert_eq!((target.line.parameter.as_str(), target.line.target), ("q", 0.05));
    assert_eq!(target.line.unmeasured, 0, "all devices have validation samples");
    assert!(target.figures.identity < 1e-9 && target.figures.broken == 0.0, "{:?}", target.figures);
    assert!(target.figures.plain_ratio >= 1.0, "{:?}", target.figures);
    let points: Vec<_> = fair.rounds.iter().filter_map(|round| round.fairness.first()).collect();
    assert_eq!(points.len(), 24);
    assert!(
        points.iter().any(|point| point.value > 0.0) && points.iter().all(|point| point.measured.is_some())
    );
    assert_eq!(fair.figure("fairness.value"), Some(target.line.value));
    assert_eq!(twin.figure("fairness.position"), Some(0.0));
    assert_eq!(unit(&ran, "q0").figure("fairness.met"), None);

    let csv = std::fs::read_to_string(dir.path().join(fair.unit.file()).with_extension("csv")).unwrap();
    let head = csv.lines().next().unwrap();
    assert!(head.ends_with(",fairness_measured,fairness_target,knob,fairness_status"), "{head}");
    let columns: Vec<_> = csv.lines().map(|line| line.split(',').count()).collect();
    assert!(columns.iter().all(|count| *count == columns[0]), "{columns:?}");

    let text = targets(&ran.record, &ran.units);
    assert!(
        text.contains("fairness of fair: ") && text.contains(" of 0.05") && !text.contains("without"),
        "{text}"
    );
    let [price] = &prices(&ran.record, &ran.units)[..] else { panic!("one price") };
    assert_eq!((price.setting.as_str(), price.twin.as_str()), ("fair", "fair-twin"));
    assert_eq!(price.lines[0].change.mean, fair.last.loss.mean / twin.last.loss.mean - 1.0);
    assert!(price.text(80).contains("loss of tier 1"));

    // Finished units are found again. Runs with other keys are kept apart.
    assert_eq!(start(dir.path(), &["fairness.target=0.05"], true).unwrap().there, 5);
    assert_eq!(start(dir.path(), &["fairness.target=0.04", "rounds=24"], true).unwrap().there, 0);
}

#[test]
fn a_target_between_two_results() {
    let dir = tempfile::tempdir().unwrap();
    // A target of the experiment does not hold for strategies with fixed parameters.
    let keys = [
        "strategies.fair.reach={ from = 'q0', to = 'q10', share = 0.25 }",
        "rounds=6",
        "fairness.target=0.9",
    ];
    let ran = start(dir.path(), &keys, false).unwrap();
    let [from, to] = ["q0", "q10"].map(|id| unit(&ran, id).figure("validation.cv").unwrap());
    let target = unit(&ran, "fair").figure("fairness.target").unwrap();
    assert!((target - (from + 0.25 * (to - from))).abs() < 1e-12, "{from} {to} {target}");
    let late = LoadedExperiment::parse(
        "late",
        TARGETED,
        "quick",
        &["strategies.0.reach={ from = 'q0', to = 'q10', share = 1 }".into()],
    );
    assert!(late.unwrap_err().to_string().contains("reach.from = \"q0\""));
}

#[test]
fn targets_that_cannot_be_followed_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let error = |keys: &[&str]| start(dir.path(), keys, false).unwrap_err().to_string();
    let own = error(&["strategies.heterofl.fairness.target=0.3"]);
    assert!(own.starts_with("heterofl: ") && own.contains("heterofl` has no parameter"), "{own}");
    let both = error(&["strategies.q10.fairness.target=0.3"]);
    assert!(both.starts_with("q10: ") && both.contains("params.q"), "{both}");
    let unsuited = error(&["only=['heterofl', 'q10']", "fairness.target=0.3"]);
    assert!(
        unsuited.contains("no strategy") && unsuited.contains("heterofl: ") && unsuited.contains("q10: "),
        "{unsuited}"
    );
    let cv = error(&["fairness={ target = 0.3, signal = 'training' }"]);
    assert!(cv.contains("fairness.measure"), "{cv}");
    let negative = error(&["fairness.target=-1"]);
    assert!(negative.contains("fairness.target"), "{negative}");
    for (key, named) in [("fairness.targt=0.3", "targt"), ("strategies.fair.fairness.targt=0.3", "targt")] {
        let parsed = LoadedExperiment::parse("targets", TARGETED, "quick", &[key.into()]);
        let error = parsed.unwrap_err().to_string();
        assert!(error.contains(named), "{error}");
    }
}

#[test]
fn fingerprints_do_not_change_without_a_target() {
    let fingerprints = |keys: &[&str]| -> Vec<String> {
        open(keys).settings.iter().map(|setting| setting.fingerprint(1)).collect()
    };
    let plain = fingerprints(&[]);
    assert_eq!(plain, fingerprints(&["fairness={ target = 0.0 }"]));
    assert!(plain.iter().zip(fingerprints(&["fairness.target=0.3"])).all(|(one, other)| *one != other));
    // Kept results of this experiment have this fingerprint.
    let tour = LoadedExperiment::open("tour", "quick", &[]).unwrap();
    assert_eq!(tour.settings[0].fingerprint(1), "1ac8bdfbe43ecf49");
}

#[test]
fn a_sweep_over_targets() {
    let swept = sweep(&open(&[]), &["fairness.target=0.5,0.3".into()]).unwrap();
    let names: Vec<&str> = swept.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["targets+target=0.5", "targets+target=0.3"]);
    assert_eq!(swept[1].settings[3].base.fairness.target, 0.3);
}
