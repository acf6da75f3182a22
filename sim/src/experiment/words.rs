//! What `sim run` prints below the table: how fairness targets fare, and which checks hold.

use common::{
    metrics::Spread,
    output::{COLUMNS, wrap},
};
use strategies::fairness::FairnessLine;

use crate::{
    claims::{self, ClaimVerdict},
    results::{Check, ExperimentRecord, ExperimentResults, Measure, SettingRecord, TargetResult, UnitResult},
};
use plots::number;

/// Columns by which further lines of an entry are indented.
const INDENT: usize = 2;

/// Deviation, as a share of the mean, below which numbers count as equal.
const EQUAL: f64 = 1e-9;

/// One entry for each knob of each setting that has a target; empty without targets.
pub fn targets(record: &ExperimentRecord, units: &[UnitResult]) -> String {
    let mut out = String::new();
    let twins: Vec<&String> = record.settings.iter().filter_map(|setting| setting.twin.as_ref()).collect();
    for setting in record.settings.iter().filter(|setting| !twins.contains(&&setting.id)) {
        let own: Vec<&UnitResult> = units.iter().filter(|unit| unit.unit.setting == setting.id).collect();
        let knobs = own.iter().map(|unit| unit.fairness.len()).max().unwrap_or(0);
        for knob in 0..knobs {
            let all: Vec<&TargetResult> = own.iter().filter_map(|unit| unit.fairness.get(knob)).collect();
            let text = match all[..] {
                [one] => single(&one.line),
                _ => several(&all),
            };
            out += &format!("{}\n", wrap(&format!("fairness of {}: {text}", setting.label), INDENT, COLUMNS));
        }
    }
    out
}

/// One line for each setting that has seeds in which no candidate was within the limit of `choose`.
pub fn over_limit(record: &ExperimentRecord, units: &[UnitResult]) -> String {
    let line = |setting: &SettingRecord| {
        let own = units.iter().filter(|unit| unit.unit.setting == setting.id && unit.over_limit.is_some());
        let seeds: Vec<String> = own.map(|unit| unit.unit.seed.to_string()).collect();
        let text = format!(
            "{}: no candidate within the limit of the mean loss with seeds {}; taken is the one with the lowest mean loss",
            setting.label,
            seeds.join(", ")
        );
        (!seeds.is_empty()).then(|| format!("{}\n", wrap(&text, INDENT, COLUMNS)))
    };
    record.settings.iter().filter_map(line).collect()
}

/// `0.312 of 0.300, q = 2.93: met with q = 2.93; certified: at most 0.329 over 150 rounds`
fn single(line: &FairnessLine) -> String {
    let value = format!("{} = {}", name(line), number::figure(line.value));
    let measured = line.window_rms.map_or_else(|| "nothing measured".into(), number::figure);
    let certificate = match (line.certified, line.bound) {
        (true, Some(bound)) => {
            format!("certified: at most {} over {} rounds", number::figure(bound), line.ledger.rounds)
        }
        _ => "not certified".into(),
    };
    format!("{measured} of {}, {value}: {}; {certificate}", number::figure(line.target), line.advice())
}

/// The same over seeds.
fn several(all: &[&TargetResult]) -> String {
    let Some(first) = all.first() else { return String::new() };
    let spread = |of: fn(&FairnessLine) -> Option<f64>| {
        let spread = Spread::of(&all.iter().filter_map(|one| of(&one.line)).collect::<Vec<_>>());
        // Rounding of equal numbers is no deviation.
        let same = spread.std <= EQUAL * spread.mean.abs();
        if same { number::figure(spread.mean) } else { super::summary::text(spread) }
    };
    let mut words: Vec<(&str, usize)> = Vec::new();
    for one in all {
        let word = one.line.status.name();
        match words.iter_mut().find(|(known, _)| *known == word) {
            Some((_, count)) => *count += 1,
            None => words.push((word, 1)),
        }
    }
    let words: Vec<String> = words.iter().map(|(word, count)| format!("{word} {count}")).collect();
    let certified = all.iter().filter(|one| one.line.certified).count();
    let bound = if certified > 0 {
        let bound = |line: &FairnessLine| line.bound.filter(|_| line.certified);
        format!(", at most {}", spread(bound))
    } else {
        String::new()
    };
    format!(
        "{} of {}, {} = {}: {} of {} seeds; certified {certified}{bound}",
        spread(|line| line.window_rms),
        spread(|line| Some(line.target)),
        name(&first.line),
        spread(|line| Some(line.value)),
        words.join(", "),
        all.len(),
    )
}

fn name(line: &FairnessLine) -> String {
    line.tier.map_or_else(|| line.parameter.clone(), |tier| format!("{} of tier {tier}", line.parameter))
}

/// The checks of the experiment's own file, by their means, with 95 % intervals; empty without checks.
pub fn checks(record: &ExperimentRecord, units: &[UnitResult]) -> String {
    if record.checks.is_empty() {
        return String::new();
    }
    let results = ExperimentResults { record: record.clone(), units: units.to_vec() };
    let line = |(check, outcome): (&Check, claims::CheckOutcome)| {
        let finding = &outcome.finding;
        let word = match (finding.verdict, finding.holds) {
            (ClaimVerdict::NotRun, _) => "not run",
            (_, true) => "pass",
            (_, false) => "FAIL",
        };
        let bar =
            check.measure.as_ref().and_then(Measure::bar).map_or_else(String::new, |bar| format!("; {bar}"));
        let text = format!("{word}: {}: {} ({}{bar})", outcome.what, outcome.ours, outcome.how);
        format!("{}\n", wrap(&text, INDENT, COLUMNS))
    };
    record.checks.iter().zip(claims::own_outcomes(&results)).map(line).collect()
}
