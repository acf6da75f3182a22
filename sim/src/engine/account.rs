//! What a simulated run costs, by tier: bytes, time and energy; and how often devices answered.

use common::{Duration, Tier};
use serde::Serialize;

use super::cost::{Cost, Hardware};

/// The costs of a run.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Account {
    /// In the order of tiers.
    pub tiers: Vec<TierAccount>,
}

/// The costs of the devices of one tier.
#[derive(Copy, Clone, PartialEq, Debug, Default, Serialize)]
pub struct TierAccount {
    /// Models and guides to devices, without framing.
    pub bytes_down: u64,
    /// Updates from devices, likewise.
    pub bytes_up: u64,
    /// Sum over devices of the time in which they received, worked and sent, in seconds.
    pub busy_s: f64,
    /// Energy of computing and of the link, in joules.
    pub joules: f64,
    /// Exchanges for which devices were asked.
    pub asked: u64,
    /// Exchanges that they answered in time.
    pub answered: u64,
}

impl Account {
    /// No costs yet.
    pub(super) fn new(tiers: usize) -> Self {
        Self { tiers: vec![TierAccount::default(); tiers] }
    }

    /// A device is asked.
    pub(super) fn asked(&mut self, tier: Tier) {
        self.tiers[tier.index()].asked += 1;
    }

    /// A device has worked; `in_time`: its answer counts.
    pub(super) fn worked(
        &mut self,
        tier: Tier,
        cost: &Cost,
        span: Duration,
        hardware: &Hardware,
        in_time: bool,
    ) {
        let computing = hardware.mj_per_mmac * cost.macs / 1e6;
        let link = hardware.mj_per_kb * (cost.down + cost.up) / 1e3;
        let account = &mut self.tiers[tier.index()];
        account.bytes_down += cost.down as u64;
        account.bytes_up += cost.up as u64;
        account.busy_s += span.as_millis() as f64 / 1000.0;
        account.joules += (computing + link) / 1000.0;
        account.answered += u64::from(in_time);
    }
}
