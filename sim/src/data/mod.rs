//! Data sets: one type for all of them, loaders of the usual files, and generators.
//!
//! | part | is | file |
//! |---|---|---|
//! | [`DataSet`], [`Records`] | samples of training and test, with their groups and natural clients | `set`, `records` |
//! | [`DeviceShard`] | one device's samples of a shared data set | `shard` |
//! | [`known`] | every set by name: where its files are searched, what is missing, how it is loaded | `known` |
//! | `OwnData` | files of one's own, read as devices read them | `own` |
//! | owners | a file that says which device has which sample | `owners` |
//! | `Overview` | the content of a set in numbers | `overview` |
//! | images | IDX (MNIST and relatives), CIFAR-10 binary | `images` |
//! | text | LEAF JSON (FEMNIST, Shakespeare), roles of plays | `leaf`, `text` |
//! | tables | CSV with a declared schema (Adult, COMPAS, Bank), ARFF (WISDM) | `table` |
//! | motion | accelerometer windows from a tar archive | `motion` |
//! | `synthetic` | generators of EAGLE, FedFB and the stand-in for images | `synthetic` |
//!
//! Files may be compressed with gzip or xz; this is detected by content, not by name. Every error names the file, and
//! the line or offset if there is one. Sizes in headers are never trusted for allocations.

mod images;
pub mod known;
mod leaf;
mod motion;
mod noise;
mod overview;
mod own;
mod owners;
mod records;
mod set;
mod shard;
mod source;
mod synthetic;
mod table;
mod text;

/// The readers of the file formats alone, for other files of these formats and for fuzzing.
pub mod files {
    pub use super::{
        images::cifar10,
        leaf::read as leaf,
        motion::load as motion,
        table::{ADULT, BANK, COMPAS, Schema, load as table, wisdm},
    };
}

pub use known::DataDirs;
pub(crate) use overview::{Overview, PartOverview};
pub use own::OwnError;
pub(crate) use own::{OwnData, OwnFile, OwnFormat};
pub use records::{Features, Records};
pub use set::{DataSet, SetError};
pub use shard::{DeviceShard, TestSource};

#[cfg(test)]
mod real;
