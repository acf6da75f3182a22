//! Arguments that name a device's samples and its limits, shared by the commands.

use std::path::Path;

use clap::Args;
use common::{
    Budget,
    privacy::{Policy, Privacy},
};

use super::privacy::{self, PrivacyError};

mod bytes;
mod samples;
mod to_predict;

pub use bytes::{BadBytes, Bytes};
pub use samples::{BadShare, DataArgs, DataArgsError, Partition, Share, read_schema};

/// Limits of the device.
#[derive(Args, Copy, Clone, Debug)]
pub struct BudgetArgs {
    /// Memory for training, such as 64k, 64KiB (= 64k), 64KB (64,000) or 0.5M; without this option, no limit
    #[arg(long)]
    pub ram: Option<Bytes>,
    /// Storage for parameters
    #[arg(long)]
    pub flash: Option<Bytes>,
}

impl BudgetArgs {
    /// The budget that the aggregator gets; no limit where no option is given.
    pub fn budget(&self) -> Budget {
        let or_unlimited = |bytes: Option<Bytes>| bytes.map_or(u64::MAX, |bytes| bytes.0);
        Budget { ram: or_unlimited(self.ram), flash: or_unlimited(self.flash), ..Budget::UNLIMITED }
    }
}

/// The owner's privacy policy.
#[derive(Args, Copy, Clone, Debug)]
pub struct PrivacyArgs {
    /// Largest epsilon of one answer; requests for answers with less or no noise are refused (E44). See docs/PRIVACY.md
    #[arg(long, value_parser = epsilon)]
    pub max_epsilon: Option<f32>,
    /// Most answers with noise over the life of this identity; further ones are refused (E45). A board counts from its start
    #[arg(long, requires = "max_epsilon")]
    pub max_private_rounds: Option<u32>,
}

impl PrivacyArgs {
    /// The privacy settings, with the secret next to an identity file. The secret is created on first use.
    pub fn beside(&self, identity: &Path) -> Result<Privacy, PrivacyError> {
        let policy =
            self.max_epsilon.map(|max_epsilon| Policy { max_epsilon, max_answers: self.max_private_rounds });
        let secret = match privacy::secret(&privacy::secret_file(identity)) {
            // Without a policy this is not fatal: most devices are never asked for noise.
            Err(PrivacyError::Write(error)) if policy.is_none() => {
                tracing::warn!("there is no secret, so briefs that ask for noise are refused: {error}");
                None
            }
            secret => Some(secret?),
        };
        Ok(Privacy { secret, policy })
    }
}

fn epsilon(text: &str) -> Result<f32, String> {
    let epsilon = text.parse().ok().filter(|epsilon: &f32| epsilon.is_finite() && *epsilon > 0.0);
    epsilon.ok_or_else(|| "expected a number above 0, such as 2.0".into())
}
