//! The main figures of an experiment as a table, mean and deviation over seeds.

use common::metrics::Spread;

use crate::{
    report::number,
    results::{ExperimentRecord, UnitResult},
};

/// Figures by name (see [`crate::results::Final::figure`]) and what people call them.
pub const FIGURES: [(&str, &str); 23] = [
    ("loss.mean", "loss"),
    ("loss.variance", "loss var"),
    ("loss.worst10", "loss worst 10%"),
    ("inter", "tiers var"),
    ("within", "within tiers"),
    ("accuracy.mean", "acc"),
    ("accuracy.variance", "acc var"),
    ("accuracy.worst5", "acc worst 5%"),
    ("accuracy.best5", "acc best 5%"),
    ("accuracy.angle", "angle"),
    ("global.accuracy", "global acc"),
    ("gaps.max", "gap max"),
    ("gaps.min", "gap min"),
    ("gaps.variance", "gap var"),
    ("gaps_valid.variance", "gap var held out"),
    ("groups.accuracy", "pooled acc"),
    ("groups.constant", "constant"),
    ("groups.dp", "DP"),
    ("groups.spd", "SPD"),
    ("groups.eo", "EO"),
    ("personal.accuracy.mean", "own acc"),
    ("conflicts.model", "conflicts"),
    ("conflicts.layers", "by layer"),
];

/// A figure of a setting over its seeds.
pub fn spread(units: &[UnitResult], setting: &str, figure: &str) -> Option<Spread> {
    let own = units.iter().filter(|unit| unit.unit.setting == setting);
    let values: Vec<f64> = own.filter_map(|unit| unit.last.figure(figure)).collect();
    (!values.is_empty()).then(|| Spread::of(&values))
}

/// One line per setting, one column per figure that any of them has.
pub fn summary(record: &ExperimentRecord, units: &[UnitResult]) -> String {
    let tiers = units.iter().map(|unit| unit.last.tiers.len()).max().unwrap_or(0);
    let useful = |name: &str| match name {
        "inter" | "within" => tiers > 1,
        name => record.settings.iter().any(|setting| spread(units, &setting.id, name).is_some()),
    };
    let columns: Vec<_> = FIGURES.iter().filter(|(name, _)| useful(name)).collect();
    let mut rows = vec![vec![String::new()]];
    rows[0].extend(columns.iter().map(|(_, heading)| (*heading).to_owned()));
    for setting in &record.settings {
        let mut row = vec![setting.label.clone()];
        row.extend(columns.iter().map(|(name, _)| spread(units, &setting.id, name).map_or("-".into(), text)));
        rows.push(row);
    }
    format!("{} ({})\n{}", record.title, record.profile, grid(&rows))
}

/// `0.123 +-0.004`
pub fn text(spread: Spread) -> String {
    match spread.runs {
        0 | 1 => number::figure(spread.mean),
        _ => format!("{} ±{}", number::figure(spread.mean), number::figure(spread.std)),
    }
}

/// Columns aligned, the first to the left.
pub fn grid(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
            let space = " ".repeat(width - cell.chars().count());
            line += &if column == 0 { format!("{cell}{space}") } else { format!("  {space}{cell}") };
        }
        out += line.trim_end();
        out.push('\n');
    }
    out
}
