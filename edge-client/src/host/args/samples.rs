//! Where a device's samples come from.

use std::{
    path::{Path, PathBuf},
    str::FromStr,
};

use clap::{Args, ValueEnum};
use common::files::{self, MAX_CONFIG};

use crate::data::{
    DataError, DataSplit, Samples, VecShard, digits,
    load::{self, CsvColumn, CsvOptions, Format, LoadError},
    partition,
    schema::{self, Schema, Targets, TextError},
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
    #[error("--labels is needed with --images, and with --data for .npy and IDX files")]
    NoLabels,
    #[error(
        "no samples are given; name a file with --data FILE, or use the built-in handwritten digits with --data digits"
    )]
    NoData,
    #[error("{}: {source}", path.display())]
    Schema { path: PathBuf, source: Box<TextError> },
    #[error("{}: {source}", path.display())]
    ReadSchema { path: PathBuf, source: std::io::Error },
    #[error("the schema gives columns a meaning and a scale; remove {0}")]
    SchemaAndOption(&'static str),
    #[error("only `fairtier device run` gets the schema of a gateway; give a file with --schema FILE")]
    NoGateway,
    #[error("{0} is for CSV files without a schema; remove it")]
    OnlyCsv(&'static str),
    #[error(
        "the schema reads CSV, .npz, pairs of .npy files and folders of images, not IDX files; write an .npz file"
    )]
    SchemaAndIdx,
    #[error(
        "the fleet decides the scale of column `{0}`, which no gateway tells this command; give `mean` and `deviation` in [data]"
    )]
    FleetScale(String),
}

/// Where a device's samples come from: files, or the built-in digits.
#[derive(Args, Clone, Debug)]
#[group(id = "data")]
pub struct DataArgs {
    /// Samples: a CSV file, an .npz file, an .npy or IDX file with --labels, a folder of images, or `digits` (built in)
    #[arg(long = "data", value_name = "FILE", conflicts_with_all = ["csv", "images"])]
    pub file: Option<PathBuf>,
    /// TOML file whose table `[data]` says what columns mean (see `fairtier data schema`), or `gateway` for that of the run
    #[arg(long, value_name = "FILE")]
    pub schema: Option<PathBuf>,
    /// IDX file with images, plain or .gz (pixels become pixel/255)
    #[arg(long, requires = "labels", conflicts_with = "csv")]
    pub images: Option<PathBuf>,
    /// Labels of an IDX or .npy file
    #[arg(long)]
    pub labels: Option<PathBuf>,
    /// CSV file with one sample per line, instead of IDX files
    #[arg(long)]
    pub csv: Option<PathBuf>,
    /// Column of the label in the CSV file: first, last, a number from 1, or a name of the header [default: last]
    #[arg(long)]
    pub label_column: Option<CsvColumn>,
    /// Column of a sensitive attribute in the CSV file, written as for --label-column; it is not used as a feature
    #[arg(long)]
    pub attribute: Option<CsvColumn>,
    /// Number of values that the attribute has in the whole fleet, numbered from 0
    #[arg(long, default_value_t = 2, requires = "attribute")]
    pub attributes: u32,
    /// Factor for the features of the CSV file [default: 1]
    #[arg(long)]
    pub scale: Option<f32>,
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
    /// Everything the files (or the built-in set) hold, by the schema of `--schema` if it is given.
    pub fn samples(&self) -> Result<Samples, DataArgsError> {
        self.samples_by(self.local_schema()?.as_ref())
    }

    /// Everything the files (or the built-in set) hold, by this schema.
    fn samples_by(&self, schema: Option<&Schema>) -> Result<Samples, DataArgsError> {
        let file = match (&self.file, &self.csv, &self.images) {
            (Some(file), ..) => file,
            (None, Some(csv), _) => return self.csv_by(csv, schema),
            (None, None, Some(images)) => return self.idx(images),
            (None, None, None) => return Err(DataArgsError::NoData),
        };
        if file.as_os_str() == "digits" {
            return match (schema, self.column_option()) {
                (Some(_), _) => Err(DataArgsError::SchemaAndOption("--data digits")),
                (None, Some(option)) => Err(DataArgsError::OnlyCsv(option)),
                (None, None) => Ok(Samples::of(&digits::all(), DataSplit::Train)?),
            };
        }
        let format = Format::of(file)?;
        if let Some(option) = self.column_option().filter(|_| format != Format::Csv) {
            return Err(DataArgsError::OnlyCsv(option));
        }
        let labels = || self.labels.as_ref().ok_or(DataArgsError::NoLabels);
        match (format, schema) {
            (Format::Csv, _) => self.csv_by(file, schema),
            (Format::Idx, _) => self.idx(file),
            (Format::Npy, Some(schema)) => {
                Ok(schema::read_pair(file, labels()?, schema)?.samples(schema, file)?)
            }
            (Format::Npy, None) => Ok(load::npy(file, labels()?)?),
            (Format::Npz | Format::Folder, Some(schema)) => {
                Ok(schema::read_any(file, schema, Targets::Needed)?.samples(schema, file)?)
            }
            (Format::Npz, None) => Ok(load::npz(file)?),
            (Format::Folder, None) => Ok(load::folder(file)?),
        }
    }

    fn idx(&self, images: &Path) -> Result<Samples, DataArgsError> {
        let labels = self.labels.as_ref().ok_or(DataArgsError::NoLabels)?;
        match &self.schema {
            Some(_) => Err(DataArgsError::SchemaAndIdx),
            None => Ok(load::idx(images, labels, 1.0 / 255.0)?),
        }
    }

    /// What a CSV file holds: by the schema, or else with the columns and the scale that the arguments name.
    pub fn csv_by(&self, file: &Path, schema: Option<&Schema>) -> Result<Samples, DataArgsError> {
        if let Some(schema) = schema {
            if let Some(option) = self.column_option() {
                return Err(DataArgsError::SchemaAndOption(option));
            }
            return Ok(schema::read(file, schema, Targets::Needed)?.samples(schema, file)?);
        }
        let attribute = self.attribute.clone().map(|column| (column, self.attributes));
        let label = self.label_column.clone().unwrap_or(CsvColumn::Last);
        Ok(load::csv(file, &CsvOptions { label, scale: self.scale.unwrap_or(1.0), attribute })?)
    }

    /// The schema of `--schema`, for commands that know no gateway.
    pub fn local_schema(&self) -> Result<Option<Schema>, DataArgsError> {
        let Some(path) = &self.schema else { return Ok(None) };
        if self.asks_gateway() {
            return Err(DataArgsError::NoGateway);
        }
        let schema = read_schema(path)?;
        if let Some(column) = schema.fleet_columns().next() {
            return Err(DataArgsError::FleetScale(column.to_owned()));
        }
        Ok(Some(schema))
    }

    /// Fails for what no answer of a gateway can mend: no samples, options that contradict the schema, missing files.
    pub fn expect_files(&self) -> Result<(), DataArgsError> {
        if self.path().or(self.images.as_deref()).is_none() {
            return Err(DataArgsError::NoData);
        }
        let digits = self.path().filter(|path| path.as_os_str() == "digits").map(|_| "--data digits");
        if let Some(option) = digits.or(self.column_option()) {
            return Err(DataArgsError::SchemaAndOption(option));
        }
        let missing = |path: PathBuf| match path.metadata() {
            Ok(_) => Ok(()),
            Err(source) => Err(LoadError::Read { path, source }),
        };
        Ok(self.files().into_iter().try_for_each(missing)?)
    }

    /// Whether `--schema gateway` is given.
    pub fn asks_gateway(&self) -> bool {
        self.schema.as_ref().is_some_and(|path| path.as_os_str() == "gateway")
    }

    /// The file that `--data` or `--csv` names.
    pub fn path(&self) -> Option<&Path> {
        self.file.as_deref().or(self.csv.as_deref())
    }

    /// The files and folders that the samples are read from; none for the built-in set.
    pub fn files(&self) -> Vec<PathBuf> {
        let files = [&self.file, &self.csv, &self.images, &self.labels].into_iter().flatten();
        files.filter(|file| file.as_os_str() != "digits").cloned().collect()
    }

    /// An option that only CSV files without a schema need.
    pub(super) fn column_option(&self) -> Option<&'static str> {
        let options = [
            ("--label-column", self.label_column.is_some()),
            ("--attribute", self.attribute.is_some()),
            ("--scale", self.scale.is_some()),
        ];
        options.iter().find(|(_, given)| *given).map(|(option, _)| *option)
    }

    /// This device's part, divided into training and test samples.
    pub fn shard(&self) -> Result<VecShard, DataArgsError> {
        self.shard_by(self.local_schema()?.as_ref())
    }

    /// As [`shard`](Self::shard), by this schema.
    pub fn shard_by(&self, schema: Option<&Schema>) -> Result<VecShard, DataArgsError> {
        let samples = self.samples_by(schema)?;
        let Share { index, count } = self.share;
        // Only samples with one label each can be divided by label.
        let labels = Some(samples.labels()).filter(|labels| labels.len() == samples.len());
        let parts = match (self.partition, labels) {
            (Partition::DominantClass, Some(labels)) => {
                partition::dominant_class(labels, count, 0.8, self.data_seed)
            }
            (Partition::TwoClasses, Some(labels)) => {
                partition::label_shards(labels, count, 2, self.data_seed)
            }
            (Partition::Iid, _) | (_, None) => partition::iid(samples.len(), count, self.data_seed),
        };
        let part = parts.get(index).map_or(&[][..], Vec::as_slice);
        Ok(samples.select(part)?.split(self.test_fraction, self.data_seed.wrapping_add(index as u64))?)
    }
}

/// The table `[data]` of a TOML file.
pub fn read_schema(path: &Path) -> Result<Schema, DataArgsError> {
    let failed = |source| DataArgsError::ReadSchema { path: path.into(), source };
    let text = files::read_text(path, MAX_CONFIG).map_err(failed)?;
    let wrong = |source| DataArgsError::Schema { path: path.into(), source: Box::new(source) };
    Schema::from_toml(&text).map_err(wrong)
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
        let digits = Command::try_parse_from(["run", "--data", "digits", "--attribute", "sex"]).unwrap();
        assert!(digits.data.shard().unwrap_err().to_string().contains("--attribute is for CSV files"));
    }

    #[test]
    fn no_samples_are_an_error() {
        let load = |args: &[&str]| {
            let args =
                Command::try_parse_from([&["run"], args].concat()).map_err(|error| error.to_string())?;
            args.data.shard().map_err(|error| error.to_string())
        };
        assert!(load(&[]).unwrap_err().contains("--data digits"));
        assert_eq!(load(&["--data", "digits", "--test-fraction", "0"]).unwrap().train_len(), 3823);
        assert!(load(&["--data", "digits", "--csv", "x.csv"]).unwrap_err().contains("cannot be used with"));
        let dir = tempfile::tempdir().unwrap();
        let schema = dir.path().join("schema.toml");
        let columns = "{ name = 'x', type = 'number' }, { name = 'y', type = 'label', classes = ['a', 'b'] }";
        std::fs::write(&schema, format!("[data]\ntask = 'classification'\ncolumns = [{columns}]\n")).unwrap();
        let refused = load(&["--data", "digits", "--schema", schema.to_str().unwrap()]).unwrap_err();
        assert!(refused.contains("remove --data digits"), "{refused}");
        assert!(load(&["--data", "no-such.csv"]).unwrap_err().starts_with("no-such.csv: "));
    }

    #[test]
    fn what_no_gateway_can_mend_is_known_before_it_is_asked() {
        let error = |args: &[&str]| {
            let args = Command::try_parse_from([&["run", "--schema", "gateway"], args].concat()).unwrap();
            args.data.expect_files().unwrap_err().to_string()
        };
        assert!(error(&[]).contains("no samples are given"));
        assert!(error(&["--data", "digits"]).contains("remove --data digits"));
        assert!(error(&["--data", "x.csv", "--scale", "2"]).contains("remove --scale"));
        assert!(error(&["--data", "no-such.csv"]).starts_with("no-such.csv: "));
    }

    #[test]
    fn a_schema_replaces_the_options_for_columns() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        let (csv, schema, fleet) = (path("data.csv"), path("schema.toml"), path("fleet.toml"));
        std::fs::write(&csv, "state,x\nidle,?\nbusy,3\nidle,5\n").unwrap();
        let text = "[data]\ntask = \"classification\"\ncolumns = [\
            { name = \"x\", type = \"number\", missing = \"mean\" }, \
            { name = \"state\", type = \"label\", classes = [\"idle\", \"busy\"] }]\n";
        std::fs::write(&schema, text).unwrap();
        std::fs::write(&fleet, text.replace("\"mean\"", "\"mean\", scaling = \"fleet\"")).unwrap();
        let samples = |args: &[&str]| {
            let args = Command::try_parse_from([&["run", "--data", &csv], args].concat()).unwrap();
            args.data.samples().map_err(|error| error.to_string())
        };
        let found = samples(&["--schema", &schema]).unwrap();
        assert_eq!((found.features(), found.labels()), (&[4.0, 3.0, 5.0][..], &[0, 1, 0][..]));
        assert!(samples(&["--schema", &schema, "--scale", "2"]).unwrap_err().contains("remove --scale"));
        assert!(samples(&["--schema", &fleet]).unwrap_err().contains("column `x`"));
        assert!(samples(&["--schema", &csv]).unwrap_err().contains("data.csv: "));
        assert!(samples(&[]).unwrap_err().contains("column 1 is `idle`"));
    }

    #[test]
    fn shares_are_parsed() {
        assert_eq!("3/20".parse(), Ok(Share { index: 3, count: 20 }));
        for bad in ["20/20", "1", "a/2", "1/0", "-1/3"] {
            assert_eq!(bad.parse::<Share>(), Err(BadShare), "{bad}");
        }
    }
}
