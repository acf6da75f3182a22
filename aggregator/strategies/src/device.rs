//! The stored record of a device, connected or not.

use common::{Budget, DeviceId, Tier, message::DataSummary};
use serde::{Deserialize, Serialize};

/// What is stored about a device over restarts.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DeviceRecord {
    /// Its name.
    pub device: DeviceId,
    /// The tier that it was assigned.
    pub tier: Tier,
    /// What its hardware has.
    pub budget: Budget,
    /// What it has told about its samples.
    pub data: DataSummary,
}
