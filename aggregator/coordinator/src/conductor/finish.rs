//! The end of a round: combines what was delivered, and says what has to be committed.

use std::collections::{BTreeMap, BTreeSet};

use common::{
    Code, DeviceId, Tier,
    brief::{Brief, GroupReport, Product},
};
use strategies::{
    cohort::Cohort,
    combine::{Conflicts, Outcome, combine, conflicts},
    error::CombineError,
    guard::{self, Bonus, Delivered, GuardLine, Scaled, agreement::disagreeing, probe},
    roundfile::RoundDump,
    strategy::{Ask, Exchange, Kind},
    updates::{Row, Updates},
};
use tracing::{error, info, warn};

use super::{Committed, Conductor, Deliveries, Next, Open, Reading, Recorder, dropouts::Dropouts, state};
use crate::{
    exchange::{ClosedExchange, Purpose},
    record::{Header, RoundRecord},
    report::RoundReport,
};

impl Conductor {
    /// Combines the open round. With a code, it has failed already, and the model stays as it is.
    pub(super) fn finish<D: Deliveries>(
        &mut self,
        closed: &ClosedExchange,
        failed: Option<Code>,
        deliveries: &mut D,
        recorder: &mut impl Recorder,
    ) -> Result<Next, D::Error> {
        let mut open = self.round.take().unwrap_or_else(|| Open {
            record: RoundRecord {
                number: closed.number,
                attempt: self.run.attempt,
                selected: vec![],
                wanted: vec![],
                exchanges: vec![],
            },
            made: vec![],
            found: vec![],
            dropouts: Dropouts::default(),
            past: vec![],
        });
        let train = open.made.iter().rposition(|made| made.kind == Kind::Train);
        let delivered = match train {
            Some(train) => deliveries.delivered(open.record.number, train as u8)?,
            None => vec![],
        };
        let headers: Vec<Header> = delivered.into_iter().map(|(header, _)| header).collect();
        let mut counted: Vec<Delivered> = headers
            .iter()
            .map(|header| (header.device.clone(), header.tier, header.scalars.clone()))
            .collect();
        let Combined { outcome, conflicts, mut lines, refused } = match (failed, train) {
            (Some(code), _) => Combined::kept(code),
            (None, None) => Combined::kept(Code::EmptyRound),
            (None, Some(train)) => {
                let traffic = (closed.lr, train);
                match self.try_combine(&mut open, traffic, &headers, &mut counted, deliveries, recorder) {
                    Ok(combined) => combined,
                    Err(CombineError::Read(failed)) => return Err(failed),
                    Err(failed) => {
                        error!(round = open.record.number, "{failed}");
                        Combined::kept(Code::NonFiniteResult)
                    }
                }
            }
        };
        if let Some(code) = outcome.kept {
            warn!(round = closed.number, "the model stays as it is: {code}");
        }
        self.run.guard.show(&mut counted, &mut lines);
        self.held.note(closed.number, counted.iter().map(|(device, ..)| device), &lines);
        let complete = open.dropouts.is_empty();
        let traffic = self.traffic(&open);
        let Open { record, mut dropouts, .. } = open;
        dropouts.without(&counted);
        let Dropouts { refused: refused_offers, silent, gone, late, .. } = dropouts;
        let closed = ClosedExchange {
            delivered: counted,
            refused: refused_offers,
            silent,
            gone,
            late,
            ..closed.clone()
        };
        let mut report =
            RoundReport::new(&closed, Purpose::Train, Some(&outcome), self.run.model.plans.len())
                .with_traffic(traffic)
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
        self.run.committed = closed.number;
        self.run.fresh = false;
        Ok(Next::Commit(Committed {
            report,
            state: state::join(self.run.method.save(), &self.run.guard.save()),
            published: self.publish(),
            unopened: record.exchanges.is_empty().then_some(record),
            // After a crash, more devices could deliver, and another model would follow. A device that has heard that the run is
            // over does not come back for another last model.
            durable_first: !complete || self.run.committed >= self.run.settings.rounds,
        }))
    }

    /// The scores of the final model.
    pub fn final_report(&self, mut closed: ClosedExchange) -> RoundReport {
        let mut lines = vec![];
        self.run.guard.show(&mut closed.delivered, &mut lines);
        self.held.sum_up();
        RoundReport::new(&closed, Purpose::Evaluate, None, self.run.model.plans.len()).with_guard(lines, &[])
    }

    /// What devices are asked to say about groups.
    fn group_report(&self) -> Option<GroupReport> {
        let mut brief = self.run.settings.brief.clone();
        let any = self.run.fleet.keys().next()?;
        self.run.method.brief(any, &[], &mut brief);
        brief.groups
    }

    fn try_combine<D: Deliveries>(
        &mut self,
        open: &mut Open,
        (lr, train): (f32, usize),
        headers: &[Header],
        counted: &mut [Delivered],
        deliveries: &mut D,
        recorder: &mut impl Recorder,
    ) -> Result<Combined, CombineError<D::Error>> {
        let probed = self.compare_with_probe(open, (lr, train), headers, deliveries)?;
        let round = open.record.number;
        let scales = std::mem::take(&mut open.found[train].verdict.scales);
        let (earlier, rest) = open.made.split_at_mut(train);
        let Some((Exchange { cohort, .. }, later)) = rest.split_first_mut() else {
            return Ok(Combined::kept(Code::EmptyRound));
        };
        guard::show_groups(counted, cohort);
        for tried in later.iter().filter(|exchange| exchange.kind == Kind::Try) {
            for participant in tried.cohort.participants() {
                cohort.set_trials(&participant.device, participant.trials());
            }
        }
        self.take_away_bonus(cohort, (round, train), &scales, deliveries)?;
        if recorder.is_on() {
            self.write_round(earlier, cohort, (round, train), &scales, deliveries, recorder)?;
        }
        // A gradient points the other way than an update.
        let counts_conflicts = self.run.conflicts && self.run.method.needs().product != Product::Gradient;
        let before = if counts_conflicts { self.run.parameters.clone() } else { vec![] };
        let read = deliveries.read(round, train as u8, Reading::Past).map_err(CombineError::Read)?;
        let mut updates = Scaled::new(read, &scales);
        let outcome = combine(&mut self.run.method, cohort, earlier, &mut updates, &mut self.run.parameters)?;
        drop(updates);
        let conflicts = if counts_conflicts {
            let read = deliveries.read(round, train as u8, Reading::Now).map_err(CombineError::Read)?;
            let counted = conflicts(cohort, &before, &self.run.parameters, &mut Scaled::new(read, &scales));
            counted.inspect_err(|failed| warn!("conflicts cannot be counted: {failed}")).ok()
        } else {
            None
        };
        let config = self.run.guard.config();
        let shares = outcome.held.iter().map(|held| GuardLine::share(held, config));
        let verdicts = open.found.iter_mut().map(|found| &mut found.verdict);
        let mut lines: Vec<GuardLine> =
            verdicts.flat_map(|verdict| std::mem::take(&mut verdict.lines)).chain(shares).collect();
        // What was said in several exchanges is named once.
        let mut seen = BTreeSet::new();
        lines.retain(|line| seen.insert((line.device.clone(), line.what)));
        let left_out = open.found[train].verdict.left_out.iter().cloned();
        let refused = left_out.map(|(device, tier)| (device, tier, Code::PointsAway)).collect();
        self.run.guard.learn(open.found.iter().map(|found| &found.verdict));
        self.run.guard.note_probe(&probed);
        Ok(Combined { outcome, conflicts, lines, refused })
    }

    /// With `bonus = "agreeing"`: devices whose updates point away from the others have none.
    fn take_away_bonus<D: Deliveries>(
        &self,
        cohort: &mut Cohort,
        (round, train): (u32, usize),
        scales: &BTreeMap<DeviceId, f64>,
        deliveries: &mut D,
    ) -> Result<(), CombineError<D::Error>> {
        if self.run.guard.is_on() && self.run.guard.config().bonus == Bonus::Agreeing {
            let read = deliveries.read(round, train as u8, Reading::Unchecked).map_err(CombineError::Read)?;
            let disagreeing = disagreeing(cohort, &mut Scaled::new(read, scales))?;
            if let Some(bounds) = &mut cohort.bounds {
                bounds.no_bonus = disagreeing;
            }
        }
        Ok(())
    }

    /// With a probe: how far every update points along with it, also those of devices that the guard leaves out.
    fn compare_with_probe<D: Deliveries>(
        &self,
        open: &Open,
        (lr, train): (f32, usize),
        headers: &[Header],
        deliveries: &mut D,
    ) -> Result<BTreeMap<DeviceId, f64>, CombineError<D::Error>> {
        let Some(own) = self.run.probe.as_ref().filter(|_| self.run.guard.is_on()) else {
            return Ok(BTreeMap::new());
        };
        let round = open.record.number;
        let brief = Brief { lr, seed: u64::from(round), ..self.run.settings.brief.clone() };
        match own.update(&self.run.model, &self.run.parameters, &brief) {
            Ok(own) => {
                let cohort = self.cohort(open, lr, headers.iter());
                let mut read =
                    deliveries.read(round, train as u8, Reading::Unchecked).map_err(CombineError::Read)?;
                probe::cosines(&cohort, &own, &mut read)
            }
            Err(failed) => {
                warn!(round, "{failed}");
                Ok(BTreeMap::new())
            }
        }
    }

    /// Hands the round to the recorder before it is combined.
    fn write_round<D: Deliveries>(
        &self,
        earlier: &[Exchange],
        cohort: &Cohort,
        (round, train): (u32, usize),
        scales: &BTreeMap<DeviceId, f64>,
        deliveries: &mut D,
        recorder: &mut impl Recorder,
    ) -> Result<(), CombineError<D::Error>> {
        let mut gradients: BTreeMap<DeviceId, Vec<f32>> = BTreeMap::new();
        if let Some(asked) = earlier.iter().rposition(|exchange| exchange.kind == Kind::Gradients) {
            let mut read = deliveries.read(round, asked as u8, Reading::Now).map_err(CombineError::Read)?;
            for (index, participant) in earlier[asked].cohort.participants().iter().enumerate() {
                let mut buffer = Vec::new();
                if let Ok(gradient) = read.read(Row::Update(index, participant), &mut buffer) {
                    gradients.insert(participant.device.clone(), gradient.to_vec());
                }
            }
        }
        let steps = self.steps(earlier, cohort);
        let read = deliveries.read(round, train as u8, Reading::Past).map_err(CombineError::Read)?;
        recorder.record(RoundDump {
            model: &self.run.model,
            parameters: &self.run.parameters,
            method: &self.run.method,
            params: &self.run.params,
            cohort,
            updates: &mut Scaled::new(read, scales),
            steps: &steps,
            gradients: &gradients,
        });
        Ok(())
    }

    /// The steps that were tried.
    fn steps(&self, earlier: &[Exchange], cohort: &Cohort) -> Vec<f64> {
        let (mut made, mut cohort) = (earlier.to_vec(), cohort.clone());
        cohort.clear_trials();
        made.push(Exchange { kind: Kind::Train, cohort });
        match self.run.method.strategy.next(&made, &[]) {
            Some(Ask::Try { steps }) => steps,
            _ => vec![],
        }
    }
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
