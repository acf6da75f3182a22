//! The content of a data set in numbers, as `fairtier sim data check` prints it.

use serde::Serialize;

use super::{DataSet, Records};

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Overview {
    pub name: String,
    pub shape: Vec<usize>,
    pub classes: u32,
    pub class_names: Vec<String>,
    /// Labels per sample.
    pub targets: usize,
    /// Size of the vocabulary of tokens.
    pub tokens: Option<u32>,
    pub train: PartOverview,
    pub test: PartOverview,
    /// Groups with their names.
    pub groups: Vec<GroupCount>,
    pub clients: Option<ClientSizes>,
    /// Bytes of features and labels.
    pub bytes: usize,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PartOverview {
    pub samples: usize,
    /// Number of labels by class. A sample with several labels counts several times.
    pub per_class: Vec<u64>,
    /// Smallest and largest feature.
    pub range: Option<(f32, f32)>,
}

/// Training and test samples.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct GroupCount {
    pub name: String,
    pub train: usize,
    pub test: usize,
}

/// Number of natural clients, and sizes of their training data.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ClientSizes {
    pub clients: usize,
    pub least: usize,
    pub median: usize,
    pub most: usize,
}

impl Overview {
    pub fn new(set: &DataSet) -> Self {
        let in_group = |part: &Records, group: usize| {
            part.groups().iter().filter(|&&other| usize::from(other) == group).count()
        };
        let groups = set.group_names.iter().enumerate().map(|(group, name)| GroupCount {
            name: name.clone(),
            train: in_group(&set.train, group),
            test: in_group(&set.test, group),
        });
        let bytes = [&set.train, &set.test].map(|part| {
            part.features().bytes()
                + 4 * (part.labels().len() + part.values().len())
                + part.groups().len()
                + 4 * part.clients().len()
        });
        Self {
            name: set.name.clone(),
            shape: set.shape.clone(),
            classes: set.classes,
            class_names: set.class_names.clone(),
            targets: set.targets(),
            tokens: set.tokens,
            train: PartOverview::new(&set.train, set.classes),
            test: PartOverview::new(&set.test, set.classes),
            groups: groups.collect(),
            clients: ClientSizes::new(set),
            bytes: bytes.iter().sum(),
        }
    }
}

impl PartOverview {
    fn new(part: &Records, classes: u32) -> Self {
        let mut per_class = vec![0; classes as usize];
        for &label in part.labels() {
            if let Some(count) = per_class.get_mut(label as usize) {
                *count += 1;
            }
        }
        Self { samples: part.len(), per_class, range: part.features().range() }
    }
}

impl ClientSizes {
    fn new(set: &DataSet) -> Option<Self> {
        let mut sizes = vec![0; set.client_names.len()];
        for &client in set.train.clients() {
            if let Some(size) = sizes.get_mut(client as usize) {
                *size += 1;
            }
        }
        sizes.sort_unstable();
        let (&least, &most, &median) = (sizes.first()?, sizes.last()?, sizes.get(sizes.len() / 2)?);
        Some(Self { clients: sizes.len(), least, median, most })
    }
}
