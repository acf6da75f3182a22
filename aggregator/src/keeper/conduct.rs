//! The exchanges of a round: asks the strategy what comes next, until the round can be combined.
//!
//! What was asked follows from the strategy's state and from what the store holds of the round, so after a
//! restart the open exchange is formed again and means the same.

use std::{collections::BTreeSet, ops::Range};

use common::{
    Code, DeviceId, Tier,
    brief::{Brief, GroupReport, Objective, Product},
    message::{Alone, Task},
    region::RegionMap,
    rng,
    wire::crc32,
};
use tracing::{error, info, warn};

use super::{
    Keeper, KeeperError, Reply,
    belief::{Delivered, delivered, warn_of},
    books::Trained,
    state,
};
use crate::{
    combine::{
        Absent, Cohort, CombineError, Conflicts, Outcome, combine, direction,
        guard::{self, GuardLine, Scaled, Verdict, screen::cosines},
        weighted_mean,
    },
    fleet::DeviceRecord,
    model::Published,
    report::RoundReport,
    round::{ClosedRound, Purpose},
    stage::Stage,
    store::{Commit, Entry, Header, OpenRound, RoundRecord, Selected, Spooled, StageRecord, StoreError},
    strategy::{Ask, Exchange, Kind, Member},
};

/// Exchanges of a round beyond this many would mean that a strategy goes in circles.
const MAX_STAGES: usize = 8;

/// What the store has to know of a round that is combined.
#[derive(Clone, Debug)]
pub struct Due {
    report: RoundReport,
    /// Of the strategy and the guard.
    state: Vec<u8>,
}

/// Who was asked in a round and did not deliver.
#[derive(Clone, Debug, Default)]
pub struct Losses {
    /// When the first exchange was opened.
    opened: Option<common::Instant>,
    refused: Vec<(DeviceId, Tier, Code)>,
    silent: Vec<(DeviceId, Tier)>,
    gone: Vec<(DeviceId, Tier)>,
    /// Of the exchange of training.
    late: Vec<(DeviceId, Tier)>,
}

impl Losses {
    /// Nobody was lost, so after a crash no more could arrive than is in the store.
    fn is_empty(&self) -> bool {
        let Self { refused, silent, gone, late, .. } = self;
        refused.is_empty() && silent.is_empty() && gone.is_empty() && late.is_empty()
    }

    /// Whoever has delivered an update is not lost for the round, whatever it was asked for besides, and nobody is lost twice.
    fn without(&mut self, delivered: &[Delivered]) {
        let mut seen: BTreeSet<DeviceId> = delivered.iter().map(|(device, ..)| device.clone()).collect();
        let counted = seen.clone();
        self.refused.retain(|(device, ..)| seen.insert(device.clone()));
        self.silent.retain(|(device, _)| seen.insert(device.clone()));
        let silent: BTreeSet<_> = self.silent.iter().map(|(device, _)| device.clone()).collect();
        self.gone.retain(|(device, _)| !counted.contains(device) && silent.contains(device));
    }
}

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
        let made: Vec<Exchange<'_>> = record.stages.iter().zip(&stages).map(exchange).collect();
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
                let mut cohort = made[at].cohort.clone();
                self.leave_out(&mut cohort, &mut verdicts[at]);
                let spooled = Spooled::new(&mut *self.store, &stages[at]).with_past(&past);
                let mut updates = Scaled::new(spooled, &verdicts[at].scales);
                Some(match weights {
                    Some(weights) => weighted_mean(weights, &cohort, &mut updates)?,
                    None => direction(&*self.method.strategy, &cohort, &mut updates)?,
                })
            }
            None => None,
        };
        let guide = vector.map_or(vec![], |vector| self.slices(&vector));
        let (round, number) = (record.number, record.stages.len() as u8);
        Ok(Some(Stage { round, number, kind: ask.kind(), lr, seats, guide }))
    }

    /// Where a strategy weighs directions against each other, a device that counts for a part only would be the one that all
    /// others give way to: it does not count at all.
    fn leave_out(&self, cohort: &mut Cohort<'_>, verdict: &mut Verdict) {
        if self.method.strategy.scope().is_none() {
            return;
        }
        for index in (0..cohort.participants().len()).rev() {
            if cohort.credit(index) < 1.0
                && let Some((device, tier)) = cohort.dismiss(index, Code::PointsAway)
            {
                verdict.scales.remove(&device);
                verdict.refused.push((device, tier, Code::PointsAway));
            }
        }
        verdict.refused.sort_by(|a, b| a.0.cmp(&b.0));
    }

    fn slices(&self, vector: &[f64]) -> Vec<Published> {
        let vector: Vec<f32> = vector.iter().map(|&value| value as f32).collect();
        self.model.publish(&vector, &self.settings.down)
    }

    /// What a device is told; `None` if it is not asked.
    fn task(
        &self,
        ask: &Ask,
        (device, tier): (&DeviceId, Tier),
        made: &[Exchange<'_>],
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

    fn scene<'a>(
        &self,
        regions: &'a RegionMap,
        layers: &'a [Range<usize>],
        round: u32,
        lr: f32,
        past: &'a [Entry],
    ) -> Scene<'a> {
        let refused = self.losses.refused.clone();
        Scene { regions, layers, round, lr: lr.into(), clients: self.fleet.len(), refused, past }
    }

    fn past(&self, round: u32) -> Result<Vec<Entry>, CombineError<StoreError>> {
        let needs = self.method.needs();
        if needs.history == 0 {
            return Ok(vec![]);
        }
        let mut past = self.store.past(round).map_err(CombineError::Read)?;
        if needs.recent > 0 {
            past.retain(|entry| entry.header.ticket.round.saturating_add(needs.recent) >= round);
        }
        Ok(past)
    }

    /// Combines; the commit is due.
    fn finish(&mut self, closed: &ClosedRound, failed: Option<Code>) -> Result<Reply, KeeperError> {
        let record = self.open.take().unwrap_or_else(|| RoundRecord {
            number: closed.number,
            attempt: self.attempt,
            selected: vec![],
            wanted: vec![],
            stages: vec![],
        });
        if record.stages.is_empty() {
            // A round must be open before it can be committed, and the one before it be closed.
            self.commit()?;
            self.store.open_round(&record)?;
        }
        let train = record.stages.iter().rposition(|stage| stage.kind == Kind::Train);
        let entries = match train {
            Some(stage) => self.store.updates(record.number, stage as u8)?,
            None => vec![],
        };
        let mut counted = delivered(&entries);
        let Combined { outcome, conflicts, mut lines, refused } = match failed {
            Some(code) => Combined::kept(code),
            None => self.combine(&record, closed.lr, train, &entries, &mut counted)?,
        };
        if let Some(code) = outcome.kept {
            warn!(round = closed.number, "the model stays as it is: {code}");
        }
        self.guard.check_scores(&mut counted, self.model.plans.len(), &mut lines);
        warn_of(&lines);
        let mut losses = std::mem::take(&mut self.losses);
        let complete = losses.is_empty();
        losses.without(&counted);
        let Losses { refused: refused_offers, silent, gone, late, .. } = losses;
        let closed =
            ClosedRound { delivered: counted, refused: refused_offers, silent, gone, late, ..closed.clone() };
        let stages: Vec<_> = (0..record.stages.len())
            .map(|stage| self.store.updates(record.number, stage as u8))
            .collect::<Result<_, _>>()?;
        let mut report = RoundReport::new(&closed, Purpose::Train, Some(&outcome), self.model.plans.len())
            .with_traffic(self.traffic(&record, &stages))
            .with_guard(lines, &refused);
        if let Some(conflicts) = conflicts {
            report = report.with_conflicts(conflicts);
        }
        if let Some(groups) = self.group_report() {
            report = report.with_groups(&closed, groups.signal);
        }
        let (lost, refused) = (report.silent.len(), report.refused.len());
        info!(
            round = closed.number,
            loss = report.loss.mean,
            devices = report.devices.len(),
            lost,
            refused,
            "combined"
        );
        let state = state::join(self.method.save(), &self.guard.save());
        self.due = Some(Due { report, state });
        self.committed = closed.number;
        self.fresh = false;
        // Nobody hears of a model before its commit if a crash could lead to another one, nor of the last one: whoever has
        // heard that the run is over does not come back.
        if !complete || self.committed >= self.settings.rounds {
            self.commit()?;
        }
        Ok(Reply::Committed(self.model.publish(&self.parameters, &self.settings.down)))
    }

    /// Makes the result of the last round durable, and then known.
    pub(super) fn commit(&mut self) -> Result<(), KeeperError> {
        let Some(Due { report, state, .. }) = self.due.take() else { return Ok(()) };
        self.store.commit_round(&Commit {
            round: report.round,
            parameters: &self.parameters,
            strategy_state: &state,
            report: &serde_json::to_string(&report).unwrap_or_default(),
            history: self.method.needs().history,
        })?;
        self.publish(&report);
        Ok(())
    }

    /// What devices are asked to say about groups.
    fn group_report(&self) -> Option<GroupReport> {
        let mut brief = self.settings.brief.clone();
        let anybody = self.fleet.keys().next()?;
        self.method.brief(anybody, &[], &mut brief);
        brief.groups
    }

    /// The next model, or the present one and the reason why it stays.
    fn combine(
        &mut self,
        record: &RoundRecord,
        lr: f32,
        train: Option<usize>,
        entries: &[Entry],
        counted: &mut [Delivered],
    ) -> Result<Combined, KeeperError> {
        let Some(train) = train else { return Ok(Combined::kept(Code::EmptyRound)) };
        match self.try_combine(record, lr, train, entries, counted) {
            Ok(combined) => Ok(combined),
            Err(CombineError::Read(failed)) => Err(failed.into()),
            Err(failed) => {
                error!(round = record.number, "{failed}");
                Ok(Combined::kept(Code::NonFiniteResult))
            }
        }
    }

    fn try_combine(
        &mut self,
        record: &RoundRecord,
        lr: f32,
        train: usize,
        entries: &[Entry],
        counted: &mut [Delivered],
    ) -> Result<Combined, CombineError<StoreError>> {
        let (regions, layers) = (self.model.regions.clone(), self.model.layers.clone());
        let past = self.past(record.number)?;
        let scene = self.scene(&regions, &layers, record.number, lr, &past);
        let (mut gradients, mut verdict, mut named) = (vec![], Verdict::default(), vec![]);
        let mut made = Vec::with_capacity(record.stages.len());
        for (number, stage) in record.stages.iter().enumerate() {
            let entries = self.store.updates(record.number, number as u8).map_err(CombineError::Read)?;
            let mut cohort = scene.cohort(&entries);
            let mut found = self.guard.inspect(&mut cohort, stage.kind);
            if number == train {
                guard::count(counted, &cohort, &found.lines);
            }
            named.append(&mut found.lines);
            if number == train {
                verdict = found;
            }
            made.push(Exchange { kind: stage.kind, cohort });
            if stage.kind == Kind::Gradients {
                gradients = entries;
            }
        }
        let (earlier, rest) = made.split_at_mut(train);
        let Some((Exchange { cohort, .. }, later)) = rest.split_first_mut() else {
            return Ok(Combined::kept(Code::EmptyRound));
        };
        for tried in later.iter().filter(|exchange| exchange.kind == Kind::Try) {
            for participant in tried.cohort.participants() {
                cohort.set_trials(&participant.device, participant.trials());
            }
        }
        let scales = std::mem::take(&mut verdict.scales);
        if self.guard.screens() {
            let spooled = Spooled::new(&mut *self.store, entries).unchecked();
            let cosines = cosines(cohort, &mut Scaled::new(spooled, &scales))?;
            self.guard.screen(&cosines, &mut verdict);
        }
        self.leave_out(cohort, &mut verdict);
        let trained =
            Trained { cohort, entries, past: &past, earlier, gradients: &gradients, scales: &scales };
        self.write_round(&trained);
        let before = if self.books.conflicts { self.parameters.clone() } else { vec![] };
        let spooled = Spooled::new(&mut *self.store, entries).with_past(&past);
        let mut updates = Scaled::new(spooled, &scales);
        let outcome = combine(&mut self.method, cohort, earlier, &mut updates, &mut self.parameters)?;
        let conflicts = self.count_conflicts(&before, &trained);
        let (mut lines, refused) = (named, std::mem::take(&mut verdict.refused));
        lines.append(&mut verdict.lines);
        // What was said in several exchanges is named once.
        let mut seen = BTreeSet::new();
        lines.retain(|line| seen.insert((line.device.clone(), line.what)));
        self.guard.learn(verdict);
        Ok(Combined { outcome, conflicts, lines, refused })
    }
}

/// What came of a round's updates.
struct Combined {
    outcome: Outcome,
    conflicts: Option<Conflicts>,
    /// What was not believed.
    lines: Vec<GuardLine>,
    refused: Vec<(DeviceId, Tier, Code)>,
}

impl Combined {
    /// The model stays as it is.
    fn kept(code: Code) -> Self {
        let outcome = Outcome {
            kept: Some(code),
            weights: vec![],
            regions: vec![],
            refused: vec![],
            notes: Default::default(),
        };
        Self { outcome, conflicts: None, lines: vec![], refused: vec![] }
    }
}

fn member(record: &DeviceRecord) -> Member<'_> {
    let DeviceRecord { device, tier, data, .. } = record;
    Member { device, tier: *tier, samples: f64::from(data.train_samples), groups: &data.groups }
}

/// What the exchanges of a round have in common.
struct Scene<'a> {
    regions: &'a RegionMap,
    layers: &'a [Range<usize>],
    round: u32,
    lr: f64,
    clients: usize,
    refused: Vec<(DeviceId, Tier, Code)>,
    past: &'a [Entry],
}

impl<'a> Scene<'a> {
    fn cohort(&self, entries: &[Entry]) -> Cohort<'a> {
        let mut cohort = Cohort::new(self.regions, self.lr);
        cohort.round = self.round;
        cohort.set_clients(self.clients);
        cohort.set_layers(self.layers);
        cohort.reserve(entries.len());
        for Entry { header, .. } in entries {
            let Header { device, tier, scalars, norms, .. } = header;
            // Refusals are kept in the cohort and come back with the outcome.
            let _ = cohort.admit(device.clone(), *tier, scalars.clone(), norms);
        }
        for (device, _, code) in &self.refused {
            cohort.refuse(device.clone(), *code);
        }
        for Entry { header, .. } in self.past {
            let Header { device, tier, ticket, lr, .. } = header;
            let (device, round, lr) = (device.clone(), ticket.round, f64::from(*lr));
            cohort.remember(Absent { device, tier: *tier, round, lr });
        }
        cohort
    }
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
