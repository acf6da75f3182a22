//! The tables of the report in Markdown, for pull requests and notes.

use std::fmt::{self, Write};

use super::digest::{Digest, ExperimentDigest};
use crate::results::figure;

pub fn markdown(digest: &Digest) -> String {
    let mut out = String::new();
    // Writing to a String does not fail.
    let _ = write_all(&mut out, digest);
    out
}

fn write_all(out: &mut String, digest: &Digest) -> fmt::Result {
    writeln!(
        out,
        "# Experiments\n\n± is the standard deviation over seeds (divisor runs − 1), [..] a 95 % interval of the mean.\n"
    )?;
    if !digest.sources.is_empty() {
        writeln!(out, "| claim | | verdict |\n|---|---|---|")?;
    }
    for claim in digest.sources.iter().flat_map(|source| &source.claims) {
        writeln!(out, "| {} | {} | {} |", claim.id, claim.text, claim.verdict.word())?;
    }
    if digest.experiments.is_empty() {
        writeln!(out, "\nThere are no results yet. Create some with `fairtier sim run EXPERIMENT`.")?;
    }
    for experiment in &digest.experiments {
        write_experiment(out, experiment)?;
    }
    Ok(())
}

fn write_experiment(out: &mut String, experiment: &ExperimentDigest) -> fmt::Result {
    writeln!(out, "\n## {} ({}, {} rounds)\n", experiment.title, experiment.profile, experiment.rounds)?;
    for line in experiment.missing() {
        writeln!(out, "- {line}")?;
    }
    for line in experiment.diverged() {
        writeln!(out, "- diverged: {line}")?;
    }
    if !experiment.checks.is_empty() {
        writeln!(out, "\n| check | published | ours | verdict | ratio |\n|---|---|---|---|---|")?;
        for row in &experiment.checks {
            let ratio = row.finding.ratio.map_or("–".into(), |ratio| format!("{ratio:.2}"));
            let verdict = cell(&row.finding.words());
            writeln!(
                out,
                "| {} | {} | {} | {verdict} | {ratio} |",
                cell(&row.what),
                cell(&row.published),
                row.ours
            )?;
        }
    }
    write!(out, "\n| setting | seeds |")?;
    for name in &experiment.figures {
        write!(out, " {} |", figure::title(name))?;
    }
    writeln!(out, "\n|---|---|{}", "---|".repeat(experiment.figures.len()))?;
    for setting in &experiment.settings {
        write!(out, "| {} | {} |", cell(&setting.label), setting.seeds.len())?;
        for name in &experiment.figures {
            let value = setting.figure(name).map_or("–".into(), |spread| figure::show_spread(name, spread));
            write!(out, " {value} |")?;
        }
        writeln!(out)?;
    }
    for price in &experiment.prices {
        writeln!(
            out,
            "\n| price of fairness: {} | without | with target | change |\n|---|---|---|---|",
            cell(&price.label)
        )?;
        for line in &price.lines {
            let show = |spread| figure::show_spread(&line.figure, spread);
            let change = plots::number::change(line.change.mean);
            writeln!(out, "| {} | {} | {} | {change} |", line.title, show(&line.without), show(&line.with))?;
        }
    }
    Ok(())
}

/// Escapes text so that it cannot end its table cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
