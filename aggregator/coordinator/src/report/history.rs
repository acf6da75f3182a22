//! The reports of a run as a table: one row per round with the main figures.
//!
//! A row is formed from one report alone, and only the fields that it shows are read. So memory does not depend on the length
//! of the history.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;
use strategies::fairness::FairnessStatus;

use super::ConfigChange;
use crate::best::BestModel;
use source::{GuardFields, ListLen, ReportFields, SummaryFields};

mod source;

/// Errors `mae` and `r2` are those of predicted numbers, which have no accuracy. `kept` is the error code for which the model of
/// the round was not used.
///
/// Name of a column, its width in a table, and digits after the decimal point.
pub const COLUMNS: [(&str, usize, usize); 25] = [
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
    ("mae", 10, 4),
    ("r2", 8, 4),
    ("kept", 4, 0),
];

/// The same of a fairness target: its first knob. The status follows as a word, and what the measurement can resolve.
pub const FAIRNESS_COLUMNS: [(&str, usize, usize); 3] =
    [("fairness_measured", 17, 4), ("fairness_target", 15, 4), ("knob", 8, 4)];
const STATUS_COLUMN: (&str, usize) = ("fairness_status", 16);
/// Times of day, in UTC.
const TIME_COLUMNS: [(&str, usize); 2] = [("began", 24), ("ended", 24)];
const CHANGES_COLUMN: &str = "changes";
const RESOLUTION_COLUMN: (&str, usize, usize) = ("fairness_resolution", 19, 4);

/// One round; `None` where the report has no value.
#[derive(Clone, PartialEq, Debug)]
pub struct HistoryRow {
    /// One for each of [`COLUMNS`].
    pub cells: [Option<f64>; COLUMNS.len()],
    /// One for each of [`FAIRNESS_COLUMNS`].
    pub fairness: [Option<f64>; FAIRNESS_COLUMNS.len()],
    /// How the fairness target fares.
    pub fairness_status: Option<FairnessStatus>,
    /// Lowest disparity that is told apart from chance.
    pub fairness_resolution: Option<f64>,
    /// When the round began and ended.
    pub times: [Option<String>; TIME_COLUMNS.len()],
    /// Name of the strategy.
    pub strategy: Option<String>,
    /// What has another value than in the round before.
    pub changes: Vec<ConfigChange>,
    /// The best model so far.
    pub best: Option<BestModel>,
    /// Why training has ended with this round.
    pub stopped: Option<String>,
    /// Mean loss of each tier.
    pub loss_by_tier: Vec<Option<f64>>,
    /// Mean accuracy of each tier.
    pub accuracy_by_tier: Vec<Option<f64>>,
}

impl HistoryRow {
    /// Reads a report, which is one JSON object.
    pub fn parse(report: &str) -> serde_json::Result<Self> {
        let ReportFields {
            round,
            lr,
            devices,
            refused,
            silent,
            participation,
            guard,
            loss,
            loss_split,
            loss_by_tier,
            accuracy,
            accuracy_by_tier,
            weights,
            traffic,
            fairness,
            began,
            ended,
            strategy,
            changes,
            best,
            stopped,
            errors,
            kept,
        } = serde_json::from_str(report)?;
        let count = |list: Option<ListLen>| list.map(|ListLen(len)| len as f64);
        let tiers = participation.as_deref();
        let stragglers = tiers.map(|tiers| tiers.iter().filter_map(|tier| tier.stragglers).sum());
        let late = tiers.map(|tiers| tiers.iter().filter_map(|tier| tier.late).sum());
        // Devices without test samples have no accuracy, and a round without devices has no loss. Older reports state 0.
        let heard = loss.as_ref().is_none_or(|loss| loss.count != Some(0.0));
        let loss = loss.filter(|_| heard).unwrap_or_default();
        let inter = loss_split.filter(|_| heard).and_then(|split| split.inter);
        let accuracy = accuracy.filter(SummaryFields::has_devices).unwrap_or_default();
        let held = round.map(|_| count_held(guard.as_deref().unwrap_or_default(), None) as f64);
        let means = |tiers: Option<Vec<SummaryFields>>| {
            let mean = |tier: &SummaryFields| tier.mean.filter(|_| tier.has_devices());
            tiers.unwrap_or_default().iter().map(mean).collect()
        };
        let errors = errors.unwrap_or_default();
        let mae = errors.mae.filter(SummaryFields::has_devices).and_then(|mae| mae.mean);
        let traffic = traffic.unwrap_or_default();
        let knob = fairness.and_then(|knobs| knobs.into_iter().next()).unwrap_or_default();
        Ok(Self {
            cells: [
                round,
                count(devices),
                count(refused),
                count(silent),
                stragglers,
                late,
                held,
                lr,
                loss.mean,
                loss.variance,
                loss.worst10,
                loss.best10,
                inter,
                accuracy.mean,
                accuracy.variance,
                accuracy.worst10,
                accuracy.best10,
                accuracy.angle,
                accuracy.jain,
                weights.and_then(|weights| weights.effective),
                traffic.up,
                traffic.down,
                mae,
                errors.r2,
                kept,
            ],
            fairness: [knob.measured, knob.target, knob.value],
            fairness_status: knob.status,
            fairness_resolution: knob.resolution.map(|resolution| resolution.limit),
            times: [began, ended],
            strategy,
            changes: changes.unwrap_or_default(),
            best,
            stopped,
            loss_by_tier: means(loss_by_tier),
            accuracy_by_tier: means(accuracy_by_tier),
        })
    }

    /// The row as a line of a table; `fairness`: with the columns of a target.
    pub fn table(&self, fairness: bool) -> String {
        let cell = |(&(_, width, digits), value): (&(&str, usize, usize), &Option<f64>)| {
            let value = value.map_or("-".to_owned(), |value| format!("{value:.digits$}"));
            format!("{value:>width$}")
        };
        let mut cells: Vec<String> = COLUMNS.iter().zip(&self.cells).map(cell).collect();
        if fairness {
            cells.extend(FAIRNESS_COLUMNS.iter().zip(&self.fairness).map(cell));
            let status = self.fairness_status.map_or("-", FairnessStatus::name);
            cells.push(format!("{status:>0$}", STATUS_COLUMN.1));
            cells.push(cell((&RESOLUTION_COLUMN, &self.fairness_resolution)));
        }
        let time = |(&(_, width), time): (&(&str, usize), &Option<String>)| {
            format!("{:>width$}", time.as_deref().unwrap_or("-"))
        };
        cells.extend(TIME_COLUMNS.iter().zip(&self.times).map(time));
        cells.join(" ")
    }

    /// What has changed since the round before, on one line; `None` if nothing has.
    pub fn change(&self) -> Option<String> {
        let value = |text: &str| if text.is_empty() { "(unset)".to_owned() } else { text.to_owned() };
        let change =
            |ConfigChange { key, from, to }: &ConfigChange| format!("{key} {} -> {}", value(from), value(to));
        (!self.changes.is_empty()).then(|| self.changes.iter().map(change).collect::<Vec<_>>().join("; "))
    }

    /// The row as a line of comma-separated values. The last columns are the mean loss and accuracy of `tiers` tiers.
    pub fn csv(&self, tiers: usize) -> String {
        let by_tier =
            |means: &[Option<f64>]| (0..tiers).map(|tier| means.get(tier).copied().flatten()).collect();
        let (losses, accuracies): (Vec<_>, Vec<_>) =
            (by_tier(&self.loss_by_tier), by_tier(&self.accuracy_by_tier));
        let text = |cell: &Option<f64>| cell.map_or(String::new(), |cell| cell.to_string());
        let mut cells: Vec<String> = self.cells.iter().chain(&self.fairness).map(text).collect();
        cells.push(self.fairness_status.map_or("", FairnessStatus::name).to_owned());
        cells.push(text(&self.fairness_resolution));
        cells.extend(self.times.iter().map(|time| quoted(time.as_deref().unwrap_or_default())));
        cells.push(quoted(&self.change().unwrap_or_default()));
        cells.extend(losses.iter().chain(&accuracies).map(text));
        cells.join(",")
    }
}

/// The header of a table; `fairness`: with the columns of a target.
pub fn table_head(fairness: bool) -> String {
    let mut columns: Vec<_> = COLUMNS.iter().map(|&(name, width, _)| (name, width)).collect();
    if fairness {
        columns.extend(FAIRNESS_COLUMNS.iter().map(|&(name, width, _)| (name, width)));
        columns.extend([STATUS_COLUMN, (RESOLUTION_COLUMN.0, RESOLUTION_COLUMN.1)]);
    }
    columns.extend(TIME_COLUMNS);
    columns.iter().map(|(name, width)| format!("{name:>width$}")).collect::<Vec<_>>().join(" ")
}

/// The header of comma-separated values with columns for `tiers` tiers.
pub fn csv_head(tiers: usize) -> String {
    let mut names: Vec<String> =
        COLUMNS.iter().chain(&FAIRNESS_COLUMNS).map(|(name, ..)| (*name).to_owned()).collect();
    names.extend([STATUS_COLUMN.0, RESOLUTION_COLUMN.0].map(str::to_owned));
    names.extend(TIME_COLUMNS.map(|(name, _)| name.to_owned()));
    names.push(CHANGES_COLUMN.to_owned());
    names.extend((0..tiers).map(|tier| format!("loss_tier{tier}")));
    names.extend((0..tiers).map(|tier| format!("accuracy_tier{tier}")));
    names.join(",")
}

/// A cell of comma-separated values that holds any text.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

/// Number of tiers in a report; 0 if it is damaged or has no losses.
pub fn tiers(report: &str) -> usize {
    #[derive(Deserialize)]
    struct Tiers {
        loss_by_tier: ListLen,
    }
    serde_json::from_str::<Tiers>(report).map_or(0, |report| report.loss_by_tier.0)
}

/// Whether a report has a fairness target; false if it is damaged.
pub fn has_target(report: &str) -> bool {
    #[derive(Deserialize)]
    struct Target {
        fairness: ListLen,
    }
    serde_json::from_str::<Target>(report).is_ok_and(|report| report.fairness.0 > 0)
}

/// Number of devices, of one tier or all, that the guard has limited.
pub fn held_devices(report: &Value, tier: Option<usize>) -> usize {
    count_held(&Vec::deserialize(&report["guard"]).unwrap_or_default(), tier)
}

fn count_held(lines: &[GuardFields<'_>], tier: Option<usize>) -> usize {
    let of_tier = |line: &&GuardFields<'_>| tier.is_none_or(|tier| line.tier == Some(tier as f64));
    // Older reports also list findings without effect.
    let held = lines.iter().filter(of_tier).filter(|line| line.action.as_deref() != Some("noted"));
    held.filter_map(|line| line.device.as_deref()).collect::<BTreeSet<_>>().len()
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
        let count = [&report, &empty].map(|report| tiers(&report.to_string()));
        assert_eq!(count, [2, 0]);
        let row = |report: &Value| HistoryRow::parse(&report.to_string()).unwrap().csv(2);
        let lines = [csv_head(2), row(&report), row(&empty)];
        assert!(lines[2].starts_with("4,,,,,,0,,,,,,,,"), "an empty round has no loss: {}", lines[2]);
        assert!(lines[0].starts_with("round,devices,refused,silent,stragglers,late,held,lr,loss,"));
        assert!(lines[0].ends_with(",loss_tier0,loss_tier1,accuracy_tier0,accuracy_tier1"));
        assert_eq!(lines[1], "3,2,0,1,1,3,1,0.5,1.5,0.25,2,1,0.125,,,,,,,,,,,,,,,,,,,,,1.5,,,");
        assert_eq!(lines[0].split(',').count(), lines[1].split(',').count());
        assert_eq!(
            (held_devices(&report, None), held_devices(&report, Some(0)), held_devices(&report, Some(1))),
            (1, 1, 0)
        );
    }

    #[test]
    fn a_target_has_columns_of_its_own() {
        let report = "{\"round\":3,\"fairness\":[{\"measured\":0.3125,\"target\":0.25,\"value\":2.5,\
                      \"status\":\"not_reachable\",\"resolution\":{\"noise\":0.1,\"limit\":0.125,\
                      \"within_noise\":false,\"more_samples\":null}},{\"measured\":9}]}";
        let row = HistoryRow::parse(report).unwrap();
        let named: Vec<_> = csv_head(0)
            .split(',')
            .zip(row.csv(0).split(','))
            .skip(25)
            .map(|(a, b)| format!("{a}={b}"))
            .collect();
        let expected = [
            "fairness_measured=0.3125",
            "fairness_target=0.25",
            "knob=2.5",
            "fairness_status=not_reachable",
            "fairness_resolution=0.125",
            "began=",
            "ended=",
            "changes=",
        ];
        assert_eq!(named, expected);
        assert_eq!(
            (table_head(true).len(), row.table(false).len()),
            (row.table(true).len(), table_head(false).len())
        );
        assert!(row.table(true).contains("   not_reachable              0.1250 "), "{}", row.table(true));
        assert!(has_target(report) && !has_target("{\"fairness\":[]}") && !has_target("{}"));
        assert!(HistoryRow::parse("{\"fairness\":[]}").is_ok_and(|row| row.fairness_status.is_none()));
    }

    #[test]
    fn times_and_changes_have_columns_and_changes_a_line() {
        let report = json!({
            "round": 4, "began": "2026-11-18T20:06:22.125Z", "ended": "2026-11-18T20:06:23Z", "strategy": "qffl",
            "changes": [
                { "key": "strategy.name", "from": "\"term\"", "to": "\"qffl\"" },
                { "key": "strategy.params.q", "from": "", "to": "2" },
            ],
            "best": { "round": 2, "by": "worst_tier", "measured": "validation", "value": 0.5, "unimproved": 1 },
            "stopped": "why",
        });
        let row = HistoryRow::parse(&report.to_string()).unwrap();
        let change = "strategy.name \"term\" -> \"qffl\"; strategy.params.q (unset) -> 2";
        assert_eq!(row.change().as_deref(), Some(change));
        assert!(
            row.table(false).ends_with("2026-11-18T20:06:22.125Z     2026-11-18T20:06:23Z"),
            "{}",
            row.table(false)
        );
        let csv = row.csv(0);
        let expected =
            ",2026-11-18T20:06:22.125Z,2026-11-18T20:06:23Z,\"strategy.name \"\"term\"\" -> \"\"qffl\"\";";
        assert!(csv.contains(expected), "{csv}");
        let best = row.best.unwrap().to_string();
        assert_eq!(best, "that of round 2, mean loss of the worst tier 0.5000 (validation)");
        assert_eq!((row.stopped.as_deref(), row.strategy.as_deref()), (Some("why"), Some("qffl")));
    }

    #[test]
    fn cells_are_aligned_with_their_headers() {
        let row = HistoryRow::parse("{\"round\":3,\"loss\":{\"count\":2,\"mean\":1.5},\"lr\":null}").unwrap();
        let (head, line) = (table_head(false), row.table(false));
        assert_eq!(head.len(), line.len());
        assert!(line.starts_with("    3       -"), "{line}");
        assert!(line.contains(" 1.5000 "), "{line}");
        assert!(HistoryRow::parse("{\"round\":[]}").is_err() && HistoryRow::parse("{").is_err());
    }
}
