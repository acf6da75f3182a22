//! The devices of one round, in DeviceId order, with all the numbers a strategy may look at.
//!
//! About 105 bytes per device and 8 per device and region; updates themselves are never held here.

use std::{collections::BTreeSet, ops::Range, sync::Arc};

use common::{
    Code, DeviceId, Tier, TierSet,
    message::{MAX_TRIALS, Scalars},
    region::RegionMap,
};

use crate::{check::check_scalars, kernel::sum};

/// What a device can count at most and at least.
#[derive(Clone, PartialEq, Debug)]
pub struct Bounds {
    /// At most this many average devices.
    pub share: f64,
    /// At least this part of the plain share.
    pub floor: f64,
    /// Devices whose sample counts are taken as stated.
    pub trusted: BTreeSet<DeviceId>,
    /// Devices that count no more than their plain share.
    pub no_bonus: BTreeSet<DeviceId>,
}

/// A device whose update counts.
#[derive(Clone, PartialEq, Debug)]
pub struct Participant {
    pub device: DeviceId,
    pub tier: Tier,
    samples: u32,
    loss: f64,
    loss_after: Option<f64>,
    /// Where a device has said more than most: most fleets are large and say little.
    more: Option<Box<Scalars>>,
}

impl Participant {
    /// F_i
    pub fn loss(&self) -> f64 {
        self.loss
    }

    /// FK_i; where a device has not reported it, F_i.
    pub fn loss_after(&self) -> f64 {
        self.loss_after.unwrap_or(self.loss)
    }

    /// FK_i, if the device has reported it.
    pub fn reported_loss_after(&self) -> Option<f64> {
        self.loss_after
    }

    /// r_k
    pub fn gap(&self) -> Option<f64> {
        self.more.as_ref().and_then(|more| more.gap)
    }

    /// V_i
    pub fn mass(&self) -> Option<f64> {
        self.more.as_ref().and_then(|more| more.mass)
    }

    /// Loss sums by label x attributes + attribute; empty where the device was not asked.
    pub fn group_losses(&self) -> &[f64] {
        self.more.as_ref().map_or(&[], |more| &more.group_losses)
    }

    /// Samples behind the loss sums.
    pub fn group_counts(&self) -> &[u32] {
        self.more.as_ref().map_or(&[], |more| &more.group_counts)
    }

    /// Losses at the steps of a line search.
    pub fn trials(&self) -> &[f64] {
        self.more.as_ref().map_or(&[], |more| &more.trials)
    }

    fn new(device: DeviceId, tier: Tier, scalars: Scalars) -> Self {
        let Scalars { samples, loss_before: loss, loss_after, .. } = scalars;
        let plain = Scalars {
            samples,
            loss_before: loss,
            loss_after,
            test: scalars.test,
            steps: scalars.steps,
            ..Scalars::default()
        };
        let more = (plain != scalars).then(|| Box::new(scalars));
        Self { device, tier, samples, loss, loss_after, more }
    }

    /// It has said nothing but samples and losses.
    pub(crate) fn is_plain(&self) -> bool {
        self.more.is_none()
    }

    /// n_i
    pub fn samples(&self) -> f64 {
        f64::from(self.samples)
    }
}

/// A device that does not take part now but did before: its last update may still be looked at.
#[derive(Clone, PartialEq, Debug)]
pub struct Absent {
    pub device: DeviceId,
    pub tier: Tier,
    /// When it took part last.
    pub round: u32,
    /// Learning rate of that round.
    pub lr: f64,
    /// Squared norm of that update.
    pub norm: f64,
}

/// A device whose update does not count, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    pub device: DeviceId,
    pub code: Code,
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
    regions: Arc<RegionMap>,
    participants: Vec<Participant>,
    /// `participants x regions`: squared norm of each update.
    norms: Vec<f64>,
    /// By participant; empty where nobody has a weight of their own.
    device_weights: Vec<Option<f64>>,
    /// By tier; empty where no tier has a weight of its own.
    tier_weights: Vec<Option<f64>>,
    refused: Vec<Refused>,
    /// By round, then by DeviceId.
    absent: Vec<Absent>,
    /// Where the losses of a line search were taken; empty = at the strategy's own steps.
    pub steps: Vec<f64>,
    /// What a device can count at most and at least, for strategies that average; absent: no bounds.
    pub bounds: Option<Bounds>,
    /// In model order; empty = the model is one layer.
    layers: Arc<[Range<usize>]>,
}

impl Cohort {
    pub fn new(regions: impl Into<Arc<RegionMap>>, lr: f64) -> Self {
        Self {
            round: 1,
            lr,
            server_lr: 1.0,
            clients: 0,
            regions: regions.into(),
            participants: Vec::new(),
            norms: Vec::new(),
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

    pub fn layers(&self) -> &[Range<usize>] {
        &self.layers
    }

    /// Notes a device whose last update can be read. One that takes part, or whose tier is unknown, is not
    /// absent.
    pub fn remember(&mut self, absent: Absent) {
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

    /// Participants and absent devices together.
    pub fn rows(&self) -> usize {
        self.participants.len() + self.absent.len()
    }

    /// The tier of a row: participants in DeviceId order, then absent devices.
    pub fn row_tier(&self, row: usize) -> Option<Tier> {
        let absent = || self.absent.get(row - self.participants.len()).map(|absent| absent.tier);
        self.participants.get(row).map_or_else(absent, |participant| Some(participant.tier))
    }

    /// Forgets all line searches.
    pub fn clear_trials(&mut self) {
        let more = self.participants.iter_mut().filter_map(|participant| participant.more.as_mut());
        more.for_each(|more| more.trials.clear());
    }

    /// Gives a participant the losses it found at the steps of a line search.
    pub fn set_trials(&mut self, device: &DeviceId, trials: &[f64]) {
        if let Ok(index) = self.find(device)
            && let Some(participant) = self.participants.get_mut(index)
        {
            let more = participant.more.get_or_insert_default();
            more.trials = trials.iter().copied().take(MAX_TRIALS).collect();
        }
    }

    /// Makes room at once, so that a large fleet is not moved as it grows.
    pub fn reserve(&mut self, devices: usize) {
        self.participants.reserve_exact(devices);
        self.norms.reserve_exact(devices * self.regions.sets().len());
    }

    /// States how many devices the fleet has.
    pub fn set_clients(&mut self, clients: usize) {
        self.clients = clients;
    }

    /// Adds a device, or notes why not. `norms` come from [`crate::check::check_update`].
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
                self.norms.splice(place * regions..place * regions, norms.iter().copied());
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

    /// Takes a participant out and notes why.
    pub fn dismiss(&mut self, index: usize, code: Code) -> Option<(DeviceId, Tier)> {
        let regions = self.regions.sets().len();
        if index >= self.participants.len() {
            return None;
        }
        let Participant { device, tier, .. } = self.participants.remove(index);
        self.norms.drain(index * regions..(index + 1) * regions);
        if !self.device_weights.is_empty() {
            self.device_weights.remove(index);
        }
        self.refuse(device.clone(), code);
        Some((device, tier))
    }

    /// Another F_i than the one that was said.
    pub(crate) fn limit_loss(&mut self, index: usize, loss: f64) {
        if let Some(participant) = self.participants.get_mut(index) {
            participant.loss = loss;
        }
    }

    /// Another FK_i than the one that was said.
    pub(crate) fn limit_loss_after(&mut self, index: usize, loss: f64) {
        if let Some(participant) = self.participants.get_mut(index) {
            participant.loss_after = Some(loss);
        }
    }

    /// Other figures than those that were said, of what only some strategies ask for.
    pub(crate) fn amend(&mut self, index: usize, change: impl FnOnce(&mut Scalars)) {
        if let Some(more) = self.participants.get_mut(index).and_then(|participant| participant.more.as_mut())
        {
            change(more);
        }
    }

    /// The update is shortened by this factor.
    pub(crate) fn scale_norms(&mut self, index: usize, scale: f64) {
        let regions = self.regions.sets().len();
        let norms = self.norms.get_mut(index * regions..(index + 1) * regions).unwrap_or_default();
        norms.iter_mut().for_each(|norm| *norm *= scale * scale);
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

    pub fn regions(&self) -> &Arc<RegionMap> {
        &self.regions
    }

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

    pub fn device_weight(&self, index: usize) -> Option<f64> {
        self.device_weights.get(index).copied().flatten()
    }

    pub fn tier_weight(&self, tier: Tier) -> Option<f64> {
        self.tier_weights.get(tier.index()).copied().flatten()
    }

    /// Squared norms of a participant's update, by region.
    pub fn norms(&self, index: usize) -> &[f64] {
        let regions = self.regions.sets().len();
        self.norms.get(index * regions..(index + 1) * regions).unwrap_or(&[])
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

    /// How many participants belong to one of the tiers.
    pub fn reaching(&self, tiers: TierSet) -> usize {
        self.participants.iter().filter(|participant| tiers.contains(participant.tier)).count()
    }

    fn find(&self, device: &DeviceId) -> Result<usize, usize> {
        // The usual arrival is in order, where the answer is the end.
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
