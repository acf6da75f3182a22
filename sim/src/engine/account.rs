//! What a simulated run costs: bytes, time and energy, by tier.

use common::Tier;
use serde::Serialize;

#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Account {
    pub tiers: Vec<TierAccount>,
}

#[derive(Copy, Clone, PartialEq, Debug, Default, Serialize)]
pub struct TierAccount {
    /// To devices.
    pub bytes_down: u64,
    /// From devices.
    pub bytes_up: u64,
}

impl Account {
    pub fn new(tiers: usize) -> Self {
        Self { tiers: vec![TierAccount::default(); tiers] }
    }

    pub fn up(&mut self, tier: Tier, bytes: usize) {
        if let Some(account) = self.tiers.get_mut(tier.index()) {
            account.bytes_up += bytes as u64;
        }
    }

    pub fn down(&mut self, tier: Tier, bytes: usize) {
        if let Some(account) = self.tiers.get_mut(tier.index()) {
            account.bytes_down += bytes as u64;
        }
    }
}
