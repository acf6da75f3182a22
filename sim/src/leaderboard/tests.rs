use std::{collections::BTreeSet, fs};

use strategies::Registry;

use super::*;
use crate::{
    claims::tests::{results, unit},
    experiment::{RunEvent, RunOptions},
};

#[test]
fn the_file_registers_every_strategy_with_a_grid_of_one_size() {
    let loaded = registered().unwrap();
    let strategies = &loaded.experiment.strategies;
    let names: BTreeSet<&str> = strategies.iter().map(|strategy| strategy.name.as_str()).collect();
    let known = Registry::standard();
    assert_eq!(names, known.names().collect::<BTreeSet<_>>());
    for strategy in strategies {
        let choose = strategy.choose.as_ref().unwrap_or_else(|| panic!("{} has no grid", strategy.id));
        let sizes: Vec<usize> = choose.grid.values().map(|values| values.as_array().unwrap().len()).collect();
        assert_eq!(sizes, [3], "{}", strategy.id);
        assert_eq!((choose.by.as_str(), choose.slack), (FIGURES[WORST], None), "{}", strategy.id);
    }
    assert_eq!(strategies.iter().filter(|strategy| strategy.role == Role::Ours).count(), 1);
    let ours = strategies.iter().find(|strategy| strategy.role == Role::Ours).unwrap();
    assert_eq!(
        (ours.name.as_str(), ours.params.len()),
        (aggregator::config::Config::parse("").unwrap().strategy.name.as_str(), 0)
    );
    assert!(loaded.settings.iter().all(|setting| setting.base.fleet.tiers.len() == 5));
    assert!((5..=10).contains(&loaded.seed_count()));
    // Every data set without and with the guard.
    for variant in &loaded.experiment.variants {
        let of = |setting: &&Setting| setting.variant == variant.id;
        let guard = loaded
            .settings
            .iter()
            .filter(of)
            .all(|setting| setting.base.guard.config() == Default::default());
        assert_eq!(guard, has_guard(&variant.id), "{}", variant.id);
    }
}

/// Cells of digits without the guard, with these losses of the worst tenth and accuracies.
fn made_up(loaded: &LoadedExperiment, of: impl Fn(&str, u64) -> Option<(f64, f64)>) -> ExperimentResults {
    let mut units = Vec::new();
    for setting in loaded.settings.iter().filter(|setting| setting.variant == "digits") {
        for &seed in &loaded.experiment.seeds {
            let Some((worst, accuracy)) = of(&setting.strategy.id, seed) else { continue };
            let mut unit =
                unit(&setting.id, seed, &[("loss.mean", worst / 2.0), ("accuracy.mean", accuracy)]);
            unit.last.loss.worst10 = worst;
            unit.fingerprint = setting.fingerprint(seed);
            units.push(unit);
        }
    }
    results(NAME, PROFILE, units)
}

#[test]
fn rows_are_ordered_compared_and_marked() {
    let loaded = registered().unwrap();
    let made = made_up(&loaded, |id, seed| {
        let noise = seed as f64 / 100.0;
        match id {
            "fairheterofl" => Some((0.5 + noise, 0.9)),
            "fedmdfg" => Some((0.4 + noise, 0.8)),
            "fedavg" => Some((1.0 + noise, 0.95)),
            "term" if seed == 3 => Some((f64::INFINITY, 0.1)),
            _ => Some((2.0, 0.5)),
        }
    });
    let board = Board::new(&loaded, Some(&made));
    let table = &board.tables[0];
    assert_eq!((table.run, table.planned), (22 * 5, 22 * 5));
    assert!(board.tables[1..].iter().all(|table| table.run == 0));
    let ids: Vec<&str> = table.rows[..3].iter().map(|row| row.id.as_str()).collect();
    assert_eq!(ids, ["fedmdfg", "fairheterofl", "fedavg"]);
    assert!(table.rows[0].direction && !table.rows[1].direction);
    let on_front: Vec<&str> = table.rows.iter().filter(|row| row.front).map(|row| row.id.as_str()).collect();
    assert_eq!(on_front, ["fedmdfg", "fairheterofl", "fedavg"]);
    let against = table.rows[1].against.unwrap();
    assert!((against.mean + 0.5).abs() < 1e-12 && against.interval.unwrap().high < 0.0);
    assert_eq!(table.rows[2].against, None);

    let [ranks] = &board.ranks[..] else { panic!("{:?}", board.ranks) };
    assert_eq!(ranks.blocks, [("digits".to_owned(), 5)]);
    let rank = |id: &str| ranks.rows.iter().find(|row| row.id == id).unwrap().ranks.clone();
    assert_eq!((rank("fedmdfg"), rank("fairheterofl")), (vec![1.0, 1.0, 3.0], vec![2.0, 2.0, 2.0]));
    // 19 others share the places 4 to 22; TERM is last with seed 3.
    assert!((rank("afl")[0] - (4.0 * 13.0 + 12.5) / 5.0).abs() < 1e-12, "{:?}", rank("afl"));
    assert!((rank("term")[0] - (4.0 * 13.0 + 22.0) / 5.0).abs() < 1e-12);
    let said = ranks.sentences().join(" ");
    assert!(
        said.contains("place 2 of 22") && said.contains("within the critical difference: FedMDFG"),
        "{said}"
    );
    assert!(said.contains("the best direction FedMDFG (1.0)"), "{said}");

    let text = page(&board);
    assert!(
        text.contains("| digits | 110 | 110 | complete |")
            && text.contains("| HAR | 0 | 110 | **not run yet** |")
    );
    assert!(text.contains("**diverged with 1 of 5**"), "{text}");
    let line = |start: &str| text.lines().find(|line| line.starts_with(start)).map(str::to_owned);
    assert!(
        line("| **FairHeteroFL (default)** | ● | ").is_some() && line("| FedMDFG ↘ | ● | ").is_some(),
        "{text}"
    );
}

#[test]
fn a_strategy_that_is_far_behind_is_told_so() {
    let loaded = registered().unwrap();
    let made = made_up(&loaded, |id, _| {
        let worst = match id {
            "fairheterofl" => 3.0,
            "fedmdfg" => 0.1,
            _ => 1.0,
        };
        Some((worst, 0.5))
    });
    let board = Board::new(&loaded, Some(&made));
    let said = board.ranks[0].sentences().join(" ");
    assert!(said.contains("place 22 of 22") && said.contains("Clearly ahead of it: FedMDFG."), "{said}");
    assert!(said.contains("Ahead within the critical difference: FedAvg, HeteroFL, "), "{said}");
}

#[test]
fn results_of_other_settings_and_seeds_are_not_read() {
    let loaded = registered().unwrap();
    let mut made = made_up(&loaded, |id, _| (id == "fedavg").then_some((1.0, 0.5)));
    assert_eq!(Board::new(&loaded, Some(&made)).tables[0].run, 5);
    made.units[0].fingerprint = "0123456789abcdef".into();
    made.units[1].unit.seed = 99;
    made.units[2].unit.setting = "digits-unknown".into();
    let board = Board::new(&loaded, Some(&made));
    assert_eq!(board.tables[0].run, 2);
    // Not all strategies were run.
    assert!(board.ranks.is_empty() && page(&board).contains("**in part**"));
    assert!(page(&Board::new(&loaded, None)).contains("No data set has all its strategies yet."));
}

#[test]
fn what_is_kept_is_not_run_again() {
    let dir = tempfile::tempdir().unwrap();
    let keys = ["rounds=2", "seeds=[1]", "data.samples=300", "only=['fedavg', 'fedrolex']"];
    let loaded = LoadedExperiment::open(NAME, PROFILE, &keys.map(str::to_owned)).unwrap();
    let kept = dir.path().join("kept");
    let run = |out: &str, limit: Option<u64>| {
        let options = RunOptions {
            out: dir.path().join(out),
            data: None,
            threads: 1,
            registry: Registry::standard(),
            twin: false,
            runs: None,
        };
        let sets = ["digits".to_owned()];
        let what = Fill { sets: &sets, limit: limit.map(std::time::Duration::from_secs), kept: &kept };
        let (mut begun, mut trained) = (None, 0);
        fill(&loaded, &what, &options, &mut |event| match event {
            RunEvent::Begin { there, units, .. } => begun = Some((there, units)),
            RunEvent::Unit { .. } => trained += 1,
            _ => {}
        })
        .unwrap();
        (begun.unwrap(), trained)
    };
    assert_eq!(run("a", Some(0)), ((0, 4), 0));
    assert!(!kept.exists());
    assert_eq!(run("a", None), ((0, 4), 4));
    let board = |loaded| Board::new(loaded, read(&kept, loaded).unwrap().as_ref());
    let before = board(&loaded);
    assert_eq!((before.tables[0].run, before.tables[1].run, before.tables[2].run), (2, 2, 0));
    assert!(
        before.tables[1].guard && before.tables[0].rows.iter().all(|row| row.chosen.starts_with("eta = "))
    );
    // On another machine, with the kept results alone.
    assert_eq!(run("b", None), ((4, 0), 0));
    assert_eq!(board(&loaded).tables, before.tables);
    let file = fs::read_dir(&kept).unwrap().next().unwrap().unwrap().path();
    assert!(fs::metadata(file).unwrap().len() < 60_000);

    let sets = ["digit".to_owned()];
    let options = RunOptions {
        out: dir.path().into(),
        data: None,
        threads: 1,
        registry: Registry::standard(),
        twin: false,
        runs: None,
    };
    let error =
        fill(&loaded, &Fill { sets: &sets, limit: None, kept: &kept }, &options, &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("digits, wisdm, har, adult, mnist"), "{error}");
}

#[test]
fn the_page_of_the_book_is_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let loaded = registered().unwrap();
    let kept = read(&root.join("sim/results"), &loaded).unwrap();
    let written = fs::read_to_string(root.join("docs/leaderboard.md")).unwrap();
    let right = written == page(&Board::new(&loaded, kept.as_ref()));
    assert!(
        right,
        "docs/leaderboard.md is not what `fairtier sim leaderboard --out docs/leaderboard.md` writes"
    );
}
