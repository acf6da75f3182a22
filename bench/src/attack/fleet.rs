//! The fleet of a row: its devices, the hostile ones, and the ones that the row is about.

use std::{collections::BTreeSet, sync::Arc};

use common::{
    DeviceId, Tier,
    rng::{Rng, derive},
};

use super::{
    Attack, AttackData, AttackError, AttackOptions, GuardRow, Honest, digits,
    liar::{Boaster, count_factor},
    wisdm,
};
use sim::engine::{DeviceSpec, Hardware};

pub(super) struct AttackFleet {
    pub members: Vec<DeviceSpec>,
    pub liars: BTreeSet<DeviceId>,
    /// Model of the data set, if it is not the default one.
    pub model: Option<String>,
}

impl AttackFleet {
    pub fn new(options: &AttackOptions, row: GuardRow, seed: u64) -> Result<Self, AttackError> {
        let (shards, model) = match options.data {
            AttackData::Digits => (digits::shards(options, row.honest(), seed)?, None),
            AttackData::Wisdm => {
                let (shards, model) = wisdm::shards(options.devices, seed)?;
                (shards, Some(model))
            }
        };
        let mut members = vec![];
        for (index, shard) in shards.into_iter().enumerate() {
            // Names of this form and these tiers are always valid.
            let tier = Tier::new(tier_of(options, row.honest(), index));
            let (Ok(device), Some(tier)) = (format!("d{index:03}").parse(), tier) else { continue };
            members.push(DeviceSpec { device, tier, hardware: Hardware::default(), shard });
        }
        let liars = liars(options, row, &members, seed);
        let factor = row.attack().map_or(1, count_factor);
        for member in members.iter_mut().filter(|member| factor > 1 && liars.contains(&member.device)) {
            member.shard = Arc::new(Boaster { shard: member.shard.clone(), factor });
        }
        Ok(Self { members, liars, model })
    }
}

/// Devices get tiers in turn. In the row `alone-in-tier`, the first device gets the narrowest tier.
fn tier_of(options: &AttackOptions, row: Honest, index: usize) -> usize {
    let tiers = options.tiers.len();
    match row {
        Honest::AloneInTier if tiers > 1 && index == 0 => tiers - 1,
        Honest::AloneInTier if tiers > 1 => index % (tiers - 1),
        // The first device changes places with the first one of that tier.
        Honest::RareMiddle if index == 0 => tiers / 2,
        Honest::RareMiddle if index == tiers / 2 => 0,
        Honest::RareNarrow if index == 0 => tiers - 1,
        Honest::RareNarrow if index == tiers - 1 => 0,
        _ => index % tiers,
    }
}

/// Chooses the hostile devices: the same for every attack with this share, except for attacks from one tier.
pub(super) fn liars(
    options: &AttackOptions,
    row: GuardRow,
    members: &[DeviceSpec],
    seed: u64,
) -> BTreeSet<DeviceId> {
    let widest = |member: &&DeviceSpec| row.attack() != Some(Attack::OneTier) || member.tier.index() == 0;
    let mut devices: Vec<DeviceId> =
        members.iter().filter(widest).map(|member| member.device.clone()).collect();
    Rng::new(derive(seed, 7)).shuffle(&mut devices);
    devices.truncate(row.liars(options.devices));
    devices.into_iter().collect()
}
