//! A shard that says it is larger than it is.

use common::message::DataSummary;
use edge_client::data::{DataError, Part, Shard};

use crate::engine::SharedShard;

pub(super) struct Boaster {
    pub shard: SharedShard,
    pub factor: u32,
}

impl Shard for Boaster {
    fn summary(&self) -> DataSummary {
        let summary = self.shard.summary();
        DataSummary { train_samples: summary.train_samples.saturating_mul(self.factor), ..summary }
    }

    fn train_len(&self) -> u32 {
        self.shard.train_len()
    }

    fn test_len(&self) -> u32 {
        self.shard.test_len()
    }

    fn inputs(&self) -> u32 {
        self.shard.inputs()
    }

    fn classes(&self) -> u32 {
        self.shard.classes()
    }

    fn label(&self, part: Part, index: u32) -> Result<u32, DataError> {
        self.shard.label(part, index)
    }

    fn sample(&self, part: Part, index: u32, out: &mut [f32]) -> Result<u32, DataError> {
        self.shard.sample(part, index, out)
    }
}
