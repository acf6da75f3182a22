//! REPRODUCTION.md: one line for each claim, as printed and as improved.

use std::fmt::{self, Write};

use crate::results::Form;

use super::{ALL, Assessment, CheckOutcome, ClaimVerdict, Evidence, assess};

/// The record in Markdown.
pub fn record(evidence: &Evidence) -> String {
    let mut out = String::new();
    // Writing to a String does not fail.
    let _ = write_record(&mut out, evidence);
    out
}

const HEAD: &str = "\
# Reproduction record

Written by `fairtier sim reproduce` from the results kept in `sim/results`; do not edit. [Every check](docs/reproduction.md) is in the
book, with what was run and what is missing. `fairtier sim reproduce --format json` prints all numbers.

- *As printed* is the method as its paper states it (`published = true`). *As improved* has parameters or settings of ours.
- Effects are differences between settings, paired by seed; [..] is their 95 % interval (Student's t). Figures are means over the last
  evaluations of all devices that a result holds.
- *Reached*: the interval lies on the claimed side, also after Holm's correction for the checks of the claim. All compared models are
  clearly better than a constant predictor, and none has diverged. *Reached by our variant*: the same, but not as printed.
- *Contradicted*: the corrected interval lies on the other side. *Undecided*: runs do not decide; one seed never does.
- *By construction*: it follows from a definition, whatever the data are, and is not counted.
- A line stands for one check of its claim. *All its checks* says how many of them are reached and contradicted, in either form.
";

fn write_record(out: &mut String, evidence: &Evidence) -> fmt::Result {
    out.write_str(HEAD)?;
    writeln!(out, "\n## Headline claims\n")?;
    writeln!(
        out,
        "| claim | published | as printed | as improved | verdict | seeds | all its checks |\n|---|---|---|---|---|---|---|"
    )?;
    let mut all = Vec::new();
    for source in ALL.iter() {
        let claims = assess(source, evidence);
        for claim in &claims {
            line(out, &source.name, claim)?;
        }
        all.extend(claims);
    }
    counts(out, &all)
}

fn line(out: &mut String, source: &str, claim: &Assessment) -> fmt::Result {
    let of = |form| claim.rows.iter().find(|row| row.headline == Some(form));
    let (printed, improved) = (of(Form::Published), of(Form::Improved));
    let Some(shown) = improved.or(printed) else { return Ok(()) };
    let text = |row: Option<&CheckOutcome>| match row.map(|row| (row, row.finding.verdict)) {
        None | Some((_, ClaimVerdict::NotRun)) => "not run".into(),
        Some((row, _)) => cell(&row.ours),
    };
    // Without another form, there is nothing to improve.
    let right = if improved.is_none() { "–".into() } else { text(improved) };
    let seeds: Vec<String> = [printed, improved]
        .into_iter()
        .flatten()
        .filter(|row| row.finding.seeds > 0)
        .map(|row| row.finding.seeds.to_string())
        .collect();
    let seeds = if seeds.is_empty() { "–".into() } else { seeds.join(", ") };
    let what = match printed.filter(|printed| printed.what != shown.what) {
        Some(printed) => {
            // The column says the rest.
            let short = printed.what.replace(", as printed", "").replace(" as printed", "");
            format!("{} (as printed: {short})", shown.what)
        }
        None => shown.what.clone(),
    };
    let verdict = headline_verdict(printed, improved);
    writeln!(
        out,
        "| {} {source}: {} | {} | {} | {right} | {} | {seeds} | {} |",
        claim.id,
        cell(&what),
        cell(&shown.published),
        text(printed),
        if verdict.counts() { format!("**{}**", verdict.word()) } else { verdict.word().into() },
        share(claim),
    )
}

/// `3 of 8 reached, 1 contradicted`
fn share(claim: &Assessment) -> String {
    let verdicts = || claim.rows.iter().map(|row| row.finding.verdict);
    let counted = verdicts().filter(|verdict| verdict.counts()).count();
    let reached = verdicts().filter(|verdict| verdict.is_reached()).count();
    match (counted, verdicts().filter(|verdict| *verdict == ClaimVerdict::Contradicted).count()) {
        (0, _) => "–".into(),
        (counted, 0) => format!("{reached} of {counted} reached"),
        (counted, against) => format!("{reached} of {counted} reached, {against} contradicted"),
    }
}

/// The form as printed decides, unless only ours reaches the claim.
fn headline_verdict(printed: Option<&CheckOutcome>, improved: Option<&CheckOutcome>) -> ClaimVerdict {
    let [printed, improved] = [printed, improved].map(|row| row.map(|row| row.finding.verdict));
    let both = || [printed, improved].into_iter().flatten();
    both()
        .find(|verdict| *verdict == ClaimVerdict::Reached)
        .or_else(|| both().find(|verdict| verdict.is_reached()))
        .or_else(|| both().find(|verdict| *verdict == ClaimVerdict::Contradicted))
        .or_else(|| both().find(|verdict| verdict.counts()))
        .or_else(|| both().find(|verdict| *verdict == ClaimVerdict::ByConstruction))
        .unwrap_or(ClaimVerdict::NotRun)
}

fn counts(out: &mut String, all: &[Assessment]) -> fmt::Result {
    let rows = || all.iter().flat_map(|claim| &claim.rows);
    let count = |verdict| rows().filter(|row| row.finding.verdict == verdict).count();
    let counted = rows().filter(|row| row.finding.verdict.counts()).count();
    let few = rows().filter(|row| row.finding.verdict.counts() && row.finding.seeds < 2).count();
    let unfit = rows().filter(|row| row.finding.unfit.is_some()).count();
    writeln!(out, "\n## All checks\n")?;
    writeln!(out, "| reached | by our variant | contradicted | undecided | not run | by construction |")?;
    writeln!(out, "|---|---|---|---|---|---|")?;
    let columns = [
        ClaimVerdict::Reached,
        ClaimVerdict::ByVariant,
        ClaimVerdict::Contradicted,
        ClaimVerdict::Undecided,
        ClaimVerdict::NotRun,
        ClaimVerdict::ByConstruction,
    ];
    let columns: Vec<String> = columns.map(|verdict| count(verdict).to_string()).into();
    writeln!(out, "| {} |", columns.join(" | "))?;
    writeln!(
        out,
        "\nOf {counted} checks that were run and count, {few} rest on one seed. In {unfit}, a model is at chance or has diverged."
    )
}

/// Escapes text so that it cannot end its table cell.
pub(crate) fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
