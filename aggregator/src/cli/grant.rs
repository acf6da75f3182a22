//! Options of `enroll` and `token`: for how long, and for which tiers.

use std::time::Duration;

use crate::ca::GrantOptions;
use clap::Args;
use common::{Tier, TierSet};

#[derive(Args, Debug)]
pub(super) struct GrantArgs {
    /// Days for which a certificate is valid; connected devices renew it after two thirds of them. A board's key is valid as
    /// long; then the board needs a new identity
    #[arg(long, default_value_t = 3650.0, value_parser = days)]
    days: f64,
    /// Numbers of the tiers that the device may have, as in 1,2; all if absent
    #[arg(long, value_delimiter = ',', value_parser = tier)]
    tiers: Vec<Tier>,
}

impl GrantArgs {
    pub fn options(&self) -> GrantOptions {
        let valid_for = Duration::from_secs_f64(self.days * 24.0 * 3600.0);
        let tiers = match &self.tiers[..] {
            [] => TierSet::ALL,
            some => some.iter().fold(TierSet::EMPTY, |set, &tier| set.with(tier)),
        };
        GrantOptions { valid_for, tiers }
    }
}

fn days(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(days) if days > 0.0 && days <= 7300.0 => Ok(days),
        _ => Err("must be more than 0 and at most 7300".into()),
    }
}

fn tier(text: &str) -> Result<Tier, String> {
    text.parse().ok().and_then(Tier::new).ok_or_else(|| "must be a number below 32".into())
}
