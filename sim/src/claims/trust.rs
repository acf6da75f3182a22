//! Whether a model is worth a comparison: it has learned something, and it has not diverged.
//!
//! Models that learned nothing are equal to each other, which looks fair. So a comparison with one decides nothing.

use plots::number;

use crate::results::{ExperimentResults, UnitResult};

/// Share of what a constant predictor leaves that a model must get right.
const SKILL: f64 = 0.1;
/// Where no class shares are known: the share of the starting loss that a model must lose.
const LEARNED: f64 = 0.1;

/// Accuracy of the best constant predictor: the share of the largest class. For Shakespeare it is that of the space.
const LARGEST_CLASS: [(&str, f64); 8] = [
    ("mnist", 0.1135),
    ("fashion-mnist", 0.1),
    ("cifar10", 0.1),
    ("digits", 0.1018),
    ("optdigits", 0.1018),
    ("shakespeare", 0.2056),
    ("eagle", 0.5),
    ("eagle-large", 0.5),
];

/// Why the models of these settings say nothing; `None` if they do.
pub fn unfit(results: &ExperimentResults, settings: &[&str]) -> Option<String> {
    settings.iter().find_map(|setting| {
        let units: Vec<&UnitResult> = results.units(setting).collect();
        let label = results.label(setting);
        let diverged = units.iter().filter(|unit| unit.diverged()).count();
        match diverged {
            0 => untrained(results, &units).map(|why| format!("{label}: {why}")),
            count => Some(format!("{label}: diverged with {count} of {} seeds", units.len())),
        }
    })
}

/// Why these runs are not clearly better than chance.
fn untrained(results: &ExperimentResults, units: &[&UnitResult]) -> Option<String> {
    let mean = |name: &str| {
        let values: Vec<f64> = units.iter().filter_map(|unit| unit.settled(name)).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    let groups = mean("groups.accuracy").zip(mean("groups.constant"));
    let known = || mean("accuracy.mean").zip(largest_class(results));
    if let Some((accuracy, chance)) = groups.or_else(known) {
        let least = chance + SKILL * (1.0 - chance);
        let [accuracy_text, chance_text] = [accuracy, chance].map(number::percent);
        return (accuracy < least)
            .then(|| format!("accuracy {accuracy_text}, a constant predictor has {chance_text}"));
    }
    let start =
        |unit: &&UnitResult| unit.rounds.first().map(|line| line.loss.mean).filter(|loss| *loss > 0.0);
    let lost =
        |unit: &&&UnitResult| start(unit).is_some_and(|start| unit.last.loss.mean > (1.0 - LEARNED) * start);
    let stuck = units.iter().filter(lost).count();
    (stuck > 0).then(|| format!("the loss fell by less than 10 % with {stuck} of {} seeds", units.len()))
}

fn largest_class(results: &ExperimentResults) -> Option<f64> {
    let table: toml::Table = results.record.toml.parse().ok()?;
    let set = table.get("data")?.get("set")?.as_str()?;
    LARGEST_CLASS.iter().find(|(name, _)| *name == set).map(|(_, share)| *share)
}
