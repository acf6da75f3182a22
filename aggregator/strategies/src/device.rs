//! What is known of a device whether or not it is connected.

use common::{Budget, DeviceId, Tier, message::DataSummary};
use serde::{Deserialize, Serialize};

/// What is remembered of a device over restarts.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DeviceRecord {
    pub device: DeviceId,
    pub tier: Tier,
    pub budget: Budget,
    pub data: DataSummary,
}
