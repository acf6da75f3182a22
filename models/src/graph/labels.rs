//! The names of classes, as the classifiers of scikit-learn have them.

use super::{Graph, Tail};

/// What a classifier computes from the probabilities of its classes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Labels {
    /// One per probability.
    pub classes: Classes,
    /// The name of a second output: the most likely class of every sample.
    pub output: Option<String>,
    /// The first output maps classes to probabilities, sample by sample (ZipMap).
    pub mapped: bool,
}

/// In the order of the probabilities.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Classes {
    /// Such as 0 to 9.
    Numbers(Vec<i64>),
    /// Such as "cat" and "dog".
    Names(Vec<String>),
}

impl Classes {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Self::Numbers(numbers) => numbers.len(),
            Self::Names(names) => names.len(),
        }
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Graph {
    /// Probabilities per sample in the ONNX model.
    pub fn probabilities(&self) -> usize {
        match self.output.tail {
            Some(Tail::TwoClasses) => 2,
            _ => self.outputs(),
        }
    }

    /// Labels without probabilities, or with another number of classes, are left out.
    pub fn with_labels(mut self, labels: Option<Labels>) -> Self {
        let vector = self.shape(self.output.value).dims.len() == 1 && self.output.tail.is_some();
        let classes = self.probabilities();
        self.output.labels = labels.filter(|labels| vector && labels.classes.len() == classes);
        self
    }
}
