//! REPRODUCTION.md: every claim, the published value, our result, and doubts.

use std::fmt::{self, Write};

use crate::results::ExperimentResults;

use super::{ALL, Assessment, CheckOutcome, ClaimVerdict, Evidence, Source, assess};

/// The whole record in Markdown.
pub fn record(evidence: &Evidence) -> String {
    let mut out = String::new();
    // Writing to a String does not fail.
    let _ = write_record(&mut out, evidence);
    out
}

fn write_record(out: &mut String, evidence: &Evidence) -> fmt::Result {
    let all: Vec<(&Source, Vec<Assessment>)> =
        ALL.iter().map(|source| (source, assess(source, evidence))).collect();
    out.write_str(HEAD)?;
    summary(out, &all)?;
    runs(out, evidence)?;
    for (source, claims) in &all {
        writeln!(out, "\n## {} (section {})", source.name, source.section)?;
        for claim in claims {
            section(out, claim)?;
        }
        writeln!(out, "\n### Doubtful points of the source\n")?;
        for doubt in &source.doubts {
            writeln!(out, "- {doubt}")?;
        }
    }
    Ok(())
}

const HEAD: &str = "\
# Reproduction record

Written by `fairtier sim reproduce` from the results kept in `sim/results`; do not edit. `fairtier sim run EXPERIMENT` makes results,
`fairtier sim keep` keeps them, `fairtier sim report sim/results` shows them as a page.

- *Ours* is the mean over seeds (± standard deviation over seeds, divisor runs − 1) of the number that the check
  computes, setting against setting seed by seed.
- *Direction* is reached if that mean lies on the claimed side; beside it, in how many seeds it does.
- *Ratio* is ours to published, of the same kind of number: 1 is full agreement, 0.5 to 2 the goal where data,
  rounds or models differ from the source.
- Losses in nats, accuracies in percent of a device's own test samples, variances over devices with divisor N
  (of accuracy in percent squared).
";

fn summary(out: &mut String, all: &[(&Source, Vec<Assessment>)]) -> fmt::Result {
    writeln!(out, "\n## Summary\n\n| claim | | direction | checks reached |\n|---|---|---|---|")?;
    for claim in all.iter().flat_map(|(_, claims)| claims) {
        let run = claim.rows.iter().filter(|row| row.finding.verdict != ClaimVerdict::NotRun).count();
        let reached = claim.rows.iter().filter(|row| row.finding.verdict == ClaimVerdict::Reached).count();
        let total = claim.rows.len();
        let rest = if run < total { format!(", {} not run", total - run) } else { String::new() };
        writeln!(
            out,
            "| {} | {} | {} | {reached} of {run}{rest} |",
            claim.id,
            cell(claim.text),
            bold(claim.verdict)
        )?;
    }
    Ok(())
}

/// The runs that were made, and the missing ones.
fn runs(out: &mut String, evidence: &Evidence) -> fmt::Result {
    writeln!(out, "\n## What was run\n")?;
    if evidence.experiments.is_empty() {
        return writeln!(out, "Nothing yet.");
    }
    writeln!(
        out,
        "| experiment | profile | settings | seeds | rounds | machine time | missing |\n|---|---|---|---|---|---|---|"
    )?;
    let mut hours = 0.0;
    // Experiments of the fairness target are about no paper; `docs/fairness-results.md` records them.
    let of_papers = |results: &&ExperimentResults| results.units.iter().all(|unit| unit.fairness.is_empty());
    for results in evidence.experiments.iter().filter(of_papers) {
        let record = &results.record;
        let seeds = record.settings.iter().map(|setting| setting.seeds.len()).max().unwrap_or(0);
        let rounds = results.units.iter().map(|unit| unit.round_count()).max().unwrap_or(0);
        let missing: usize = record.settings.iter().map(|setting| results.missing(setting).len()).sum();
        let seconds: f64 = results.units.iter().map(|unit| unit.seconds).sum();
        hours += seconds / 3600.0;
        let missing = if missing == 0 { "–".into() } else { format!("{missing} runs") };
        writeln!(
            out,
            "| {} | {} | {} | {seeds} | {rounds} | {:.1} min | {missing} |",
            cell(&record.experiment),
            cell(&record.profile),
            record.settings.len(),
            seconds / 60.0
        )?;
    }
    writeln!(out, "\n{hours:.1} hours of machine time in all.")
}

fn section(out: &mut String, claim: &Assessment) -> fmt::Result {
    writeln!(out, "\n### {} {}\n", claim.id, claim.text)?;
    writeln!(out, "Direction reached: {}.\n", bold(claim.verdict))?;
    writeln!(
        out,
        "| check | published | ours | direction | ratio | results | runs |\n|---|---|---|---|---|---|---|"
    )?;
    for row in &claim.rows {
        line(out, row)?;
    }
    if !claim.doubt.is_empty() {
        writeln!(out, "\nNote: {}", claim.doubt)?;
    }
    Ok(())
}

fn line(out: &mut String, row: &CheckOutcome) -> fmt::Result {
    let finding = &row.finding;
    let seeds = finding.effect.map_or(0, |effect| effect.runs);
    let ratio = finding.ratio.map_or("–".into(), |ratio| format!("{ratio:.2}"));
    let direction = match finding.verdict {
        ClaimVerdict::NotRun => "not run".into(),
        verdict => format!("{} ({} of {seeds})", bold(verdict), finding.agree),
    };
    let runs = match (finding.verdict, row.experiment.as_str()) {
        (ClaimVerdict::NotRun, "") => "no experiment".into(),
        (ClaimVerdict::NotRun, experiment) => format!("`{experiment}`"),
        (_, experiment) => {
            format!("`{experiment}` {}, {seeds} seeds, {} rounds", finding.profile, finding.rounds)
        }
    };
    let parts = if finding.parts.is_empty() { "–".into() } else { finding.show_parts() };
    writeln!(
        out,
        "| {} | {} | {} | {direction} | {ratio} | {} | {runs} |",
        cell(&row.what),
        cell(&row.published),
        cell(&row.ours),
        cell(&parts)
    )
}

fn bold(verdict: ClaimVerdict) -> String {
    match verdict {
        ClaimVerdict::NotRun => verdict.word().into(),
        _ => format!("**{}**", verdict.word()),
    }
}

/// Escapes text so that it cannot end its table cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
