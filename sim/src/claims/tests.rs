use std::collections::BTreeSet;

use super::*;
use crate::{
    experiment::LoadedExperiment,
    results::{
        ExperimentRecord, FORMAT, FinalScores, GroupFigures, Role, RoundScores, SettingRecord, TierScores,
        UnitId, UnitResult, Want,
    },
};

/// A synthetic run with these figures of losses, accuracies, tiers and groups.
pub fn unit(setting: &str, seed: u64, figures: &[(&str, f64)]) -> UnitResult {
    let mut last = FinalScores::default();
    for &(name, value) in figures {
        match name {
            "loss.mean" => last.loss.mean = value,
            "loss.variance" => last.loss.variance = value,
            "inter" => last.inter = value,
            "within" => last.within = value,
            "accuracy.mean" => last.accuracy.mean = value,
            "accuracy.variance" => last.accuracy.variance = value,
            "accuracy.worst5" => last.accuracy.worst5 = value,
            "groups.dp" => last.groups.get_or_insert(GroupFigures::default()).dp = value,
            "tier.0.loss" | "tier.1.loss" => {
                last.tiers.resize(2, TierScores::default());
                last.tiers[usize::from(name.contains('1'))].loss = value;
            }
            other => panic!("no synthetic figure {other}"),
        }
    }
    UnitResult {
        format: FORMAT,
        fingerprint: String::new(),
        unit: UnitId { experiment: "e".into(), profile: "quick".into(), setting: setting.into(), seed },
        label: setting.into(),
        strategy: setting.into(),
        params: Default::default(),
        choice: vec![],
        rounds: (1..=7).map(|round| RoundScores { round, ..Default::default() }).collect(),
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
    assert_eq!((finding.verdict, finding.agree, finding.rounds), (ClaimVerdict::Reached, 2, 7));
    assert_eq!(finding.show_parts(), "OLD 0.500 ± 0.100 → NEW 0.250 ± 0.071");
    let other = change("old", "new", Want::Higher);
    assert_eq!(other.find_in(&two(), None).unwrap().verdict, ClaimVerdict::Missed);
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
    assert_eq!((finding.profile.as_str(), finding.verdict), ("full", ClaimVerdict::Missed));
    check.profile = Some("quick".into());
    assert_eq!(check.row(&evidence).finding.verdict, ClaimVerdict::Reached);
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
    let verdict = |values: &[f64]| falls.find_in(&units(values), None).map(|finding| finding.verdict);
    assert_eq!(verdict(&[3.0, 2.0, 1.0]), Some(ClaimVerdict::Reached));
    assert_eq!(verdict(&[3.0, 4.0, 1.0]), Some(ClaimVerdict::Missed));
    assert_eq!(verdict(&[3.0, 2.0]), None);
    let effect = falls.find_in(&units(&[4.0, 2.0, 1.0]), None).unwrap().effect.unwrap();
    assert_eq!(effect.mean, -0.75);
}

#[test]
fn best_compares_with_all_settings_in_the_direction_of_the_figure() {
    let run = |name: &str, worst, loss| unit(name, 1, &[("accuracy.worst5", worst), ("loss.mean", loss)]);
    let results = results("e", "quick", vec![run("a", 0.5, 1.0), run("b", 0.6, 2.0), run("c", 0.4, 0.5)]);
    let best = |figure: &str, of: &str| Measure::Best { figure: figure.into(), of: of.into() };
    let verdict = |figure, of| best(figure, of).find_in(&results, None).unwrap().verdict;
    assert_eq!(verdict("accuracy.worst5", "b"), ClaimVerdict::Reached);
    assert_eq!(verdict("accuracy.worst5", "a"), ClaimVerdict::Missed);
    assert_eq!(verdict("loss.mean", "c"), ClaimVerdict::Reached);
    let effect = best("accuracy.worst5", "b").find_in(&results, None).unwrap().effect;
    assert!((effect.unwrap().mean - 0.1).abs() < 1e-12);
}

#[test]
fn levels_and_tiers() {
    let run = unit("a", 1, &[("groups.dp", 0.03), ("tier.0.loss", 0.2), ("tier.1.loss", 0.5)]);
    let results = results("e", "quick", vec![run]);
    let level = |want| {
        let level = Measure::Level { figure: "groups.dp".into(), of: "a".into(), want };
        level.find_in(&results, None).unwrap().verdict
    };
    assert_eq!(level(Want::AtMost(0.03)), ClaimVerdict::Reached);
    assert_eq!(level(Want::AtMost(0.02)), ClaimVerdict::Missed);
    assert_eq!(level(Want::Within(0.03)), ClaimVerdict::Reached);
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
    let verdicts: Vec<ClaimVerdict> = outcomes_of(&results).iter().map(|row| row.finding.verdict).collect();
    use ClaimVerdict::{Missed, Reached};
    assert_eq!(verdicts, [Reached, Missed, Missed, Reached, Reached]);
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

#[test]
fn the_record_has_every_claim_and_marks_missing_runs() {
    let empty = record(&Evidence::default());
    for claim in ALL.iter().flat_map(|source| &source.claims) {
        assert!(empty.contains(&format!("\n### {} {}\n", claim.id, claim.text)), "{}", claim.id);
    }
    assert!(empty.contains("Nothing yet.") && !empty.contains("**yes**") && !empty.contains("**no**"));
    // Every row of a table has the columns of its header.
    let mut columns = None;
    for line in empty.lines() {
        let bars = line.replace("\\|", "").matches('|').count();
        match columns {
            Some(count) if line.starts_with('|') => assert_eq!(bars, count, "{line}"),
            _ => columns = line.starts_with('|').then_some(bars),
        }
    }
}

#[test]
fn the_record_shows_computed_checks() {
    let check = &ALL[0].claims[0].checks[0];
    let Some(Measure::Change { from, to, .. }) = &check.measure else { panic!("unexpected measure") };
    let units = vec![unit(from, 1, &[("inter", 0.02)]), unit(to, 1, &[("inter", 0.01)])];
    let text = record(&Evidence { experiments: vec![results(&check.experiment, "full", units)] });
    let line = text.lines().find(|line| line.starts_with(&format!("| {} |", check.what))).unwrap();
    for part in [
        check.published.as_str(),
        "−50.0 %",
        "**yes** (1 of 1)",
        "0.73",
        "full, 1 seeds, 7 rounds",
        "0.0200 → ",
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert!(text.contains("4 runs"), "missing seeds are not reported");
}
