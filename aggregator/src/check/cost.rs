//! What a tier costs a device.

use common::Tier;
use serde::Serialize;

use crate::{config::Config, run::PreparedRun};

/// Of one tier. Bytes are those of one training exchange, without framing and retransmissions.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TierCost {
    pub tier: usize,
    /// Units of every hidden axis.
    pub widths: Vec<u32>,
    pub parameters: u64,
    /// To the device: its slice, and the guide if the strategy sends one.
    pub down_bytes: u64,
    /// From the device.
    pub up_bytes: u64,
    /// Of the arena in which a device trains; its program needs more.
    pub ram_bytes: u64,
}

pub(super) fn of(config: &Config, prepared: &PreparedRun) -> Vec<TierCost> {
    let (model, needs) = (&prepared.model, prepared.method.needs());
    let tiers = model.plans.iter().zip(&model.masks).enumerate();
    let costs = tiers.filter_map(|(index, (plan, mask))| {
        let tier = Tier::new(index)?;
        let (held, trained) = (plan.info.params as usize, model.regions.slice_len(tier));
        let bytes = |codec: Option<&common::Codec>, numbers| {
            codec.copied().and_then(|codec| codec.encoded_len(numbers)).map_or(0, u64::from)
        };
        let down = config.wire.down.of(tier);
        let guide = if needs.guide { bytes(down.as_ref(), trained) } else { 0 };
        Some(TierCost {
            tier: index,
            widths: mask.widths().to_vec(),
            parameters: held as u64,
            down_bytes: bytes(down.as_ref(), held) + guide,
            up_bytes: bytes(config.wire.up.of(tier).as_ref(), trained * needs.product.vectors()),
            ram_bytes: plan.info.arena_bytes(),
        })
    });
    costs.collect()
}
