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

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
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
    /// Column of a sensitive attribute in the CSV file, which is then no feature; written as the label's
    #[arg(long, requires = "csv")]
    pub attribute: Option<CsvColumn>,
    /// How many values the attribute has in the whole fleet, numbered from 0
    #[arg(long, default_value_t = 2, requires = "attribute")]
    pub attributes: u32,
    /// Factor for numbers of the CSV file
    #[arg(long, default_value_t = 1.0)]
    pub scale: f32,
    /// Take one device's part of the data, as in 3/20 (counted from 0)
    #[arg(long, default_value = "0/1")]
    pub share: Share,
    /// How shares are formed
    #[arg(long, default_value = "dominant-class")]
    pub partition: Partition,
    /// DataSplit of the samples that is only evaluated on
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

/// DataSplit `index` of `count`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Share {
    pub index: usize,
    pub count: usize,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a share is written as in 3/20: number from 0, then how many there are")]
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

/// What the device may spend.
#[derive(Args, Copy, Clone, Debug)]
pub struct BudgetArgs {
    /// Memory for training, as in 64k, 2M or 1G; without it, no limit
    #[arg(long)]
    pub ram: Option<Bytes>,
    /// Storage for parameters
    #[arg(long)]
    pub flash: Option<Bytes>,
}

impl BudgetArgs {
    pub fn budget(&self) -> Budget {
        let or_unlimited = |bytes: Option<Bytes>| bytes.map_or(u64::MAX, |bytes| bytes.0);
        Budget { ram: or_unlimited(self.ram), flash: or_unlimited(self.flash), ..Budget::UNLIMITED }
    }
}

/// What the owner lets leave the device.
#[derive(Args, Copy, Clone, Debug)]
pub struct PrivacyArgs {
    /// Largest epsilon of one answer; answers with less noise, or none, are refused (E44). See docs/PRIVACY.md
    #[arg(long, value_parser = epsilon)]
    pub max_epsilon: Option<f32>,
    /// Most answers with noise in the life of this identity; further ones are refused (E45). A board counts from its start
    #[arg(long, requires = "max_epsilon")]
    pub max_private_rounds: Option<u32>,
}

impl PrivacyArgs {
    /// With the secret that lies beside an identity file; it is made on first use.
    pub fn beside(&self, identity: &Path) -> Result<Privacy, PrivacyError> {
        let policy =
            self.max_epsilon.map(|max_epsilon| Policy { max_epsilon, max_answers: self.max_private_rounds });
        let secret = match privacy::secret(&privacy::secret_file(identity)) {
            // Without an owner's wish most devices are never asked for noise.
            Err(PrivacyError::Write(error)) if policy.is_none() => {
                tracing::warn!("no secret for noise, so briefs that ask for noise are refused: {error}");
                None
            }
            secret => Some(secret?),
        };
        Ok(Privacy { secret, policy })
    }
}

fn epsilon(text: &str) -> Result<f32, String> {
    let epsilon = text.parse().ok().filter(|epsilon: &f32| epsilon.is_finite() && *epsilon > 0.0);
    epsilon.ok_or_else(|| "a number above 0, as in 2.0".into())
}

/// A number of bytes with an optional k, M or G (powers of 1024).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Bytes(pub u64);

#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a size is a number of bytes, with k, M or G for powers of 1024, as in 64k")]
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
    fn sizes_and_shares_as_people_write_them() {
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
