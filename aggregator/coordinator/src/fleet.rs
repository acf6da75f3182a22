//! Who is there: the devices the aggregator knows, their tiers and their connections.

use std::collections::BTreeMap;

use common::{
    Code, DeviceId, Tier, TierSet,
    message::{Hello, Refusal},
};

use crate::patience::{Past, Pulse};
use strategies::{device::DeviceRecord, strategy::Needs, tiered::TierPlan};

/// Training samples without which none can be kept for validation.
const MIN_VALIDATED: u32 = 5;

/// One connection, numbered by the shell. A device that reconnects has a new one.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnId(pub u64);

/// A device that has said Hello at least once.
#[derive(Clone, Debug)]
pub struct Member {
    pub record: DeviceRecord,
    pub conn: Option<ConnId>,
    pub max_chunk: u32,
    /// It was here since the gateway was started.
    pub returned: bool,
    pub pulse: Pulse,
    pub past: Past,
}

/// All members, in DeviceId order.
#[derive(Clone, Debug, Default)]
pub struct Fleet {
    members: BTreeMap<DeviceId, Member>,
    /// Tiers that the operator has fixed.
    fixed: BTreeMap<DeviceId, Tier>,
}

impl Fleet {
    pub fn new(fixed: BTreeMap<DeviceId, Tier>, known: Vec<DeviceRecord>) -> Self {
        let member = |record: DeviceRecord| {
            let device = record.device.clone();
            let (pulse, past) = (Pulse::default(), Past::default());
            (device, Member { record, conn: None, max_chunk: u32::MAX, returned: false, pulse, past })
        };
        Self { members: known.into_iter().map(member).collect(), fixed }
    }

    /// Admits a device or says why not. Returns the record if it is new or has changed.
    pub fn admit(
        &mut self,
        hello: &Hello,
        conn: ConnId,
        tiers: &[TierPlan],
        needs: Needs,
        allowed: TierSet,
    ) -> Result<Option<DeviceRecord>, Refusal> {
        let tier = self.assign(hello, tiers, allowed)?;
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
        let known = self.members.get(&hello.device);
        let changed = (known.map(|known| &known.record) != Some(&record)).then(|| record.clone());
        let (pulse, past) = known.map(|known| (known.pulse, known.past.clone())).unwrap_or_default();
        let (conn, max_chunk) = (Some(conn), hello.max_chunk);
        let member = Member { record, conn, max_chunk, returned: true, pulse, past };
        self.members.insert(hello.device.clone(), member);
        Ok(changed)
    }

    /// The widest tier that fits and that the device's certificate allows, unless the operator has fixed one (which
    /// must fit and be allowed, too).
    fn assign(&self, hello: &Hello, tiers: &[TierPlan], allowed: TierSet) -> Result<Tier, Refusal> {
        let numbered = tiers.iter().enumerate().filter_map(|(index, plan)| Some((Tier::new(index)?, plan)));
        let fixed = self.fixed.get(&hello.device);
        let wanted: Vec<_> = numbered.filter(|(tier, _)| fixed.is_none_or(|fixed| fixed == tier)).collect();
        let fitting = || wanted.iter().filter(|(_, plan)| plan.fits(hello));
        let chosen = fitting().find(|(tier, _)| allowed.contains(*tier));
        if chosen.is_none() && fitting().next().is_some() {
            return Err(Code::TierNotAllowed.into());
        }
        let Some(&(tier, plan)) = chosen else {
            let (need, have) = wanted.last().map_or((0, 0), |(_, plan)| plan.shortage(hello));
            return Err(Refusal { code: Code::DoesNotFit, need, have });
        };
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
        Ok(tier)
    }

    /// Forgets a connection; true if it was the device's present one.
    pub fn leave(&mut self, device: &DeviceId, conn: ConnId) -> bool {
        match self.members.get_mut(device) {
            Some(member) if member.conn == Some(conn) => {
                member.conn = None;
                true
            }
            _ => false,
        }
    }

    pub fn member_mut(&mut self, device: &DeviceId) -> Option<&mut Member> {
        self.members.get_mut(device)
    }

    /// The device is no member any more. False if it was none.
    pub fn remove(&mut self, device: &DeviceId) -> bool {
        self.members.remove(device).is_some()
    }

    pub fn is_connected(&self, device: &DeviceId) -> bool {
        self.member(device).is_some_and(|member| member.conn.is_some())
    }

    pub fn member(&self, device: &DeviceId) -> Option<&Member> {
        self.members.get(device)
    }

    /// Devices with a connection, in DeviceId order.
    pub fn connected(&self) -> impl Iterator<Item = (&DeviceId, &Member, ConnId)> {
        self.members.iter().filter_map(|(device, member)| Some((device, member, member.conn?)))
    }

    /// How many there are, connected or not.
    pub fn known(&self) -> usize {
        self.members.len()
    }

    /// Whether another device is connected than these.
    pub fn has_others(&self, is_one_of_them: impl Fn(&DeviceId) -> bool) -> bool {
        self.connected().any(|(device, ..)| !is_one_of_them(device))
    }

    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.values()
    }
}
