//! FedFB: FairBatch in the federation. Samples are weighed by label and attribute so that a gap between groups closes. The
//! weights follow from lambda, which moves once per round.
//!
//! ```text
//! device i:   minimises (1/V_i) sum_k v(y_k, a_k) l_k,  V_i = sum of v over its samples
//!             reports S^(i)_{y,a}, the losses of the received model summed over each cell, and n^(i)_{y,a}
//! theta^(j) += sum_{C(j)} V_i D_i^(j) / sum_{C(j)} V_i
//! lambda    <- nearest point to lambda + alpha_t * mu(S, n),  v from lambda        (see [`FairBatch`])
//! ```
//! notion dp, eo, eodds: among groups, [`FairBatch`]; cp: among devices, [`ClientParity`], where v only scales V_i and is
//! computed by the aggregator.
//!
//! Sums arrive unchanged and are processed here, so that a live round and its replay agree. Each is clamped to [0, B n],
//! because noise may have moved it out. With `bits`, it is then quantised: either the mean loss of each cell (`quant = each`)
//! or a device's contributions to the gaps (`round`).
//!
//! losses = received: S belongs to the model that round t starts from; the step of round t is made after it. losses = new: from
//! the second round on, S is asked for before training. So the step uses the result of the round before, with that round's
//! alpha_t, and training uses the weights after the step.

use std::collections::BTreeMap;

use common::{
    DeviceId,
    brief::{Brief, MAX_GROUPS, Signal},
};
use serde_json::Value;

use crate::{
    cohort::{Cohort, Participant},
    error::StrategyError,
    kernel::sum,
    registry::Build,
    strategy::{Ask, Exchange, FleetDevice, Kind, Needs, Strategy, TrainingWeights, Weights},
};
pub use cells::Cells;
pub use clients::ClientParity;
pub use fairbatch::{FairBatch, Parity};
pub use params::{FedFbParams, LossTime, Notion, Quant};
pub use quantise::Quantiser;
use state::{ClientState, GroupState};
pub use step_size::{Decay, StepSize};

mod cells;
mod clients;
mod fairbatch;
mod params;
mod quantise;
mod state;
mod step_size;

/// Upper limit of a mass, above that of any fleet; sums of such numbers are finite.
const LARGEST_MASS: f64 = 1e100;

/// Sample weights that close the gap between groups; two exchanges a round with `losses = "new"`.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct FedFb {
    params: FedFbParams,
    /// Notions among groups.
    groups: GroupState,
    /// Client parity.
    clients: ClientState,
}

impl Build for FedFb {
    const NAME: &'static str = "fedfb";
    const ABOUT: &'static str =
        "sample weights that close the gap between groups; two exchanges a round with `losses = \"new\"`";

    type Params = FedFbParams;

    fn build(params: FedFbParams) -> Result<Self, String> {
        Ok(Self { params: params.checked()?, ..Self::default() })
    }
}

impl Strategy for FedFb {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn as_published(&self, _lr: f64) -> Option<bool> {
        Some(self.params.is_published())
    }

    fn uses_loss(&self, _trained: bool) -> bool {
        !self.needs().groups
    }

    fn needs(&self) -> Needs {
        let groups = self.params.report().is_some();
        Needs { groups, binary: self.params.notion != Notion::Cp, ..Needs::default() }
    }

    fn begin(&mut self, fleet: &[FleetDevice<'_>]) {
        self.groups.counts = self.total(fleet.iter().map(|member| member.groups));
        let samples = fleet.iter().filter(|member| member.samples > 0.0);
        let samples: BTreeMap<_, _> = samples.map(|member| (member.device.clone(), member.samples)).collect();
        self.clients.counts = Some(samples).filter(|samples| !samples.is_empty());
    }

    fn next(&self, made: &[Exchange], _: &[DeviceId]) -> Option<Ask> {
        let has = |kind: Kind| made.iter().any(|exchange| exchange.kind == kind);
        if has(Kind::Train) {
            None
        } else if self.asks_first() && !has(Kind::Losses) {
            Some(Ask::Losses)
        } else {
            Some(Ask::train())
        }
    }

    fn brief(&self, _: &DeviceId, made: &[Exchange], brief: &mut Brief) {
        let batch = match losses_in(made).filter(|_| self.asks_first()) {
            Some(losses) => self.stepped_groups(losses),
            None => self.groups(None),
        };
        if let Some(batch) = batch {
            let weights = batch.sample_weights();
            brief.objective.groups =
                weights.values().iter().take(MAX_GROUPS).map(|&weight| weight as f32).collect();
        }
        brief.groups = self.params.report();
        brief.privacy = self.params.noise();
    }

    /// V_i: as reported, or from counts and v, or n_i.
    fn weigh(&self, cohort: &Cohort) -> Weights {
        // With `losses = new` the step was made before training.
        let before = self.asks_first();
        let of_clients = || if before { self.stepped_clients(cohort) } else { self.clients(cohort) };
        let of_groups = || if before { self.stepped_groups(cohort) } else { self.groups(Some(cohort)) };
        let (mut by_device, mut by_cell) = (BTreeMap::new(), None);
        match self.params.parity() {
            None => by_device = of_clients().weights(),
            Some(_) => by_cell = of_groups().map(|batch| batch.sample_weights()),
        }
        let mass = |participant: &Participant| {
            let counted = || {
                let weights = by_cell.as_ref()?;
                let counts = Cells::counts(participant.group_counts())?;
                (counts.attributes() == weights.attributes()).then(|| counts.dot(weights))
            };
            let factor = by_device.get(&participant.device).copied().unwrap_or(1.0);
            let plain = || factor * participant.samples();
            participant.mass().or_else(counted).unwrap_or_else(plain).min(LARGEST_MASS)
        };
        Weights::per_device(cohort.participants().iter().map(mass).collect())
    }

    fn learn(&mut self, cohort: &Cohort, earlier: &[Exchange]) {
        let source = match self.params.losses {
            LossTime::Received => Some(cohort),
            // A replay has one exchange; its losses belong to the same model.
            LossTime::New => losses_in(earlier).or(self.asks_first().then_some(cohort)),
        };
        if self.params.parity().is_none() {
            let clients = source.map_or_else(|| self.clients(cohort), |source| self.stepped_clients(source));
            self.clients = ClientState {
                lambda: Some(clients.lambda().clone()),
                counts: Some(clients.samples().clone()),
                losses: clients.losses().clone(),
            };
        } else {
            let batch =
                source.map_or_else(|| self.groups(Some(cohort)), |source| self.stepped_groups(source));
            if let Some(batch) = batch {
                self.groups = GroupState {
                    lambda: Some(batch.lambda().to_vec()),
                    counts: Some(batch.counts().clone()),
                };
            }
        }
    }

    fn training_weights(&self) -> TrainingWeights {
        if self.params.parity().is_some() {
            let samples = self.groups(None).map_or_else(Vec::new, |batch| batch.sample_weights().rows());
            return TrainingWeights { samples, ..TrainingWeights::default() };
        }
        let weights = |counts: &BTreeMap<_, _>| self.resumed(counts.clone()).weights();
        let devices = self.clients.counts.as_ref().map_or_else(BTreeMap::new, weights);
        TrainingWeights { devices, ..TrainingWeights::default() }
    }

    fn save(&self) -> Value {
        match self.params.notion {
            Notion::Cp => self.clients.save(),
            notion => self.groups.save(notion),
        }
    }

    fn restore(&mut self, state: Value) -> Result<(), StrategyError> {
        let strategy = self.name();
        let fault = |why: String| StrategyError::State { strategy, why };
        match self.params.notion {
            Notion::Cp => self.clients = ClientState::restore(state).map_err(fault)?,
            notion => self.groups = GroupState::restore(notion, state).map_err(fault)?,
        }
        Ok(())
    }
}

impl FedFb {
    /// Whether losses are asked for before training; not in the first round.
    fn asks_first(&self) -> bool {
        let started = self.groups.lambda.is_some() || self.clients.lambda.is_some();
        self.params.losses == LossTime::New && started
    }

    /// The number t of the step that follows from the losses of this exchange.
    fn step_number(&self, cohort: &Cohort) -> u32 {
        match self.params.losses {
            LossTime::Received => cohort.round,
            LossTime::New => cohort.round.saturating_sub(1),
        }
    }

    /// The present lambda. Counts that are not known from the start are those of the cohort.
    fn groups(&self, cohort: Option<&Cohort>) -> Option<FairBatch> {
        let parity = self.params.parity()?;
        let there = |cohort: &Cohort| self.total(cohort.participants().iter().map(Participant::group_counts));
        let counts = self.groups.counts.clone().or_else(|| there(cohort?))?;
        let start = FairBatch::new(parity, counts);
        let resumed = self.groups.lambda.as_ref().and_then(|lambda| start.clone().with_lambda(lambda));
        Some(resumed.unwrap_or(start))
    }

    fn stepped_groups(&self, cohort: &Cohort) -> Option<FairBatch> {
        let mut batch = self.groups(Some(cohort))?;
        let attributes = batch.counts().attributes();
        let reports: Vec<_> = cohort
            .participants()
            .iter()
            .filter_map(|participant| self.report(participant))
            .filter(|(_, counts)| counts.attributes() == attributes)
            .collect();
        let (mut losses, mut counts) = (Cells::filled(attributes, 0.0), Cells::filled(attributes, 0.0));
        for (own_losses, own_counts) in &reports {
            losses.add(own_losses);
            counts.add(own_counts);
        }
        let mu = match (self.params.bits, self.params.quant) {
            (Some(bits), Quant::Round) => {
                let quantiser = Quantiser::shared(self.params.range(), bits, attributes.saturating_sub(1));
                let pull = |a: usize| {
                    let own = |(losses, _): &(Cells, Cells)| quantiser.value(batch.pull(a, losses, &counts));
                    sum(reports.iter().map(own))
                };
                batch.mu_of_gaps(&counts, |a| pull(a) + batch.offset(a, &counts))
            }
            _ => batch.mu(&losses, &counts),
        };
        batch.advance(&mu, self.params.step_size(), self.step_number(cohort));
        Some(batch)
    }

    /// Loss sums and counts of a device, each sum clamped to its range.
    fn sums(&self, participant: &Participant) -> Option<(Cells, Cells)> {
        let counts = Cells::counts(participant.group_counts())?;
        let losses = Cells::new(participant.group_losses().to_vec())?;
        let fits = losses.attributes() == counts.attributes();
        fits.then(|| (losses.zip(&counts, |sum, n| sum.clamp(0.0, self.params.cap() * n)), counts))
    }

    /// The same after the quantiser of `quant = each`.
    fn report(&self, participant: &Participant) -> Option<(Cells, Cells)> {
        let (losses, counts) = self.sums(participant)?;
        let coarse = |sum: f64, n: f64| if n > 0.0 { n * self.quantised(sum / n) } else { 0.0 };
        Some((losses.zip(&counts, coarse), counts))
    }

    /// A mean loss after the quantiser of `quant = each`.
    fn quantised(&self, loss: f64) -> f64 {
        match (self.params.bits, self.params.quant) {
            (Some(bits), Quant::Each) => Quantiser::new(self.params.range(), bits).value(loss),
            _ => loss,
        }
    }

    fn clients(&self, cohort: &Cohort) -> ClientParity {
        let there = || {
            let participants = cohort.participants().iter();
            participants.map(|participant| (participant.device.clone(), participant.samples())).collect()
        };
        self.resumed(self.clients.counts.clone().unwrap_or_else(there))
    }

    fn resumed(&self, counts: BTreeMap<DeviceId, f64>) -> ClientParity {
        let mut clients = ClientParity::new(counts);
        clients.resume(self.clients.lambda.as_ref().unwrap_or(&BTreeMap::new()), &self.clients.losses);
        clients
    }

    fn stepped_clients(&self, cohort: &Cohort) -> ClientParity {
        let mut clients = self.clients(cohort);
        let heard = cohort.participants().iter().map(|participant| {
            let wrong = || {
                let (losses, counts) = self.sums(participant)?;
                (counts.total() > 0.0).then(|| losses.total() / counts.total())
            };
            let loss = match self.params.signal() {
                Signal::ZeroOne => wrong().unwrap_or(participant.loss()),
                Signal::CrossEntropy => participant.loss().min(self.params.cap()),
            };
            (&participant.device, self.quantised(loss))
        });
        clients.step(heard, self.params.step_size(), self.step_number(cohort));
        clients
    }

    /// Counts of all devices that report two labels and as many attributes as the first one.
    fn total<'a>(&self, devices: impl Iterator<Item = &'a [u32]>) -> Option<Cells> {
        let mut total: Option<Cells> = None;
        for counts in devices.filter(|counts| counts.len() <= MAX_GROUPS).filter_map(Cells::counts) {
            let expected = self.params.groups.or(total.as_ref().map(Cells::attributes));
            if expected.is_some_and(|attributes| attributes != counts.attributes()) {
                continue;
            }
            match &mut total {
                Some(total) => total.add(&counts),
                None => total = Some(counts),
            }
        }
        total.filter(|total| total.total() > 0.0)
    }
}

/// The cohort that was asked for losses alone.
fn losses_in(exchanges: &[Exchange]) -> Option<&Cohort> {
    exchanges.iter().find(|exchange| exchange.kind == Kind::Losses).map(|exchange| &exchange.cohort)
}

#[cfg(test)]
mod tests;
