//! The devices of one round, in DeviceId order, with all the numbers a strategy may use.
//!
//! About 130 bytes per device and 8 per device and region; updates themselves are never held here.

use std::{collections::BTreeSet, ops::Range, sync::Arc};

use common::{
    Code, DeviceId, Tier, TierSet,
    message::{MAX_TRIALS, Scalars},
    region::RegionMap,
};

use crate::{check::check_scalars, kernel::sum, table::Table};

mod amend;
mod participant;

pub use participant::{Absent, Participant, Refused};

/// How much a device can count at most and at least.
#[derive(Clone, PartialEq, Debug)]
pub struct Bounds {
    /// At most this many average devices.
    pub share: f64,
    /// The loudest fifth of the devices: at most this many average devices each, on average.
    pub fifth: f64,
    /// By its sample count alone: at most this many average devices.
    pub counts: f64,
    /// At least this part of the plain share.
    pub floor: f64,
    /// Devices whose sample counts are taken as stated.
    pub trusted: BTreeSet<DeviceId>,
    /// Devices that count no more than their plain share.
    pub no_bonus: BTreeSet<DeviceId>,
}

/// Everything a round is combined from, except the updates.
#[derive(Clone, Debug)]
pub struct Cohort {
    /// From 1.
    pub round: u32,
    /// Learning rate of the devices in this round.
    pub lr: f64,
    /// Multiplies the step of every strategy that has no `eta` of its own.
    pub server_lr: f64,
    /// Devices in the fleet, N; at least the number of participants.
    clients: usize,
    /// Devices in the fleet by tier, N_m; empty = not known.
    enrolled: Vec<usize>,
    regions: Arc<RegionMap>,
    participants: Vec<Participant>,
    /// `participants x regions`: squared norm of each update.
    norms: Table,
    /// By participant; empty if no device has a weight of its own.
    device_weights: Vec<Option<f64>>,
    /// By tier; empty if no tier has a weight of its own.
    tier_weights: Vec<Option<f64>>,
    refused: Vec<Refused>,
    /// By round, then by DeviceId.
    absent: Vec<Absent>,
    /// Steps at which the losses of a line search were taken; empty: the strategy's own steps.
    pub steps: Vec<f64>,
    /// How much a device can count at most and at least, for strategies that average; absent: no bounds.
    pub bounds: Option<Bounds>,
    /// In model order; empty: the model is one layer.
    layers: Arc<[Range<usize>]>,
}

impl Cohort {
    /// A cohort without participants, in round 1.
    pub fn new(regions: impl Into<Arc<RegionMap>>, lr: f64) -> Self {
        let regions = regions.into();
        Self {
            round: 1,
            lr,
            server_lr: 1.0,
            clients: 0,
            enrolled: Vec::new(),
            participants: Vec::new(),
            norms: Table::zeros(0, regions.sets().len()),
            regions,
            device_weights: Vec::new(),
            tier_weights: Vec::new(),
            refused: Vec::new(),
            absent: Vec::new(),
            steps: Vec::new(),
            bounds: None,
            layers: Arc::new([]),
        }
    }

    /// States where the layers of the model lie.
    pub fn set_layers(&mut self, layers: impl Into<Arc<[Range<usize>]>>) {
        self.layers = layers.into();
    }

    /// Ranges of the layers in the flat vector; empty: the model is one layer.
    pub fn layers(&self) -> &[Range<usize>] {
        &self.layers
    }

    /// Notes a device whose last update can be read. A device that takes part, or whose tier is unknown, is not absent.
    pub fn add_absent(&mut self, absent: Absent) {
        let known = self.find(&absent.device).is_ok() || absent.tier.index() >= self.regions.tiers();
        if !known {
            let key = |other: &Absent| (other.round, other.device.clone());
            let place = self.absent.partition_point(|other| key(other) <= key(&absent));
            self.absent.insert(place, absent);
        }
    }

    /// Devices that took part before, the longest absent first.
    pub fn absent(&self) -> &[Absent] {
        &self.absent
    }

    /// Number of participants and absent devices together. Row numbers count participants in DeviceId order, then absent devices.
    pub fn rows(&self) -> usize {
        self.participants.len() + self.absent.len()
    }

    /// The absent device of a row; `None` for the row of a participant.
    pub fn absent_row(&self, row: usize) -> Option<&Absent> {
        row.checked_sub(self.participants.len()).map(|number| &self.absent[number])
    }

    /// Drops the losses of all line searches.
    pub fn clear_trials(&mut self) {
        let extra = self.participants.iter_mut().filter_map(|participant| participant.extra.as_mut());
        extra.for_each(|extra| extra.trials.clear());
    }

    /// Gives a participant the losses it found at the steps of a line search.
    pub fn set_trials(&mut self, device: &DeviceId, trials: &[f64]) {
        if let Ok(index) = self.find(device)
            && let Some(participant) = self.participants.get_mut(index)
        {
            let extra = participant.extra.get_or_insert_default();
            extra.trials = trials.iter().copied().take(MAX_TRIALS).collect();
        }
    }

    /// Reserves memory for this many devices, so that a large fleet is not moved as it grows.
    pub fn reserve(&mut self, devices: usize) {
        self.participants.reserve_exact(devices);
        self.norms.reserve(devices);
    }

    /// States how many devices the fleet has.
    pub fn set_clients(&mut self, clients: usize) {
        self.clients = clients;
    }

    /// States how many devices the fleet has in each tier.
    pub fn set_enrolled(&mut self, enrolled: Vec<usize>) {
        self.enrolled = enrolled;
    }

    /// N_m: devices of the fleet in a tier; at least the participants.
    pub fn enrolled(&self, tier: Tier) -> usize {
        let present = self.of_tier(tier).count();
        self.enrolled.get(tier.index()).map_or(present, |&enrolled| enrolled.max(present))
    }

    /// Devices of the fleet in each tier, where they were stated.
    pub(crate) fn stated_enrolled(&self, tier: Tier) -> Option<usize> {
        self.enrolled.get(tier.index()).copied()
    }

    /// Adds a device, or notes why it is refused. `norms` come from [`crate::check::check_update`].
    ///
    /// Any order gives the same cohort; ascending DeviceIds are the cheapest.
    pub fn admit(
        &mut self,
        device: DeviceId,
        tier: Tier,
        scalars: Scalars,
        norms: &[f64],
    ) -> Result<(), Code> {
        let regions = self.regions.sets().len();
        let checked = if tier.index() >= self.regions.tiers() || norms.len() != regions {
            Err(Code::WrongShape)
        } else if !norms.iter().all(|norm| norm.is_finite()) {
            Err(Code::NonFiniteUpdate)
        } else {
            check_scalars(&scalars)
        };
        let place = checked.and_then(|()| match self.find(&device) {
            Ok(_) => Err(Code::Duplicate),
            Err(place) => Ok(place),
        });
        match place {
            Ok(place) => {
                self.participants.insert(place, Participant::new(device, tier, scalars));
                self.norms.insert(place, norms);
                if !self.device_weights.is_empty() {
                    self.device_weights.insert(place, None);
                }
                Ok(())
            }
            Err(code) => {
                self.refuse(device, code);
                Err(code)
            }
        }
    }

    /// Notes a device whose update was refused elsewhere.
    pub fn refuse(&mut self, device: DeviceId, code: Code) {
        let refused = Refused { device, code };
        let place = self.refused.partition_point(|other| other.device <= refused.device);
        self.refused.insert(place, refused);
    }

    /// Gives an admitted device a weight of its own (p of the algorithms), not negative.
    pub fn set_device_weight(&mut self, device: &DeviceId, weight: f64) -> Result<(), Code> {
        let index = self.find(device).map_err(|_| Code::UnknownDevice)?;
        set(&mut self.device_weights, self.participants.len(), index, weight)
    }

    /// Gives a tier a weight of its own (g of the algorithms), not negative.
    pub fn set_tier_weight(&mut self, tier: Tier, weight: f64) -> Result<(), Code> {
        set(&mut self.tier_weights, self.regions.tiers(), tier.index(), weight)
    }

    /// Which tiers hold which parameters.
    pub fn regions(&self) -> &Arc<RegionMap> {
        &self.regions
    }

    /// Devices in the fleet, N; at least the number of participants.
    pub fn clients(&self) -> usize {
        self.clients.max(self.participants.len())
    }

    /// In DeviceId order.
    pub fn participants(&self) -> &[Participant] {
        &self.participants
    }

    /// In DeviceId order.
    pub fn refused(&self) -> &[Refused] {
        &self.refused
    }

    /// The weight that a participant was given (p), if any.
    pub fn device_weight(&self, index: usize) -> Option<f64> {
        self.device_weights.get(index).copied().flatten()
    }

    /// The weight that a tier was given (g), if any.
    pub fn tier_weight(&self, tier: Tier) -> Option<f64> {
        self.tier_weights.get(tier.index()).copied().flatten()
    }

    /// Squared norms of a participant's update, by region.
    pub fn norms(&self, index: usize) -> &[f64] {
        self.norms.row(index)
    }

    /// Squared norm of a participant's whole update.
    pub fn norm(&self, index: usize) -> f64 {
        self.norms(index).iter().sum()
    }

    /// n_i / n of every participant: the weights of plain averaging.
    pub fn data_shares(&self) -> Vec<f64> {
        let all = sum(self.participants.iter().map(Participant::samples));
        self.participants.iter().map(|participant| participant.samples() / all).collect()
    }

    /// Participants of a tier with their index.
    pub fn of_tier(&self, tier: Tier) -> impl Iterator<Item = (usize, &Participant)> + Clone {
        self.participants.iter().enumerate().filter(move |(_, participant)| participant.tier == tier)
    }

    /// Indices of the participants of some tiers, ascending: C(j) for the tiers of region j.
    pub fn holders(&self, tiers: TierSet) -> Vec<usize> {
        let participants = self.participants.iter().enumerate();
        participants
            .filter(|(_, participant)| tiers.contains(participant.tier))
            .map(|(index, _)| index)
            .collect()
    }

    fn find(&self, device: &DeviceId) -> Result<usize, usize> {
        // Devices usually arrive in order, so the position is the end.
        match self.participants.last() {
            Some(last) if last.device < *device => Err(self.participants.len()),
            _ => self.participants.binary_search_by(|other| other.device.cmp(device)),
        }
    }
}

fn set(weights: &mut Vec<Option<f64>>, len: usize, index: usize, weight: f64) -> Result<(), Code> {
    if !(weight.is_finite() && weight >= 0.0) {
        return Err(Code::BadConfig);
    }
    weights.resize(len, None);
    *weights.get_mut(index).ok_or(Code::BadConfig)? = Some(weight);
    Ok(())
}
