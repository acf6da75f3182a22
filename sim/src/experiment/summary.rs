//! The main figures of an experiment as a table, mean and deviation over seeds.

use common::{metrics::Spread, output::table};

use crate::results::{ExperimentRecord, UnitResult};
use plots::number;

/// Names of figures (see [`crate::results::FinalScores::figure`]) and their column titles.
pub const FIGURES: [(&str, &str); 28] = [
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
    ("mae.mean", "MAE"),
    ("mae.worst10", "MAE worst 10%"),
    ("r2", "R2"),
    ("global.accuracy", "global acc"),
    ("global.mae", "global MAE"),
    ("global.r2", "global R2"),
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

/// One line per setting and one column per figure that any of them has. Tables wider than `columns` are split.
pub fn summary(record: &ExperimentRecord, units: &[UnitResult], columns: usize) -> String {
    let tiers = units.iter().map(|unit| unit.last.tiers.len()).max().unwrap_or(0);
    let useful = |name: &str| match name {
        "inter" | "within" => tiers > 1,
        name => record.settings.iter().any(|setting| spread(units, &setting.id, name).is_some()),
    };
    let figures: Vec<_> = FIGURES.iter().filter(|(name, _)| useful(name)).collect();
    let mut rows = vec![vec![String::new()]];
    rows[0].extend(figures.iter().map(|(_, heading)| (*heading).to_owned()));
    for setting in &record.settings {
        let mut row = vec![setting.label.clone()];
        row.extend(figures.iter().map(|(name, _)| spread(units, &setting.id, name).map_or("-".into(), text)));
        rows.push(row);
    }
    format!("{} ({})\n{}", record.title, record.profile, table(&rows, 1, columns))
}

/// Names the runs whose figures say nothing, and what helps; empty if there are none.
pub fn diverged(record: &ExperimentRecord, units: &[UnitResult]) -> String {
    let seeds = |setting: &str| {
        let own = units.iter().filter(|unit| unit.unit.setting == setting && unit.diverged());
        own.map(|unit| unit.unit.seed.to_string()).collect::<Vec<_>>()
    };
    let mut out = String::new();
    for setting in &record.settings {
        let seeds = seeds(&setting.id);
        if !seeds.is_empty() {
            let word = if seeds.len() == 1 { "seed" } else { "seeds" };
            out += &format!("diverged: {}, {word} {}\n", setting.label, seeds.join(", "));
        }
    }
    if !out.is_empty() {
        out += "their figures say nothing; lower training.lr, or scale the columns\n";
    }
    out
}

/// `0.123 +-0.004`
pub fn text(spread: Spread) -> String {
    match spread.runs {
        0 | 1 => number::figure(spread.mean),
        _ => format!("{} ±{}", number::figure(spread.mean), number::figure(spread.std)),
    }
}
