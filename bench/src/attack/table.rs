//! The result for people.

use std::fmt::Write as _;

use super::{AttackResult, Change, Row};

/// Mean losses this many times the reference's, in percent, leave no model worth the name.
const NO_MODEL: f64 = 1900.0;

/// One line per row, one cell per guard.
pub fn table(result: &AttackResult) -> String {
    let options = &result.options;
    let mut text = String::new();
    let strategy = match options.strategy.as_str() {
        "" => "the default strategy".to_owned(),
        name => format!("{name} {{ {} }}", options.params),
    };
    let _ = writeln!(
        text,
        "{:?}: {} devices in tiers {:?}, {} rounds, participation {}, {strategy}; {} seeds from {} on",
        options.data,
        options.devices,
        options.tiers,
        options.rounds,
        options.participation,
        options.seeds,
        options.seed,
    );
    for (name, keys) in &options.guards {
        let keys = if keys.is_empty() { "as init writes it" } else { keys };
        let _ = writeln!(text, "guard {name}: {keys}");
    }
    let kind =
        |honest: bool| result.rows.iter().filter(move |row| matches!(row.row, Row::Honest(_)) == honest);
    let head = |text: &mut String, title: &str| {
        let cells: Vec<String> = options.guards.iter().map(|(name, _)| format!("{name:>24}")).collect();
        let _ = writeln!(text, "\n{title:<16}{}", cells.join(" |"));
    };
    if kind(true).next().is_some() {
        let _ = writeln!(
            text,
            "\nHonest rows: accuracy of the devices the row is about; change in points; change of mean loss."
        );
        let _ = write!(text, "Reference: the same fleet with the guard off. plain: the worst tenth.");
        head(&mut text, "");
        for row in kind(true) {
            let cell = |cell: &super::Cell| {
                format!("{:5.1}% {} {}", 100.0 * cell.mean.subject, points(cell.points), percent(cell.loss))
            };
            let cells: Vec<String> = row.cells.iter().map(|one| format!("{:>24}", cell(one))).collect();
            let _ = writeln!(text, "{:<16}{}", row.row.to_string(), cells.join(" |"));
        }
    }
    if kind(false).next().is_some() {
        let _ = writeln!(
            text,
            "\nAttack rows: change of mean loss and of the variance of losses, over honest devices."
        );
        let _ =
            write!(text, "Reference: the same fleet, all honest, with the guard off. `:20` = a fifth lies.");
        head(&mut text, "");
        for row in kind(false) {
            let cells: Vec<String> = row
                .cells
                .iter()
                .map(|cell| format!("{:>24}", format!("{} {}", percent(cell.loss), percent(cell.variance))))
                .collect();
            let _ = writeln!(text, "{:<16}{}", row.row.to_string(), cells.join(" |"));
        }
    }
    text
}

fn percent(change: Change) -> String {
    match change {
        Change { mean, .. } if mean.is_nan() || mean > NO_MODEL => "no model".to_owned(),
        Change { mean, half_width: Some(half) } => format!("{mean:+.0}±{half:.0}%"),
        Change { mean, half_width: None } => format!("{mean:+.0}%"),
    }
}

fn points(change: Change) -> String {
    match change.half_width {
        Some(half) => format!("{:+.1}±{half:.1}", change.mean),
        None => format!("{:+.1}", change.mean),
    }
}
