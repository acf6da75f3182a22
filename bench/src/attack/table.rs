//! The result as text.

use std::fmt::Write as _;

use common::output::{self, wrap};

use super::{AttackResult, GuardCell, GuardRow, PairedChange};

/// Change of the mean loss, in percent, above which a cell says `no model`.
const NO_MODEL: f64 = 1900.0;

const HONEST: &str = "\
Honest rows: accuracy of the devices the row is about; change in points; change of
mean loss. Reference: the same fleet with the guard off. plain: the worst tenth.";
const ATTACKS: &str = "\
Attack rows: change of mean loss and of the variance of losses, over honest
devices. Reference: the same fleet, all honest, with the guard off. `:20` = a
fifth is hostile.";

/// One line per row, one cell per guard. Tables wider than `columns` are split.
pub fn table(result: &AttackResult, columns: usize) -> String {
    let options = &result.options;
    let strategy = match options.strategy.as_str() {
        "" => "the default strategy".to_owned(),
        name => format!("{name} {{ {} }}", options.params),
    };
    let setup = format!(
        "{:?}: {} devices in tiers {:?}, {} rounds, participation {}, {strategy}; {} seeds, starting with {}",
        options.data,
        options.devices,
        options.tiers,
        options.rounds,
        options.participation,
        options.seeds,
        options.seed,
    );
    let mut text = wrap(&setup, 0, columns) + "\n";
    for (name, keys) in &options.guards {
        let keys = if keys.is_empty() { "as `init` writes it" } else { keys };
        let _ = writeln!(text, "guard {name}: {keys}");
    }
    let mut add = |honest: bool, about: &str, cell: &dyn Fn(&GuardCell) -> String| {
        let mut rows = vec![vec![String::new()]];
        rows[0].extend(options.guards.iter().map(|(name, _)| name.clone()));
        for row in result.rows.iter().filter(|row| matches!(row.row, GuardRow::Honest(_)) == honest) {
            rows.push([vec![row.row.to_string()], row.cells.iter().map(cell).collect()].concat());
        }
        if rows.len() > 1 {
            let _ = write!(text, "\n{about}\n{}", output::table(&rows, 1, columns));
        }
    };
    add(true, HONEST, &|cell| {
        format!("{:5.1}% {} {}", 100.0 * cell.mean.subject, points(cell.points), percent(cell.loss))
    });
    add(false, ATTACKS, &|cell| format!("{} {}", percent(cell.loss), percent(cell.variance)));
    text
}

fn percent(change: PairedChange) -> String {
    match change {
        PairedChange { mean, .. } if mean.is_nan() || mean > NO_MODEL => "no model".to_owned(),
        PairedChange { mean, half_width: Some(half) } => format!("{mean:+.0}±{half:.0}%"),
        PairedChange { mean, half_width: None } => format!("{mean:+.0}%"),
    }
}

fn points(change: PairedChange) -> String {
    match change.half_width {
        Some(half) => format!("{:+.1}±{half:.1}", change.mean),
        None => format!("{:+.1}", change.mean),
    }
}
