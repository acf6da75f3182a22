//! Predictions and scores as a table, as CSV and as JSON.

use anyhow::Result;
use common::output::{COLUMNS, table};
use serde_json::{Map, Value, json};

use super::outcome::{ClassOutcome, Outcome, ValueOutcome, ValueScore, recall};

/// Most classes whose probabilities all have a column in a table.
const WIDE: usize = 5;
/// Most classes of a confusion matrix in a table.
const MATRIX: usize = 20;

impl Outcome {
    pub(super) fn table(&self, shown: usize) -> String {
        match self {
            Self::Classes(outcome) => class_table(outcome, shown),
            Self::Values(outcome) => value_table(outcome, shown),
        }
    }

    pub(super) fn csv(&self, shown: usize) -> Result<String> {
        let rows = match self {
            Self::Classes(outcome) => class_rows(outcome, shown),
            Self::Values(outcome) => value_rows(outcome, shown),
        };
        let mut writer = csv::Writer::from_writer(Vec::new());
        rows.iter().try_for_each(|row| writer.write_record(row))?;
        Ok(String::from_utf8(writer.into_inner()?)?)
    }

    /// One line with the scores, where there are labels; CSV has no place for them.
    pub(super) fn scores(&self) -> Option<String> {
        match self {
            Self::Classes(outcome) if outcome.labels.is_empty() => None,
            Self::Classes(outcome) => {
                Some(format!("loss {:.6}, accuracy {:.4}", outcome.loss, outcome.accuracy()))
            }
            Self::Values(outcome) => {
                let score = |(name, score): (&String, ValueScore)| {
                    let r2 = score.r2.map_or("-".to_owned(), |r2| format!("{r2:.4}"));
                    format!("{name}: MAE {:.6}, R2 {r2}", score.mae)
                };
                let scores: Vec<String> = outcome.names.iter().zip(outcome.scores()).map(score).collect();
                (!scores.is_empty()).then(|| scores.join("; "))
            }
        }
    }

    pub(super) fn json(&self, shown: usize) -> Value {
        match self {
            Self::Classes(outcome) => class_json(outcome, shown),
            Self::Values(outcome) => value_json(outcome, shown),
        }
    }
}

/// Six digits after the point.
fn round(number: f64) -> f64 {
    (number * 1e6).round() / 1e6
}

/// Long names would push a table over its width.
fn short(name: &str) -> String {
    match name.char_indices().nth(20) {
        Some((end, _)) => format!("{}..", &name[..end]),
        None => name.to_owned(),
    }
}

fn label(outcome: &ClassOutcome, target: usize) -> Option<&str> {
    let label = outcome.labels.get(target)?;
    outcome.names.get(*label as usize).map(String::as_str)
}

/// The number of a sample, and of the target in it where there are several.
fn number(outcome: &ClassOutcome, target: usize) -> String {
    match outcome.per_sample {
        1 => target.to_string(),
        several => format!("{}.{}", target / several, target % several),
    }
}

fn class_table(outcome: &ClassOutcome, shown: usize) -> String {
    let wide = outcome.names.len() <= WIDE;
    let labelled = !outcome.labels.is_empty();
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    let mut head = words(&["sample", "predicted"]);
    head.extend(labelled.then(|| "label".to_owned()));
    match wide {
        true => head.extend(outcome.names.iter().map(|name| short(name))),
        false => head.push("probability".to_owned()),
    }
    let mut lines = vec![head];
    for (target, (row, best)) in outcome.rows().zip(outcome.predicted()).enumerate().take(shown) {
        let mut line = vec![number(outcome, target), short(&outcome.names[best])];
        line.extend(label(outcome, target).map(short));
        match wide {
            true => line.extend(row.iter().map(|p| format!("{p:.4}"))),
            false => line.push(format!("{:.4}", row[best])),
        }
        lines.push(line);
    }
    let mut text = if shown == 0 { String::new() } else { table(&lines, 2 + usize::from(labelled), COLUMNS) };
    let samples = outcome.rows().count() / outcome.per_sample;
    if !labelled {
        return text + &format!("{samples} samples\n");
    }
    let (loss, accuracy) = (outcome.loss, outcome.accuracy());
    text += &format!("{samples} samples: loss {loss:.6}, accuracy {accuracy:.4}\n");
    let mut lines = vec![words(&["label", "samples", "recall"])];
    let matrix = outcome.names.len() <= MATRIX;
    if matrix {
        lines[0].extend(outcome.names.iter().map(|name| short(name)));
    }
    for (class, counts) in outcome.confusion().iter().enumerate() {
        let recall = recall(counts, class).map_or("-".to_owned(), |recall| format!("{recall:.4}"));
        let mut line = vec![short(&outcome.names[class]), counts.iter().sum::<u64>().to_string(), recall];
        if matrix {
            line.extend(counts.iter().map(u64::to_string));
        }
        lines.push(line);
    }
    text += if matrix { "\nsamples by label (rows) and prediction (columns)\n" } else { "\n" };
    text + &table(&lines, 1, COLUMNS)
}

fn class_rows(outcome: &ClassOutcome, shown: usize) -> Vec<Vec<String>> {
    let labelled = !outcome.labels.is_empty();
    let mut head = vec!["sample".to_owned(), "predicted".to_owned()];
    head.extend(outcome.names.iter().map(|name| format!("p_{name}")));
    head.extend(labelled.then(|| "label".to_owned()));
    let mut rows = vec![head];
    for (target, (row, best)) in outcome.rows().zip(outcome.predicted()).enumerate().take(shown) {
        let mut line = vec![number(outcome, target), outcome.names[best].clone()];
        line.extend(row.iter().map(|&p| round(p).to_string()));
        line.extend(label(outcome, target).map(str::to_owned));
        rows.push(line);
    }
    rows
}

fn class_json(outcome: &ClassOutcome, shown: usize) -> Value {
    let row = |(target, (row, best)): (usize, (&[f64], usize))| {
        let probabilities: Map<String, Value> =
            outcome.names.iter().zip(row).map(|(name, &p)| (name.clone(), json!(round(p)))).collect();
        let mut found = json!({
            "sample": target / outcome.per_sample, "predicted": outcome.names[best], "probabilities": probabilities,
        });
        if outcome.per_sample > 1 {
            found["target"] = json!(target % outcome.per_sample);
        }
        if let Some(label) = label(outcome, target) {
            found["label"] = json!(label);
        }
        found
    };
    let rows = outcome.rows().zip(outcome.predicted()).enumerate().take(shown).map(row);
    let samples = outcome.rows().count() / outcome.per_sample;
    let mut json =
        json!({ "samples": samples, "classes": outcome.names, "predictions": rows.collect::<Vec<_>>() });
    if !outcome.labels.is_empty() {
        let confusion = outcome.confusion();
        let of = |(class, counts): (usize, &Vec<u64>)| {
            (outcome.names[class].clone(), json!(recall(counts, class)))
        };
        json["loss"] = json!(outcome.loss);
        json["accuracy"] = json!(outcome.accuracy());
        json["recall"] = confusion.iter().enumerate().map(of).collect::<Map<String, Value>>().into();
        json["confusion"] = json!(confusion);
    }
    json
}

fn value_rows(outcome: &ValueOutcome, shown: usize) -> Vec<Vec<String>> {
    let width = outcome.names.len().max(1);
    let mut head = vec!["sample".to_owned()];
    head.extend(outcome.names.iter().map(|name| format!("predicted_{name}")));
    if !outcome.given.is_empty() {
        head.extend(outcome.names.iter().cloned());
    }
    let mut rows = vec![head];
    let mut given = outcome.given.chunks(width);
    for (sample, values) in outcome.values.chunks(width).enumerate().take(shown) {
        let numbers = values.iter().chain(given.next().into_iter().flatten()).map(f32::to_string);
        rows.push(std::iter::once(sample.to_string()).chain(numbers).collect());
    }
    rows
}

fn value_table(outcome: &ValueOutcome, shown: usize) -> String {
    let text = if shown == 0 { String::new() } else { table(&value_rows(outcome, shown), 0, COLUMNS) };
    let samples = outcome.values.len() / outcome.names.len().max(1);
    let mut text = text + &format!("{samples} samples\n");
    for (name, score) in outcome.names.iter().zip(outcome.scores()) {
        let r2 = score.r2.map_or("-".to_owned(), |r2| format!("{r2:.4}"));
        text += &format!("{name}: MAE {:.6}, R2 {r2}\n", score.mae);
    }
    text
}

fn value_json(outcome: &ValueOutcome, shown: usize) -> Value {
    let width = outcome.names.len().max(1);
    let named = |numbers: &[f32]| -> Map<String, Value> {
        outcome.names.iter().zip(numbers).map(|(name, x)| (name.clone(), json!(x))).collect()
    };
    let mut given = outcome.given.chunks(width);
    let row = |(sample, values): (usize, &[f32])| {
        let mut found = json!({ "sample": sample, "predicted": named(values) });
        if let Some(given) = given.next() {
            found["label"] = named(given).into();
        }
        found
    };
    let rows: Vec<Value> = outcome.values.chunks(width).enumerate().take(shown).map(row).collect();
    let mut json =
        json!({ "samples": outcome.values.len() / width, "targets": outcome.names, "predictions": rows });
    for (name, score) in outcome.names.iter().zip(outcome.scores()) {
        json["mae"][name] = json!(score.mae);
        json["r2"][name] = json!(score.r2);
    }
    json
}
