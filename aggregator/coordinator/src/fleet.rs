//! The devices of a run: their tiers, connections and timing.

use std::{collections::BTreeMap, sync::Arc};

use common::{
    Code, DeviceId, Tier, TierSet,
    message::{Hello, Refusal},
};

use crate::pacing::{DeviceTiming, Liveness};
use strategies::{
    device::DeviceRecord,
    strategy::Needs,
    tiered::{TierPlan, TieredModel},
};

/// Fewest training samples of which some can be kept for validation.
const MIN_VALIDATED: u32 = 5;

/// Sparing Plans that are kept, so that a device that says Hello again does not have its Plan compiled again.
const SPARING_PLANS: usize = 64;

/// One connection, numbered by the driver. A device that reconnects has a new one.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnId(pub u64);

/// A device that has said Hello at least once.
#[derive(Clone, Debug)]
pub struct RegisteredDevice {
    /// What the store keeps of it.
    pub record: DeviceRecord,
    /// Its own Plan, if it has too little RAM for that of its tier.
    pub plan: Option<Arc<TierPlan>>,
    /// Its connection, if it has one.
    pub conn: Option<ConnId>,
    /// Longest chunk in bytes that it takes.
    pub max_chunk: u32,
    /// It has connected since the gateway was started.
    pub returned: bool,
    /// Its signs of life.
    pub liveness: Liveness,
    /// Its usual timing.
    pub timing: DeviceTiming,
}

/// All devices of a run, in DeviceId order.
#[derive(Clone, Debug, Default)]
pub struct Fleet {
    devices: BTreeMap<DeviceId, RegisteredDevice>,
    /// Tiers that the operator has fixed.
    fixed: BTreeMap<DeviceId, Tier>,
    /// Devices with a connection; counted, because a gathering fleet asks for every message.
    connected: usize,
    /// Plans of [`TieredModel::sparing`] by tier and RAM, or the bytes of the smallest one.
    sparing: BTreeMap<(Tier, u64), Result<Arc<TierPlan>, u64>>,
}

impl Fleet {
    /// `registered`: the devices of the run so far, none of them connected.
    pub fn new(fixed: BTreeMap<DeviceId, Tier>, registered: Vec<DeviceRecord>) -> Self {
        let disconnected = |record: DeviceRecord| {
            let device = RegisteredDevice {
                record,
                plan: None,
                conn: None,
                max_chunk: u32::MAX,
                returned: false,
                liveness: Liveness::default(),
                timing: DeviceTiming::default(),
            };
            (device.record.device.clone(), device)
        };
        let devices = registered.into_iter().map(disconnected).collect();
        Self { devices, fixed, connected: 0, sparing: BTreeMap::new() }
    }

    /// Admits a device that speaks a protocol version, or returns the reason why not. Returns the record if it is new or has
    /// changed.
    pub fn admit(
        &mut self,
        hello: &Hello,
        version: u8,
        conn: ConnId,
        model: &TieredModel,
        needs: Needs,
        allowed: TierSet,
    ) -> Result<Option<DeviceRecord>, Refusal> {
        let (tier, plan) = self.assign(hello, version, model, allowed)?;
        if needs.validation && hello.data.train_samples < MIN_VALIDATED {
            let (need, have) = (MIN_VALIDATED.into(), hello.data.train_samples.into());
            return Err(Refusal { code: Code::NoValidation, need, have });
        }
        if needs.groups && hello.data.groups.is_empty() {
            return Err(Code::NoGroups.into());
        }
        if needs.binary && hello.data.classes > 2 {
            return Err(Refusal { code: Code::WrongData, need: 2, have: hello.data.classes.into() });
        }
        let record = DeviceRecord {
            device: hello.device.clone(),
            tier,
            budget: hello.budget,
            data: hello.data.clone(),
        };
        let known = self.devices.remove(&hello.device);
        if known.as_ref().is_none_or(|known| known.conn.is_none()) {
            self.connected += 1;
        }
        let changed = known.as_ref().is_none_or(|known| known.record != record).then(|| record.clone());
        let (liveness, timing) = known.map(|known| (known.liveness, known.timing)).unwrap_or_default();
        let (conn, max_chunk) = (Some(conn), hello.max_chunk);
        let device = RegisteredDevice { record, plan, conn, max_chunk, returned: true, liveness, timing };
        self.devices.insert(hello.device.clone(), device);
        Ok(changed)
    }

    /// The widest tier that fits and that the device's certificate allows. If the operator has fixed a tier, only that one is
    /// considered. If no tier's Plan fits, it is the widest tier of which a sparing Plan does, and that Plan.
    fn assign(
        &mut self,
        hello: &Hello,
        version: u8,
        model: &TieredModel,
        allowed: TierSet,
    ) -> Result<(Tier, Option<Arc<TierPlan>>), Refusal> {
        let numbered =
            model.plans.iter().enumerate().filter_map(|(index, plan)| Some((Tier::new(index)?, plan)));
        let fixed = self.fixed.get(&hello.device);
        let wanted: Vec<_> = numbered.filter(|(tier, _)| fixed.is_none_or(|fixed| fixed == tier)).collect();
        let fitting = || wanted.iter().filter(|(_, plan)| plan.fits(hello));
        let chosen = fitting().find(|(tier, _)| allowed.contains(*tier));
        if chosen.is_none() && fitting().next().is_some() {
            return Err(Code::TierNotAllowed.into());
        }
        let (tier, own) = match chosen {
            Some((tier, _)) => (*tier, None),
            None => {
                let (tier, plan) = self.spare(hello, model, &wanted, allowed)?;
                (tier, Some(plan))
            }
        };
        let plan = own.as_deref().unwrap_or(&model.plans[tier.index()]);
        if plan.since() > version {
            let (need, have) = (plan.since().into(), version.into());
            return Err(Refusal { code: Code::TooOld, need, have });
        }
        let data = &hello.data;
        if !plan.takes(hello) {
            return Err(Refusal {
                code: Code::WrongData,
                need: plan.info.inputs.into(),
                have: data.inputs.into(),
            });
        }
        if data.train_samples == 0 {
            return Err(Code::EmptyShard.into());
        }
        Ok((tier, own))
    }

    /// The widest allowed tier of which a sparing Plan fits, and that Plan.
    fn spare(
        &mut self,
        hello: &Hello,
        model: &TieredModel,
        wanted: &[(Tier, &TierPlan)],
        allowed: TierSet,
    ) -> Result<(Tier, Arc<TierPlan>), Refusal> {
        let ram = hello.budget.ram;
        let mut short = wanted.last().map(|(_, plan)| plan.shortage(hello));
        for (tier, plan) in wanted.iter().filter(|(tier, _)| allowed.contains(*tier)) {
            if plan.info.arena_bytes() <= ram {
                continue;
            }
            if self.sparing.len() >= SPARING_PLANS && !self.sparing.contains_key(&(*tier, ram)) {
                self.sparing.clear();
            }
            let found =
                self.sparing.entry((*tier, ram)).or_insert_with(|| model.sparing(*tier, ram).map(Arc::new));
            match found {
                Ok(plan) if plan.fits(hello) => return Ok((*tier, plan.clone())),
                Ok(plan) => short = Some(plan.shortage(hello)),
                Err(need) => short = Some((*need, ram)),
            }
        }
        Err(short.map_or(Code::DoesNotFit.into(), |(need, have)| Refusal {
            code: Code::DoesNotFit,
            need,
            have,
        }))
    }

    /// Forgets a connection; true if it was the device's present one.
    pub fn leave(&mut self, device: &DeviceId, conn: ConnId) -> bool {
        match self.devices.get_mut(device) {
            Some(device) if device.conn == Some(conn) => {
                device.conn = None;
                self.connected -= 1;
                true
            }
            _ => false,
        }
    }

    /// A device of the run.
    pub fn get(&self, device: &DeviceId) -> Option<&RegisteredDevice> {
        self.devices.get(device)
    }

    /// The same for changes; [`Fleet::admit`] and [`Fleet::leave`] alone set its connection.
    pub(crate) fn get_mut(&mut self, device: &DeviceId) -> Option<&mut RegisteredDevice> {
        self.devices.get_mut(device)
    }

    /// Removes a device; false if the fleet does not have it.
    pub fn remove(&mut self, device: &DeviceId) -> bool {
        let removed = self.devices.remove(device);
        if removed.as_ref().is_some_and(|removed| removed.conn.is_some()) {
            self.connected -= 1;
        }
        removed.is_some()
    }

    /// Whether a device has a connection.
    pub fn is_connected(&self, device: &DeviceId) -> bool {
        self.get(device).is_some_and(|device| device.conn.is_some())
    }

    /// Devices with a connection, in DeviceId order.
    pub fn connected(&self) -> impl Iterator<Item = &RegisteredDevice> {
        self.devices().filter(|device| device.conn.is_some())
    }

    /// How many devices have a connection.
    pub fn connected_len(&self) -> usize {
        debug_assert_eq!(self.connected, self.connected().count());
        self.connected
    }

    /// All devices, connected or not, in DeviceId order.
    pub fn devices(&self) -> impl Iterator<Item = &RegisteredDevice> {
        self.devices.values()
    }

    /// How many devices there are, connected or not.
    pub fn len(&self) -> usize {
        self.devices.len()
    }

    /// No device has registered.
    pub fn is_empty(&self) -> bool {
        self.devices.is_empty()
    }
}
