//! Arguments that name a device's samples and its limits, shared by the commands.

use std::{
    path::{Path, PathBuf},
    str::FromStr,
};

use clap::{Args, ValueEnum};
use common::{
    Budget,
    privacy::{Policy, Privacy},
};

use super::privacy::{self, PrivacyError};
use crate::data::{
    DataError, DataSplit, Samples, VecShard, digits,
    load::{self, CsvColumn, CsvOptions, LoadError},
    partition,
};

/// Why samples cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant has its message")]
pub enum DataArgsError {
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Data(#[from] DataError),
    #[error("--labels is needed with --images")]
    NoLabels,
}

/// Where a device's samples come from: files, or the built-in digits.
#[derive(Args, Clone, Debug)]
#[group(id = "data")]
pub struct DataArgs {
    /// IDX file with images, plain or .gz (pixels become pixel/255)
    #[arg(long, requires = "labels", conflicts_with = "csv")]
    pub images: Option<PathBuf>,
    /// IDX file with labels
    #[arg(long)]
    pub labels: Option<PathBuf>,
    /// CSV file with one sample per line, instead of IDX files
    #[arg(long)]
    pub csv: Option<PathBuf>,
    /// Column of the label in the CSV file: first, last, a number from 1, or a name of the header
    #[arg(long, default_value = "last")]
    pub label_column: CsvColumn,
    /// Column of a sensitive attribute in the CSV file, written as for --label-column; it is not used as a feature
    #[arg(long, requires = "csv")]
    pub attribute: Option<CsvColumn>,
    /// Number of values that the attribute has in the whole fleet, numbered from 0
    #[arg(long, default_value_t = 2, requires = "attribute")]
    pub attributes: u32,
    /// Factor for the features of the CSV file
    #[arg(long, default_value_t = 1.0)]
    pub scale: f32,
    /// Use one device's part of the data, such as 3/20 (counted from 0)
    #[arg(long, default_value = "0/1")]
    pub share: Share,
    /// How shares are formed
    #[arg(long, default_value = "dominant-class")]
    pub partition: Partition,
    /// Share of the samples that is used for tests only
    #[arg(long, default_value_t = 0.2)]
    pub test_fraction: f64,
    /// Seed of partition and split
    #[arg(long, default_value_t = 0)]
    pub data_seed: u64,
}

/// How one data set is divided among devices.
#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
pub enum Partition {
    /// Equal slices at random
    Iid,
    /// 80 % of a device's samples from one class
    DominantClass,
    /// About two classes per device
    TwoClasses,
}

/// Part `index` of `count`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Share {
    /// From 0.
    pub index: usize,
    /// Number of parts.
    pub count: usize,
}

/// A text is not a share.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a share is written as INDEX/COUNT with an index from 0, such as 3/20")]
pub struct BadShare;

impl FromStr for Share {
    type Err = BadShare;

    fn from_str(text: &str) -> Result<Self, BadShare> {
        let (index, count) = text.split_once('/').ok_or(BadShare)?;
        let (index, count) = (index.parse().map_err(|_| BadShare)?, count.parse().map_err(|_| BadShare)?);
        if index < count { Ok(Self { index, count }) } else { Err(BadShare) }
    }
}

impl DataArgs {
    /// Everything the files (or the built-in set) hold.
    pub fn samples(&self) -> Result<Samples, DataArgsError> {
        Ok(match (&self.images, &self.csv) {
            (Some(images), _) => {
                let labels = self.labels.as_ref().ok_or(DataArgsError::NoLabels)?;
                load::idx(images, labels, 1.0 / 255.0)?
            }
            (None, Some(csv)) => self.csv_samples(csv)?,
            (None, None) => Samples::of(&digits::all(), DataSplit::Train)?,
        })
    }

    /// What a CSV file holds, with the columns and the scale that the arguments name.
    pub fn csv_samples(&self, file: &Path) -> Result<Samples, DataArgsError> {
        let attribute = self.attribute.clone().map(|column| (column, self.attributes));
        Ok(load::csv(file, &CsvOptions { label: self.label_column.clone(), scale: self.scale, attribute })?)
    }

    /// This device's part, divided into training and test samples.
    pub fn shard(&self) -> Result<VecShard, DataArgsError> {
        let samples = self.samples()?;
        let Share { index, count } = self.share;
        let parts = match self.partition {
            Partition::Iid => partition::iid(samples.len(), count, self.data_seed),
            Partition::DominantClass => {
                partition::dominant_class(samples.labels(), count, 0.8, self.data_seed)
            }
            Partition::TwoClasses => partition::label_shards(samples.labels(), count, 2, self.data_seed),
        };
        let part = parts.get(index).map_or(&[][..], Vec::as_slice);
        Ok(samples.select(part)?.split(self.test_fraction, self.data_seed.wrapping_add(index as u64))?)
    }
}

/// Limits of the device.
#[derive(Args, Copy, Clone, Debug)]
pub struct BudgetArgs {
    /// Memory for training, such as 64k, 2M or 1G; without this option, no limit
    #[arg(long)]
    pub ram: Option<Bytes>,
    /// Storage for parameters
    #[arg(long)]
    pub flash: Option<Bytes>,
}

impl BudgetArgs {
    /// The budget that the aggregator gets; no limit where no option is given.
    pub fn budget(&self) -> Budget {
        let or_unlimited = |bytes: Option<Bytes>| bytes.map_or(u64::MAX, |bytes| bytes.0);
        Budget { ram: or_unlimited(self.ram), flash: or_unlimited(self.flash), ..Budget::UNLIMITED }
    }
}

/// The owner's privacy policy.
#[derive(Args, Copy, Clone, Debug)]
pub struct PrivacyArgs {
    /// Largest epsilon of one answer; requests for answers with less or no noise are refused (E44). See docs/PRIVACY.md
    #[arg(long, value_parser = epsilon)]
    pub max_epsilon: Option<f32>,
    /// Most answers with noise over the life of this identity; further ones are refused (E45). A board counts from its start
    #[arg(long, requires = "max_epsilon")]
    pub max_private_rounds: Option<u32>,
}

impl PrivacyArgs {
    /// The privacy settings, with the secret next to an identity file. The secret is created on first use.
    pub fn beside(&self, identity: &Path) -> Result<Privacy, PrivacyError> {
        let policy =
            self.max_epsilon.map(|max_epsilon| Policy { max_epsilon, max_answers: self.max_private_rounds });
        let secret = match privacy::secret(&privacy::secret_file(identity)) {
            // Without a policy this is not fatal: most devices are never asked for noise.
            Err(PrivacyError::Write(error)) if policy.is_none() => {
                tracing::warn!("there is no secret, so briefs that ask for noise are refused: {error}");
                None
            }
            secret => Some(secret?),
        };
        Ok(Privacy { secret, policy })
    }
}

fn epsilon(text: &str) -> Result<f32, String> {
    let epsilon = text.parse().ok().filter(|epsilon: &f32| epsilon.is_finite() && *epsilon > 0.0);
    epsilon.ok_or_else(|| "expected a number above 0, such as 2.0".into())
}

/// A number of bytes with an optional k, M or G (powers of 1024).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Bytes(pub u64);

/// A text is not a size in bytes.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a size is a number of bytes, with k, M or G for powers of 1024, such as 64k")]
pub struct BadBytes;

impl FromStr for Bytes {
    type Err = BadBytes;

    fn from_str(text: &str) -> Result<Self, BadBytes> {
        let digits = text.trim_end_matches(['k', 'K', 'M', 'G']);
        let shift = match &text[digits.len()..] {
            "" => 0,
            "k" | "K" => 10,
            "M" => 20,
            "G" => 30,
            _ => return Err(BadBytes),
        };
        let number: u64 = digits.parse().map_err(|_| BadBytes)?;
        number.checked_mul(1 << shift).map(Self).ok_or(BadBytes)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::data::Shard;

    #[derive(Parser, Debug)]
    struct Command {
        #[command(flatten)]
        data: DataArgs,
    }

    #[test]
    fn an_attribute_makes_groups() {
        let path = std::env::temp_dir().join(format!("fairtier-groups-{}.csv", std::process::id()));
        std::fs::write(&path, "x,sex,y\n1,0,0\n2,1,1\n3,1,1\n4,1,0\n").unwrap();
        let file = path.to_str().unwrap();
        let parse = |more: &[&str]| {
            let base = ["run", "--csv", file, "--test-fraction", "0", "--partition", "iid"];
            Command::try_parse_from(base.iter().chain(more))
        };
        let shard = parse(&["--attribute", "sex", "--attributes", "3"]).unwrap().data.shard().unwrap();
        assert_eq!((shard.inputs(), shard.summary().groups.as_slice()), (1, &[1, 1, 0, 0, 2, 0][..]));
        let plain = parse(&[]).unwrap().data.shard().unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!((plain.inputs(), plain.summary().groups.len()), (2, 0));
        assert!(parse(&["--attributes", "3"]).is_err());
        assert!(Command::try_parse_from(["run", "--attribute", "sex"]).is_err());
    }

    #[test]
    fn sizes_and_shares_are_parsed() {
        assert_eq!("64k".parse(), Ok(Bytes(65_536)));
        assert_eq!("12".parse(), Ok(Bytes(12)));
        assert_eq!("2M".parse(), Ok(Bytes(2 << 20)));
        for bad in ["", "k", "1kk", "-1", "1.5k", "99999999999G"] {
            assert_eq!(bad.parse::<Bytes>(), Err(BadBytes), "{bad}");
        }
        assert_eq!("3/20".parse(), Ok(Share { index: 3, count: 20 }));
        for bad in ["20/20", "1", "a/2", "1/0", "-1/3"] {
            assert_eq!(bad.parse::<Share>(), Err(BadShare), "{bad}");
        }
    }
}
