//! docs/reproduction.md: every check of every claim, and what was run.

use std::fmt::{self, Write};

use crate::{
    claims::{self, Assessment, CheckOutcome, ClaimVerdict, Evidence, cell},
    experiment::LoadedExperiment,
    leaderboard,
    results::{ExperimentRecord, ExperimentResults, Form},
};

/// The page in Markdown.
pub fn appendix(evidence: &Evidence) -> String {
    let mut out = String::new();
    // Writing to a String does not fail.
    let _ = write_appendix(&mut out, evidence);
    out
}

const HEAD: &str = "\
# Every check of the reproduction

Written by `fairtier sim reproduce` with the [record](../REPRODUCTION.md), which defines the verdicts; do not edit.

- *Ours* is the mean of the effect over seeds with its 95 % interval, before correction. *p* is corrected within the claim.
- *Form* is *printed* if no compared method has a parameter or setting of ours where the paper prints another.
- *Ratio* is ours to published, of the same kind of number.
- Losses in nats, accuracies in percent of a device's own test samples, variances over devices with divisor N (of accuracy in percent
  squared). Beside the figures of the settings, ± is the standard deviation over seeds.
";

fn write_appendix(out: &mut String, evidence: &Evidence) -> fmt::Result {
    out.write_str(HEAD)?;
    runs(out, evidence)?;
    for source in claims::ALL.iter() {
        writeln!(out, "\n## {} (section {})", source.name, source.section)?;
        for claim in claims::assess(source, evidence) {
            section(out, &claim)?;
        }
        writeln!(out, "\n### Doubtful points of {}\n", source.name)?;
        for doubt in &source.doubts {
            writeln!(out, "- {doubt}")?;
        }
    }
    Ok(())
}

/// The runs that were made, against what the source ran and what the experiment file states.
fn runs(out: &mut String, evidence: &Evidence) -> fmt::Result {
    writeln!(out, "\n## What was run\n")?;
    if evidence.experiments.is_empty() {
        return writeln!(out, "Nothing yet.");
    }
    writeln!(
        out,
        "*Of* is the number of the paper, or of the experiment file where no paper is behind it. Settings are compared with the file.\n\n\
         | experiment | profile | rounds | of | seeds | of | settings | of | machine time |\n|---|---|---|---|---|---|---|---|---|"
    )?;
    let mut hours = 0.0;
    // Experiments about a fairness target test a feature of FairTier; docs/fairness-target.md shows them.
    // The leaderboard has its own page.
    let of_papers = |results: &&ExperimentResults| {
        results.units.iter().all(|unit| unit.fairness.is_empty())
            && results.record.experiment != leaderboard::NAME
    };
    for results in evidence.experiments.iter().filter(of_papers) {
        let record = &results.record;
        let seeds = record.settings.iter().map(|setting| setting.seeds.len()).max().unwrap_or(0);
        let done = |setting: &&crate::results::SettingRecord| results.units(&setting.id).next().is_some();
        let settings = record.settings.iter().filter(done).count();
        // The last line of a run is the evaluation after its last round.
        let rounds = results.units.iter().map(|unit| unit.round_count()).max().unwrap_or(0).saturating_sub(1);
        let seconds: f64 = results.units.iter().map(|unit| unit.seconds).sum();
        hours += seconds / 3600.0;
        let Wanted { rounds: all_rounds, seeds: all_seeds, settings: all_settings } = Wanted::of(record);
        let of = |number: Option<usize>| number.map_or_else(|| "–".into(), |number| number.to_string());
        writeln!(
            out,
            "| {} | {} | {rounds} | {} | {seeds} | {} | {settings} | {} | {:.1} min |",
            cell(&record.experiment),
            cell(&record.profile),
            of(all_rounds),
            of(all_seeds),
            of(all_settings),
            seconds / 60.0
        )?;
    }
    writeln!(out, "\n{hours:.1} hours of machine time in all.")?;
    registered(out, evidence)
}

/// Results that used something else than their experiment files state.
fn registered(out: &mut String, evidence: &Evidence) -> fmt::Result {
    let told = |results: &ExperimentResults| {
        let others = claims::others(results);
        let ExperimentRecord { experiment, profile, .. } = &results.record;
        (!others.is_empty()).then(|| format!("- `{experiment}` {profile}: {}", cell(&others.join(", "))))
    };
    let told: Vec<String> = evidence.experiments.iter().filter_map(told).collect();
    if told.is_empty() {
        return writeln!(
            out,
            "\nExperiment files register grids, seeds, data and checks. No result used others; fewer rounds, seeds and settings are in the table."
        );
    }
    writeln!(
        out,
        "\nThese results used something else than their experiment files state:\n\n{}",
        told.join("\n")
    )
}

/// How much of everything a complete reproduction would have.
struct Wanted {
    rounds: Option<usize>,
    seeds: Option<usize>,
    settings: Option<usize>,
}

impl Wanted {
    fn of(record: &ExperimentRecord) -> Self {
        let paper = claims::paper_of(&record.experiment);
        let file = LoadedExperiment::open(&record.experiment, "full", &[]).ok();
        Self {
            rounds: paper.map(|paper| paper.rounds).or_else(|| file.as_ref().map(LoadedExperiment::rounds)),
            seeds: paper.map(|paper| paper.seeds).or_else(|| file.as_ref().map(LoadedExperiment::seed_count)),
            settings: file.as_ref().map(LoadedExperiment::setting_count),
        }
    }
}

fn section(out: &mut String, claim: &Assessment) -> fmt::Result {
    writeln!(out, "\n### {} {}\n", claim.id, claim.text)?;
    writeln!(out, "Verdict: {}.\n", bold(claim.verdict, claim.verdict.word()))?;
    writeln!(
        out,
        "| check | published | ours | form | verdict | p | ratio | results | runs |\n|---|---|---|---|---|---|---|---|---|"
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
    let ratio = finding.ratio.map_or("–".into(), |ratio| format!("{ratio:.2}"));
    let p = finding.p.map_or("–".into(), p_value);
    let form = match (finding.verdict, finding.form) {
        (ClaimVerdict::NotRun, _) => "–",
        (_, Form::Published) => "printed",
        (_, Form::Improved) => "ours",
    };
    let runs = match (finding.verdict, row.experiment.as_str()) {
        (ClaimVerdict::NotRun, "") => "no experiment".into(),
        (ClaimVerdict::NotRun, experiment) => format!("`{experiment}`"),
        (_, experiment) => {
            format!("`{experiment}` {}, {} rounds", finding.profile, finding.rounds.saturating_sub(1))
        }
    };
    let parts = if finding.parts.is_empty() { "–".into() } else { finding.show_parts() };
    writeln!(
        out,
        "| {} | {} | {} | {form} | {} | {p} | {ratio} | {} | {runs} |",
        cell(&row.what),
        cell(&row.published),
        cell(&row.ours),
        bold(finding.verdict, &cell(&finding.words())),
        cell(&parts)
    )
}

fn p_value(p: f64) -> String {
    if p < 0.0001 { "< 0.0001".into() } else { format!("{p:.4}") }
}

fn bold(verdict: ClaimVerdict, text: &str) -> String {
    if verdict.counts() { format!("**{text}**") } else { text.into() }
}
