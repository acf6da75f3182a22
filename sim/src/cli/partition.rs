//! `fairtier sim partition`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    data::{DataDirs, known},
    partition::{Partition, PartitionView, Testing},
    report,
};
use clap::Args;

use super::{CommandError, Format, columns};

pub const EXAMPLES: &str = "\
Examples:
  fairtier sim partition dominant:0.8 --data mnist --clients 100 --out mnist.html
  fairtier sim partition dirichlet:0.1 --data fashion-mnist --test proportional --out dir.svg
  fairtier sim partition groups:medium --data fedfb
  fairtier sim partition strata:80/20,20/80 --data adult --format json
  fairtier sim partition natural:50:10 --data shakespeare-leaf --test proportional

Partitions:
  iid                         equal shares at random
  shards:K                    K shards of samples sorted by label for each client
  dominant:SHARE              this share of a client's samples has one class
  extreme                     at most two classes per client, as shards:2
  pat:K                       exactly K classes per client
  dirichlet:ALPHA             Dirichlet shares of each class; every client gets samples
  dirichlet-free:ALPHA        the same, but clients may get none
  natural:TRAIN:TEST          natural clients with at least so many samples
  groups:PERCENT/PERCENT,...  percentages per client, one list per group; also low, medium, high
  strata:PERCENT/PERCENT,...  the same for the natural division of the source
`fairtier sim data list` names the data sets.";

#[derive(Args, Debug)]
pub struct PartitionArgs {
    /// How to divide the data set; see below
    #[arg(value_name = "PARTITION")]
    partition: Partition,
    /// Name of the data set
    #[arg(long, value_name = "SET")]
    data: String,
    /// Number of clients [default: all natural clients, one per percentage, or 100]
    #[arg(long, value_name = "N")]
    clients: Option<usize>,
    /// Seed of the data set and of the partition
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Test samples: a share of each client's own (as in 0.1), or `proportional` for the set's test part
    #[arg(long, value_name = "SHARE", default_value = "0.1", value_parser = testing)]
    test: Testing,
    /// Share of each client's training samples that is held out for validation
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    valid: f64,
    /// Share of training labels that are replaced by wrong ones
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    noise: f64,
    /// Draw the partition to a file that ends in .html or .svg
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// First place to look for data sets, before $FAIRTIER_DATA and ../shared/data
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// How to print the partition
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// One table, however wide; without it, columns beyond 80 follow below
    #[arg(long)]
    wide: bool,
}

pub fn run(args: &PartitionArgs) -> Result<String, CommandError> {
    let draw = args.out.as_deref().map(|path| Ok::<_, CommandError>((path, drawing(path)?))).transpose()?;
    let set = known::load(&args.data, &DataDirs::usual(args.data_dir.as_deref()), args.seed)?;
    let set = set.with_label_noise(args.noise, args.seed)?;
    let known = matches!(args.partition, Partition::Natural { .. } | Partition::Fractions { .. });
    let clients = args.clients.or((!known).then_some(100));
    let split = args.partition.split(&set, clients, args.test, args.seed)?;
    let split = split.with_validation(args.valid, args.seed)?;
    let view = PartitionView::new(&set, &args.partition, &split, args.seed);
    if let Some((path, draw)) = draw {
        let write = |source| CommandError::Write { path: path.into(), source };
        fs::write(path, draw(&view)).map_err(write)?;
    }
    Ok(match args.format {
        Format::Table => report::partition_table(&view, columns(args.wide)),
        Format::Json => serde_json::to_string(&view)? + "\n",
    })
}

fn drawing(path: &Path) -> Result<fn(&PartitionView) -> String, CommandError> {
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("html") => Ok(report::partition_html),
        Some("svg") => Ok(report::partition_picture),
        _ => Err(CommandError::Ending(path.into())),
    }
}

fn testing(text: &str) -> Result<Testing, String> {
    match text.parse() {
        _ if text == "proportional" => Ok(Testing::Proportional),
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(Testing::HoldOut(share)),
        _ => Err("expected a share from 0 to 1, or `proportional`".into()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        partition: PartitionArgs,
    }

    fn run_line(args: &[&str]) -> Result<String, String> {
        let line = [&["partition"], args].concat();
        let cli = Cli::try_parse_from(line).map_err(|error| error.to_string())?;
        run(&cli.partition).map_err(|error| error.to_string())
    }

    #[test]
    fn tables_json_and_files() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("p.html");
        let line = ["pat-2", "--data", "digits", "--clients", "20", "--seed", "3"];
        let table = run_line(&[&line[..], &["--out", &out.to_string_lossy()]].concat()).unwrap();
        assert!(table.contains("digits divided by pat:2 among 20 clients, seed 3"), "{table}");
        assert!(fs::read_to_string(&out).unwrap().contains("</html>"));
        let json = run_line(&[&line[..], &["--format", "json", "--valid", "0.25"]].concat()).unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(
            (json["partition"].as_str(), json["clients"].as_array().unwrap().len()),
            (Some("pat:2"), 20)
        );
        assert!(json["clients"][0]["valid"].as_u64().unwrap() > 30);
        let natural = run_line(&["natural", "--data", "eagle", "--test", "proportional"]).unwrap();
        assert!(natural.contains("among 3 clients"), "{natural}");
    }

    #[test]
    fn invalid_arguments_are_reported() {
        let fail = |args: &[&str]| run_line(args).unwrap_err();
        assert!(fail(&["iid", "--data", "digits", "--out", "x.png"]).contains("x.png: a partition is drawn"));
        assert!(fail(&["iid", "--data", "imagenet"]).contains("fairtier sim data list"));
        assert!(fail(&["magic", "--data", "digits"]).contains("its name is unknown"));
        assert!(fail(&["iid", "--data", "digits", "--test", "2"]).contains("proportional"));
        assert!(fail(&["iid", "--data", "digits", "--valid", "7"]).contains("from 0 to 1"));
        assert!(fail(&["iid", "--data", "digits", "--noise", "7"]).contains("from 0 to 1"));
    }
}
