//! The interface through which the trainer reads a device's samples.

use common::message::DataSummary;

/// Which samples of a shard.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum DataSplit {
    /// Those that the device trains on.
    Train,
    /// Those that it only evaluates on.
    Test,
    /// Samples that its owner has set apart for validation. Most devices have none and keep some training samples for it.
    Validation,
}

/// Samples by index, from flash, memory or a sensor's log.
///
/// The same index must give the same sample during one Assignment. The trainer reads features and labels at different times,
/// because it has no room to keep labels.
pub trait Shard {
    /// Number of training samples.
    fn train_len(&self) -> u32;
    /// Number of test samples.
    fn test_len(&self) -> u32;
    /// Samples set apart for validation.
    fn validation_len(&self) -> u32 {
        0
    }
    /// Numbers per sample.
    fn inputs(&self) -> u32;
    /// One more than the largest label.
    fn classes(&self) -> u32;
    /// The (first) label of a sample.
    fn label(&self, part: DataSplit, index: u32) -> Result<u32, DataError>;
    /// Writes the features to `out`, which is [`inputs`](Self::inputs) long, and returns the (first) label.
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

    /// The number to predict at a position of a sample; by default its label.
    fn value_at(&self, part: DataSplit, index: u32, position: u32) -> Result<f32, DataError> {
        self.label_at(part, index, position).map(|label| label as f32)
    }

    /// One step of the number at a position in the unit of its file, where numbers are scaled.
    fn unit(&self, _position: u32) -> f32 {
        1.0
    }

    /// The group of a sample: label x number of attributes + attribute. A Brief has weights for groups.
    fn group(&self, _part: DataSplit, _index: u32) -> u32 {
        0
    }

    /// Number of groups in the fleet; 0 where samples have no attribute.
    fn groups(&self) -> u32 {
        0
    }

    /// Number of samples of a part.
    fn len(&self, part: DataSplit) -> u32 {
        match part {
            DataSplit::Train => self.train_len(),
            DataSplit::Test => self.test_len(),
            DataSplit::Validation => self.validation_len(),
        }
    }

    /// What the aggregator gets to know about the samples.
    fn summary(&self) -> DataSummary {
        let mut summary = DataSummary {
            train_samples: self.train_len(),
            test_samples: self.test_len(),
            inputs: self.inputs(),
            classes: self.classes(),
            ..DataSummary::default()
        };
        // More groups than fit a message are not reported.
        if summary.groups.resize(self.groups() as usize, 0).is_ok() {
            for index in 0..self.train_len() {
                let group = self.group(DataSplit::Train, index) as usize;
                summary.groups.get_mut(group).into_iter().for_each(|count| *count += 1);
            }
        }
        summary
    }
}

/// Why samples cannot be used.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant has its message")]
pub enum DataError {
    #[error("there is no sample {index}; there are {len}")]
    NoSample { index: u32, len: u32 },
    #[error("a sample has {inputs} numbers, but there is room for {room}")]
    Room { inputs: usize, room: usize },
    #[error("sample {index} has label {label}, beyond the {classes} classes")]
    Label { index: u32, label: u32, classes: u32 },
    #[error("{features} features, {labels} labels and {inputs} numbers per sample do not match")]
    Lengths { features: usize, labels: usize, inputs: usize },
    #[error("feature {feature} of sample {index} is not a finite number")]
    NonFinite { index: usize, feature: usize },
    #[error("sample {index} has no target {position}; there are {targets}")]
    NoTarget { index: u32, position: u32, targets: u32 },
    #[error(
        "target {position} of sample {index} is not a class; a model for classes needs whole numbers from 0, and numbers \
         need task = \"regression\""
    )]
    NotClass { index: u32, position: u32 },
    #[error(
        "target {position} of sample {index} lies outside of 0 to 1; a binary model needs classes 0 and 1, and numbers \
         need task = \"regression\""
    )]
    NotBinary { index: u32, position: u32 },
    #[error(
        "number {position} of sample {index} is not a whole number below the {entries} entries of the table"
    )]
    Token { index: u32, position: u32, entries: u32 },
    #[error("sample {index} is in group {group}, but there are only {groups} groups")]
    Group { index: u32, group: u32, groups: u32 },
    #[error("sample {index} has attribute {attribute}, but there are only {attributes}, numbered from 0")]
    Attribute { index: u32, attribute: u32, attributes: u32 },
    #[error("there are no samples, or fewer than the header states")]
    NoFile,
    #[error("more samples than this device can count")]
    TooMany,
}
