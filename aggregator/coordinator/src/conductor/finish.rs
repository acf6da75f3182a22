//! The end of a round: combines what was delivered, and forms the commit.

use std::collections::{BTreeMap, BTreeSet};

use common::{
    Code, DeviceId, ExchangeId,
    brief::{Brief, GroupReport, Product},
    plan::TaskKind,
};
use strategies::{
    cohort::Cohort,
    combine::{Conflicts, Outcome, combine, conflicts},
    error::CombineError,
    guard::{self, Bonus, Delivered, GuardFinding, ScaledUpdates, agreement::disagreeing, probe},
    roundfile::RoundDump,
    strategy::{Ask, Exchange, Kind},
    updates::{UpdateRef, Updates},
};
use tracing::{error, info, warn};

use super::{
    Committed, Conductor, Deliveries, Next, OpenRound, Reading, Recorder, RunState,
    divergence::{Answers, PATIENCE, Rule, Verdict},
    dropouts::Dropouts,
    state::StateParts,
};
use crate::{
    best::Measured,
    exchange::{ClosedExchange, Purpose},
    record::{RefusedDevice, RoundRecord, UpdateHeader},
    report::{DeviceLine, RoundReport},
};

impl Conductor {
    /// Combines the open round. With a code, the round has failed already and the model stays as it is.
    pub(super) fn finish<D: Deliveries>(
        &mut self,
        closed: &ClosedExchange,
        failed: Option<Code>,
        deliveries: &mut D,
        recorder: &mut impl Recorder,
    ) -> Result<Next, D::Error> {
        let mut open = self.round.take().unwrap_or_else(|| OpenRound {
            record: RoundRecord {
                round: closed.id.round,
                attempt: self.run.attempt,
                selected: vec![],
                wanted: vec![],
                exchanges: vec![],
                began: None,
            },
            made: vec![],
            findings: vec![],
            dropouts: Dropouts::default(),
            past: vec![],
        });
        let round = open.record.round;
        let train = open.made.iter().rposition(|made| made.kind == Kind::Train);
        let train = train.map(|train| ExchangeId { round, exchange: train as u8 });
        let delivered = match train {
            Some(train) => deliveries.delivered(train)?,
            None => vec![],
        };
        let headers: Vec<UpdateHeader> = delivered.into_iter().map(|delivery| delivery.header).collect();
        let mut counted: Vec<Delivered> = headers
            .iter()
            .map(|header| (header.device.clone(), header.tier, header.scalars.clone()))
            .collect();
        let verdict = if failed.is_none() { self.judge(&open, &counted) } else { Verdict::Silent };
        let suspect = matches!(verdict, Verdict::Suspect(_) | Verdict::Diverged(_));
        let Combined { mut outcome, conflicts, mut lines, refused } = match (failed, train) {
            (Some(code), _) => Combined::kept(code),
            (None, _) if suspect => Combined::kept(Code::Diverged),
            (None, None) => Combined::kept(Code::EmptyRound),
            (None, Some(train)) => {
                if verdict == Verdict::Sound {
                    self.watch.note_sound(round.saturating_sub(1), self.run.parameters.clone());
                }
                match self.try_combine(&mut open, train, &headers, &mut counted, deliveries, recorder) {
                    Ok(combined) => combined,
                    Err(CombineError::Read(failed)) => return Err(failed),
                    Err(failed) => {
                        error!(round, error = %failed, "cannot combine the round");
                        Combined::kept(Code::NonFiniteResult)
                    }
                }
            }
        };
        if let Some(code) = outcome.kept {
            warn!(round, %code, "the model is left unchanged");
            outcome.fairness = self.run.method.fairness_lines();
        }
        self.run.guard.limit_reported_losses(&mut counted, &mut lines);
        self.guard_log.note(round, counted.iter().map(|(device, ..)| device), &lines);
        self.target_log.note(round, &outcome.fairness);
        let diverged = if let Verdict::Diverged(why) = verdict { Some(why) } else { None };
        let model_of = diverged.and_then(|_| self.take_back());
        let complete = open.dropouts.is_empty();
        let published = self.publish();
        let traffic = open.traffic(&published);
        let OpenRound { record, mut dropouts, .. } = open;
        dropouts.remove(&counted);
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
                .with_guard(lines, &refused)
                .with_task(&closed, self.predicted());
        report.model_of = model_of;
        report.suspect_rounds = match verdict {
            Verdict::Suspect(_) => Some(self.watch.suspect_rounds()),
            _ => None,
        };
        if let Some(conflicts) = conflicts {
            report = report.with_conflicts(conflicts);
        }
        if let Some(groups) = self.group_report() {
            report = report.with_groups(&closed, groups.signal);
        }
        // Devices have measured the model that they received.
        self.note_best(round.saturating_sub(1), &report);
        report.began = record.began;
        report.best.clone_from(&self.run.best);
        let (lost, refused) = (report.silent.len(), report.refused.len());
        info!(
            round,
            loss = (report.loss.count > 0).then_some(report.loss.mean),
            devices = report.devices.len(),
            lost,
            refused,
            "combined"
        );
        self.run.committed = round;
        let stop = self.early_stop();
        if let Some(stop) = &stop {
            info!(round, "{stop}");
        }
        report.stopped = stop.as_ref().map(ToString::to_string);
        self.run.fresh = false;
        let (method, guard) = match diverged {
            // What strategy and guard have learned belongs to the steps that are taken back.
            Some(_) => Default::default(),
            None => (self.run.method.save(), self.run.guard.save()),
        };
        let state = StateParts { method: &method, guard: &guard, watch: &self.watch.save() }.join();
        Ok(Next::Commit(Committed {
            report,
            state,
            published,
            unopened: record.exchanges.is_empty().then_some(record),
            // After a crash, more devices could deliver, and another model would follow. A device that was told that the run is
            // over does not fetch another final model.
            durable_first: !complete || self.has_trained() || diverged.is_some(),
            ends_early: stop.is_some(),
            spared: self.watch.before().filter(|_| suspect),
            diverged,
        }))
    }

    /// Compares the model of a round with the best one, by what devices have reported of it.
    fn note_best(&mut self, round: u32, report: &RoundReport) {
        let (settings, enrolled) = (&self.run.settings, self.enrolled());
        // Scores of the final model come without validation.
        let measured = settings.measured();
        let loss = |line: &DeviceLine| match measured {
            Measured::Validation => line.validation_loss,
            Measured::Loss => Some(line.test_loss.unwrap_or(line.loss_before)),
        };
        let losses: Vec<_> =
            report.devices.iter().filter_map(|line| Some((line.tier, loss(line)?))).collect();
        let figure = settings.best.by.figure(&losses, &enrolled);
        self.run.best = settings.best.update(self.run.best.take(), round, measured, figure);
    }

    /// The report on the scores of the final model, which may be the best one.
    pub fn final_report(&mut self, mut closed: ClosedExchange) -> RoundReport {
        let mut lines = vec![];
        let answers = Self::answers(&closed.delivered, &closed.refused);
        let diverged = self.watch.judge_final(&answers, self.rule(true));
        self.run.guard.limit_reported_losses(&mut closed.delivered, &mut lines);
        self.guard_log.summarize();
        let tiers = self.run.model.plans.len();
        let mut report = RoundReport::new(&closed, Purpose::Evaluate, None, tiers)
            .with_guard(lines, &[])
            .with_task(&closed, self.predicted());
        report.fairness = self.run.method.fairness_lines();
        let stop = self.early_stop();
        self.note_best(self.run.committed, &report);
        if let (Some(stop), Some(best)) = (stop, &mut self.run.best) {
            // Training does not go on because the model with which it ended is the best one.
            best.unimproved = stop.unimproved;
        }
        report.stopped = self.early_stop().map(|stop| stop.to_string());
        report.best.clone_from(&self.run.best);
        if let Some(why) = diverged {
            error!(%why, "the final model has diverged");
            report.kept = Some(Code::Diverged.number());
        }
        report
    }

    /// What devices are asked to report about groups.
    fn group_report(&self) -> Option<GroupReport> {
        self.told()?.groups
    }

    /// What a device is told, as far as it is the same for all.
    fn told(&self) -> Option<Brief> {
        let mut brief = self.run.settings.brief.clone();
        let any = self.run.fleet.keys().next()?;
        self.run.method.brief(any, &[], &mut brief);
        Some(brief)
    }

    /// Restores the last acceptable model, if it is known, and returns its round.
    fn take_back(&mut self) -> Option<u32> {
        let (round, parameters) = self.watch.take_before()?;
        self.run.parameters = parameters;
        Some(round)
    }

    fn predicted(&self) -> TaskKind {
        self.run.model.plans[0].info.task()
    }

    /// Whether the answers of the round show that training diverges.
    fn judge(&mut self, open: &OpenRound, counted: &[Delivered]) -> Verdict {
        let round = open.record.round;
        let rule = self.rule(round >= self.run.settings.rounds);
        let verdict = self.watch.judge(&Self::answers(counted, &open.dropouts.refused), rule);
        match verdict {
            Verdict::Suspect(why) => {
                let rounds = self.watch.suspect_rounds();
                warn!(round, rounds, of = PATIENCE, %why, "training may diverge");
            }
            Verdict::Diverged(why) => error!(round, %why, "training has diverged"),
            Verdict::Sound | Verdict::Silent => {}
        }
        verdict
    }

    fn rule(&self, last: bool) -> Rule {
        Rule {
            factor: self.run.settings.divergence,
            // Losses with noise do not tell.
            losses_tell: self.told().is_none_or(|brief| brief.privacy.is_none()),
            fleet: self.run.fleet.len(),
            last,
        }
    }

    fn answers<'a>(delivered: &'a [Delivered], refused: &'a [RefusedDevice]) -> Answers<'a> {
        let losses = delivered.iter().map(|(device, _, scalars)| (device, scalars.loss_before)).collect();
        Answers::new(losses, refused.iter().map(|refused| (&refused.device, refused.code)))
    }

    fn try_combine<D: Deliveries>(
        &mut self,
        open: &mut OpenRound,
        train: ExchangeId,
        headers: &[UpdateHeader],
        counted: &mut [Delivered],
        deliveries: &mut D,
        recorder: &mut impl Recorder,
    ) -> Result<Combined, CombineError<D::Error>> {
        let probed = self.compare_with_probe(open, train, headers, deliveries)?;
        let index = usize::from(train.exchange);
        let scales = std::mem::take(&mut open.findings[index].inspection.scales);
        let (earlier, rest) = open.made.split_at_mut(index);
        let Some((Exchange { cohort, .. }, later)) = rest.split_first_mut() else {
            return Ok(Combined::kept(Code::EmptyRound));
        };
        guard::report_counted_groups(counted, cohort);
        for tried in later.iter().filter(|exchange| exchange.kind == Kind::Try) {
            for participant in tried.cohort.participants() {
                cohort.set_trials(&participant.device, participant.trials());
            }
        }
        self.take_away_bonus(cohort, train, &scales, deliveries)?;
        if recorder.is_on() {
            self.write_round(earlier, cohort, train, &scales, deliveries, recorder)?;
        }
        // A gradient points the other way than an update.
        let counts_conflicts = self.run.conflicts && self.run.method.needs().product != Product::Gradient;
        let before = if counts_conflicts { self.run.parameters.clone() } else { vec![] };
        let read = deliveries.read(train, Reading::Past).map_err(CombineError::Read)?;
        let mut updates = ScaledUpdates::new(read, &scales);
        let outcome = combine(&mut self.run.method, cohort, earlier, &mut updates, &mut self.run.parameters)?;
        drop(updates);
        let conflicts = if counts_conflicts {
            let read = deliveries.read(train, Reading::Now).map_err(CombineError::Read)?;
            let counted =
                conflicts(cohort, &before, &self.run.parameters, &mut ScaledUpdates::new(read, &scales));
            counted.inspect_err(|failed| warn!(error = %failed, "cannot count conflicts")).ok()
        } else {
            None
        };
        if outcome.kept.is_none() {
            let RunState { method, model, parameters, .. } = &mut self.run;
            method.roll(&model.graph, parameters);
        }
        let config = self.run.guard.config();
        let shares = outcome.capped.iter().map(|capped| GuardFinding::share(capped, config));
        let inspections = open.findings.iter_mut().map(|findings| &mut findings.inspection);
        let mut lines: Vec<GuardFinding> = inspections
            .flat_map(|inspection| std::mem::take(&mut inspection.findings))
            .chain(shares)
            .collect();
        // A finding of several exchanges is reported once.
        let mut seen = BTreeSet::new();
        lines.retain(|line| seen.insert((line.device.clone(), line.what)));
        let left_out = open.findings[index].inspection.left_out.iter().cloned();
        let refused = left_out.map(|(device, tier)| RefusedDevice { device, tier, code: Code::PointsAway });
        let refused = refused.collect();
        self.run.guard.learn(open.findings.iter().map(|findings| &findings.inspection));
        self.run.guard.note_probe(&probed);
        Ok(Combined { outcome, conflicts, lines, refused })
    }

    /// With `bonus = "agreeing"`: devices whose updates point away from the others get no bonus.
    fn take_away_bonus<D: Deliveries>(
        &self,
        cohort: &mut Cohort,
        train: ExchangeId,
        scales: &BTreeMap<DeviceId, f64>,
        deliveries: &mut D,
    ) -> Result<(), CombineError<D::Error>> {
        if self.run.guard.is_on() && self.run.guard.config().bonus == Bonus::Agreeing {
            let read = deliveries.read(train, Reading::Unchecked).map_err(CombineError::Read)?;
            let disagreeing = disagreeing(cohort, &mut ScaledUpdates::new(read, scales))?;
            if let Some(bounds) = &mut cohort.bounds {
                bounds.no_bonus = disagreeing;
            }
        }
        Ok(())
    }

    /// With a probe: the cosine of every update with that of the probe, also of devices that the guard leaves out.
    fn compare_with_probe<D: Deliveries>(
        &self,
        open: &OpenRound,
        train: ExchangeId,
        headers: &[UpdateHeader],
        deliveries: &mut D,
    ) -> Result<BTreeMap<DeviceId, f64>, CombineError<D::Error>> {
        let Some(own) = self.run.probe.as_ref().filter(|_| self.run.guard.is_on()) else {
            return Ok(BTreeMap::new());
        };
        let round = train.round;
        let lr = self.run.settings.lr_of(round);
        let brief = Brief { lr, seed: u64::from(round), ..self.run.settings.brief.clone() };
        match own.update(&self.run.model, &self.run.parameters, &brief) {
            Ok(own) => {
                let cohort = self.cohort(open, lr, headers.iter());
                let mut read = deliveries.read(train, Reading::Unchecked).map_err(CombineError::Read)?;
                probe::cosines(&cohort, &own, &mut read)
            }
            Err(failed) => {
                warn!(round, error = failed, "cannot train on the probe");
                Ok(BTreeMap::new())
            }
        }
    }

    /// Hands the round to the recorder before it is combined.
    fn write_round<D: Deliveries>(
        &self,
        earlier: &[Exchange],
        cohort: &Cohort,
        train: ExchangeId,
        scales: &BTreeMap<DeviceId, f64>,
        deliveries: &mut D,
        recorder: &mut impl Recorder,
    ) -> Result<(), CombineError<D::Error>> {
        let mut gradients: BTreeMap<DeviceId, Vec<f32>> = BTreeMap::new();
        if let Some(asked) = earlier.iter().rposition(|exchange| exchange.kind == Kind::Gradients) {
            let exchange = ExchangeId { exchange: asked as u8, ..train };
            let mut read = deliveries.read(exchange, Reading::Now).map_err(CombineError::Read)?;
            for (index, participant) in earlier[asked].cohort.participants().iter().enumerate() {
                let mut buffer = Vec::new();
                if let Ok(gradient) = read.read(UpdateRef::Update(index, participant), &mut buffer) {
                    gradients.insert(participant.device.clone(), gradient.to_vec());
                }
            }
        }
        let steps = self.steps(earlier, cohort);
        let read = deliveries.read(train, Reading::Past).map_err(CombineError::Read)?;
        recorder.record(RoundDump {
            model: &self.run.model,
            parameters: &self.run.parameters,
            method: &self.run.method,
            params: &self.run.params,
            cohort,
            updates: &mut ScaledUpdates::new(read, scales),
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

/// The result of combining a round's updates.
struct Combined {
    outcome: Outcome,
    conflicts: Option<Conflicts>,
    /// What the guard has limited.
    lines: Vec<GuardFinding>,
    refused: Vec<RefusedDevice>,
}

impl Combined {
    /// The model stays as it is.
    fn kept(code: Code) -> Self {
        let outcome = Outcome {
            kept: Some(code),
            weights: vec![],
            capped: vec![],
            raised: 0,
            regions: vec![],
            refused: vec![],
            notes: Default::default(),
            fairness: vec![],
            signals: vec![],
        };
        Self { outcome, conflicts: None, lines: vec![], refused: vec![] }
    }
}
