//! The end of a round: combines what was delivered, makes the result durable, and then known.

use std::collections::{BTreeMap, BTreeSet};

use common::{
    Code, DeviceId, Tier,
    brief::{Brief, GroupReport},
};
use tracing::{error, info, warn};

use super::{Keeper, KeeperError, Losses, Reply, books::Trained, state};
use crate::store::{Commit, Entry, RoundRecord, Spooled, StoreError};
use coordinator::{
    published::publish,
    report::RoundReport,
    round::{ClosedRound, Purpose},
};
use strategies::{
    cohort::Cohort,
    combine::{Conflicts, Outcome, combine},
    error::CombineError,
    guard::{self, Bonus, Delivered, GuardLine, Scaled, agreement::disagreeing, probe},
    strategy::{Exchange, Kind},
};

/// What the store has to know of a round that is combined.
#[derive(Clone, Debug)]
pub struct Due {
    report: RoundReport,
    /// Of the strategy and the guard.
    state: Vec<u8>,
}
impl Keeper {
    /// Combines; the commit is due.
    pub(super) fn finish(
        &mut self,
        closed: &ClosedRound,
        failed: Option<Code>,
    ) -> Result<Reply, KeeperError> {
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
        self.guard.show(&mut counted, &mut lines);
        self.held.note(closed.number, counted.iter().map(|(device, ..)| device), &lines);
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
            loss = (report.loss.count > 0).then_some(report.loss.mean),
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
        Ok(Reply::Committed(publish(&self.model, &self.parameters, &self.settings.down)))
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
        let mut gradients = vec![];
        let (mut made, mut verdicts) = (vec![], vec![]);
        for (number, stage) in record.stages.iter().enumerate() {
            let entries = self.store.updates(record.number, number as u8).map_err(CombineError::Read)?;
            let mut cohort = scene.cohort(&entries);
            verdicts.push(self.guard.inspect(&mut cohort, stage.kind));
            made.push(Exchange { kind: stage.kind, cohort });
            if stage.kind == Kind::Gradients {
                gradients = entries;
            }
        }
        let (earlier, rest) = made.split_at_mut(train);
        let Some((Exchange { cohort, .. }, later)) = rest.split_first_mut() else {
            return Ok(Combined::kept(Code::EmptyRound));
        };
        guard::show_groups(counted, cohort);
        for tried in later.iter().filter(|exchange| exchange.kind == Kind::Try) {
            for participant in tried.cohort.participants() {
                cohort.set_trials(&participant.device, participant.trials());
            }
        }
        let scales = std::mem::take(&mut verdicts[train].scales);
        self.take_away_bonus(cohort, entries, &scales)?;
        let probed = self.compare_with_probe(&scene.cohort(entries), entries, lr)?;
        let trained =
            Trained { cohort, entries, past: &past, earlier, gradients: &gradients, scales: &scales };
        self.write_round(&trained);
        let before = if self.books.conflicts { self.parameters.clone() } else { vec![] };
        let spooled = Spooled::new(&mut *self.store, entries).with_past(&past);
        let mut updates = Scaled::new(spooled, &scales);
        let outcome = combine(&mut self.method, cohort, earlier, &mut updates, &mut self.parameters)?;
        let conflicts = self.count_conflicts(&before, &trained);
        let config = self.guard.config();
        let shares = outcome.held.iter().map(|held| GuardLine::share(held, config));
        let mut lines: Vec<GuardLine> = verdicts
            .iter_mut()
            .flat_map(|verdict| std::mem::take(&mut verdict.lines))
            .chain(shares)
            .collect();
        // What was said in several exchanges is named once.
        let mut seen = BTreeSet::new();
        lines.retain(|line| seen.insert((line.device.clone(), line.what)));
        let left_out = verdicts[train].left_out.iter().cloned();
        let refused = left_out.map(|(device, tier)| (device, tier, Code::PointsAway)).collect();
        self.guard.learn(&verdicts);
        self.guard.note_probe(&probed);
        Ok(Combined { outcome, conflicts, lines, refused })
    }

    /// With `bonus = "agreeing"`: devices whose updates point away from the others have none.
    fn take_away_bonus(
        &mut self,
        cohort: &mut Cohort,
        entries: &[Entry],
        scales: &BTreeMap<DeviceId, f64>,
    ) -> Result<(), CombineError<StoreError>> {
        if self.guard.is_on() && self.guard.config().bonus == Bonus::Agreeing {
            let spooled = Spooled::new(&mut *self.store, entries).unchecked();
            let disagreeing = disagreeing(cohort, &mut Scaled::new(spooled, scales))?;
            if let Some(bounds) = &mut cohort.bounds {
                bounds.no_bonus = disagreeing;
            }
        }
        Ok(())
    }

    /// With a probe: how far every update points along with it.
    fn compare_with_probe(
        &mut self,
        cohort: &Cohort,
        entries: &[Entry],
        lr: f32,
    ) -> Result<BTreeMap<DeviceId, f64>, CombineError<StoreError>> {
        let Some(probe) = self.probe.as_ref().filter(|_| self.guard.is_on()) else {
            return Ok(BTreeMap::new());
        };
        let brief = Brief { lr, seed: u64::from(cohort.round), ..self.settings.brief.clone() };
        match probe.update(&self.model, &self.parameters, &brief) {
            Ok(own) => probe::cosines(cohort, &own, &mut Spooled::new(&mut *self.store, entries).unchecked()),
            Err(failed) => {
                warn!(round = cohort.round, "{failed}");
                Ok(BTreeMap::new())
            }
        }
    }

    /// The scores of the final model.
    pub(super) fn final_report(&self, mut closed: ClosedRound) -> RoundReport {
        let mut lines = vec![];
        self.guard.show(&mut closed.delivered, &mut lines);
        RoundReport::new(&closed, Purpose::Evaluate, None, self.model.plans.len()).with_guard(lines, &[])
    }
}

fn delivered(entries: &[Entry]) -> Vec<Delivered> {
    let of = |Entry { header, .. }: &Entry| (header.device.clone(), header.tier, header.scalars.clone());
    entries.iter().map(of).collect()
}

/// What came of a round's updates.
struct Combined {
    outcome: Outcome,
    conflicts: Option<Conflicts>,
    /// What the guard has held.
    lines: Vec<GuardLine>,
    refused: Vec<(DeviceId, Tier, Code)>,
}

impl Combined {
    /// The model stays as it is.
    fn kept(code: Code) -> Self {
        let outcome = Outcome {
            kept: Some(code),
            weights: vec![],
            held: vec![],
            raised: 0,
            regions: vec![],
            refused: vec![],
            notes: Default::default(),
        };
        Self { outcome, conflicts: None, lines: vec![], refused: vec![] }
    }
}
