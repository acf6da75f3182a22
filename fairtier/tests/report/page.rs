use std::{fs, path::Path};

use roxmltree::{Document, Node};
use serde_json::Value;

use crate::{
    made_up::{self, MAIN, PER_TIER, ROUNDS, SEEDS, SETTINGS, TIERS},
    sim,
};

/// The page of the synthetic results.
fn page(dir: &Path) -> String {
    made_up::write_all(&dir.join("results"));
    sim(&["report"], dir);
    fs::read_to_string(dir.join("report.html")).unwrap()
}

/// Parses the page as XML: every element is closed and every attribute quoted.
fn parse(page: &str) -> Document<'_> {
    let page = page.strip_prefix("<!DOCTYPE html>\n").unwrap();
    Document::parse(page).unwrap()
}

fn all<'a>(node: Node<'a, 'a>, name: &'static str) -> impl Iterator<Item = Node<'a, 'a>> {
    node.descendants().filter(move |node| node.tag_name().name() == name)
}

fn with_class<'a>(node: Node<'a, 'a>, class: &'static str) -> impl Iterator<Item = Node<'a, 'a>> {
    let has = move |node: &Node<'_, '_>| {
        node.attribute("class").is_some_and(|classes| classes.split(' ').any(|name| name == class))
    };
    node.descendants().filter(has)
}

fn text(node: Node<'_, '_>) -> String {
    node.descendants().filter(Node::is_text).filter_map(|node| node.text()).collect()
}

/// The section of an experiment.
fn section<'a>(document: &'a Document<'a>, experiment: &str) -> Node<'a, 'a> {
    let id = format!("{experiment}-quick");
    all(document.root(), "section").find(|node| node.attribute("aria-labelledby") == Some(&id)).unwrap()
}

#[test]
fn every_plot_has_its_data() {
    let dir = tempfile::tempdir().unwrap();
    let page = page(dir.path());
    let document = parse(&page);
    let main = section(&document, MAIN);
    let run = SETTINGS.len() - 1;
    let svgs: Vec<Node<'_, '_>> =
        all(main, "svg").filter(|svg| svg.attribute("role") == Some("img")).collect();
    // Pareto, losses, Lorenz; loss and accuracy of every tier and three of all; participation, bytes, time.
    assert_eq!(svgs.len(), 3 + 2 * TIERS + 3 + 3);
    for svg in &svgs {
        let says = |name| all(*svg, name).next().is_some_and(|node| !text(node).is_empty());
        assert!(says("title") && says("desc") && svg.attribute("aria-label").is_some());
    }
    assert_eq!(with_class(main, "device").count(), run * TIERS * PER_TIER, "dots");
    let panels = all(main, "svg").filter(|svg| with_class(*svg, "panel").next().is_some());
    for panel in panels {
        let (lines, columns) = (with_class(panel, "line"), with_class(panel, "column").count());
        let points: Vec<usize> =
            lines.map(|line| line.attribute("points").unwrap().split(' ').count()).collect();
        assert!(points == vec![ROUNDS as usize + 1; run] || columns == run * TIERS, "{points:?} {columns}");
    }
    let pareto = svgs[0];
    assert_eq!(with_class(pareto, "mark").count(), run);
    assert_eq!(all(svgs[1], "polyline").count(), run, "Lorenz");
}

#[test]
fn figures_are_means_over_seeds_of_what_was_saved() {
    let dir = tempfile::tempdir().unwrap();
    let page = page(dir.path());
    let document = parse(&page);
    let table = with_class(section(&document, MAIN), "figures").next().unwrap();
    let heads: Vec<String> =
        all(table, "th").filter(|th| th.attribute("scope") == Some("col")).map(text).collect();
    let column = heads.iter().position(|head| head == "mean loss").unwrap();
    let rows: Vec<Node<'_, '_>> = all(table, "tr").skip(1).collect();
    assert_eq!(rows.len(), SETTINGS.len());
    for (at, seeds) in [(0, &SEEDS[..]), (1, &SEEDS[..]), (2, &SEEDS[..2])] {
        let mean = |&seed: &u64| {
            let losses: Vec<f64> =
                (0..TIERS * PER_TIER).map(|device| made_up::loss(at, seed, device, ROUNDS)).collect();
            made_up::variance(&losses).0
        };
        let means: Vec<f64> = seeds.iter().map(mean).collect();
        let (expected, variance) = made_up::variance(&means);
        let count = means.len() as f64;
        let std = (variance * count / (count - 1.0)).sqrt();
        let cell = rows[at].children().nth(column).unwrap();
        let shown: f64 = cell.attribute("data-value").unwrap().parse().unwrap();
        assert!((shown - expected).abs() < 1e-12, "{shown} {expected}");
        assert_eq!(text(cell), format!("{expected:.3} ± {std:.3}"));
    }
    assert_eq!(text(rows[3].children().nth(column).unwrap()), "–");
}

#[test]
fn tables_and_json_have_the_same_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let page = page(dir.path());
    let document = parse(&page);
    let json: Value = serde_json::from_str(&sim(&["report", "--format", "json"], dir.path())).unwrap();
    let experiments = json["experiments"].as_array().unwrap();
    assert_eq!(experiments.len(), 3);
    for experiment in experiments {
        let name = experiment["experiment"].as_str().unwrap();
        let mut expected: Vec<f64> = vec![];
        let settings = experiment["settings"].as_array().unwrap();
        for row in experiment["checks"].as_array().unwrap() {
            expected.extend(row["finding"]["effect"]["mean"].as_f64());
        }
        for setting in settings {
            let figures = experiment["figures"].as_array().unwrap().iter();
            expected.extend(figures.filter_map(|name| setting["figures"][name.as_str()?]["mean"].as_f64()));
        }
        for tier in settings.iter().flat_map(|setting| setting["tiers"].as_array().unwrap()) {
            let names = [
                "loss",
                "loss_variance",
                "accuracy",
                "accuracy_variance",
                "bytes_up",
                "bytes_down",
                "busy_s",
                "joules",
            ];
            expected.extend(names.map(|name| tier[name]["mean"].as_f64().unwrap()));
        }
        let shown: Vec<f64> = section(&document, name)
            .descendants()
            .filter_map(|node| node.attribute("data-value")?.parse().ok())
            .collect();
        assert_eq!(shown, expected, "{name}");
    }
}

#[test]
fn claims_are_shown_with_their_results() {
    let dir = tempfile::tempdir().unwrap();
    let page = page(dir.path());
    let document = parse(&page);
    let main = text(section(&document, MAIN));
    // The synthetic tiers follow the formula; the published value of the claim is shown beside the result.
    for part in [
        "0.173 → 0.037",
        "MNIST non-IID, q over 0, 1, 10",
        "variance of the fairest, made up",
        "✓ reached by our variant",
    ] {
        assert!(main.contains(part), "{part}");
    }
    let record = {
        assert_eq!(sim(&["keep"], dir.path()), "wrote 2 files to sim/results\n");
        let said = sim(&["reproduce"], dir.path());
        assert_eq!(said, "wrote REPRODUCTION.md\nwrote docs/reproduction.md\n");
        fs::read_to_string(dir.path().join("REPRODUCTION.md")).unwrap()
    };
    let appendix = fs::read_to_string(dir.path().join("docs/reproduction.md")).unwrap();
    let line = |text: &str, part: &str| text.lines().find(|line| line.contains(part)).unwrap().to_owned();
    let in_both = [
        line(&record, "| 1.5.1 FairHeteroFL: MNIST non-IID, q = 10"),
        line(&appendix, "| MNIST non-IID, q = 10 |"),
    ];
    let inter = |setting: usize, seed: u64| {
        let mean = |tier: usize| {
            let losses: Vec<f64> = (tier * PER_TIER..(tier + 1) * PER_TIER)
                .map(|device| made_up::loss(setting, seed, device, ROUNDS))
                .collect();
            made_up::variance(&losses).0
        };
        made_up::variance(&(0..TIERS).map(mean).collect::<Vec<_>>()).1
    };
    // The tiers of the third setting are a third as far apart, so the variance is 1 - 1/9 lower with every seed.
    let change = inter(2, 1) / inter(0, 1) - 1.0;
    assert!((change + 8.0 / 9.0).abs() < 1e-9);
    for line in &in_both {
        for part in ["0.173 → 0.037", "−88.9 % [−88.9 %, −88.9 %]", "**reached by our variant**"] {
            assert!(line.contains(part), "{part}: {line}");
        }
    }
    assert!(in_both[1].contains("| ours |") && in_both[1].contains("quick, 11 rounds"), "{}", in_both[1]);
    assert!(record.contains("| 5.6.1 ") && record.contains("not run"));
}

/// REPRODUCTION.md and docs/reproduction.md match the kept results.
#[test]
fn the_record_matches_the_kept_results() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("page.md");
    let record = sim(&["reproduce", "--out", "-", "--appendix", page.to_str().unwrap()], root);
    let written = |name: &str| fs::read_to_string(root.join(name)).unwrap();
    let same = record == written("REPRODUCTION.md")
        && fs::read_to_string(&page).unwrap() == written("docs/reproduction.md");
    assert!(same, "the record is not up to date: cargo run --release -- sim reproduce");
}

#[test]
fn missing_runs_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let page = page(dir.path());
    let document = parse(&page);
    let note = text(with_class(section(&document, MAIN), "note").next().unwrap());
    assert!(
        note.contains("no run with seed 3") && note.contains("Not yet run: no run yet (seeds 1, 2, 3)"),
        "{note}"
    );
    assert!(text(section(&document, "empty")).contains("A: no run yet (seeds 1)"));
    let markdown = sim(&["report", "--format", "md"], dir.path());
    assert!(markdown.contains("- Not yet run: no run yet (seeds 1, 2, 3)"));
}

#[test]
fn no_results_give_an_empty_page() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("results")).unwrap();
    for format in ["html", "md", "json"] {
        let text = sim(&["report", "--format", format, "--out", "-"], dir.path());
        assert!(!text.contains("NaN"), "{format}");
        if format == "html" {
            assert!(parse(&text).root().has_children() && text.contains("no results yet"));
        }
    }
    let record = sim(&["reproduce", "results", "--out", "-"], dir.path());
    assert!(record.contains("not run") && !record.contains("**reached**"), "{record}");
}

#[test]
fn the_page_needs_no_network_and_no_script() {
    let dir = tempfile::tempdir().unwrap();
    let page = page(dir.path()).replace("http://www.w3.org/2000/svg", "");
    for foreign in ["http:", "https:", "<script", "<link", "@import", "url(", "src=", "NaN", "inf\""] {
        assert!(!page.contains(foreign), "{foreign}");
    }
}

/// The report of an experiment on one's own file.
fn own_page(dir: &Path) -> String {
    made_up::write_own(&dir.join("results"));
    sim(&["report"], dir);
    fs::read_to_string(dir.join("report.html")).unwrap()
}

#[test]
fn a_report_on_an_own_experiment_shows_no_claims_of_papers() {
    let dir = tempfile::tempdir().unwrap();
    let page = own_page(dir.path());
    assert!(!page.contains("id=\"claims\"") && !page.contains("Claims") && !page.contains("papers"));
    let markdown = sim(&["report", "--format", "md"], dir.path());
    assert!(
        !markdown.contains("claim")
            && markdown.contains("diverged: A learning rate that is too high: seed 1")
    );
    // The record of reproduction still lists every claim.
    let all = sim(&["reproduce", "results", "--format", "json"], dir.path());
    let sources: Value = serde_json::from_str(&all).unwrap();
    assert!(
        sources.as_array().unwrap().iter().all(|source| !source["claims"].as_array().unwrap().is_empty())
    );
}

#[test]
fn the_best_is_marked_among_settings_of_one_partition_that_did_not_diverge() {
    let dir = tempfile::tempdir().unwrap();
    let page = own_page(dir.path());
    let document = parse(&page);
    let table = with_class(section(&document, "mine"), "figures").next().unwrap();
    let groups: Vec<String> = with_class(table, "group").map(text).collect();
    assert_eq!(groups[..2], ["wine.csv, column:site", "wine.csv, iid, clients 12"]);
    let heads: Vec<String> =
        all(table, "th").filter(|th| th.attribute("scope") == Some("col")).map(text).collect();
    let loss = heads.iter().position(|head| head.eq_ignore_ascii_case("mean loss")).unwrap();
    let best = |setting: usize| {
        let row = all(table, "tr").find(|row| text(*row).starts_with(made_up::OWN[setting].1)).unwrap();
        let cell = row.children().filter(|cell| cell.is_element()).nth(loss).unwrap();
        cell.attribute("class") == Some("best")
    };
    // Later settings have lower losses, except the one that diverged.
    assert_eq!([0, 1, 2, 3, 4].map(best), [false, true, false, true, false]);
    // Its variance of 0 is no success.
    let wild = all(table, "tr").find(|row| text(*row).starts_with(made_up::OWN[4].1)).unwrap();
    assert_eq!(with_class(wild, "best").count(), 0);
}

#[test]
fn a_diverged_run_does_not_squash_plots() {
    let dir = tempfile::tempdir().unwrap();
    let page = own_page(dir.path());
    let document = parse(&page);
    let mine = section(&document, "mine");
    let svgs = all(mine, "svg").filter(|svg| svg.attribute("role") == Some("img"));
    for svg in svgs {
        let ticks: Vec<String> = with_class(svg, "tick").map(text).collect();
        let large = ticks.iter().filter(|tick| tick.parse::<f64>().is_ok_and(|tick| tick > 1e4)).count();
        assert_eq!(large, 0, "{}: {ticks:?}", svg.attribute("aria-label").unwrap());
    }
    // It has its line in every panel all the same, and a note.
    let panel = all(mine, "svg").find(|svg| with_class(*svg, "panel").next().is_some()).unwrap();
    assert_eq!(with_class(panel, "line").count(), made_up::OWN.len());
    let notes: String = with_class(mine, "note").map(text).collect();
    assert!(notes.contains("Runs diverged") && notes.contains("A learning rate that is too high: seed 1"));
}
