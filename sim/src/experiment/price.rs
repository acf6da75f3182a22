//! The price of fairness: a setting with a target against the same setting with its parameter at the neutral end.

use common::{metrics::Spread, output::table};
use serde::Serialize;

use crate::results::{ExperimentRecord, UnitResult};
use plots::number;

/// A setting against its twin.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Price {
    /// Id of the setting with the target.
    pub setting: String,
    pub label: String,
    /// Id of the setting without fairness.
    pub twin: String,
    pub lines: Vec<PriceLine>,
}

/// One figure of both, over the seeds that both have.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PriceLine {
    pub figure: String,
    pub title: String,
    pub without: Spread,
    pub with: Spread,
    /// `with / without - 1`, seed by seed.
    pub change: Spread,
}

/// One entry for each setting whose twin was run too.
pub fn prices(record: &ExperimentRecord, units: &[UnitResult]) -> Vec<Price> {
    let tiers = units.iter().map(|unit| unit.last.tiers.len()).max().unwrap_or(0);
    let mut figures = vec![
        ("loss.mean".to_owned(), "mean loss".to_owned()),
        ("loss.worst10".into(), "loss, worst 10 %".into()),
        ("loss.variance".into(), "variance of loss".into()),
        ("tiers.cv".into(), "tiers, deviation / mean".into()),
    ];
    figures.extend((0..tiers).map(|tier| (format!("tier.{tier}.loss"), format!("loss of tier {tier}"))));
    let price = |setting: &crate::results::SettingRecord| {
        let twin = setting.twin.clone()?;
        let line = |(figure, title): &(String, String)| line(units, &twin, &setting.id, figure, title);
        let lines: Vec<PriceLine> = figures.iter().filter_map(line).collect();
        let (setting, label) = (setting.id.clone(), setting.label.clone());
        (!lines.is_empty()).then_some(Price { setting, label, twin, lines })
    };
    record.settings.iter().filter_map(price).collect()
}

fn line(units: &[UnitResult], twin: &str, setting: &str, figure: &str, title: &str) -> Option<PriceLine> {
    let mut pairs = Vec::new();
    for with in units.iter().filter(|unit| unit.unit.setting == setting) {
        let same = |unit: &&UnitResult| unit.unit.setting == twin && unit.unit.seed == with.unit.seed;
        let without = units.iter().find(same);
        pairs.extend(without.and_then(|without| Some((without.figure(figure)?, with.figure(figure)?))));
    }
    let spread = |of: fn(&(f64, f64)) -> f64| Spread::of(&pairs.iter().map(of).collect::<Vec<_>>());
    let (without, with) = (spread(|pair| pair.0), spread(|pair| pair.1));
    let change = spread(|pair| if pair.0 == pair.1 { 0.0 } else { pair.1 / pair.0 - 1.0 });
    let (figure, title) = (figure.to_owned(), title.to_owned());
    (!pairs.is_empty()).then_some(PriceLine { figure, title, without, with, change })
}

impl Price {
    /// As `sim run` prints it.
    pub fn text(&self, columns: usize) -> String {
        let mut rows = vec![["", "without", "with target", "change"].map(str::to_owned).to_vec()];
        for line in &self.lines {
            let change = match line.change.runs {
                0 | 1 => number::change(line.change.mean),
                _ => format!("{} ±{:.1} %", number::change(line.change.mean), 100.0 * line.change.std),
            };
            let (without, with) = (number::figure(line.without.mean), number::figure(line.with.mean));
            rows.push(vec![line.title.clone(), without, with, change]);
        }
        format!("Price of fairness: {}\n{}", self.label, table(&rows, 1, columns))
    }
}
