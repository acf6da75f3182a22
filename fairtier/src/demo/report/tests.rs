use plots::number;
use serde_json::Value;

use super::*;
use crate::demo::tests::TINY;

/// Tags that are not closed at the end, or the first closing tag without a match.
fn unbalanced(text: &str) -> Result<Vec<String>, String> {
    let mut open = vec![];
    for tag in text.split('<').skip(1) {
        let (tag, _) = tag.split_once('>').ok_or("a tag is not terminated")?;
        if tag.starts_with('!') || tag.ends_with('/') {
            continue;
        }
        match tag.strip_prefix('/') {
            Some(name) if open.last().is_some_and(|last| last == name) => _ = open.pop(),
            Some(name) => return Err(format!("</{name}> closes {:?}", open.last())),
            None => open.push(tag.split_whitespace().next().unwrap_or_default().to_owned()),
        }
    }
    Ok(open)
}

fn between<'a>(text: &'a str, start: &str, end: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(start)
        .skip(1)
        .filter_map(move |rest| rest.split_once(end))
        .map(|(inside, _)| inside)
        .collect::<Vec<_>>()
        .into_iter()
}

#[test]
fn the_checker_finds_unbalanced_tags() {
    assert_eq!(unbalanced("<a><b/><c>x</c></a>"), Ok(vec![]));
    assert_eq!(unbalanced("<a><c></c>"), Ok(vec!["a".into()]));
    assert!(unbalanced("<a><c></a></c>").is_err());
}

#[test]
fn the_page_is_well_formed_and_whole() {
    let page = html(&TINY);
    assert_eq!(unbalanced(&page), Ok(vec![]));
    for section in ["target", "seeds", "devices", "rounds", "table", "setup"] {
        assert!(page.contains(&format!("id=\"{section}\"")), "{section}");
    }
    // Nine panels, three plots and five legend lines. All except the legend lines have a description.
    assert_eq!(page.matches("<svg").count(), 17);
    assert_eq!(page.matches("role=\"img\" aria-label=").count(), 12);
    assert_eq!(page.matches("class=\"front\"").count(), 2, "the target line and its legend");
    assert_eq!(page.matches("class=\"dot s0\"").count(), 20 + 2, "devices and legends");
    assert_eq!(page.matches("class=\"dot s1\"").count(), 20 + 2);
    assert_eq!(page.matches("class=\"card\"").count(), 4);
    for part in ["−", "HeteroFL", "--seed 1", "--target 0.5", "--format json", "mutual TLS"] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("NaN") && !page.contains("inf"));
}

#[test]
fn the_page_needs_no_network_and_no_script() {
    let page = html(&TINY).replace("http://www.w3.org/2000/svg", "");
    for foreign in ["http:", "https:", "<script", "<link", "@import", "url(", "src="] {
        assert!(!page.contains(foreign), "{foreign}");
    }
}

#[test]
fn numbers_of_the_page_are_those_of_the_json() {
    let json: Value = serde_json::from_str(&serde_json::to_string(&*TINY).unwrap()).unwrap();
    let mut expected: Vec<f64> = vec![];
    let figures = |loss: &Value, accuracy: &Value| {
        ["mean", "worst10", "best10", "variance"]
            .map(|key| loss[key].as_f64().unwrap())
            .into_iter()
            .chain([accuracy["mean"].as_f64().unwrap()])
            .collect::<Vec<_>>()
    };
    for group in 0..=5 {
        let lines = [0, 1].map(|run| {
            let run = &json["runs"][run];
            if group < 5 {
                figures(&run["loss_by_tier"][group], &run["accuracy_by_tier"][group])
            } else {
                figures(&run["loss"], &run["accuracy"])
            }
        });
        expected.extend(lines.concat());
        let [old, new] = lines;
        let relative =
            old.iter().zip(&new).take(4).map(|(old, new)| if old == new { 0.0 } else { new / old - 1.0 });
        expected.extend(relative);
        expected.push(new[4] - old[4]);
    }
    for key in ["within", "inter"] {
        let [old, new] = [0, 1].map(|run| json["runs"][run]["loss_split"][key].as_f64().unwrap());
        expected.extend([old, new, new / old - 1.0]);
    }
    let page = html(&TINY);
    let shown: Vec<f64> = between(&page, "data-value=\"", "\"").map(|value| value.parse().unwrap()).collect();
    assert_eq!(shown.len(), expected.len());
    // The JSON reader may lose the last bit.
    let same = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-14 * (1.0 + b.abs());
    assert!(shown.iter().zip(&expected).all(same), "{shown:?}\n{expected:?}");
    let variance = json["changes"][0]["variance"].as_f64().unwrap();
    assert!(same((&variance, &TINY.changes[0].variance)));
}

#[test]
fn cells_show_the_number_they_carry() {
    let page = html(&TINY);
    let cells: Vec<(f64, &str)> = between(&page, "<td data-value=\"", "</td>")
        .filter_map(|cell| cell.split_once('"'))
        .map(|(value, rest)| (value.parse().unwrap(), rest.split_once('>').unwrap().1))
        .collect();
    assert_eq!(cells.len(), 6 * 15 + 6);
    for (value, text) in cells {
        let number: f64 = text
            .replace('−', "-")
            .replace(['+', '±'], "")
            .split_whitespace()
            .next()
            .unwrap()
            .parse()
            .unwrap();
        let scale = if text.contains(' ') { 100.0 } else { 1.0 };
        assert!(
            (number - value * scale).abs() <= 0.051 * (value * scale).abs().max(scale / 100.0),
            "{value} {text}"
        );
    }
}

#[test]
fn the_picture_is_a_small_standalone_document() {
    let picture = picture(&TINY);
    assert_eq!(unbalanced(&picture), Ok(vec![]));
    assert!(picture.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
    assert!(picture.len() < 60_000);
    assert_eq!(picture.matches("class=\"dot ").count(), 42);
}

#[test]
fn the_table_has_a_line_for_every_tier_and_strategy() {
    let table = table(&TINY);
    let grouped = |line: &&str| line.starts_with("Tier ") || line.starts_with("All (");
    assert_eq!(table.lines().filter(grouped).filter(|line| line.contains(" HeteroFL  ")).count(), 6);
    assert_eq!(table.lines().filter(|line| line.contains("                  FairTier  ")).count(), 6);
    assert!(table.contains("variance of tier means"));
    let mean = number::figure(TINY.runs[1].loss.mean);
    assert!(table.lines().any(|line| line.contains("FairTier") && line.contains(&mean)));
    for part in ["target 0.5", "gain: ", "pay:  ", "status: measuring", "hold out the same"] {
        assert!(table.contains(part), "{part}\n{table}");
    }
    assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
}

#[test]
fn a_result_without_a_target_has_no_target_section() {
    let mut result = TINY.clone();
    for run in &mut result.runs {
        (run.target, run.disparity) = (None, vec![]);
    }
    result.seeds.truncate(1);
    let (page, table) = (html(&result), table(&result));
    assert_eq!(unbalanced(&page), Ok(vec![]));
    assert!(!page.contains("id=\"target\"") && !page.contains("id=\"seeds\""));
    assert!(page.contains("--target 0 ") && !table.contains("Disparity"));
}
