//! What hostile devices can do to a fair fleet, with and without the guard.
//!
//! | device | says | sends |
//! |---|---|---|
//! | honest | its losses, its sample count | its update |
//! | hostile | its losses times 10 or times 1e6, or (from its first Hello on) its sample count times 100 | its update, the update with its sign flipped, or ten times the update |
//!
//! The reference is the same fleet without the hostile devices. All figures are taken over the honest devices, from
//! the scores of the final model on their own test samples.

use std::{collections::BTreeSet, fmt::Write as _, sync::Arc};

use aggregator::{
    config::{Config, ConfigError},
    coordinator::StoredUpdate,
    report::RoundReport,
};
use common::{
    Codec, DeviceId, Tier,
    metrics::{Better, Summary},
    rng::{Rng, derive},
};
use edge_client::data::{DataError, Part, Samples, digits, partition};
use serde::Serialize;

use crate::engine::{Chances, Engine, EngineError, Hardware, Member, Tamper};
use boaster::Boaster;

mod boaster;
#[cfg(test)]
mod tests;

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
    /// The defended run's `[guard]`; empty = the defaults.
    pub guard: String,
    /// Of the first run.
    pub seed: u64,
    /// Every case is run with so many seeds; figures are means over them.
    pub seeds: u64,
    pub threads: usize,
}

/// What a hostile device sends.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Lie {
    Honest,
    Flipped,
    Tenfold,
}

impl Lie {
    pub const ALL: [Self; 3] = [Self::Honest, Self::Flipped, Self::Tenfold];

    fn factor(self) -> f32 {
        match self {
            Self::Honest => 1.0,
            Self::Flipped => -1.0,
            Self::Tenfold => 10.0,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Honest => "honest",
            Self::Flipped => "flipped",
            Self::Tenfold => "x10",
        }
    }
}

impl Default for AttackOptions {
    fn default() -> Self {
        Self {
            devices: 40,
            rounds: 40,
            shares: vec![0.0, 0.05, 0.2],
            inflations: vec![10.0, 1e6],
            boasts: vec![100],
            lies: Lie::ALL.to_vec(),
            guard: "screen = 0.2".into(),
            seed: 1,
            seeds: 3,
            threads: 2,
        }
    }
}

/// What hostile devices do.
#[derive(Copy, Clone, PartialEq, Debug, Serialize)]
pub struct Case {
    /// Factor of losses.
    pub inflation: f64,
    /// Factor of sample counts.
    pub samples: u32,
    pub updates: Lie,
}

impl Case {
    const HONEST: Self = Self { inflation: 1.0, samples: 1, updates: Lie::Honest };

    fn all(options: &AttackOptions) -> Vec<Self> {
        let claims = options.inflations.iter().map(|&inflation| (inflation, 1));
        let claims = claims.chain(options.boasts.iter().map(|&samples| (1.0, samples)));
        let with = |(inflation, samples)| {
            options.lies.iter().map(move |&updates| Self { inflation, samples, updates })
        };
        claims.flat_map(with).collect()
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
        let (reference, _) = once(options, OFF, honest, &BTreeSet::new(), Case::HONEST)?;
        Ok(Self { options, fleet, hostile, reference })
    }

    fn row(&self, share: f64, case: Case) -> Result<AttackRow, AttackError> {
        let Self { options, fleet, hostile, reference } = self;
        let run = |guard: &str| once(options, guard, fleet.to_vec(), hostile, case);
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

const OFF: &str = "mode = \"off\"";

/// One line per case; changes are relative to the reference.
pub fn table(result: &AttackResult) -> String {
    let mut text = match result.options.guard.trim() {
        "" => "defended: [guard] as it is by default\n".to_owned(),
        keys => format!("defended: [guard] {keys}, all else as it is by default\n"),
    };
    let _ = writeln!(text, "undefended: [guard] {OFF}");
    text += "hostile     F x  n x   updates | reference loss    var |   undefended loss         var |     defended loss         var | named  honest named\n";
    for row in &result.rows {
        let change = |now: f64, then: f64| format!("{now:9.4} {:>+7.0}%", 100.0 * (now / then - 1.0));
        let (reference, bare, guarded) = (&row.reference, &row.undefended, &row.defended);
        let _ = writeln!(
            text,
            "{:3.0} % {:>2} {:>7} {:>4} {:>9} | {:14.4} {:6.4} | {} {} | {} {} | {:>2}/{:<2}  {}",
            100.0 * row.share,
            row.hostile,
            format!("{:e}", row.case.inflation),
            row.case.samples,
            row.case.updates.name(),
            reference.loss,
            reference.variance,
            change(bare.loss, reference.loss),
            change(bare.variance, reference.variance),
            change(guarded.loss, reference.loss),
            change(guarded.variance, reference.variance),
            row.named,
            row.hostile,
            row.named_honest,
        );
    }
    text
}

fn config(options: &AttackOptions, guard: &str) -> Result<Config, ConfigError> {
    Config::parse(&format!(
        "[model]\ntiers = [1.0, 0.5]\nseed = {seed}\n[run]\nrounds = {rounds}\nseed = {seed}\n\
         [strategy]\nname = \"fairheterofl\"\nparams = {{ step = \"reweight\", q = 1, q_m = 1 }}\n\
         [training]\nepochs = 2\nbatch = 8\nlr = 0.1\n[guard]\n{guard}\n",
        seed = options.seed,
        rounds = options.rounds,
    ))
}

/// Two tiers; a third of every device's samples are of one class.
fn fleet(options: &AttackOptions) -> Result<Vec<Member>, AttackError> {
    let all = Samples::of(&digits::all(), Part::Train)?;
    let parts = partition::dominant_class(all.labels(), options.devices, 0.33, options.seed);
    let mut members = vec![];
    for (index, part) in parts.iter().enumerate() {
        let shard = all.select(part)?.split(0.4, derive(options.seed, index as u64))?;
        // Names of this form and two tiers are always legal.
        let (Ok(device), Some(tier)) = (format!("d{index:03}").parse(), Tier::new(index / 10 % 2)) else {
            continue;
        };
        members.push(Member { device, tier, hardware: Hardware::default(), shard: Arc::new(shard) });
    }
    Ok(members)
}

fn hostile(fleet: &[Member], share: f64, seed: u64) -> BTreeSet<DeviceId> {
    let mut devices: Vec<_> = fleet.iter().map(|member| member.device.clone()).collect();
    Rng::new(derive(seed, 7)).shuffle(&mut devices);
    devices.truncate((share * fleet.len() as f64).round() as usize);
    devices.into_iter().collect()
}

/// One run: figures over honest devices, and whom the guard has named.
fn once(
    options: &AttackOptions,
    guard: &str,
    mut members: Vec<Member>,
    hostile: &BTreeSet<DeviceId>,
    case: Case,
) -> Result<(Figures, BTreeSet<String>), AttackError> {
    let config = config(options, guard)?;
    for Member { shard, .. } in members.iter_mut().filter(|member| hostile.contains(&member.device)) {
        *shard = Arc::new(Boaster { shard: shard.clone(), factor: case.samples });
    }
    let liars = hostile.clone();
    let tamper = move |update: &mut StoredUpdate| {
        if liars.contains(&update.device) {
            let scalars = &mut update.scalars;
            scalars.samples = scalars.samples.saturating_mul(case.samples);
            scalars.loss_before *= case.inflation;
            scalars.loss_after = scalars.loss_after.map(|loss| loss * case.inflation);
            multiply(&mut update.payload, update.codec, case.updates.factor());
        }
    };
    let engine = Engine::new(&config, members, Chances::default(), options.threads)?;
    let reports = engine.with_tamper(Tamper(Box::new(tamper))).run(|_, _| {})?;
    let last = reports.last().ok_or(AttackError::NoScores)?;
    let named =
        reports.iter().flat_map(|report| report.guard.iter().map(|line| line.device.clone())).collect();
    Ok((figures(last, hostile), named))
}

fn figures(report: &RoundReport, hostile: &BTreeSet<DeviceId>) -> Figures {
    let honest = || {
        let honest = |name: &str| hostile.iter().all(|device| device.as_str() != name);
        report.devices.iter().filter(move |line| honest(&line.device))
    };
    let mut losses: Vec<f64> = honest().map(|line| line.test_loss.unwrap_or(line.loss_before)).collect();
    let mut accuracies: Vec<f64> = honest().filter_map(|line| line.test_accuracy).collect();
    let loss = Summary::of(&mut losses, Better::Low);
    let accuracy = Summary::of(&mut accuracies, Better::High);
    Figures { loss: loss.mean, variance: loss.variance, worst10: loss.worst10, accuracy: accuracy.mean }
}

/// Multiplies the numbers of an exact update; others can not be changed without decoding them.
fn multiply(payload: &mut [u8], codec: Codec, factor: f32) {
    if codec != Codec::F32 || factor == 1.0 {
        return;
    }
    for bytes in payload.as_chunks_mut::<4>().0 {
        *bytes = (f32::from_le_bytes(*bytes) * factor).to_le_bytes();
    }
}
