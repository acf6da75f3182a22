//! The stored record of a device, connected or not.

use common::{Budget, DeviceId, Tier, message::DataSummary};
use serde::{Deserialize, Serialize};

/// What is stored about a device over restarts.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DeviceRecord {
    pub device: DeviceId,
    pub tier: Tier,
    pub budget: Budget,
    pub data: DataSummary,
}
