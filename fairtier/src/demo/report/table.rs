//! The comparison as plain text.

use std::fmt::{self, Write};

use plots::number;

use super::rows::{self, COLUMNS};
use crate::demo::{DemoResult, change};

mod target;

/// Widths of the columns. With the spaces between them they add up to 80.
const GROUP: usize = 17;
const STRATEGY: usize = 12;
const WIDTHS: [usize; 5] = [9, 9, 8, 8, 11];

/// All tiers and the fleet under each strategy, the changes, the target and the seeds.
pub fn table(result: &DemoResult) -> String {
    let mut out = String::new();
    // Writing to a String does not fail.
    let _ = write(&mut out, result);
    out
}

fn write(out: &mut String, result: &DemoResult) -> fmt::Result {
    let setup = &result.setup;
    let (devices, tiers) = (setup.devices, setup.tiers.len());
    writeln!(out, "{devices} devices in {tiers} tiers, {} rounds, seed {}", setup.rounds, setup.seed)?;
    for line in rows::about(result) {
        writeln!(out, "{line}")?;
    }
    writeln!(out)?;
    write!(out, "{:<GROUP$} {:<STRATEGY$}", "", "")?;
    for ((name, _), width) in COLUMNS.iter().zip(WIDTHS) {
        write!(out, " {:>width$}", name.replace(" %", "%"))?;
    }
    writeln!(out)?;
    for group in rows::groups(result) {
        let mut names = [format!("{} ({})", group.name, group.detail)].into_iter();
        let Some(base) = group.lines.first() else { continue };
        for (run, line) in result.runs.iter().zip(&group.lines) {
            write!(out, "{:<GROUP$} {:<STRATEGY$}", names.next().unwrap_or_default(), run.title)?;
            let show = |value, share| if share { number::percent(value) } else { number::figure(value) };
            cells(out, line, show)?;
        }
        for line in group.lines.iter().skip(1) {
            write!(out, "{:<GROUP$} {:<STRATEGY$}", "", "change")?;
            let show = |value, share| if share { number::points(value) } else { number::change(value) };
            cells(out, &rows::changes(base, line), show)?;
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
    target::write(out, result)?;
    let seconds: f64 = result.runs.iter().map(|run| run.seconds).sum();
    writeln!(out, "\nboth runs of seed {} took {seconds:.1} s", setup.seed)
}

/// The figures of a line. `show` gets each value and whether it is a share.
fn cells(out: &mut String, line: &[f64; 5], show: impl Fn(f64, bool) -> String) -> fmt::Result {
    for ((&value, (_, share)), width) in line.iter().zip(COLUMNS).zip(WIDTHS) {
        write!(out, " {:>width$}", show(value, share))?;
    }
    writeln!(out)
}
