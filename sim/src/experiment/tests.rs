//! Whole experiments on small fleets.

use std::path::Path;

use super::*;
use crate::{
    data::{DataDirs, SetError},
    results::{Measure, UnitResult},
};
use strategies::Registry;
use trainer::data::Shard;

mod own;
mod regression;
mod target;

const SMALL: &str = r#"
title = "small"
model = "digits-mlp"
rounds = 3
seeds = [1, 2]
evaluate_every = 2
data = { set = "digits", partition = "dominant:0.8", clients = 6, testing = 0.2, validation = 0.1, samples = 600 }
fleet = { tiers = [1, 0.5], participation = 0.67 }
training = { lr = 0.1 }
alone = { epochs = 2 }

[[strategies]]
id = "heterofl"
name = "heterofl"

[[strategies]]
id = "fair"
name = "fairheterofl"
role = "ours"
params = { step = "reweight" }
choose = { grid = { q = [0, 5] }, by = "loss.variance", slack = 0.5, reference = "heterofl" }

[[strategies]]
id = "local"
name = "local"

[full]
rounds = 7
"#;

fn run_small(dir: &Path, threads: usize, keys: &[&str]) -> RunOutcome {
    let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
    let loaded = LoadedExperiment::parse("small", SMALL, "quick", &keys).unwrap();
    let options = RunOptions {
        out: dir.into(),
        data: None,
        threads,
        registry: Registry::standard(),
        twin: false,
        runs: None,
    };
    run(&loaded, &options, &mut |_| {}).unwrap()
}

/// The results without their wall times.
fn timeless(units: &[UnitResult]) -> Vec<UnitResult> {
    units.iter().map(|unit| UnitResult { seconds: 0.0, ..unit.clone() }).collect()
}

#[test]
fn threads_repetition_and_resumption_give_the_same_bits() {
    let [one, two, again] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let first = run_small(one.path(), 1, &[]);
    assert_eq!((first.there, first.units.len()), (0, 6));
    assert_eq!(timeless(&run_small(two.path(), 2, &[]).units), timeless(&first.units));
    assert_eq!(timeless(&run_small(again.path(), 1, &[]).units), timeless(&first.units));
    let side = |id: &str| ResultsPath::parse(id, Some(&one.path().join("small/quick")));
    for line in &compare(&side("heterofl"), &side("fair")).unwrap()[0].differences {
        let (interval, p) = (line.interval.unwrap(), line.p.unwrap());
        assert!((interval.low + interval.high - 2.0 * line.difference.mean).abs() < 1e-9, "{}", line.figure);
        // The same decision in both forms.
        assert_eq!(p < 0.05, interval.low > 0.0 || interval.high < 0.0, "{}", line.figure);
    }
    // Two units are deleted; the others are not run again.
    for unit in [&first.units[0], &first.units[3]] {
        std::fs::remove_file(one.path().join(unit.unit.file())).unwrap();
    }
    let resumed = run_small(one.path(), 2, &[]);
    assert_eq!(resumed.there, 4);
    assert_eq!(timeless(&resumed.units), timeless(&first.units));
    for kept in [1, 2, 4, 5] {
        assert_eq!(resumed.units[kept], first.units[kept], "finished units must not be run again");
    }
    // Another setting gives another result.
    assert_eq!(run_small(one.path(), 1, &["rounds=2"]).there, 0);
}

#[test]
fn a_unit_has_figures_of_every_device() {
    let dir = tempfile::tempdir().unwrap();
    let ran = run_small(dir.path(), 2, &["seeds=[1]"]);
    let [heterofl, fair, local] = &ran.units[..] else { panic!("three units") };
    for unit in &ran.units {
        let last = &unit.last;
        assert_eq!(last.devices.len(), 6);
        assert!(last.devices.iter().all(|device| device.loss > 0.0 && device.test_samples >= 15));
        assert_eq!(last.devices.iter().filter(|device| device.tier == 1).count(), 3);
        let losses = last.devices.iter().map(|device| device.loss).sum::<f64>() / 6.0;
        assert!((last.loss.mean - losses).abs() < 1e-12);
        assert_eq!(last.gaps.unwrap().faa, last.gaps.unwrap().max - last.gaps.unwrap().min);
    }
    assert_eq!(local.last.gaps.unwrap().variance, 0.0, "models trained alone have no gap");
    assert_eq!(heterofl.last.global.len(), 2);
    assert_eq!(heterofl.rounds.len(), 4);
    assert_eq!(heterofl.rounds[3].loss, heterofl.last.loss, "device and simulator score alike");
    assert_eq!(heterofl.rounds[0].tiers.iter().map(|tier| tier.devices).sum::<usize>(), 6);
    assert_eq!(heterofl.rounds[1].tiers.iter().map(|tier| tier.devices).sum::<usize>(), 4);
    assert_eq!(heterofl.last.devices.iter().map(|device| device.rounds).sum::<u32>(), 12);
    assert!(heterofl.account.tiers.iter().all(|tier| tier.joules > 0.0 && tier.answered > 0));
    assert_eq!((fair.choice.len(), fair.choice.iter().filter(|one| one.chosen).count()), (2, 1));
    assert_eq!(fair.choice.iter().find(|one| one.chosen).unwrap().params, fair.params);
    let csv = std::fs::read_to_string(dir.path().join(fair.unit.file()).with_extension("csv")).unwrap();
    assert_eq!(csv.lines().count(), 5);
    let columns: Vec<_> = csv.lines().map(|line| line.split(',').count()).collect();
    assert!(columns.iter().all(|count| *count == columns[0]), "{columns:?}");
    let side = |id: &str| ResultsPath::parse(id, Some(&dir.path().join("small/quick")));
    let compared = compare(&side("heterofl"), &side("fair")).unwrap();
    let variance = compared[0].differences.iter().find(|line| line.figure == "loss.variance").unwrap();
    assert_eq!(variance.difference.mean, fair.last.loss.variance - heterofl.last.loss.variance);
    assert_eq!((variance.interval, variance.p), (None, None), "one seed has no interval");
    assert!(compare(&side("heterofl"), &side("nobody")).unwrap_err().to_string().contains("fair, local"));
    assert!(summary(&ran.record, &ran.units, 80).contains("heterofl"));
}

#[test]
fn keys_are_filed_under_another_name() {
    let profile = |keys: &[&str]| {
        let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
        LoadedExperiment::parse("small", SMALL, "quick", &keys).unwrap().record().profile
    };
    assert_eq!(profile(&[]), "quick");
    // These select runs of the profile, and change none.
    assert_eq!(profile(&["seeds=[1, 2]", "only=[\"fair\"]"]), "quick");
    assert_eq!(profile(&["rounds=2", "training.lr=0.05"]), "quick+rounds=2+training.lr=0.05");
    assert_eq!(profile(&["data.set=digits"]), "quick+data.set=digits");
    let many: Vec<String> = (0..40).map(|at| format!("strategies.fair.params.q={at}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let (long, other) = (profile(&many), profile(&many[1..]));
    assert!(long.len() <= 100 && long.starts_with("quick+") && long != other, "{long}");
}

#[test]
fn choosing_needs_validation_samples() {
    let error =
        LoadedExperiment::parse("small", SMALL, "quick", &["data.validation=0.0".into()]).unwrap_err();
    assert!(error.to_string().contains("fair: `choose` needs validation samples"), "{error}");
    assert!(LoadedExperiment::parse("small", SMALL, "quick", &["data.validation=\"fifth\"".into()]).is_ok());
}

#[test]
fn a_limit_that_no_candidate_keeps_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let key = "strategies.fair.choose.slack";
    let tight = run_small(dir.path(), 2, &["seeds=[1]", &format!("{key}=-0.9")]);
    let fair = &tight.units[1];
    let lowest = fair.choice.iter().min_by(|a, b| a.mean_loss.total_cmp(&b.mean_loss)).unwrap();
    assert!(lowest.chosen && fair.over_limit.unwrap() < lowest.mean_loss);
    let said = over_limit(&tight.record, &tight.units);
    assert!(said.contains("fair: no candidate within the limit") && said.contains("seeds 1"), "{said}");
    let wide = run_small(dir.path(), 2, &["seeds=[1]", &format!("{key}=9.0")]);
    assert_eq!((wide.units[1].over_limit, over_limit(&wide.record, &wide.units)), (None, String::new()));
}

#[test]
fn parameters_are_checked_before_anything_trains() {
    let dir = tempfile::tempdir().unwrap();
    let options = RunOptions {
        out: dir.path().into(),
        data: None,
        threads: 1,
        registry: Registry::standard(),
        twin: false,
        runs: None,
    };
    for (key, part) in [
        (
            "strategies.fair.choose.grid.q=[0, -1]",
            "fair: parameters of strategy `fairheterofl`: `q` must be 0 or more, not -1",
        ),
        ("strategies.fair.params.stepp=1", "stepp"),
        (
            "strategies.local.name=\"fedavgg\"",
            "local: there is no strategy `fedavgg`; did you mean `fedavg`?",
        ),
        ("strategies.local={ id = \"local\", name = \"cfl\", params = { alfa = 1 } }", "alfa"),
    ] {
        let loaded = LoadedExperiment::parse("small", SMALL, "quick", &[key.into()]).unwrap();
        let error = run(&loaded, &options, &mut |event| panic!("{event:?}")).unwrap_err().to_string();
        assert!(error.contains(part), "{key}: {error}");
    }
}

#[test]
fn a_model_with_too_few_classes_is_told_with_both_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let keys = ["model='mlp:64-8-5'".to_owned()];
    let loaded = LoadedExperiment::parse("small", SMALL, "quick", &keys).unwrap();
    let options = RunOptions {
        out: dir.path().into(),
        data: None,
        threads: 1,
        registry: Registry::standard(),
        twin: false,
        runs: None,
    };
    let mut error: &dyn std::error::Error = &run(&loaded, &options, &mut |_| {}).unwrap_err();
    let mut told = error.to_string();
    while let Some(source) = error.source() {
        error = source;
        told += &error.to_string();
    }
    assert!(told.contains("5 outputs") && told.contains("10"), "{told}");
}

#[test]
fn a_strategy_runs_with_its_variants_only() {
    let open = |own: &str| {
        let text =
            SMALL.replace("alone = { epochs = 2 }", "[[variants]]\nid = 'a'\n[[variants]]\nid = 'b'\n");
        LoadedExperiment::parse("small", &text.replace("id = \"local\"", own), "quick", &[])
    };
    let ids = |loaded: &LoadedExperiment| -> Vec<String> {
        loaded.settings.iter().map(|setting| setting.id.clone()).collect()
    };
    let loaded = open("id = \"local\"\nvariants = ['b']").unwrap();
    assert_eq!(ids(&loaded), ["a-heterofl", "a-fair", "b-heterofl", "b-fair", "b-local"]);
    let error = open("id = \"local\"\nvariants = ['c']").unwrap_err().to_string();
    assert!(error.contains("no variant") && error.contains('c'), "{error}");
}

#[test]
fn mistyped_names_are_answered_with_the_nearest() {
    let open = |name: &str, keys: &[&str]| {
        let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
        LoadedExperiment::open(name, "quick", &keys).unwrap_err().to_string()
    };
    assert!(open("toor", &[]).contains("did you mean `tour`?"));
    assert!(open("tour", &["only=[\"reweigt\"]"]).contains("did you mean `reweight`?"));
    assert!(open("tour", &["strategies.egle.params.lambda=1"]).contains("did you mean `eagle`?"));
}

#[test]
fn baselines_of_group_fairness() {
    let text = r#"
title = "groups"
model = "fairness-logistic"
rounds = 6
seeds = [1]
data = { set = "fedfb", partition = "groups:medium", testing = "proportional", samples = 1200 }
training = { epochs = 10, batch = 128, lr = 0.02, lr_decay = 1.0, optimizer = "adam" }
[[strategies]]
id = "fedavg"
name = "fedavg"
[[strategies]]
id = "fedfb"
name = "fedfb"
[[strategies]]
id = "ufl"
name = "ufl"
[[strategies]]
id = "ffl"
name = "ffl_fedavg"
[[strategies]]
id = "cfl"
name = "cfl"
"#;
    let (dir, runs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let loaded = LoadedExperiment::parse("groups", text, "quick", &[]).unwrap();
    let options = RunOptions {
        out: dir.path().into(),
        data: None,
        threads: 2,
        registry: Registry::standard(),
        twin: false,
        runs: Some(runs.path().into()),
    };
    let units = run(&loaded, &options, &mut |_| {}).unwrap().units;
    let dp: Vec<f64> = units.iter().map(|unit| unit.last.groups.unwrap().dp).collect();
    let [fedavg, fedfb, ufl, ffl, cfl] = dp[..] else { panic!("five units") };
    assert!(fedavg > 0.25, "{dp:?}");
    assert!(fedfb < 0.5 * fedavg && cfl < 0.5 * fedavg, "{dp:?}");
    assert!(ufl < fedavg && ffl < fedavg, "{dp:?}");
    let groups = units[0].last.groups.unwrap();
    assert!((0.5..0.7).contains(&groups.constant) && groups.accuracy > 0.8, "{groups:?}");
    // The rounds of strategies are there for pages; baselines such as `ufl` have none.
    let kept = runs.path().join("fedfb-1");
    let history = std::fs::read_to_string(kept.join("store/history.jsonl")).unwrap();
    assert_eq!(history.lines().count(), 6);
    assert_eq!(aggregator::config::Config::load(&kept.join("fairtier.toml")).unwrap().strategy.name, "fedfb");
    assert!(std::fs::read_to_string(kept.join("status.json")).unwrap().contains("\"finished\":true"));
    assert!(!runs.path().join("ufl-1").exists());
    // With one common model, pooled accuracy equals the accuracy on the whole test set.
    assert!((groups.accuracy - units[0].last.global[0].accuracy.unwrap()).abs() < 1e-12);
}

/// With lambda 0, EAGLE equals FedAvg if both train on the same samples.
#[test]
fn all_strategies_hold_out_the_same_validation_samples() {
    let text = r#"
title = "gaps"
model = "mlp:in-1"
start = "zero"
rounds = 20
seeds = [1]
data = { set = "eagle", partition = "natural", testing = "proportional", validation = "fifth" }
training = { epochs = 1, batch = 100, lr = 0.1, lr_decay = 1.0 }
alone = { epochs = 50 }
[[strategies]]
id = "fedavg"
name = "fedavg"
[[strategies]]
id = "eagle0"
name = "eagle"
params = { lambda = 0 }
[[strategies]]
id = "eagle5"
name = "eagle"
params = { lambda = 5 }
[[strategies]]
id = "local"
name = "local"
"#;
    let dir = tempfile::tempdir().unwrap();
    let loaded = LoadedExperiment::parse("gaps", text, "quick", &[]).unwrap();
    let options = RunOptions {
        out: dir.path().into(),
        data: None,
        threads: 2,
        registry: Registry::standard(),
        twin: false,
        runs: None,
    };
    let units = run(&loaded, &options, &mut |_| {}).unwrap().units;
    let [fedavg, same, eagle, local] = &units[..] else { panic!("four units") };
    assert!(fedavg.last.devices.iter().all(|device| device.train_samples == 80));
    let losses = |unit: &UnitResult| unit.last.devices.iter().map(|device| device.loss).collect::<Vec<_>>();
    for (one, other) in losses(fedavg).iter().zip(losses(same)) {
        assert!((one - other).abs() < 1e-5, "{one} {other}");
    }
    assert!(losses(fedavg).iter().zip(losses(eagle)).any(|(one, other)| (one - other).abs() > 1e-4));
    assert_eq!(local.last.gaps_valid.unwrap().variance, 0.0, "models trained alone have no gap");
    let valid = |unit: &UnitResult| unit.last.figure("gaps_valid.variance").unwrap();
    // After so few rounds either may be smaller; only the difference is checked.
    assert!(valid(fedavg) > 0.0 && valid(eagle) != valid(fedavg));
    // From zero weights, all classes are equally likely.
    assert!((fedavg.rounds[0].loss.mean - std::f64::consts::LN_2).abs() < 1e-6);
}

#[test]
fn keys_profiles_and_sweeps() {
    let open = |profile: &str, keys: &[&str]| {
        let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
        LoadedExperiment::parse("small", SMALL, profile, &keys)
    };
    assert_eq!(open("full", &[]).unwrap().experiment.base.rounds, 7);
    assert_eq!(open("quick", &["rounds=9"]).unwrap().experiment.base.rounds, 9);
    for (key, named) in [
        ("round=9", "round"),
        ("data.sett=9", "sett"),
        ("data.validation='sixth'", "fifth"),
        ("start='zeros'", "zeros"),
        ("training.rate=9", "rate"),
        ("strategies.fair.nam=9", "nam"),
        ("fleet.tier=[1]", "tier"),
        ("only=['nobody']", "nobody"),
        ("strategies.fair.id='a/b'", "a/b"),
        ("strategies.fair.id='heterofl'", "heterofl"),
        ("strategies.0.with={ dta = 1 }", "dta"),
    ] {
        let error = open("quick", &[key]).unwrap_err().to_string();
        assert!(error.contains(named), "{key}: {error}");
    }
    assert!(open("fast", &[]).unwrap_err().to_string().contains("quick"));
    let swept = sweep(&open("quick", &[]).unwrap(), &["strategies.fair.params.q=0,10".into()]).unwrap();
    assert_eq!(swept.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["small+q=0", "small+q=10"]);
    assert_eq!(swept[1].settings.len(), 1);
    assert_eq!(swept[1].settings[0].strategy.params["q"], 10);
}

/// Every file is valid, its data can be divided, and its checks name existing settings.
#[test]
fn embedded_experiments_are_valid() {
    let places = DataDirs::usual(None);
    for (name, _) in ALL {
        for profile in PROFILES {
            let loaded =
                LoadedExperiment::open(name, profile, &[]).unwrap_or_else(|error| panic!("{name}: {error}"));
            let ids: Vec<_> = loaded.settings.iter().map(|setting| setting.id.as_str()).collect();
            let complete = LoadedExperiment::open(name, profile, &["only=[]".into()]).unwrap();
            let measures = loaded.experiment.checks.iter().filter_map(|check| check.measure.as_ref());
            for id in measures.flat_map(Measure::settings) {
                let known = complete.settings.iter().any(|setting| setting.id == id);
                assert!(known || profile == "quick", "{name} {profile}: {id} of {ids:?}");
            }
            for setting in &loaded.settings {
                let strategy = &setting.strategy;
                if baseline::Baseline::by_name(&strategy.name).is_none() {
                    let params = strategy.params.clone().into();
                    strategies::Registry::standard()
                        .method(&strategy.name, params)
                        .unwrap_or_else(|error| panic!("{name}: {error}"));
                }
            }
        }
        let loaded = LoadedExperiment::open(name, "quick", &[]).unwrap();
        let Some(setting) = loaded.settings.first() else { panic!("{name} has no settings") };
        match arrange::load(&setting.base, &places, 1) {
            Ok(data) => {
                let arranged = Arrangement::new(&setting.base, data, 1)
                    .unwrap_or_else(|error| panic!("{name}: {error}"));
                assert!(arranged.devices.iter().any(|placed| placed.shard.test_len() > 0), "{name}");
            }
            Err(ExperimentError::Set(SetError::Missing { .. })) => {}
            Err(error) => panic!("{name}: {error}"),
        }
    }
}
