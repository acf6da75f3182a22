//! What hostile devices can do to a fair fleet, with and without the guard.
//!
//! | device | says | sends |
//! |---|---|---|
//! | honest | its losses, its sample count | its update |
//! | hostile | its losses times 10 or times 1e6, or (from its first Hello on) its sample count times 25 or 100 | its update, the update with its sign flipped, or ten times the update |
//!
//! Hostile devices do so from the first round on, or try to be believed first; see [`Tactic`].
//!
//! The reference is the same fleet without the hostile devices. All figures are taken over the honest devices, from
//! the scores of the final model on their own test samples, as they were said.

use std::collections::BTreeSet;

use aggregator::config::ConfigError;
use common::DeviceId;
use edge_client::data::DataError;
use serde::Serialize;

use crate::engine::{EngineError, Member};
use fleet::{fleet, hostile};

mod boaster;
mod case;
mod fleet;
mod table;
#[cfg(test)]
mod tests;

pub use case::{Case, Lie, Tactic};
pub use table::table;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttackError {
    #[error("the built-in digits: {0}")]
    Data(#[from] DataError),
    #[error("the configuration: {0}")]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("the run ended without scores of the final model")]
    NoScores,
}

/// What to run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct AttackOptions {
    pub devices: usize,
    pub rounds: u32,
    /// Shares of hostile devices.
    pub shares: Vec<f64>,
    /// Factors of losses.
    pub inflations: Vec<f64>,
    /// Factors of sample counts; losses are honest then.
    pub boasts: Vec<u32>,
    pub lies: Vec<Lie>,
    /// Beside lying loudly from the first round on.
    pub tactics: Vec<Tactic>,
    /// The defended run's `[guard]`; empty = the defaults.
    pub guard: String,
    /// Of the first run.
    pub seed: u64,
    /// Every case is run with so many seeds; figures are means over them.
    pub seeds: u64,
    pub threads: usize,
}

impl Default for AttackOptions {
    fn default() -> Self {
        Self {
            devices: 40,
            rounds: 40,
            shares: vec![0.0, 0.05, 0.2],
            inflations: vec![10.0, 1e6],
            boasts: vec![25, 100],
            lies: Lie::ALL.to_vec(),
            tactics: Tactic::QUIET.to_vec(),
            guard: String::new(),
            seed: 1,
            seeds: 3,
            threads: 2,
        }
    }
}

/// How the final model serves the honest devices.
#[derive(Copy, Clone, PartialEq, Debug, Serialize)]
pub struct Figures {
    pub loss: f64,
    pub variance: f64,
    pub worst10: f64,
    pub accuracy: f64,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct AttackRow {
    pub share: f64,
    pub hostile: usize,
    #[serde(flatten)]
    pub case: Case,
    pub reference: Figures,
    pub undefended: Figures,
    pub defended: Figures,
    /// Hostile devices that a report of the defended run names, and honest ones.
    pub named: usize,
    pub named_honest: usize,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct AttackResult {
    pub options: AttackOptions,
    pub rows: Vec<AttackRow>,
}

/// Runs every case; `progress` is called with each row.
pub fn run(
    options: &AttackOptions,
    mut progress: impl FnMut(&AttackRow),
) -> Result<AttackResult, AttackError> {
    let seeds = options.seed..options.seed + options.seeds.max(1);
    let of_seed = |seed| AttackOptions { seed, ..options.clone() };
    let fleets: Vec<_> =
        seeds.map(|seed| Ok((of_seed(seed), fleet(&of_seed(seed))?))).collect::<Result<_, AttackError>>()?;
    let mut rows = vec![];
    for &share in &options.shares {
        let sides: Vec<_> = fleets
            .iter()
            .map(|(options, fleet)| Sides::new(options, fleet, share))
            .collect::<Result<_, AttackError>>()?;
        let nobody = sides.iter().all(|side| side.hostile.is_empty());
        // Nobody lies: what the guard costs.
        let cases = if nobody { vec![Case::HONEST] } else { Case::all(options) };
        for case in cases {
            let each: Vec<_> =
                sides.iter().map(|side| side.row(share, case)).collect::<Result<_, AttackError>>()?;
            rows.extend(AttackRow::mean(&each));
            rows.last().map(&mut progress);
        }
    }
    Ok(AttackResult { options: options.clone(), rows })
}

/// One fleet, who lies in it, and how it fares without the liars.
struct Sides<'a> {
    options: &'a AttackOptions,
    fleet: &'a [Member],
    hostile: BTreeSet<DeviceId>,
    reference: Figures,
}

impl<'a> Sides<'a> {
    fn new(options: &'a AttackOptions, fleet: &'a [Member], share: f64) -> Result<Self, AttackError> {
        let hostile = hostile(fleet, share, options.seed);
        let honest = fleet.iter().filter(|member| !hostile.contains(&member.device)).cloned().collect();
        let (reference, _) = fleet::once(options, OFF, honest, &BTreeSet::new(), Case::HONEST)?;
        Ok(Self { options, fleet, hostile, reference })
    }

    fn row(&self, share: f64, case: Case) -> Result<AttackRow, AttackError> {
        let Self { options, fleet, hostile, reference } = self;
        let run = |guard: &str| fleet::once(options, guard, fleet.to_vec(), hostile, case);
        let (undefended, _) = run(OFF)?;
        let (defended, named) = run(&options.guard)?;
        let lies = |name: &String| hostile.iter().any(|device| device.as_str() == name);
        let caught = named.iter().filter(|name| lies(name)).count();
        Ok(AttackRow {
            share,
            hostile: hostile.len(),
            case,
            reference: *reference,
            undefended,
            defended,
            named: caught,
            named_honest: named.len() - caught,
        })
    }
}

impl AttackRow {
    /// Figures are means, counts are sums.
    fn mean(rows: &[Self]) -> Option<Self> {
        let first = rows.first()?.clone();
        let figures = |of: fn(&Self) -> Figures| {
            let mean = |figure: fn(&Figures) -> f64| {
                rows.iter().map(|row| figure(&of(row))).sum::<f64>() / rows.len() as f64
            };
            Figures {
                loss: mean(|figures| figures.loss),
                variance: mean(|figures| figures.variance),
                worst10: mean(|figures| figures.worst10),
                accuracy: mean(|figures| figures.accuracy),
            }
        };
        Some(Self {
            hostile: rows.iter().map(|row| row.hostile).sum(),
            named: rows.iter().map(|row| row.named).sum(),
            named_honest: rows.iter().map(|row| row.named_honest).sum(),
            reference: figures(|row| row.reference),
            undefended: figures(|row| row.undefended),
            defended: figures(|row| row.defended),
            ..first
        })
    }
}

/// `[guard]` of undefended runs.
const OFF: &str = "mode = \"off\"";
