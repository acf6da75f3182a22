//! Devices with the windows of one person each.

use std::sync::Arc;

use super::AttackError;
use sim::{
    data::{DataSet, known},
    engine::SharedShard,
    partition::{Partition, Testing},
};

/// Share of each person's windows that are test samples.
const TEST: f64 = 0.4;

/// One person per device, and the model that fits their windows.
pub(super) fn shards(devices: usize, seed: u64) -> Result<(Vec<SharedShard>, String), AttackError> {
    let set: Arc<DataSet> = Arc::new(known::load("wisdm", &known::DataDirs::usual(None), 0)?);
    let natural = Partition::Natural { train: 1, test: 0 };
    let split = natural.split(&set, Some(devices), Testing::HoldOut(TEST), seed)?;
    let model = format!("mlp:{}-32-{}", set.shape.iter().product::<usize>(), set.classes);
    let shards = split.shards(&set)?.into_iter();
    Ok((shards.map(|shard| Arc::new(shard) as SharedShard).collect(), model))
}
