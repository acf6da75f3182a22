//! The end of a round: combines what was delivered, makes the result durable, and then known.

use std::collections::BTreeSet;

use common::{Code, DeviceId, Tier, brief::GroupReport};
use tracing::{error, info, warn};

use super::{
    Keeper, KeeperError, Losses, Reply,
    belief::{Delivered, delivered, warn_of},
    books::Trained,
    state,
};
use crate::{
    combine::{
        CombineError, Conflicts, Outcome, combine,
        guard::{self, GuardLine, Scaled, Verdict, screen::cosines},
    },
    report::RoundReport,
    round::{ClosedRound, Purpose},
    store::{Commit, Entry, RoundRecord, Spooled, StoreError},
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
