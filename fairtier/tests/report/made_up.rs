//! Synthetic results from a formula, so that tests know the expected numbers.

use std::path::Path;

use sim::results::{
    Check, ConflictCounts, DeviceScore, Distribution, ExperimentRecord, FORMAT, FinalScores, GroupFigures,
    Measure, Role, RoundScores, RunCost, SettingRecord, TierCost, TierScores, UnitId, UnitResult, Want,
    write,
};

pub const TIERS: usize = 5;
pub const PER_TIER: usize = 6;
pub const ROUNDS: u32 = 12;
pub const SEEDS: [u64; 3] = [1, 2, 3];

/// Settings of the main experiment: `fair` lacks a seed, `late` has none. One label contains markup that must be
/// escaped.
pub const SETTINGS: [(&str, &str); 4] =
    [("q0", "HeteroFL"), ("q1", "FairHeteroFL q=1"), ("q10", "q=10 <b>&\"fair\""), ("late", "Not yet run")];
/// An experiment that claims refer to.
pub const MAIN: &str = "fairheterofl-mnist-noniid";

/// Three experiments: one with tiers, one with groups, one without any run.
pub fn write_all(dir: &Path) {
    let record = record(MAIN, "FairHeteroFL: q on MNIST (made up)", &SETTINGS);
    save_record(dir, &record);
    for (at, (id, label)) in SETTINGS.iter().enumerate() {
        for seed in SEEDS.into_iter().filter(|&seed| at < 2 || at == 2 && seed < 3) {
            save(dir, &unit(MAIN, id, label, at, seed, TIERS));
        }
    }
    let settings = [("fedavg", "FedAvg"), ("fedfb", "FedFB")];
    let groups = self::record("fedfb-synthetic-logistic", "FedFB: synthetic, logistic (made up)", &settings);
    save_record(dir, &groups);
    for (at, (id, label)) in settings.iter().enumerate() {
        let mut unit = unit("fedfb-synthetic-logistic", id, label, at, 1, 1);
        unit.last.groups = Some(GroupFigures {
            accuracy: 0.88 - 0.15 * at as f64,
            constant: 0.6,
            dp: 0.4 - 0.38 * at as f64,
            ..Default::default()
        });
        save(dir, &unit);
    }
    save_record(dir, &self::record("empty", "Nothing was run", &[("a", "A")]));
}

/// The experiment of [`write_own`]: two partitions of one file.
const OWN_TOML: &str = "
title = 'Wine, our own file'
model = 'mlp:in-8-out'
rounds = 12
seeds = [1]
data = { csv = 'wine.csv', label = 'class' }
training = { epochs = 1, batch = 4, lr = 0.1 }
strategies = [{ id = 'plain', name = 'fedavg' }, { id = 'fair', name = 'fairheterofl' }, { id = 'wild', name = 'fedavg' }]
variants = [{ id = 'site', with = { data = { partition = 'column:site' } } }, { id = 'iid', with = { data = { clients = 12 } } }]
";

/// Settings of [`write_own`]. The last one diverges.
pub const OWN: [(&str, &str); 5] = [
    ("site-plain", "One device for each site: FedAvg, as the gateway ships it"),
    ("site-fair", "One device for each site: FairHeteroFL"),
    ("iid-plain", "WWWWWWWWWWWWWWWWWWWWWWWW: FedAvg"),
    ("iid-fair", "Equal shares: FairHeteroFL"),
    ("site-wild", "A learning rate that is too high"),
];

/// An experiment on a file of one's own, with long names, two partitions, and a run that diverges.
pub fn write_own(dir: &Path) {
    let mut record = record("mine", "Wine, our own file", &OWN);
    record.toml = OWN_TOML.into();
    save_record(dir, &record);
    for (at, (id, label)) in OWN.iter().enumerate() {
        let mut unit = unit("mine", id, label, at, 1, 2);
        if *id == "site-wild" {
            for line in unit.rounds.iter_mut().skip(1) {
                let factor = 1e3_f64.powf(f64::from(line.round) - 1.0);
                line.loss.mean *= factor;
                line.loss.variance *= factor;
                line.tiers.iter_mut().for_each(|tier| tier.loss *= factor);
            }
            unit.last.loss.mean = 1e30;
            unit.last.loss.variance = 0.0;
            unit.last.devices.iter_mut().for_each(|device| device.loss = 1e30);
        }
        save(dir, &unit);
    }
}

/// Loss of a device after some rounds: wide tiers are better, later settings fairer.
pub fn loss(setting: usize, seed: u64, device: usize, rounds: u32) -> f64 {
    let tier = (device / PER_TIER) as f64;
    let learned = 2.3 * (-0.25 * f64::from(rounds)).exp();
    let spread = 0.12 / (1.0 + setting as f64);
    learned + 0.2 + spread * tier * (1.0 + 0.2 * (device % PER_TIER) as f64) + 0.01 * seed as f64
}

fn accuracy(loss: f64) -> f64 {
    (-loss * 0.4).exp()
}

fn unit(experiment: &str, id: &str, label: &str, setting: usize, seed: u64, tiers: usize) -> UnitResult {
    let devices = tiers * PER_TIER;
    let tier_cost = |tier: usize| TierCost {
        bytes_down: 1_000_000 / (tier as u64 + 1),
        bytes_up: 800_000 / (tier as u64 + 1),
        busy_s: 20.0 + 3.0 * tier as f64,
        joules: 5.0,
        asked: 72,
        answered: 72 - tier as u64 * 4,
    };
    let round = |round: u32| {
        let (loss, accuracy, tiers) = scores(setting, seed, devices, round - 1);
        let accuracy = Some(accuracy);
        let conflicts = Some(ConflictCounts { model: 1.0, layers: vec![1.0, 2.0] });
        RoundScores { round, seconds: 2.0, devices, loss, accuracy, tiers, conflicts, ..Default::default() }
    };
    let (loss_figures, accuracy_figures, tier_lines) = scores(setting, seed, devices, ROUNDS);
    let score = |device: usize| {
        let loss = loss(setting, seed, device, ROUNDS);
        DeviceScore {
            device: format!("d{device}"),
            tier: device / PER_TIER,
            loss,
            accuracy: Some(accuracy(loss)),
            test_samples: 60,
            rounds: ROUNDS,
            ..Default::default()
        }
    };
    let means: Vec<f64> = tier_lines.iter().map(|tier| tier.loss).collect();
    UnitResult {
        format: FORMAT,
        fingerprint: String::new(),
        unit: UnitId { experiment: experiment.into(), profile: "quick".into(), setting: id.into(), seed },
        label: label.into(),
        strategy: "fairheterofl".into(),
        params: serde_json::json!({ "q": setting }).as_object().cloned().unwrap_or_default(),
        choice: vec![],
        over_limit: None,
        rounds: (1..=ROUNDS).map(round).collect(),
        last: FinalScores {
            devices: (0..devices).map(score).collect(),
            loss: loss_figures,
            accuracy: Some(accuracy_figures),
            tiers: tier_lines,
            inter: variance(&means).1,
            within: 0.01,
            ..Default::default()
        },
        fairness: vec![],
        account: RunCost { seconds: 24.0, tiers: (0..tiers).map(tier_cost).collect() },
        seconds: 3.0,
    }
}

fn scores(
    setting: usize,
    seed: u64,
    devices: usize,
    rounds: u32,
) -> (Distribution, Distribution, Vec<TierScores>) {
    let losses: Vec<f64> = (0..devices).map(|device| loss(setting, seed, device, rounds)).collect();
    let accuracies: Vec<f64> = losses.iter().map(|&loss| accuracy(loss)).collect();
    let tiers =
        losses.chunks(PER_TIER).zip(accuracies.chunks(PER_TIER)).map(|(losses, accuracies)| TierScores {
            devices: losses.len(),
            loss: variance(losses).0,
            loss_variance: variance(losses).1,
            accuracy: Some(variance(accuracies).0),
            accuracy_variance: Some(variance(accuracies).1),
            asked: 6,
            delivered: 6,
            ..Default::default()
        });
    let tiers = tiers.collect();
    (figures(&losses), figures(&accuracies), tiers)
}

fn figures(values: &[f64]) -> Distribution {
    let (mean, variance) = variance(values);
    Distribution { mean, variance, angle: 0.1, jain: 0.9, ..Default::default() }
}

/// Mean and variance.
pub fn variance(values: &[f64]) -> (f64, f64) {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    (mean, values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>() / values.len() as f64)
}

fn record(experiment: &str, title: &str, settings: &[(&str, &str)]) -> ExperimentRecord {
    let setting = |(id, label): &(&str, &str)| SettingRecord {
        id: (*id).into(),
        label: (*label).into(),
        strategy: "fairheterofl".into(),
        params: Default::default(),
        role: Role::Baseline,
        seeds: if experiment == MAIN { SEEDS.to_vec() } else { vec![1] },
        twin: None,
    };
    let own = Check {
        what: "variance of the fairest, made up".into(),
        experiment: String::new(),
        profile: None,
        measure: Some(Measure::Change {
            figure: "loss.variance".into(),
            from: "q0".into(),
            to: "q10".into(),
            want: Want::Lower,
        }),
        published: "−10 %".into(),
        effect: Some(-0.1),
        by_construction: false,
        headline: None,
    };
    ExperimentRecord {
        format: FORMAT,
        experiment: experiment.into(),
        profile: "quick".into(),
        title: title.into(),
        notes: "Numbers from a formula, for tests.".into(),
        toml: String::new(),
        settings: settings.iter().map(setting).collect(),
        checks: if experiment == MAIN { vec![own] } else { vec![] },
    }
}

fn save_record(dir: &Path, record: &ExperimentRecord) {
    let path = dir.join(&record.experiment).join(&record.profile).join("experiment.json");
    write(&path, &serde_json::to_string(record).unwrap()).unwrap();
}

fn save(dir: &Path, unit: &UnitResult) {
    write(&dir.join(unit.unit.file()), &serde_json::to_string(unit).unwrap()).unwrap();
}
