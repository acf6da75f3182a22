//! Mean ranks with the critical difference of Nemenyi's test (Demsar, "Statistical Comparisons of Classifiers over Multiple
//! Data Sets", JMLR 2006).
//!
//! ```text
//! block     a data set with a seed in which every ranked strategy was run
//! rank      1 is best; equal values share the mean of their places; a diverged run is last
//! critical  q sqrt(k (k + 1) / (6 N)) for k strategies and N blocks
//! ```
//! Seeds of one data set are not independent data sets, so the critical difference is too small rather than too large.

use serde::Serialize;

use super::{Cells, FIGURES, figure, has_guard};
use crate::{
    experiment::{LoadedExperiment, Setting, StrategySpec},
    results::{Role, UnitResult, figure::high_is_good},
    statistics::nemenyi,
};

/// The figures by which strategies are ranked, by their places in [`FIGURES`]: worst tenth, mean loss, accuracy.
pub const RANKED: [usize; 3] = [super::WORST, 0, 5];

/// Mean ranks of all strategies that run on every data set.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Ranks {
    pub guard: bool,
    /// Labels of the data sets, with the number of their seeds.
    pub blocks: Vec<(String, usize)>,
    /// Ranks that differ by less are not told apart, at the level of 5 %.
    pub critical: f64,
    /// Best first, by the first figure.
    pub rows: Vec<RankRow>,
}

/// One strategy.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RankRow {
    pub id: String,
    pub label: String,
    pub role: Role,
    pub direction: bool,
    /// One mean rank for each of [`RANKED`].
    pub ranks: Vec<f64>,
}

/// `None` before any block is complete.
pub fn ranks(loaded: &LoadedExperiment, guard: bool, cells: &Cells<'_>) -> Option<Ranks> {
    let strategies: Vec<_> =
        loaded.experiment.strategies.iter().filter(|strategy| strategy.variants.is_empty()).collect();
    let mut blocks: Vec<(String, usize)> = vec![];
    let mut sums = vec![[0.0; RANKED.len()]; strategies.len()];
    for variant in loaded.experiment.variants.iter().filter(|variant| has_guard(&variant.id) == guard) {
        let mut own = loaded.settings.iter().filter(|setting| setting.variant == variant.id);
        // Settings stand in the order of the strategies.
        let settings: Option<Vec<&Setting>> = strategies
            .iter()
            .map(|strategy| own.find(|setting| setting.strategy.id == strategy.id))
            .collect();
        let Some(settings) = settings else { continue };
        let mut seeds = 0;
        for &seed in &loaded.experiment.seeds {
            let units: Option<Vec<_>> = settings.iter().map(|setting| cells.get(setting, seed)).collect();
            let Some(units) = units else { continue };
            seeds += 1;
            for (column, &at) in RANKED.iter().enumerate() {
                let sign = if high_is_good(FIGURES[at]) { -1.0 } else { 1.0 };
                let value = |unit: &&UnitResult| {
                    figure(unit, FIGURES[at]).map_or(f64::INFINITY, |value| sign * value)
                };
                let values: Vec<f64> = units.iter().map(value).collect();
                sums.iter_mut().zip(places(&values)).for_each(|(sum, place)| sum[column] += place);
            }
        }
        if seeds > 0 {
            let label = if variant.label.is_empty() { &variant.id } else { &variant.label };
            blocks.push((label.clone(), seeds));
        }
    }
    let count: usize = blocks.iter().map(|(_, seeds)| seeds).sum();
    if count == 0 {
        return None;
    }
    let row = |(strategy, sums): (&&StrategySpec, &[f64; RANKED.len()])| RankRow {
        id: strategy.id.clone(),
        label: strategy.label.clone().unwrap_or_else(|| strategy.id.clone()),
        role: strategy.role,
        direction: super::is_direction(&strategy.name, &strategy.params),
        ranks: sums.iter().map(|sum| sum / count as f64).collect(),
    };
    let mut rows: Vec<RankRow> = strategies.iter().zip(&sums).map(row).collect();
    rows.sort_by(|a, b| a.ranks[0].total_cmp(&b.ranks[0]));
    let critical = nemenyi(rows.len(), count);
    Some(Ranks { guard, blocks, critical, rows })
}

/// Places from 1, lowest value first; equal values share theirs.
fn places(values: &[f64]) -> Vec<f64> {
    let place = |value: &f64| {
        let below = values.iter().filter(|other| *other < value).count();
        let equal = values.iter().filter(|other| *other == value).count();
        below as f64 + (equal as f64 + 1.0) / 2.0
    };
    values.iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::places;

    #[test]
    fn equal_values_share_their_places() {
        assert_eq!(places(&[0.3, 0.1, 0.3, 0.2]), [3.5, 1.0, 3.5, 2.0]);
        let inf = f64::INFINITY;
        assert_eq!(places(&[inf, 0.1, inf]), [2.5, 1.0, 2.5]);
        assert!(places(&[]).is_empty());
    }
}
