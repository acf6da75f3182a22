//! What is written down of a round beyond its result: round files, conflicts, traffic.

use std::collections::BTreeMap;

use common::{DeviceId, Tier, brief::Product};
use serde_json::{Map, Value};
use tracing::warn;

use super::Keeper;
use crate::{
    config::Config,
    store::{Entry, RoundRecord, Spooled},
};
use coordinator::report::Traffic;
use strategies::{
    cohort::Cohort,
    combine::{Conflicts, conflicts},
    guard::Scaled,
    roundfile::{RoundDump, record},
    strategy::{Ask, Exchange, Kind},
    updates::{Row, Updates},
};

/// How much is written down.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Books {
    /// Every round as a round file.
    pub record: bool,
    /// Conflicts of updates with the step, at the price of one more pass over the spool.
    pub conflicts: bool,
    /// Parameters of the strategy, as configured.
    pub params: Map<String, Value>,
}

impl Books {
    pub fn new(config: &Config) -> Self {
        let Config { store, report, strategy, .. } = config;
        Self { record: store.record, conflicts: report.conflicts, params: strategy.params.clone() }
    }
}

/// The exchange of training of a round, and what came before it.
pub(super) struct Trained<'a> {
    pub cohort: &'a Cohort,
    pub entries: &'a [Entry],
    pub past: &'a [Entry],
    pub earlier: &'a [Exchange],
    /// Entries of the exchange of gradients, if there was one.
    pub gradients: &'a [Entry],
    /// Factors of updates that were shortened.
    pub scales: &'a BTreeMap<DeviceId, f64>,
}

impl Keeper {
    /// Writes the round file. A round is not lost because its file can not be written.
    pub(super) fn write_round(&mut self, round: &Trained<'_>) {
        let Some(dir) = self.dir.clone().filter(|_| self.books.record) else { return };
        let mut gradients: BTreeMap<DeviceId, Vec<f32>> = BTreeMap::new();
        if let Some(probe) = round.earlier.iter().rfind(|exchange| exchange.kind == Kind::Gradients) {
            let mut source = Spooled::new(&mut *self.store, round.gradients);
            for (index, participant) in probe.cohort.participants().iter().enumerate() {
                let mut buffer = Vec::new();
                if let Ok(gradient) = source.read(Row::Update(index, participant), &mut buffer) {
                    gradients.insert(participant.device.clone(), gradient.to_vec());
                }
            }
        }
        let steps = self.steps(round);
        let spooled = Spooled::new(&mut *self.store, round.entries).with_past(round.past);
        let mut updates = Scaled::new(spooled, round.scales);
        let dump = RoundDump {
            model: &self.model,
            parameters: &self.parameters,
            method: &self.method,
            params: &self.books.params,
            cohort: round.cohort,
            updates: &mut updates,
            steps: &steps,
            gradients: &gradients,
        };
        if let Err(failed) = record(&dir, dump) {
            warn!(round = round.cohort.round, "the round file is missing: {failed}");
        }
    }

    /// The steps that were tried.
    fn steps(&self, round: &Trained<'_>) -> Vec<f64> {
        let mut made = round.earlier.to_vec();
        let mut cohort = round.cohort.clone();
        cohort.clear_trials();
        made.push(Exchange { kind: Kind::Train, cohort });
        match self.method.strategy.next(&made, &[]) {
            Some(Ask::Try { steps }) => steps,
            _ => vec![],
        }
    }

    /// Whose updates the step went against, if that is wanted.
    pub(super) fn count_conflicts(&mut self, before: &[f32], round: &Trained<'_>) -> Option<Conflicts> {
        // A gradient points the other way than an update.
        let wanted = self.books.conflicts && self.method.needs().product != Product::Gradient;
        let mut updates = Scaled::new(Spooled::new(&mut *self.store, round.entries), round.scales);
        let counted = wanted.then(|| conflicts(round.cohort, before, &self.parameters, &mut updates))?;
        counted.inspect_err(|failed| warn!("conflicts can not be counted: {failed}")).ok()
    }

    /// Bytes of models, guides and updates, by tier.
    pub(super) fn traffic(&self, record: &RoundRecord, stages: &[Vec<Entry>]) -> Vec<Traffic> {
        let mut traffic = vec![Traffic::default(); self.model.plans.len()];
        let tier_of = |device: &DeviceId| {
            let found = record.selected.iter().find(|selected| selected.device == *device);
            found.map(|selected| selected.tier)
        };
        let slice = |tier: Tier| {
            let codec = self.settings.down.of(tier)?;
            let plan = self.model.plans.get(tier.index())?;
            codec.encoded_len(plan.info.params as usize).map(u64::from)
        };
        let mut fresh = true;
        for (stage, entries) in record.stages.iter().zip(stages) {
            let guided = stage.kind == Kind::Try
                || stage.kind == Kind::Train
                    && record.stages.iter().any(|other| other.kind == Kind::Gradients);
            let vectors = u64::from(fresh) + u64::from(guided);
            for tier in stage.asked.iter().filter_map(tier_of) {
                if let Some(tally) = traffic.get_mut(tier.index()) {
                    tally.down += vectors * slice(tier).unwrap_or(0);
                }
            }
            for entry in entries {
                if let Some(tally) = traffic.get_mut(entry.header.tier.index()) {
                    tally.up += entry.payload_len() as u64;
                }
            }
            // A device that has trained no longer holds the model it received.
            fresh = stage.kind == Kind::Train;
        }
        traffic
    }
}
