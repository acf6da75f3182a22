//! The exchanges of a round: asks the strategy what comes next, until the round can be combined.
//!
//! What was asked follows from the strategy's state and from what the store holds of the round, so after a
//! restart the open exchange is formed again and means the same.

use common::{
    Code, DeviceId, Tier,
    brief::{Brief, Objective, Product},
    message::{Alone, Task},
    rng,
    wire::crc32,
};
use tracing::{error, warn};

use super::{Keeper, KeeperError, Losses, Reply};
use crate::store::{Entry, OpenRound, RoundRecord, Selected, Spooled, StageRecord, StoreError};
use coordinator::{
    published::{Published, publish},
    round::ClosedRound,
    stage::Stage,
};
use strategies::{
    combine::{direction, weighted_mean},
    device::DeviceRecord,
    error::CombineError,
    guard::Scaled,
    strategy::{Ask, Exchange, Kind, Member},
};

/// Exchanges of a round beyond this many would mean that a strategy goes in circles.
const MAX_STAGES: usize = 8;
impl Keeper {
    /// A round begins: its first exchange.
    pub(super) fn open_round(
        &mut self,
        number: u32,
        seats: Vec<(DeviceId, Tier)>,
        wanted: Vec<usize>,
    ) -> Result<Reply, KeeperError> {
        self.show_fleet();
        let selected = seats.into_iter().map(|(device, tier)| Selected { device, tier }).collect();
        self.open = Some(RoundRecord { number, attempt: self.attempt, selected, wanted, stages: vec![] });
        self.losses = Losses::default();
        let opened = common::Instant::ZERO;
        self.proceed(&ClosedRound::empty(number, self.settings.lr_of(number), opened))
    }

    /// An exchange has ended.
    pub(super) fn close(&mut self, mut closed: ClosedRound) -> Result<Reply, KeeperError> {
        closed.opened = *self.losses.opened.get_or_insert(closed.opened);
        self.losses.refused.append(&mut closed.refused);
        self.losses.silent.append(&mut closed.silent);
        self.losses.gone.append(&mut closed.gone);
        if closed.kind == Kind::Train {
            self.losses.late = std::mem::take(&mut closed.late);
        }
        self.proceed(&closed)
    }

    /// A strategy without memory is shown the fleet: at the begin of a run, and after going back.
    fn show_fleet(&mut self) {
        if self.fresh {
            let fleet = self.guard.enrolled(&self.fleet);
            self.method.strategy.begin(&fleet.iter().map(member).collect::<Vec<_>>());
        }
    }

    /// The exchange that was open when the aggregator stopped, as it was. If devices are told something else in it now,
    /// because the configuration has changed, it has another name.
    pub fn reopen(&mut self, open: &OpenRound) -> Result<Stage, KeeperError> {
        self.show_fleet();
        let mut record = open.record.clone();
        let stage = record.stages.pop();
        for (number, StageRecord { asked, .. }) in record.stages.iter().enumerate() {
            let delivered = self.store.updates(record.number, number as u8)?;
            let tiers =
                record.selected.iter().filter(|selected| asked.binary_search(&selected.device).is_ok());
            let missing = tiers.filter(|selected| {
                delivered.binary_search_by(|entry| entry.header.device.cmp(&selected.device)).is_err()
            });
            self.losses.silent.extend(missing.map(|selected| (selected.device.clone(), selected.tier)));
        }
        self.open = Some(record);
        let lr = self.settings.lr_of(open.record.number);
        let formed = match self.next_stage(lr) {
            Ok(formed) => formed,
            Err(CombineError::Read(failed)) => return Err(failed.into()),
            Err(failed) => {
                error!("the open exchange can not be formed again: {failed}");
                None
            }
        };
        let formed = formed.unwrap_or_else(|| Stage {
            round: open.record.number,
            number: open.record.stage(),
            kind: stage.as_ref().map_or(Kind::Train, |stage| stage.kind),
            lr,
            seats: vec![],
            guide: vec![],
        });
        let mut record = open.record.clone();
        if let Some(last) = record.stages.last_mut().filter(|last| last.digest != formed.digest()) {
            warn!(round = record.number, "the configuration has changed: devices are asked once more");
            last.digest = formed.digest();
            self.attempt = self.attempt.wrapping_add(1);
            record.attempt = self.attempt;
            self.recorded = false;
        }
        self.open = Some(record);
        Ok(formed)
    }

    /// The next exchange of the open round, or its end.
    fn proceed(&mut self, closed: &ClosedRound) -> Result<Reply, KeeperError> {
        match self.next_stage(closed.lr) {
            Ok(Some(stage)) => {
                if let Some(record) = &mut self.open {
                    let asked = stage.seats.iter().map(|(device, ..)| device.clone()).collect();
                    record.stages.push(StageRecord { kind: stage.kind, digest: stage.digest(), asked });
                    self.recorded = false;
                }
                // If somebody could still deliver after a crash, this exchange would be another one: nobody hears of it
                // before the store has.
                if !self.losses.is_empty() {
                    self.record()?;
                }
                Ok(Reply::Opened(stage))
            }
            Ok(None) => self.finish(closed, None),
            // Acknowledged updates are not given up because the disk has failed.
            Err(CombineError::Read(failed)) => Err(failed.into()),
            Err(failed) => {
                error!(round = closed.number, "the round ends early: {failed}");
                self.finish(closed, Some(Code::NonFiniteResult))
            }
        }
    }

    fn next_stage(&mut self, lr: f32) -> Result<Option<Stage>, CombineError<StoreError>> {
        let Some(record) = self.open.clone().filter(|record| record.stages.len() < MAX_STAGES) else {
            return Ok(None);
        };
        let stages: Vec<Vec<Entry>> = (0..record.stages.len())
            .map(|stage| self.store.updates(record.number, stage as u8))
            .collect::<Result<_, _>>()
            .map_err(CombineError::Read)?;
        let (regions, layers) = (self.model.regions.clone(), self.model.layers.clone());
        let past = self.past(record.number)?;
        let scene = self.scene(&regions, &layers, record.number, lr, &past);
        let mut verdicts = Vec::with_capacity(stages.len());
        let exchange = |(stage, entries): (&StageRecord, &Vec<Entry>)| {
            let mut cohort = scene.cohort(entries);
            verdicts.push(self.guard.inspect(&mut cohort, stage.kind));
            Exchange { kind: stage.kind, cohort }
        };
        let made: Vec<Exchange> = record.stages.iter().zip(&stages).map(exchange).collect();
        let alive = alive(&record, &stages);
        let names: Vec<_> = alive.iter().map(|(device, _)| device.clone()).collect();
        let Some(ask) = self.method.strategy.next(&made, &names).filter(|_| !alive.is_empty()) else {
            return Ok(None);
        };
        let seats = alive
            .into_iter()
            .filter_map(|(device, tier)| {
                let task = self.task(&ask, (&device, tier), &made, record.number, lr)?;
                Some((device, tier, task))
            })
            .collect();
        let of = |kind: Kind| made.iter().rposition(|exchange| exchange.kind == kind);
        let wanted = match &ask {
            Ask::Train { guide: Some(weights) } => of(Kind::Gradients).map(|at| (at, Some(weights))),
            Ask::Try { .. } => of(Kind::Train).map(|at| (at, None)),
            _ => None,
        };
        let vector = match wanted {
            Some((at, weights)) => {
                let (cohort, strategy) = (&made[at].cohort, &*self.method.strategy);
                let spooled = Spooled::new(&mut *self.store, &stages[at]).with_past(&past);
                let mut updates = Scaled::new(spooled, &verdicts[at].scales);
                Some(match weights {
                    Some(weights) => weighted_mean(strategy, weights, cohort, &mut updates)?,
                    None => direction(strategy, cohort, &mut updates)?,
                })
            }
            None => None,
        };
        let guide = vector.map_or(vec![], |vector| self.slices(&vector));
        let (round, number) = (record.number, record.stages.len() as u8);
        Ok(Some(Stage { round, number, kind: ask.kind(), lr, seats, guide }))
    }

    fn slices(&self, vector: &[f64]) -> Vec<Published> {
        let vector: Vec<f32> = vector.iter().map(|&value| value as f32).collect();
        publish(&self.model, &vector, &self.settings.down)
    }

    /// What a device is told; `None` if it is not asked.
    fn task(
        &self,
        ask: &Ask,
        (device, tier): (&DeviceId, Tier),
        made: &[Exchange],
        round: u32,
        lr: f32,
    ) -> Option<Task> {
        let seed = device_seed(self.settings.seed, round, device);
        let codec = self.settings.up.of(tier)?;
        let mut brief = Brief { lr, seed, codec, ..self.settings.brief.clone() };
        self.method.brief(device, made, &mut brief);
        Some(match ask {
            Ask::Alone { task, devices } => {
                if !devices.contains(device) {
                    return None;
                }
                let (epochs, objective) = (task.brief.epochs, Objective::default());
                Task::Alone(Alone { brief: Brief { epochs, objective, ..brief }, ..task.clone() })
            }
            Ask::Losses => Task::Evaluate(brief.groups),
            Ask::Gradients => Task::Train(Brief {
                product: Product::Gradient,
                objective: Objective { align: 0.0, ..brief.objective },
                personal: None,
                loss_after: false,
                ..brief
            }),
            Ask::Train { .. } => Task::Train(brief),
            Ask::Try { steps } => Task::Try(steps.iter().map(|&step| step as f32).collect()),
        })
    }
}

fn member(record: &DeviceRecord) -> Member<'_> {
    let DeviceRecord { device, tier, data, .. } = record;
    Member { device, tier: *tier, samples: f64::from(data.train_samples), groups: &data.groups }
}
/// Who has delivered everything asked for so far.
fn alive(record: &RoundRecord, stages: &[Vec<Entry>]) -> Vec<(DeviceId, Tier)> {
    let delivered = |stage: usize, device: &DeviceId| {
        stages[stage].binary_search_by(|entry| entry.header.device.cmp(device)).is_ok()
    };
    let failed = |device: &DeviceId| {
        let asked =
            record.stages.iter().enumerate().filter(|(_, stage)| stage.asked.binary_search(device).is_ok());
        asked.into_iter().any(|(number, _)| !delivered(number, device))
    };
    let selected = record.selected.iter().filter(|selected| !failed(&selected.device));
    selected.map(|selected| (selected.device.clone(), selected.tier)).collect()
}

/// Sample order differs between devices and rounds and follows from the run's seed alone.
fn device_seed(seed: u64, round: u32, device: &DeviceId) -> u64 {
    let name = u64::from(crc32(device.as_str().as_bytes()));
    rng::derive(rng::derive(seed, u64::from(round)), name)
}
