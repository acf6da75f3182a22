//! A data set that partitions divide and devices train on.

use std::path::PathBuf;

use trainer::data::{DataError, load::LoadError};

use super::{OwnError, Records};

/// Training and test samples with their metadata. Loaded once and shared by all devices.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct DataSet {
    /// Name by which the set is asked for.
    pub name: String,
    /// Shape of one sample, channels first.
    pub shape: Vec<usize>,
    /// Number of classes; labels are below it. 0 where targets are numbers.
    pub classes: u32,
    /// Size of the vocabulary, if samples are sequences of tokens.
    pub tokens: Option<u32>,
    /// Records for training.
    pub train: Records,
    /// Records for test; empty if the source has none.
    pub test: Records,
    /// What one step of each number to predict is in the unit of its file; empty if numbers are not scaled.
    pub units: Vec<f32>,
    /// Names of classes; empty if they have none.
    pub class_names: Vec<String>,
    /// Names of the values of the sensitive attribute; empty if there is none.
    pub group_names: Vec<String>,
    /// Names of natural clients, or of the values by which a source divides its samples. Empty if there are none.
    pub client_names: Vec<String>,
    /// What a person should know of how the files were read.
    pub notes: Vec<String>,
}

impl DataSet {
    /// Checks that the parts are consistent.
    pub fn new(
        name: &str,
        shape: Vec<usize>,
        classes: u32,
        train: Records,
        test: Records,
    ) -> Result<Self, DataError> {
        let inputs = shape.iter().product();
        for part in [&train, &test] {
            if part.is_empty() {
                continue;
            }
            if part.inputs() != inputs {
                return Err(DataError::Room { inputs: part.inputs(), room: inputs });
            }
            let largest = part.labels().iter().enumerate().max_by_key(|(_, label)| **label);
            if let Some((at, &label)) = largest.filter(|(_, label)| **label >= classes) {
                return Err(DataError::Label { index: (at / part.targets()) as u32, label, classes });
            }
        }
        if train.targets() != test.targets() && !test.is_empty() && !train.is_empty() {
            let (position, targets) = (test.targets() as u32, train.targets() as u32);
            return Err(DataError::NoTarget { index: 0, position, targets });
        }
        Ok(Self { name: name.into(), shape, classes, train, test, ..Self::default() })
    }

    /// Names the classes, in the order of their labels.
    #[must_use]
    pub fn with_class_names(mut self, names: &[&str]) -> Self {
        self.class_names = names.iter().map(|&name| name.into()).collect();
        self
    }

    /// Names the groups of the records.
    pub fn with_group_names(mut self, names: Vec<String>) -> Result<Self, DataError> {
        for part in [&self.train, &self.test] {
            part.one_each(part.groups().len())?;
            let mut groups = part.groups().iter().enumerate();
            if let Some((index, &group)) = groups.find(|(_, group)| usize::from(**group) >= names.len()) {
                let (index, groups) = (index as u32, names.len() as u32);
                return Err(DataError::Group { index, group: group.into(), groups });
            }
        }
        self.group_names = names;
        Ok(self)
    }

    /// Names the natural clients of the records.
    pub fn with_client_names(mut self, names: Vec<String>) -> Result<Self, DataError> {
        for part in [&self.train, &self.test] {
            part.one_each(part.clients().len())?;
            if let Some(&index) = part.clients().iter().find(|&&client| client as usize >= names.len()) {
                return Err(DataError::NoSample { index, len: names.len() as u32 });
            }
        }
        self.client_names = names;
        Ok(self)
    }

    /// Replaces squares of pixels by their mean, and scales pixels to mean 0 and deviation 1 over the training part. `side` must
    /// divide both sides of the images.
    pub fn pooled(self, side: usize) -> Result<Self, SetError> {
        if side == 1 {
            return Ok(self);
        }
        let [.., height, width] = self.shape[..] else {
            return Err(SetError::Pool { side, shape: self.shape });
        };
        if side == 0 || !height.is_multiple_of(side) || !width.is_multiple_of(side) {
            return Err(SetError::Pool { side, shape: self.shape });
        }
        let name = self.name.clone();
        let fault = |source| SetError::Data { name: name.clone(), source };
        let (mut train, mut test) = (self.train, self.test);
        train = train.pooled(height, width, side).map_err(fault)?;
        test = test.pooled(height, width, side).map_err(fault)?;
        if let Some((mean, deviation)) = train.moments() {
            train = train.scaled(mean, deviation);
            test = test.scaled(mean, deviation);
        }
        let mut shape = self.shape.clone();
        let planes = shape.len() - 2;
        shape.truncate(planes);
        shape.extend([height / side, width / side]);
        Ok(Self { shape, train, test, ..self })
    }

    /// Numbers per sample.
    pub fn inputs(&self) -> usize {
        self.shape.iter().product()
    }

    /// Labels per sample: one, or one per token.
    pub fn targets(&self) -> usize {
        self.train.targets().max(self.test.targets())
    }

    /// Whether targets are numbers.
    pub fn is_regression(&self) -> bool {
        !self.train.values().is_empty()
    }

    /// Outputs that a model of these samples has: one per class and token, or one per number.
    pub fn outputs(&self) -> usize {
        if self.is_regression() { self.targets() } else { self.classes as usize * self.targets() }
    }

    /// Number of values of the sensitive attribute (A); 1 if there is none.
    pub fn groups(&self) -> u32 {
        self.group_names.len().max(1) as u32
    }

    /// Name of a class, or its number.
    pub fn class_name(&self, class: u32) -> String {
        self.class_names.get(class as usize).cloned().unwrap_or_else(|| class.to_string())
    }
}

/// Why a data set cannot be loaded or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant has its message")]
pub enum SetError {
    #[error("there is no data set `{name}`; `fairtier sim data list` shows all")]
    Unknown { name: String },
    #[error("{name} is not installed: no {missing} in {looked}. {how}")]
    Missing { name: &'static str, missing: String, looked: String, how: &'static str },
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error("{name}: {source}")]
    Data { name: String, source: DataError },
    #[error("{}: {problem}", path.display())]
    Json { path: PathBuf, problem: serde_json::Error },
    #[error("data: {0}")]
    Own(#[from] OwnError),
    #[error("`noise` makes labels wrong, and the targets of {0} are numbers; remove `noise`")]
    NoLabels(String),
    #[error("the share of wrong labels must be from 0 to 1, not {0}")]
    Noise(f64),
    #[error(
        "`pool = {side}` must divide both sides of an image; samples of this set have the shape {shape:?}"
    )]
    Pool { side: usize, shape: Vec<usize> },
}

impl SetError {
    pub(super) fn format(path: &std::path::Path, problem: impl Into<String>) -> Self {
        LoadError::Format { path: path.into(), problem: problem.into() }.into()
    }

    pub(super) fn line(path: &std::path::Path, line: usize, problem: impl Into<String>) -> Self {
        LoadError::Line { path: path.into(), line, problem: problem.into() }.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Features;

    fn records(labels: &[u32]) -> Records {
        let features = Features::Floats(vec![0.0; 4 * labels.len()]);
        Records::new(features, labels.to_vec(), 4, 1).unwrap()
    }

    #[test]
    fn images_are_pooled() {
        let floats: Vec<f32> = (0..16).map(|at| at as f32).collect();
        let part = |samples: usize| {
            let features = Features::Floats(floats.repeat(samples));
            Records::new(features, vec![1; samples], 16, 1).unwrap()
        };
        let set = DataSet::new("x", vec![4, 4], 2, part(2), part(1)).unwrap();
        let small = set.clone().pooled(2).unwrap();
        assert_eq!((small.shape.clone(), small.inputs(), small.train.len()), (vec![2, 2], 4, 2));
        let mut row = [0.0; 4];
        small.train.read(1, &mut row).unwrap();
        // Means are 2.5, 4.5, 10.5 and 12.5: mean 7.5, variance 17.
        let expected = [-5.0, -3.0, 3.0, 5.0].map(|value: f32| value / 17f32.sqrt());
        assert!(row.iter().zip(expected).all(|(one, other)| (one - other).abs() < 1e-6), "{row:?}");
        assert_eq!(set.clone().pooled(1).unwrap(), set);
        for side in [0, 3] {
            assert!(set.clone().pooled(side).unwrap_err().to_string().contains("[4, 4]"), "{side}");
        }
        let flat = DataSet::new("x", vec![16], 2, part(1), part(1)).unwrap();
        assert!(flat.pooled(2).is_err());
    }

    #[test]
    fn inconsistent_parts_are_refused() {
        let set = |shape: &[usize], classes, test| {
            DataSet::new("x", shape.to_vec(), classes, records(&[0, 2]), test)
        };
        assert_eq!(set(&[2, 2], 3, records(&[1])).unwrap().inputs(), 4);
        assert_eq!(set(&[2, 2], 3, Records::default()).unwrap().targets(), 1);
        assert_eq!(set(&[5], 3, records(&[1])), Err(DataError::Room { inputs: 4, room: 5 }));
        assert_eq!(set(&[4], 2, records(&[1])), Err(DataError::Label { index: 1, label: 2, classes: 2 }));
    }

    #[test]
    fn names_must_cover_all_groups_and_clients() {
        let train = records(&[0, 1]).with_groups(vec![0, 2]).unwrap().with_clients(vec![3, 0]).unwrap();
        let set = DataSet::new("x", vec![4], 2, train, Records::default()).unwrap();
        let names = |count: usize| vec!["name".to_owned(); count];
        assert_eq!(
            set.clone().with_group_names(names(2)),
            Err(DataError::Group { index: 1, group: 2, groups: 2 })
        );
        assert_eq!(set.clone().with_group_names(names(3)).unwrap().groups(), 3);
        assert!(set.clone().with_client_names(names(3)).is_err());
        assert!(set.with_client_names(names(4)).is_ok());
        let bare = DataSet::new("x", vec![4], 2, records(&[0]), Records::default()).unwrap();
        assert!(bare.clone().with_group_names(names(1)).is_err());
        assert!(bare.with_client_names(names(1)).is_err());
    }
}
