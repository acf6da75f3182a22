//! What the trainer needs to know of a device's samples.

use common::message::DataSummary;

/// Which samples: those a device trains on, or those it only evaluates on.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum DataSplit {
    Train,
    Test,
    /// Samples that its owner has set apart for validation. Most devices have none and keep some training samples for it.
    Validation,
}

/// Samples by index, from flash, memory or a sensor's log.
///
/// The same index must give the same sample for as long as one Assignment is worked on. The trainer
/// reads features and labels at different times because it has no room to keep labels.
pub trait Shard {
    fn train_len(&self) -> u32;
    fn test_len(&self) -> u32;
    /// Samples set apart for validation.
    fn validation_len(&self) -> u32 {
        0
    }
    /// Numbers per sample.
    fn inputs(&self) -> u32;
    /// One more than the largest label.
    fn classes(&self) -> u32;
    fn label(&self, part: DataSplit, index: u32) -> Result<u32, DataError>;
    /// Writes the features to `out`, which is [`inputs`](Self::inputs) long, and gives the (first) label.
    fn sample(&self, part: DataSplit, index: u32, out: &mut [f32]) -> Result<u32, DataError>;

    /// Labels or target numbers per sample: one, or one per token or predicted number.
    fn targets(&self) -> u32 {
        1
    }

    /// The label at a position of a sample.
    fn label_at(&self, part: DataSplit, index: u32, position: u32) -> Result<u32, DataError> {
        match position {
            0 => self.label(part, index),
            _ => Err(DataError::NoTarget { index, position, targets: self.targets() }),
        }
    }

    /// The number to predict at a position of a sample; labels are numbers, too.
    fn value_at(&self, part: DataSplit, index: u32, position: u32) -> Result<f32, DataError> {
        self.label_at(part, index, position).map(|label| label as f32)
    }

    /// Which group a sample belongs to: label x number of attributes + attribute. Groups have weights in a
    /// Brief.
    fn group(&self, _part: DataSplit, _index: u32) -> u32 {
        0
    }

    /// How many groups there are in the fleet; 0 where samples have no attribute.
    fn groups(&self) -> u32 {
        0
    }

    fn len(&self, part: DataSplit) -> u32 {
        match part {
            DataSplit::Train => self.train_len(),
            DataSplit::Test => self.test_len(),
            DataSplit::Validation => self.validation_len(),
        }
    }

    /// What the aggregator may know.
    fn summary(&self) -> DataSummary {
        let mut summary = DataSummary {
            train_samples: self.train_len(),
            test_samples: self.test_len(),
            inputs: self.inputs(),
            classes: self.classes(),
            ..DataSummary::default()
        };
        // Of more groups than a message holds, nothing is said.
        if summary.groups.resize(self.groups() as usize, 0).is_ok() {
            for index in 0..self.train_len() {
                let group = self.group(DataSplit::Train, index) as usize;
                summary.groups.get_mut(group).into_iter().for_each(|count| *count += 1);
            }
        }
        summary
    }
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    #[error("there is no sample {index}; there are {len}")]
    NoSample { index: u32, len: u32 },
    #[error("a sample has {inputs} numbers, but there is room for {room}")]
    Room { inputs: usize, room: usize },
    #[error("sample {index} has label {label}, beyond the {classes} classes")]
    Label { index: u32, label: u32, classes: u32 },
    #[error("{features} features, {labels} labels and {inputs} numbers per sample contradict each other")]
    Lengths { features: usize, labels: usize, inputs: usize },
    #[error("feature {feature} of sample {index} is not a finite number")]
    NonFinite { index: usize, feature: usize },
    #[error("sample {index} has no target {position}; there are {targets}")]
    NoTarget { index: u32, position: u32, targets: u32 },
    #[error(
        "number {position} of sample {index} is not a whole number below the {entries} entries of the table"
    )]
    Token { index: u32, position: u32, entries: u32 },
    #[error("sample {index} is in group {group}, but there are only {groups} groups")]
    Group { index: u32, group: u32, groups: u32 },
    #[error("sample {index} has attribute {attribute}, but there are only {attributes}, from 0 on")]
    Attribute { index: u32, attribute: u32, attributes: u32 },
    #[error("there are no samples here, or fewer than their header says")]
    NoFile,
    #[error("more samples than this device can count")]
    TooMany,
}
