use std::collections::BTreeSet;

use super::*;
use crate::{
    experiment::LoadedExperiment,
    registered::others,
    report::appendix,
    results::{
        ExperimentRecord, FORMAT, FinalScores, GroupFigures, Role, RoundScores, SettingRecord, TierScores,
        UnitId, UnitResult, Want,
    },
};

/// A synthetic run with these figures of losses, accuracies, tiers and groups.
pub fn unit(setting: &str, seed: u64, figures: &[(&str, f64)]) -> UnitResult {
    let mut last = FinalScores::default();
    let mut accuracy = crate::results::Distribution::default();
    for &(name, value) in figures {
        match name {
            "loss.mean" => last.loss.mean = value,
            "loss.variance" => last.loss.variance = value,
            "inter" => last.inter = value,
            "within" => last.within = value,
            "accuracy.mean" => accuracy.mean = value,
            "accuracy.variance" => accuracy.variance = value,
            "accuracy.worst5" => accuracy.worst5 = value,
            "groups.dp" => last.groups.get_or_insert(GroupFigures::default()).dp = value,
            "tier.0.loss" | "tier.1.loss" => {
                last.tiers.resize(2, TierScores::default());
                last.tiers[usize::from(name.contains('1'))].loss = value;
            }
            other => panic!("no synthetic figure {other}"),
        }
    }
    last.accuracy = Some(accuracy);
    UnitResult {
        format: FORMAT,
        fingerprint: String::new(),
        unit: UnitId { experiment: "e".into(), profile: "quick".into(), setting: setting.into(), seed },
        label: setting.into(),
        strategy: setting.into(),
        params: Default::default(),
        choice: vec![],
        over_limit: None,
        rounds: (1..=7).map(|round| RoundScores { round, devices: 1, ..Default::default() }).collect(),
        last,
        fairness: vec![],
        account: Default::default(),
        seconds: 60.0,
    }
}

pub fn results(experiment: &str, profile: &str, units: Vec<UnitResult>) -> ExperimentResults {
    let mut ids: Vec<String> = vec![];
    for unit in &units {
        if !ids.contains(&unit.unit.setting) {
            ids.push(unit.unit.setting.clone());
        }
    }
    let setting = |id: &String| SettingRecord {
        id: id.clone(),
        label: id.to_uppercase(),
        strategy: id.clone(),
        params: Default::default(),
        role: Role::Baseline,
        seeds: vec![1, 2, 3],
        twin: None,
    };
    let record = ExperimentRecord {
        format: FORMAT,
        experiment: experiment.into(),
        profile: profile.into(),
        title: "Made up".into(),
        notes: "Numbers of no run.".into(),
        toml: String::new(),
        settings: ids.iter().map(setting).collect(),
        checks: vec![],
    };
    ExperimentResults { record, units }
}

/// `old` and `new` with three seeds; `new` lacks the third.
fn two() -> ExperimentResults {
    let old = [0.4, 0.5, 0.6];
    let mut units: Vec<UnitResult> =
        old.iter().zip(1..).map(|(&value, seed)| unit("old", seed, &[("loss.variance", value)])).collect();
    units.push(unit("new", 1, &[("loss.variance", 0.2)]));
    units.push(unit("new", 2, &[("loss.variance", 0.3)]));
    results("e", "quick", units)
}

/// Parses a measure as in a file.
fn measure(text: &str) -> Measure {
    let check: Check = toml::from_str(&format!("what = \"\"\nmeasure = {text}")).unwrap();
    check.measure.unwrap()
}

fn change(from: &str, to: &str, want: Want) -> Measure {
    let [figure, from, to] = ["loss.variance", from, to].map(String::from);
    Measure::Change { figure, from, to, want }
}

fn check(measure: Measure) -> Check {
    Check {
        what: "variance falls".into(),
        experiment: "e".into(),
        profile: None,
        measure: Some(measure),
        published: "half".into(),
        effect: Some(-0.9),
        by_construction: false,
        headline: None,
    }
}

#[test]
fn changes_are_taken_seed_by_seed() {
    let finding = change("old", "new", Want::Lower).find_in(&two(), Some(-0.9)).unwrap();
    let effect = finding.effect.unwrap();
    // (0.2 - 0.4) / 0.4 and (0.3 - 0.5) / 0.5.
    assert_eq!(effect.runs, 2);
    assert!((effect.mean + 0.45).abs() < 1e-12 && (effect.std - 0.1 / 2f64.sqrt()).abs() < 1e-12);
    assert!((finding.ratio.unwrap() - 0.5).abs() < 1e-12);
    assert_eq!((finding.holds, finding.agree, finding.seeds, finding.rounds), (true, 2, 2, 7));
    // scipy.stats.ttest_1samp([-0.5, -0.4], 0).confidence_interval(0.95)
    let interval = finding.interval.unwrap();
    assert!((interval.low + 1.085_310_236_808_734).abs() < 1e-9, "{interval:?}");
    assert!((interval.high - 0.185_310_236_808_734).abs() < 1e-9, "{interval:?}");
    assert_eq!(finding.show_parts(), "OLD 0.500 ± 0.100 → NEW 0.250 ± 0.071");
    let other = change("old", "new", Want::Higher);
    assert!(!other.find_in(&two(), None).unwrap().holds);
}

#[test]
fn missing_runs_and_figures_give_no_finding() {
    let absent = change("old", "none", Want::Lower);
    assert_eq!(absent.find_in(&two(), None), None);
    let figure = measure(r#"{ how = "level", figure = "gaps.max", of = "old", want = "lower" }"#);
    assert_eq!(figure.find_in(&two(), None), None);
    let row = check(change("old", "new", Want::Lower)).row(&Evidence::default());
    assert_eq!(row.finding.verdict, ClaimVerdict::NotRun);
}

#[test]
fn the_full_profile_is_preferred_if_it_has_the_runs() {
    let full = results("e", "full", vec![unit("old", 1, &[("loss.variance", 1.0)])]);
    let mut evidence = Evidence { experiments: vec![two(), full] };
    let mut check = check(change("old", "new", Want::Lower));
    assert_eq!(check.row(&evidence).finding.profile, "quick");
    evidence.experiments[1].units.push(unit("new", 1, &[("loss.variance", 1.5)]));
    let finding = check.row(&evidence).finding;
    assert_eq!((finding.profile.as_str(), finding.holds), ("full", false));
    check.profile = Some("quick".into());
    assert!(check.row(&evidence).finding.holds);
    // Runs with other keys are no evidence.
    evidence.experiments[1].record.profile = "full+rounds=3".into();
    check.profile = None;
    assert_eq!(check.row(&evidence).finding.profile, "quick");
}

#[test]
fn falls_needs_every_step() {
    let units = |values: &[f64]| {
        let names = ["a", "b", "c"];
        results(
            "e",
            "quick",
            names.iter().zip(values).map(|(name, &x)| unit(name, 1, &[("inter", x)])).collect(),
        )
    };
    let falls = measure(r#"{ how = "falls", figure = "inter", settings = ["a", "b", "c"] }"#);
    let holds = |values: &[f64]| falls.find_in(&units(values), None).map(|finding| finding.holds);
    assert_eq!(holds(&[3.0, 2.0, 1.0]), Some(true));
    assert_eq!(holds(&[3.0, 4.0, 1.0]), Some(false));
    assert_eq!(holds(&[3.0, 2.0]), None);
    let effect = falls.find_in(&units(&[4.0, 2.0, 1.0]), None).unwrap().effect.unwrap();
    assert_eq!(effect.mean, -0.75);
}

#[test]
fn best_compares_with_all_settings_in_the_direction_of_the_figure() {
    let run = |name: &str, worst, loss| unit(name, 1, &[("accuracy.worst5", worst), ("loss.mean", loss)]);
    let results = results("e", "quick", vec![run("a", 0.5, 1.0), run("b", 0.6, 2.0), run("c", 0.4, 0.5)]);
    let best = |figure: &str, of: &str| Measure::Best { figure: figure.into(), of: of.into() };
    let holds = |figure, of| best(figure, of).find_in(&results, None).unwrap().holds;
    assert!(holds("accuracy.worst5", "b"));
    assert!(!holds("accuracy.worst5", "a"));
    assert!(holds("loss.mean", "c"));
    let effect = best("accuracy.worst5", "b").find_in(&results, None).unwrap().effect;
    assert!((effect.unwrap().mean - 0.1).abs() < 1e-12);
}

#[test]
fn levels_and_tiers() {
    let run = unit("a", 1, &[("groups.dp", 0.03), ("tier.0.loss", 0.2), ("tier.1.loss", 0.5)]);
    let results = results("e", "quick", vec![run]);
    let level = |want| {
        let level = Measure::Level { figure: "groups.dp".into(), of: "a".into(), want };
        level.find_in(&results, None).unwrap().holds
    };
    assert!(level(Want::AtMost(0.03)) && !level(Want::AtMost(0.02)) && level(Want::Within(0.03)));
    let between = measure(
        r#"{ how = "between", of = "a", from = "tier.0.loss", to = "tier.1.loss", want = "higher" }"#,
    );
    let effect = between.find_in(&results, Some(3.0)).unwrap();
    assert!((effect.effect.unwrap().mean - 1.5).abs() < 1e-12 && (effect.ratio.unwrap() - 0.5).abs() < 1e-12);
}

#[test]
fn checks_of_an_experiment_are_stored_with_its_results() {
    let mut results = two();
    let wants = [Want::Lower, Want::Higher, Want::AtMost(-0.5), Want::AtLeast(-0.5), Want::Within(0.5)];
    results.record.checks = wants.map(|want| check(change("old", "new", want))).into();
    let outcomes = outcomes_of(&results, &[]);
    let holds: Vec<bool> = outcomes.iter().map(|row| row.finding.holds).collect();
    assert_eq!(holds, [true, false, false, true, true]);
    // Two seeds decide none of them.
    assert!(outcomes.iter().all(|row| row.finding.verdict == ClaimVerdict::Undecided));
}

#[test]
fn unknown_keys_are_refused() {
    let whole = FILES[0];
    assert!(toml::from_str::<Source>(whole).is_ok());
    for (known, unknown) in [
        ("name =", "nam ="),
        ("[[claim]]\n", "[[claim]]\nnumber = 1\n"),
        ("[[claim.check]]\n", "[[claim.check]]\nseeds = 1\n"),
        ("{ how =", "{ seeds = 1, how ="),
        ("want = \"lower\"", "want = \"less\""),
        ("how = \"change\"", "how = \"ratio\""),
    ] {
        assert!(whole.contains(known), "{known}");
        assert!(toml::from_str::<Source>(&whole.replacen(known, unknown, 1)).is_err(), "{unknown}");
    }
}

#[test]
fn ids_are_unique_and_of_their_section() {
    let mut seen = BTreeSet::new();
    for source in ALL.iter() {
        for (number, claim) in source.claims.iter().enumerate() {
            assert_eq!(claim.id, format!("{}.{}", source.section, number + 1));
            assert!(seen.insert(&claim.id) && !claim.checks.is_empty());
            for check in &claim.checks {
                assert!(!check.published.is_empty(), "{}", check.what);
                assert_eq!(check.experiment.is_empty(), check.measure.is_none(), "{}", check.what);
            }
        }
    }
    // The specification lists this many.
    assert_eq!(ALL.iter().map(|source| source.claims.len()).collect::<Vec<_>>(), [5, 6, 4, 5, 5]);
}

#[test]
fn checks_name_experiments_and_settings_that_exist() {
    for check in ALL.iter().flat_map(|source| &source.claims).flat_map(|claim| &claim.checks) {
        let Some(measure) = &check.measure else { continue };
        let loaded = LoadedExperiment::open(&check.experiment, "full", &["only=[]".into()]).unwrap();
        for setting in measure.settings() {
            let known = loaded.settings.iter().any(|known| known.id == setting);
            assert!(known, "{}: {} has no setting {setting}", check.what, check.experiment);
        }
    }
}

/// Five seeds with these variances under `old` and `new`, on MNIST with this accuracy.
fn five(old: [f64; 5], new: [f64; 5], accuracy: f64) -> ExperimentResults {
    let run = |setting: &'static str, values: [f64; 5]| {
        let unit = move |(seed, value): (u64, f64)| {
            unit(setting, seed, &[("loss.variance", value), ("accuracy.mean", accuracy)])
        };
        (1..).zip(values).map(unit)
    };
    let units = run("old", old).chain(run("new", new)).collect();
    let mut results = results("e", "quick", units);
    results.record.toml = "[data]\nset = \"mnist\"".into();
    results
}

const OLD: [f64; 5] = [0.50, 0.52, 0.48, 0.55, 0.45];

fn verdicts(results: &ExperimentResults, checks: Vec<Check>) -> Vec<String> {
    let results = ExperimentResults {
        record: ExperimentRecord { checks, ..results.record.clone() },
        ..results.clone()
    };
    own_outcomes(&results).iter().map(|row| row.finding.words()).collect()
}

#[test]
fn a_verdict_can_fail() {
    let lower = || vec![check(change("old", "new", Want::Lower))];
    let better = five(OLD, [0.40, 0.41, 0.39, 0.43, 0.37], 0.9);
    assert_eq!(verdicts(&better, lower()), ["reached"]);
    let worse = five(OLD, [0.60, 0.61, 0.59, 0.66, 0.54], 0.9);
    assert_eq!(verdicts(&worse, lower()), ["contradicted"]);
    let noise = five(OLD, [0.40, 0.70, 0.30, 0.60, 0.40], 0.9);
    assert_eq!(verdicts(&noise, lower()), ["undecided (5 seeds)"]);
    let none = vec![check(change("old", "absent", Want::Lower))];
    assert_eq!(verdicts(&better, none), ["not run"]);
}

#[test]
fn one_seed_decides_nothing() {
    let mut one = five(OLD, [0.1; 5], 0.9);
    one.units.retain(|unit| unit.unit.seed == 1);
    let lower = vec![check(change("old", "new", Want::Lower))];
    assert_eq!(verdicts(&one, lower), ["undecided (1 seed)"]);
}

#[test]
fn models_at_chance_decide_nothing() {
    let chance = five(OLD, [0.40, 0.41, 0.39, 0.43, 0.37], 0.15);
    let words = verdicts(&chance, vec![check(change("old", "new", Want::Lower))]);
    assert_eq!(words, ["undecided (5 seeds; OLD: accuracy 15.0 %, a constant predictor has 11.3 %)"]);
}

#[test]
fn diverged_models_decide_nothing() {
    let mut results = five(OLD, [0.40, 0.41, 0.39, 0.43, 0.37], 0.9);
    let broken = results.units.last_mut().unwrap();
    broken.rounds[0].loss.mean = 2.3;
    broken.last.loss.mean = 10.5;
    let words = verdicts(&results, vec![check(change("old", "new", Want::Lower))]);
    assert_eq!(words, ["undecided (5 seeds; NEW: diverged with 1 of 5 seeds)"]);
}

#[test]
fn several_checks_are_harder_to_reach_than_one() {
    // p = 0.0412 alone (scipy.stats.ttest_1samp); Holm doubles it beside another check.
    let results = five(OLD, [0.38, 0.50, 0.40, 0.54, 0.38], 0.9);
    let lower = || check(change("old", "new", Want::Lower));
    assert_eq!(verdicts(&results, vec![lower()]), ["reached"]);
    let higher = check(change("old", "new", Want::AtLeast(-0.13)));
    assert_eq!(verdicts(&results, vec![lower(), higher])[0], "undecided (5 seeds)");
}

#[test]
fn what_cannot_fail_is_not_counted() {
    let results = five(OLD, OLD, 0.9);
    let by_construction = |want| Check { by_construction: true, ..check(change("old", "new", want)) };
    let checks = vec![by_construction(Want::Within(0.0)), by_construction(Want::Lower)];
    assert_eq!(verdicts(&results, checks), ["by construction", "contradicted"]);
    let results = ExperimentResults {
        record: ExperimentRecord {
            checks: vec![by_construction(Want::Within(0.0))],
            ..results.record.clone()
        },
        ..results
    };
    assert_eq!(ClaimVerdict::of_claim(&own_outcomes(&results)), ClaimVerdict::ByConstruction);
}

#[test]
fn forms_of_our_own_are_named() {
    let mut results = five(OLD, [0.40, 0.41, 0.39, 0.43, 0.37], 0.9);
    let lower = || vec![check(change("old", "new", Want::Lower))];
    let params = |text: &str| serde_json::from_str::<serde_json::Map<_, _>>(text).unwrap();
    for unit in results.units.iter_mut().filter(|unit| unit.unit.setting == "new") {
        (unit.strategy, unit.params) = ("fairheterofl".into(), params(r#"{"q": 10}"#));
    }
    assert_eq!(verdicts(&results, lower()), ["reached by our variant"]);
    for unit in results.units.iter_mut().filter(|unit| unit.unit.setting == "new") {
        unit.params = params(r#"{"q": 10, "published": true}"#);
    }
    assert_eq!(verdicts(&results, lower()), ["reached"]);
}

#[test]
fn no_check_repeats_another_of_its_claim() {
    for claim in ALL.iter().flat_map(|source| &source.claims) {
        let mut seen = BTreeSet::new();
        for check in &claim.checks {
            let Some(measure) = &check.measure else { continue };
            let key = match measure {
                Measure::Change { figure, from, to, .. } | Measure::Difference { figure, from, to, .. } => {
                    // With q = q_m = 0 the method is HeteroFL.
                    let from = if from == "q0" { "heterofl" } else { from };
                    format!("{figure} {from} {to}")
                }
                Measure::Level { figure, of, .. } => format!("{figure} {of}"),
                other => format!("{other:?}"),
            };
            assert!(seen.insert((&check.experiment, key)), "{} {}", claim.id, check.what);
        }
    }
}

#[test]
fn every_claim_has_its_line_in_the_record() {
    for claim in ALL.iter().flat_map(|source| &source.claims) {
        let count = |form| claim.checks.iter().filter(|check| check.headline == Some(form)).count();
        let (printed, improved) = (count(Form::Published), count(Form::Improved));
        assert!(printed <= 1 && improved <= 1 && printed + improved > 0, "{}", claim.id);
    }
}

#[test]
fn headlines_are_of_the_form_that_they_state() {
    let kept = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("results");
    let evidence = Evidence::read(&kept).unwrap();
    let mut compared = 0;
    for row in ALL.iter().flat_map(|source| assess(source, &evidence)).flat_map(|claim| claim.rows) {
        if let Some(form) = row.headline.filter(|_| row.finding.seeds > 0) {
            assert_eq!(row.finding.form, form, "{}", row.what);
            compared += 1;
        }
    }
    assert!(compared > 10, "{compared}");
}

#[test]
fn the_record_is_short_and_has_every_claim() {
    let kept = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("results");
    for evidence in [Evidence::default(), Evidence::read(&kept).unwrap()] {
        let text = record(&evidence);
        assert!(text.lines().count() <= 100, "{}", text.lines().count());
        for claim in ALL.iter().flat_map(|source| &source.claims) {
            let lines = text.lines().filter(|line| line.starts_with(&format!("| {} ", claim.id))).count();
            assert_eq!(lines, 1, "{}", claim.id);
        }
        columns_match(&text);
    }
}

#[test]
fn the_appendix_has_every_claim_and_marks_missing_runs() {
    let empty = appendix(&Evidence::default());
    for claim in ALL.iter().flat_map(|source| &source.claims) {
        assert!(empty.contains(&format!("\n### {} {}\n", claim.id, claim.text)), "{}", claim.id);
    }
    assert!(empty.contains("Nothing yet.") && empty.contains("not run") && !empty.contains("**reached**"));
    columns_match(&empty);
}

/// Every row of a table has the columns of its header.
fn columns_match(text: &str) {
    let mut columns = None;
    for line in text.lines() {
        let bars = line.replace("\\|", "").matches('|').count();
        match columns {
            Some(count) if line.starts_with('|') => assert_eq!(bars, count, "{line}"),
            _ => columns = line.starts_with('|').then_some(bars),
        }
    }
}

#[test]
fn the_appendix_shows_computed_checks() {
    let check = &ALL[0].claims[0].checks[0];
    let Some(Measure::Change { from, to, .. }) = &check.measure else { panic!("unexpected measure") };
    let units = vec![unit(from, 1, &[("inter", 0.02)]), unit(to, 1, &[("inter", 0.01)])];
    let text = appendix(&Evidence { experiments: vec![results(&check.experiment, "full", units)] });
    let line = text.lines().find(|line| line.starts_with(&format!("| {} |", check.what))).unwrap();
    for part in
        [check.published.as_str(), "−50.0 %", "**undecided (1 seed", "0.73", "full, 6 rounds", "0.0200 → "]
    {
        assert!(line.contains(part), "{part}: {line}");
    }
    // Rounds and seeds against those of the paper, settings against the file.
    assert!(text.contains("| full | 6 | 300 | 3 | 5 | 2 | 8 |"), "{text}");
}

fn kept() -> Evidence {
    Evidence::read(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("results")).unwrap()
}

/// Grids, seeds, data and checks were stated before: the files are the registration.
#[test]
fn kept_results_are_those_that_the_files_register() {
    let all = kept();
    assert!(all.experiments.len() > 20);
    for results in &all.experiments {
        assert_eq!(others(results), [""; 0], "{}", results.record.experiment);
    }
}

#[test]
fn results_with_other_grids_seeds_or_checks_are_told() {
    let all = kept();
    let of = |name: &str| all.of(name).next().unwrap().clone();
    let told = |results: &ExperimentResults, wanted: &str| {
        let found = others(results).join("; ");
        assert!(found.contains(wanted), "{wanted}: {found}");
    };
    let plain = of("fairheterofl-digits");
    let replaced = |from: &str, to: &str| {
        let mut changed = plain.clone();
        assert!(changed.record.toml.contains(from), "{from}: {}", changed.record.toml);
        changed.record.toml = changed.record.toml.replacen(from, to, 1);
        changed
    };
    told(&replaced("dominant:0.8", "dominant:0.5"), "`data`");
    told(&replaced("\nlr = 0.001", "\nlr = 0.002"), "`training`");
    told(&replaced("\nrounds = ", "\nrounds = 9"), "more rounds");
    told(&replaced("L = [10, 100, 1000]", "L = [10, 100, 700]"), "`strategies`: ");
    let mut seeds = plain.clone();
    seeds.units[0].unit.seed = 4711;
    told(&seeds, "seed 4711");
    let mut setting = plain.clone();
    setting.units[0].unit.setting = "invented".into();
    told(&setting, "setting invented");
    let mut keys = plain.clone();
    keys.units[3].fingerprint = "0123456789abcdef".into();
    told(&keys, "was run with other keys");
    let mut checks = of("tour");
    checks.record.toml = checks.record.toml.replacen("\"inter\"", "\"within\"", 1);
    told(&checks, "`check`: ");
}

#[test]
fn the_record_and_the_appendix_are_up_to_date() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let all = kept();
    for (file, text) in [("REPRODUCTION.md", record(&all)), ("docs/reproduction.md", appendix(&all))] {
        let written = std::fs::read_to_string(root.join(file)).unwrap();
        assert!(written == text, "{file} is not what `fairtier sim reproduce` writes");
    }
}
