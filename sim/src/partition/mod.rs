//! Divides one data set among many clients. The result depends only on the seed. Every sample goes to exactly one
//! client or is listed as left out.
//!
//! | partition | text | who gets what |
//! |---|---|---|
//! | [`Partition::Iid`] | `iid` | shuffle, equal slices |
//! | [`Partition::Shards`] | `shards:2` | sort by label, cut into K shards per client, K random ones each |
//! | [`Partition::Dominant`] | `dominant:0.8` | this share from class `i mod classes`, the rest from the others in turn |
//! | [`Partition::Extreme`] | `extreme` | at most two classes: `shards:2` |
//! | [`Partition::Pat`] | `pat:2` | exactly K classes each, every class in equal parts |
//! | [`Partition::Dirichlet`] | `dirichlet:0.1` | each class by a Dirichlet draw; full clients get none, all get some |
//! | [`Partition::DirichletFree`] | `dirichlet-free:0.1` | each class by a Dirichlet draw; clients may get none |
//! | [`Partition::Rare`] | `rare:2` | client 0 alone has the first classes, and as many samples as any other; the others are IID |
//! | [`Partition::Natural`] | `natural:50:10` | natural clients with at least this many training and test samples |
//! | [`Partition::Column`] | `column:site` | one client per value of a column, or values grouped to this many clients |
//! | [`Partition::File`] | `file:owners.csv` | as a CSV file with the columns `row` and `device` says |
//! | [`Partition::Fractions`] | `groups:50/30/20,20/40/40` | these percentages of each group to the clients |
//! | | `strata:80/20,20/80` | the same by natural division, such as kind of work |
//!
//! | part | file |
//! |---|---|
//! | [`Split`]: indices for each client, shards of devices | `split` |
//! | draws of Dirichlet, and whole numbers from shares | `dirichlet` |
//! | classes of Pat-k | `pat` |
//! | values of a column grouped to clients | `values` |
//! | a partition as text | `text` |
//! | `PartitionView`: a partition in numbers, for tables and plots | `view` |

pub mod dirichlet;
mod pat;
mod split;
mod text;
mod values;
mod view;

use std::path::PathBuf;

use common::rng::{Rng, derive};
use serde::{Deserialize, Serialize};
use trainer::data::partition as basic;

pub use split::{ClientSamples, Split};
pub use text::{BadPartition, FORMS};
pub(crate) use view::{ClientView, PartitionView};

use crate::data::{DataSet, Records, TestSource};

/// How samples are divided; see the table above.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[expect(missing_docs, reason = "the line of a variant explains its fields")]
pub enum Partition {
    /// Equal shares of a random order.
    Iid,
    /// Samples sorted by label are cut into shards; each client gets `per_client` random ones.
    Shards { per_client: usize },
    /// `share` of a client's samples, from 0 to 1, has class `i mod classes`.
    Dominant { share: f64 },
    /// Two shards per client, so at most two classes as a rule.
    Extreme,
    /// Client 0 alone has the first `classes` classes.
    Rare { classes: usize },
    /// Every client has exactly `classes` classes.
    Pat { classes: usize },
    /// Shares of each class are drawn from Dirichlet(`alpha`); every client gets samples.
    Dirichlet { alpha: f64 },
    /// Shares of each class are drawn from Dirichlet(`alpha`); clients may get no samples.
    DirichletFree { alpha: f64 },
    /// Natural clients with at least `train` training and `test` test samples.
    Natural { train: usize, test: usize },
    /// One device per value of the column `name` of one's own data; with fewer clients, several values share one.
    Column { name: String },
    /// A CSV file with the columns `row` and `device` names the device of each training sample.
    File { path: PathBuf },
    /// One list of `shares` per stratum, with one share per client.
    Fractions { by: Stratum, shares: Vec<Vec<f64>> },
}

/// The strata that fractions refer to.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Stratum {
    /// Values of the sensitive attribute.
    Group,
    /// Natural clients, or the division of the source.
    Client,
}

/// Source of the test samples.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum Testing {
    /// This share of each client's own training samples.
    HoldOut(f64),
    /// The set's test part, divided in the proportions of training: by class, or by the key of the partition.
    Proportional,
}

/// A tenth of each client's samples.
impl Default for Testing {
    fn default() -> Self {
        Self::HoldOut(0.1)
    }
}

/// Why a data set cannot be divided.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant has its message")]
pub enum PartitionError {
    #[error("`{0}` needs a number of clients; set `clients` in `data`")]
    NoClients(Partition),
    #[error("{clients} clients cannot share {samples} samples; every client needs at least one")]
    TooManyClients { clients: usize, samples: usize },
    #[error("{set} has no natural clients; `fairtier sim data check {set}` shows what it has")]
    NoNatural { set: String },
    #[error(
        "`{partition}` needs data of your own, such as csv = \"FILE\" in `data`; {set} has no such values"
    )]
    NoValues { partition: Partition, set: String },
    #[error(
        "`{partition}` divides by class, and the targets of {set} are numbers; use iid, column:NAME or file:PATH"
    )]
    NoClasses { partition: Partition, set: String },
    #[error("{there} values cannot be divided among {wanted} clients; ask for at most {there}")]
    TooFewValues { there: usize, wanted: usize },
    #[error("{set} has no groups; `fairtier sim data check {set}` shows what it has")]
    NoGroups { set: String },
    #[error(
        "only {there} natural clients have enough samples, not {wanted}; ask for fewer clients or samples"
    )]
    TooFew { there: usize, wanted: usize },
    #[error(
        "rare:{classes} does not fit {clients} clients: it needs samples of these and of other classes, and two clients"
    )]
    Rare { classes: usize, clients: usize },
    #[error("{rows} lists of percentages for {strata} {what}")]
    Strata { rows: usize, strata: usize, what: &'static str },
    #[error("the percentages are for {there} clients, not {wanted}")]
    Columns { there: usize, wanted: usize },
    #[error(
        "{clients} clients with {classes} of {present} classes each do not fit: a client has at most all classes, and every class needs a client"
    )]
    Pat { clients: usize, classes: usize, present: usize },
    #[error(
        "Dirichlet({alpha}) gave no {clients} clients with at least {least} samples each in {tries} draws; take fewer clients, a larger alpha, or dirichlet-free"
    )]
    Floor { alpha: f64, clients: usize, least: usize, tries: u32 },
    #[error("the share to hold out must be from 0 to 1, not {0}")]
    HoldOut(f64),
}

impl Partition {
    /// Divides a set. `clients` may be omitted if the partition determines it: all natural clients, or one per
    /// percentage.
    pub fn split(
        &self,
        set: &DataSet,
        clients: Option<usize>,
        testing: Testing,
        seed: u64,
    ) -> Result<Split, PartitionError> {
        if set.is_regression() && self.needs_classes() {
            return Err(PartitionError::NoClasses { partition: self.clone(), set: set.name.clone() });
        }
        let parts = self.parts(set, clients, derive(seed, PARTS))?;
        let mut split = Split::new(parts, set);
        match self {
            Self::Natural { .. } => split.name_clients(&set.client_names),
            Self::Column { .. } | Self::File { .. } => {
                let clients = values::Grouping::new(set, clients)?;
                split.name_clients(&clients.names(&set.client_names));
            }
            _ => {}
        }
        match testing {
            Testing::HoldOut(share) => split.hold_out(share, derive(seed, TEST))?,
            Testing::Proportional => {
                let keys = |records| self.keys(records);
                split.divide_test(&keys(&set.train), &keys(&set.test), derive(seed, TEST));
                split.held = TestSource::Test;
            }
        }
        if let Self::Natural { train, test } = *self {
            split.keep(clients, |share| share.train.len() >= train.max(1) && share.test.len() >= test)?;
        }
        Ok(split)
    }

    fn needs_classes(&self) -> bool {
        match self {
            Self::Shards { .. }
            | Self::Dominant { .. }
            | Self::Extreme
            | Self::Rare { .. }
            | Self::Pat { .. }
            | Self::Dirichlet { .. }
            | Self::DirichletFree { .. } => true,
            Self::Iid
            | Self::Natural { .. }
            | Self::Column { .. }
            | Self::File { .. }
            | Self::Fractions { .. } => false,
        }
    }

    /// Training samples of each client.
    fn parts(
        &self,
        set: &DataSet,
        clients: Option<usize>,
        seed: u64,
    ) -> Result<Vec<Vec<u32>>, PartitionError> {
        let samples = set.train.len();
        let count = || match clients {
            None | Some(0) => Err(PartitionError::NoClients(self.clone())),
            Some(clients) if clients > samples => Err(PartitionError::TooManyClients { clients, samples }),
            Some(clients) => Ok(clients),
        };
        let labels = || set.train.first_labels().collect::<Vec<u32>>();
        Ok(match *self {
            Self::Iid => basic::iid(samples, count()?, seed),
            Self::Shards { per_client } => basic::label_shards(&labels(), count()?, per_client, seed),
            Self::Extreme => basic::label_shards(&labels(), count()?, 2, seed),
            Self::Rare { classes } => rare(&labels(), count()?, classes, seed)?,
            Self::Dominant { share } => basic::dominant_class(&labels(), count()?, share, seed),
            Self::Pat { classes } => pat::pat(&labels(), count()?, classes, seed)?,
            Self::Dirichlet { alpha } => dirichlet::with_floor(&labels(), count()?, alpha, seed)?,
            Self::DirichletFree { alpha } => dirichlet::free(&labels(), count()?, alpha, seed),
            Self::Natural { .. } => {
                self.check_strata(set)?;
                let mut parts = vec![Vec::new(); set.client_names.len()];
                for (index, &client) in (0..).zip(set.train.clients()) {
                    parts[client as usize].push(index);
                }
                parts
            }
            Self::Column { .. } | Self::File { .. } => {
                self.check_strata(set)?;
                values::Grouping::new(set, clients)?.parts(set)
            }
            Self::Fractions { ref shares, .. } => {
                self.check_strata(set)?;
                let there = shares.first().map_or(0, Vec::len);
                if let Some(wanted) = clients.filter(|&wanted| wanted != there) {
                    return Err(PartitionError::Columns { there, wanted });
                }
                let pools = pools(&self.keys(&set.train), seed);
                let mut parts = vec![Vec::new(); there];
                for (stratum, pool) in pools {
                    let counts = dirichlet::apportion(&shares[stratum as usize], pool.len());
                    deal(&mut parts, &pool, &counts);
                }
                parts
            }
        })
    }

    fn check_strata(&self, set: &DataSet) -> Result<(), PartitionError> {
        let name = || set.name.clone();
        match self {
            Self::Column { .. } | Self::File { .. } if set.train.clients().is_empty() => {
                return Err(PartitionError::NoValues { partition: self.clone(), set: name() });
            }
            Self::Natural { .. } | Self::Fractions { by: Stratum::Client, .. }
                if set.client_names.is_empty() =>
            {
                return Err(PartitionError::NoNatural { set: name() });
            }
            Self::Fractions { by: Stratum::Group, .. } if set.group_names.is_empty() => {
                return Err(PartitionError::NoGroups { set: name() });
            }
            _ => {}
        }
        let Self::Fractions { by, shares } = self else { return Ok(()) };
        let (strata, what) = match by {
            Stratum::Group => (set.group_names.len(), "groups"),
            Stratum::Client => (set.client_names.len(), "natural clients"),
        };
        let rows = shares.len();
        if rows == strata { Ok(()) } else { Err(PartitionError::Strata { rows, strata, what }) }
    }

    /// The key by which samples are divided: natural client, group, or class. Numbers to predict are one class.
    fn keys(&self, records: &Records) -> Vec<u32> {
        match self {
            Self::Natural { .. } | Self::Column { .. } | Self::Fractions { by: Stratum::Client, .. } => {
                records.clients().to_vec()
            }
            Self::Fractions { by: Stratum::Group, .. } => {
                records.groups().iter().map(|&group| group.into()).collect()
            }
            _ if !records.values().is_empty() => vec![0; records.len()],
            _ => records.first_labels().collect(),
        }
    }
}

/// Client 0 has samples of the first `classes` classes only, which no other client has; left over samples have no client.
fn rare(labels: &[u32], clients: usize, classes: usize, seed: u64) -> Result<Vec<Vec<u32>>, PartitionError> {
    let mut order: Vec<u32> = (0..labels.len() as u32).collect();
    Rng::new(seed).shuffle(&mut order);
    let is_rare = |index: &u32| (labels[*index as usize] as usize) < classes;
    let (mut rare, rest): (Vec<u32>, Vec<u32>) = order.into_iter().partition(is_rare);
    let others = clients - 1;
    if others == 0 || rare.is_empty() || rest.len() < others {
        return Err(PartitionError::Rare { classes, clients });
    }
    rare.truncate(rest.len() / others);
    let mut parts = vec![rare];
    parts.resize(clients, Vec::new());
    for (place, index) in rest.into_iter().enumerate() {
        parts[1 + place % others].push(index);
    }
    Ok(parts)
}

/// Streams derived from the seed.
const PARTS: u64 = 0;
const TEST: u64 = 1;
const VALID: u64 = 2;

/// Samples by key, in random order; keys are ascending.
fn pools(keys: &[u32], seed: u64) -> Vec<(u32, Vec<u32>)> {
    let mut order: Vec<u32> = (0..keys.len() as u32).collect();
    Rng::new(seed).shuffle(&mut order);
    let key = |index: &u32| keys[*index as usize];
    order.sort_by_key(key);
    order.chunk_by(|a, b| key(a) == key(b)).map(|pool| (key(&pool[0]), pool.to_vec())).collect()
}

/// Deals a pool to the parts in order: the first `counts[0]` samples to the first part, and so on.
fn deal(parts: &mut [Vec<u32>], pool: &[u32], counts: &[usize]) {
    let mut rest = pool;
    for (part, &count) in parts.iter_mut().zip(counts) {
        let (head, tail) = rest.split_at(count.min(rest.len()));
        part.extend_from_slice(head);
        rest = tail;
    }
}

#[cfg(test)]
mod tests;
