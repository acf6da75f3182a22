//! The comparison as plain text.

use std::fmt::{self, Write};

use super::{
    number,
    rows::{self, COLUMNS},
};
use crate::demo::{DemoResult, change};

/// Every tier and the fleet, under each strategy, and what has changed.
pub fn table(result: &DemoResult) -> String {
    let mut out = String::new();
    // Writing to a String does not fail.
    let _ = write(&mut out, result);
    out
}

fn write(out: &mut String, result: &DemoResult) -> fmt::Result {
    let setup = &result.setup;
    writeln!(
        out,
        "{} devices in {} tiers, {} rounds, seed {}; losses on samples that devices have not trained on\n",
        setup.devices,
        setup.tiers.len(),
        setup.rounds,
        setup.seed
    )?;
    write!(out, "{:<18} {:<13}", "", "")?;
    for (name, _) in COLUMNS {
        write!(out, " {name:>12}")?;
    }
    writeln!(out)?;
    for group in rows::groups(result) {
        let mut names = [format!("{} ({})", group.name, group.detail)].into_iter();
        let Some(base) = group.lines.first() else { continue };
        for (run, line) in result.runs.iter().zip(&group.lines) {
            write!(out, "{:<18} {:<13}", names.next().unwrap_or_default(), run.title)?;
            for (value, (_, share)) in line.iter().zip(COLUMNS) {
                write!(out, " {:>12}", if share { number::percent(*value) } else { number::figure(*value) })?;
            }
            writeln!(out)?;
        }
        for line in group.lines.iter().skip(1) {
            write!(out, "{:<18} {:<13}", "", "change")?;
            for (value, (_, share)) in rows::changes(base, line).into_iter().zip(COLUMNS) {
                write!(out, " {:>12}", if share { number::points(value) } else { number::change(value) })?;
            }
            writeln!(out)?;
        }
    }
    writeln!(out)?;
    for single in rows::split(result) {
        let Some(&base) = single.values.first() else { continue };
        write!(out, "{:<24}", single.name)?;
        for (run, value) in result.runs.iter().zip(&single.values) {
            write!(out, "  {} {}", run.title, number::figure(*value))?;
        }
        for value in single.values.iter().skip(1) {
            write!(out, "  {}", number::change(change(base, *value)))?;
        }
        writeln!(out)?;
    }
    let seconds: f64 = result.runs.iter().map(|run| run.seconds).sum();
    writeln!(out, "\nboth runs took {seconds:.1} s")
}
