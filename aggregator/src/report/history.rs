//! The reports of a run as a table: one row per round with the main figures.

use std::{collections::BTreeSet, fmt::Write as _};

use serde_json::Value;

/// Name, width in a table, and digits after the point.
pub const COLUMNS: [(&str, usize, usize); 22] = [
    ("round", 5, 0),
    ("devices", 7, 0),
    ("refused", 7, 0),
    ("silent", 6, 0),
    ("stragglers", 10, 0),
    ("late", 4, 0),
    ("held", 4, 0),
    ("lr", 8, 5),
    ("loss", 8, 4),
    ("loss_variance", 13, 5),
    ("loss_worst10", 12, 4),
    ("loss_best10", 11, 4),
    ("loss_between_tiers", 18, 5),
    ("accuracy", 8, 4),
    ("accuracy_variance", 17, 5),
    ("accuracy_worst10", 16, 4),
    ("accuracy_best10", 15, 4),
    ("accuracy_angle", 14, 4),
    ("accuracy_jain", 13, 4),
    ("effective_devices", 17, 2),
    ("bytes_up", 10, 0),
    ("bytes_down", 10, 0),
];

/// One round; `None` where a report says nothing.
#[derive(Clone, PartialEq, Debug)]
pub struct Row(pub [Option<f64>; COLUMNS.len()]);

impl Row {
    pub fn of(report: &Value) -> Self {
        let at = |pointer: &str| report.pointer(pointer).and_then(Value::as_f64);
        let count = |key: &str| report[key].as_array().map(|list| list.len() as f64);
        let sum = |key: &str| {
            let tiers = report["participation"].as_array()?;
            Some(tiers.iter().filter_map(|tier| tier[key].as_f64()).sum())
        };
        // Devices without test samples have no accuracy, and a round without devices has no loss. Older reports say 0.
        let tested = at("/accuracy/count").is_some_and(|count| count > 0.0);
        let accuracy = |key: &str| at(&format!("/accuracy/{key}")).filter(|_| tested);
        let heard = at("/loss/count") != Some(0.0);
        let loss = |pointer: &str| at(pointer).filter(|_| heard);
        Self([
            at("/round"),
            count("devices"),
            count("refused"),
            count("silent"),
            sum("stragglers"),
            sum("late"),
            at("/round").map(|_| held(report, None) as f64),
            at("/lr"),
            loss("/loss/mean"),
            loss("/loss/variance"),
            loss("/loss/worst10"),
            loss("/loss/best10"),
            loss("/loss_split/inter"),
            accuracy("mean"),
            accuracy("variance"),
            accuracy("worst10"),
            accuracy("best10"),
            accuracy("angle"),
            accuracy("jain"),
            at("/weights/effective"),
            at("/traffic/up"),
            at("/traffic/down"),
        ])
    }
}

/// Devices, of a tier or all, that the guard has held in something.
pub fn held(report: &Value, tier: Option<usize>) -> usize {
    let lines = report["guard"].as_array().map_or(&[][..], Vec::as_slice);
    let of_tier = |line: &&Value| tier.is_none_or(|tier| line["tier"].as_u64() == Some(tier as u64));
    // Reports of older versions also noted what changed nothing.
    let held = lines.iter().filter(of_tier).filter(|line| line["action"] != "noted");
    held.filter_map(|line| line["device"].as_str()).collect::<BTreeSet<_>>().len()
}

/// With mean loss and accuracy of every tier in the last columns.
pub fn csv(reports: &[Value]) -> String {
    let tiers = |report: &Value| report["loss_by_tier"].as_array().map_or(0, Vec::len);
    let tiers = reports.iter().map(tiers).max().unwrap_or(0);
    let mut names: Vec<String> = COLUMNS.iter().map(|(name, ..)| (*name).to_owned()).collect();
    names.extend((0..tiers).map(|tier| format!("loss_tier{tier}")));
    names.extend((0..tiers).map(|tier| format!("accuracy_tier{tier}")));
    let mut text = names.join(",") + "\n";
    for report in reports {
        let by_tier = |list: &str, tier: usize| {
            let summary = &report[list][tier];
            let filled = summary["count"].as_f64().is_some_and(|count| count > 0.0);
            summary["mean"].as_f64().filter(|_| filled)
        };
        let mut cells: Vec<Option<f64>> = Row::of(report).0.to_vec();
        cells.extend((0..tiers).map(|tier| by_tier("loss_by_tier", tier)));
        cells.extend((0..tiers).map(|tier| by_tier("accuracy_by_tier", tier)));
        let cells: Vec<String> =
            cells.into_iter().map(|cell| cell.map_or(String::new(), |cell| cell.to_string())).collect();
        let _ = writeln!(text, "{}", cells.join(","));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn missing_figures_are_empty_cells() {
        let report = json!({
            "round": 3, "lr": 0.5, "devices": [{}, {}], "refused": [], "silent": [{}],
            "participation": [{ "stragglers": 1, "late": 2 }, { "stragglers": 0, "late": 1 }],
            "guard": [
                { "device": "a", "tier": 0, "what": "loss", "action": "clipped" },
                { "device": "a", "tier": 0, "what": "length", "action": "clipped" },
                { "device": "b", "tier": 1, "what": "tier", "action": "noted" },
            ],
            "loss": { "mean": 1.5, "variance": 0.25, "worst10": 2.0, "best10": 1.0 },
            "loss_split": { "inter": 0.125 },
            "loss_by_tier": [{ "count": 2, "mean": 1.5 }, { "count": 0, "mean": 0.0 }],
            "accuracy": { "count": 0, "mean": 0.0 },
            "accuracy_by_tier": [{ "count": 0, "mean": 0.0 }, { "count": 0, "mean": 0.0 }],
        });
        let empty =
            json!({ "round": 4, "loss": { "count": 0, "mean": 0.0 }, "loss_split": { "inter": 0.0 } });
        let text = csv(&[report, empty]);
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[2].starts_with("4,,,,,,0,,,,,,,,"), "an empty round has no loss: {}", lines[2]);
        assert!(lines[0].starts_with("round,devices,refused,silent,stragglers,late,held,lr,loss,"));
        assert!(lines[0].ends_with(",loss_tier0,loss_tier1,accuracy_tier0,accuracy_tier1"));
        assert_eq!(lines[1], "3,2,0,1,1,3,1,0.5,1.5,0.25,2,1,0.125,,,,,,,,,,1.5,,,");
        assert_eq!(lines[0].split(',').count(), lines[1].split(',').count());
        assert_eq!(csv(&[]).lines().count(), 1);
    }
}
