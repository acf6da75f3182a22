//! What a simulated run costs: bytes, time and energy, by tier, and who answered.

use common::{Duration, Tier};
use serde::Serialize;

use super::cost::{Cost, Hardware};

#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Account {
    pub tiers: Vec<TierAccount>,
}

#[derive(Copy, Clone, PartialEq, Debug, Default, Serialize)]
pub struct TierAccount {
    /// Models and guides to devices, without frames and repeats.
    pub bytes_down: u64,
    /// Updates from devices, likewise.
    pub bytes_up: u64,
    /// Sum over devices of the time in which they worked and sent.
    pub busy_s: f64,
    /// Of computing and of the link.
    pub joules: f64,
    /// Exchanges that devices were asked to.
    pub asked: u64,
    /// Exchanges that they answered in time.
    pub answered: u64,
}

impl Account {
    pub fn new(tiers: usize) -> Self {
        Self { tiers: vec![TierAccount::default(); tiers] }
    }

    pub fn asked(&mut self, tier: Tier) {
        self.with(tier, |account| account.asked += 1);
    }

    /// A device has worked; `in_time` if it was heard.
    pub fn worked(&mut self, tier: Tier, cost: &Cost, span: Duration, hardware: &Hardware, in_time: bool) {
        let computing = hardware.mj_per_mmac * cost.macs / 1e6;
        let link = hardware.mj_per_kb * (cost.down + cost.up) / 1e3;
        self.with(tier, |account| {
            account.bytes_down += cost.down as u64;
            account.bytes_up += cost.up as u64;
            account.busy_s += span.as_millis() as f64 / 1000.0;
            account.joules += (computing + link) / 1000.0;
            account.answered += u64::from(in_time);
        });
    }

    fn with(&mut self, tier: Tier, change: impl FnOnce(&mut TierAccount)) {
        if let Some(account) = self.tiers.get_mut(tier.index()) {
            change(account);
        }
    }
}
