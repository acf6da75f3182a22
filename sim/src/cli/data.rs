//! `fairtier sim data list` and `fairtier sim data check`.

use std::path::PathBuf;

use crate::{
    data::{
        DataDirs, Overview,
        known::{self, FileDigest, SetListing},
    },
    report,
};
use clap::{Args, Subcommand};
use serde::Serialize;

use super::{CommandError, Format};

pub const EXAMPLES: &str = "\
Examples:
  fairtier sim data list                          all data sets, and how to get missing ones
  fairtier sim data check mnist fashion-mnist    load data sets and show their content";

const LIST_EXAMPLES: &str = "\
Examples:
  fairtier sim data list
  fairtier sim data list --data elsewhere --format json";

const CHECK_EXAMPLES: &str = "\
Examples:
  fairtier sim data check digits
  fairtier sim data check mnist fashion-mnist --data elsewhere";

#[derive(Args, Debug)]
pub struct DataArgs {
    #[command(subcommand)]
    command: DataCommand,
}

#[derive(Subcommand, Debug)]
enum DataCommand {
    /// Lists every known data set: its location, or the missing files and how to get them
    #[command(after_help = LIST_EXAMPLES)]
    List(ListArgs),
    /// Loads data sets and shows their content
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckArgs),
}

#[derive(Args, Debug)]
struct ListArgs {
    #[command(flatten)]
    place: PlaceArgs,
    /// How to print the list
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Args, Debug)]
struct CheckArgs {
    /// Names of data sets
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    place: PlaceArgs,
    /// Seed of sets that are generated, or divided into training and test
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// How to print the content
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Args, Debug)]
struct PlaceArgs {
    /// First place to look for data sets, before $FAIRTIER_DATA and ../shared/data
    #[arg(long = "data", alias = "data-dir", value_name = "DIR")]
    dir: Option<PathBuf>,
}

#[derive(Serialize)]
struct Checked {
    #[serde(flatten)]
    overview: Overview,
    files: Vec<FileDigest>,
}

pub fn run(args: &DataArgs) -> Result<String, CommandError> {
    match &args.command {
        DataCommand::List(args) => {
            let places = DataDirs::usual(args.place.dir.as_deref());
            let listings: Vec<SetListing> = known::ALL.iter().map(|known| known.listing(&places)).collect();
            Ok(match args.format {
                Format::Table => report::sets_table(&listings),
                Format::Json => serde_json::to_string(&listings)? + "\n",
            })
        }
        DataCommand::Check(args) => {
            let places = DataDirs::usual(args.place.dir.as_deref());
            let mut checked = Vec::new();
            for name in &args.names {
                let known = known::by_name(name)?;
                let overview = Overview::new(&known.load(&places, args.seed)?);
                checked.push(Checked { overview, files: known.sums(&places)? });
            }
            Ok(match args.format {
                Format::Table => {
                    let table = |set: &Checked| report::set_table(&set.overview, &set.files);
                    checked.iter().map(table).collect::<Vec<_>>().join("\n")
                }
                Format::Json => serde_json::to_string(&checked)? + "\n",
            })
        }
    }
}
