//! `fairtier sim run`, `fairtier sim sweep`, `fairtier sim compare`.

use std::path::PathBuf;

use clap::Args;
use common::output::{COLUMNS, wrap};
use serde::Serialize;
use strategies::Registry;

use super::{CommandError, Format, columns};
use crate::{
    experiment::{self, ALL, ExperimentError, LoadedExperiment, Price, ResultsPath, RunOptions, RunOutcome},
    progress,
    results::{ExperimentRecord, UnitResult},
};

pub const RUN_EXAMPLES: &str = "\
Examples:
  fairtier sim run fairheterofl-mnist-noniid                      the quick profile, at most 2 minutes
  fairtier sim run fairheterofl-mnist-noniid --profile full --seeds 5
  fairtier sim run fedeba-fmnist --set rounds=50 --set training.lr=0.05
  fairtier sim run mine.toml --out elsewhere
  fairtier sim run mine.toml --set fairness.target=0.3 --twin     with a fairness target, and its price
  fairtier sim run tour --runs runs                               every round, for `fairtier gateway dashboard --dir`
  fairtier sim run --list
  fairtier sim run --list --format json | jq -r .[].name

Results are one JSON and one CSV file per strategy and seed under results/EXPERIMENT/PROFILE. Finished results are
not computed again, so an interrupted run continues where it stopped.";

pub const SWEEP_EXAMPLES: &str = "\
Examples:
  fairtier sim sweep fairheterofl-mnist-iid --set strategies.reweight.params.q=0,1,10
  fairtier sim sweep tour --set training.lr=0.05,0.1 --set rounds=10,20
  fairtier sim sweep mine.toml fairness.target=0.5,0.4,0.3";

pub const COMPARE_EXAMPLES: &str = "\
Examples:
  fairtier sim compare heterofl reweight --in results/fairheterofl-mnist-noniid/quick
  fairtier sim compare results/fedeba-fmnist/quick:fedavg results/fedeba-fmnist/quick:prac
  fairtier sim compare results/tour/quick elsewhere/tour/quick --format json
  fairtier sim compare results/tour/quick sim/results/tour.quick.jsonl    compare with kept results";

#[derive(Args, Debug)]
pub struct RunArgs {
    /// Name of an experiment, or a file that ends in .toml
    #[arg(value_name = "EXPERIMENT", required_unless_present = "list")]
    experiment: Option<String>,
    /// List all experiments
    #[arg(long)]
    list: bool,
    /// Sets a key of the experiment, as in training.lr=0.05 or strategies.fair.params.q=1
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Also run with the driven parameter at its neutral end, and print the price of fairness
    #[arg(long)]
    twin: bool,
    #[command(flatten)]
    how: HowArgs,
}

#[derive(Args, Debug)]
pub struct SweepArgs {
    /// Name of an experiment, or a file that ends in .toml
    #[arg(value_name = "EXPERIMENT")]
    experiment: String,
    /// A key and its values; several keys give every combination
    #[arg(value_name = "KEY=VALUE,VALUE,..", required_unless_present = "set")]
    keys: Vec<String>,
    /// The same as an option
    #[arg(long, value_name = "KEY=VALUE,VALUE,..")]
    set: Vec<String>,
    #[command(flatten)]
    how: HowArgs,
}

#[derive(Args, Debug)]
struct HowArgs {
    /// quick or full
    #[arg(long, value_name = "PROFILE", default_value = "quick")]
    profile: String,
    /// Number of seeds (1, 2, ..), or seeds: 7,8 or 0-4 or 0..5
    #[arg(long, value_name = "N")]
    seeds: Option<String>,
    /// Number of training threads [default: number of cores]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// First place to look for data sets, before $FAIRTIER_DATA and ../shared/data
    #[arg(long = "data", alias = "data-dir", value_name = "DIR")]
    data: Option<PathBuf>,
    /// Directory for the results
    #[arg(long, value_name = "DIR", default_value = "results")]
    out: PathBuf,
    /// Also write every round of each new strategy and seed to DIR/SETTING-SEED, for `fairtier gateway dashboard --dir`
    #[arg(long, value_name = "DIR")]
    runs: Option<PathBuf>,
    /// How to print the figures
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// One table, however wide; without it, columns beyond 80 follow below
    #[arg(long)]
    wide: bool,
    /// Print no progress
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Args, Debug)]
pub struct CompareArgs {
    /// A directory of results or a kept file, DIR:SETTING, or with --in the id of a setting
    #[arg(value_name = "A")]
    a: String,
    #[arg(value_name = "B")]
    b: String,
    /// Directory of an experiment's results, as in results/tour/quick
    #[arg(long = "in", value_name = "DIR")]
    dir: Option<PathBuf>,
    /// How to print the differences
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// One table, however wide; without it, columns beyond 80 follow below
    #[arg(long)]
    wide: bool,
}

#[derive(Serialize)]
struct Output<'a> {
    #[serde(flatten)]
    record: &'a ExperimentRecord,
    units: &'a [UnitResult],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    prices: Vec<Price>,
}

pub fn run(registry: &Registry, args: &RunArgs) -> Result<String, CommandError> {
    let Some(name) = args.experiment.as_ref().filter(|_| !args.list) else {
        return list(args.how.format);
    };
    let loaded = args.how.open(name, &args.set)?;
    args.how.run(registry, &[loaded], args.twin)
}

pub fn sweep(registry: &Registry, args: &SweepArgs) -> Result<String, CommandError> {
    let loaded = args.how.open(&args.experiment, &[])?;
    let keys = [&args.keys[..], &args.set].concat();
    args.how.run(registry, &experiment::sweep(&loaded, &keys)?, false)
}

pub fn compare(args: &CompareArgs) -> Result<String, CommandError> {
    let side = |text: &str| ResultsPath::parse(text, args.dir.as_deref());
    let all = experiment::compare(&side(&args.a), &side(&args.b))?;
    Ok(match args.format {
        Format::Table => all.iter().map(|pair| pair.table(columns(args.wide))).collect::<Vec<_>>().join("\n"),
        Format::Json => serde_json::to_string(&all)? + "\n",
    })
}

/// Most seeds of a run.
const MOST_SEEDS: u64 = 10_000;

/// Width of the column of names.
const NAMES: usize = 28;

/// An experiment that comes with the simulator.
#[derive(Serialize)]
struct Listed {
    name: &'static str,
    title: String,
}

fn list(format: Format) -> Result<String, CommandError> {
    let open = |&(name, _): &(&'static str, &str)| {
        Ok(Listed { name, title: LoadedExperiment::open(name, "quick", &[])?.experiment.title })
    };
    let all = ALL.iter().map(open).collect::<Result<Vec<_>, CommandError>>()?;
    Ok(match format {
        Format::Table => {
            let line = |Listed { name, title }: &Listed| {
                format!("{name:<NAMES$} {}\n", wrap(title, NAMES + 1, COLUMNS))
            };
            all.iter().map(line).collect()
        }
        Format::Json => serde_json::to_string(&all)? + "\n",
    })
}

impl HowArgs {
    fn text(&self, ran: &RunOutcome) -> String {
        let (record, units, columns) = (&ran.record, &ran.units[..], columns(self.wide));
        let mut out = experiment::summary(record, units, columns);
        for part in [
            experiment::diverged(record, units),
            experiment::over_limit(record, units),
            experiment::targets(record, units),
            experiment::checks(record, units),
        ] {
            if !part.is_empty() {
                out += &format!("\n{part}");
            }
        }
        for price in experiment::prices(record, units) {
            out += &format!("\n{}", price.text(columns));
        }
        out
    }

    fn open(&self, name: &str, set: &[String]) -> Result<LoadedExperiment, CommandError> {
        let mut keys = set.to_vec();
        if let Some(seeds) = &self.seeds {
            keys.push(format!("seeds={}", seed_list(seeds)?));
        }
        Ok(LoadedExperiment::open(name, &self.profile, &keys)?)
    }

    fn run(&self, registry: &Registry, all: &[LoadedExperiment], twin: bool) -> Result<String, CommandError> {
        let threads = self.threads.or_else(|| std::thread::available_parallelism().ok().map(Into::into));
        let options = RunOptions {
            out: self.out.clone(),
            data: self.data.clone(),
            threads: threads.unwrap_or(1).max(1),
            registry: registry.clone(),
            twin,
            runs: self.runs.clone(),
        };
        let mut out = Vec::new();
        for loaded in all {
            let mut observe = progress::experiment(&loaded.name, self.quiet);
            let ran = experiment::run(loaded, &options, &mut observe)?;
            out.push(match self.format {
                Format::Table => self.text(&ran),
                Format::Json => {
                    let prices = experiment::prices(&ran.record, &ran.units);
                    serde_json::to_string(&Output { record: &ran.record, units: &ran.units, prices })? + "\n"
                }
            });
        }
        Ok(out.join(if self.format == Format::Table { "\n" } else { "" }))
    }
}

/// Expands `3` to seeds 1 to 3, and keeps lists and ranges: `7,8`, `0-4`, `0..5` and `1,5-7`.
fn seed_list(text: &str) -> Result<String, ExperimentError> {
    let wrong = || ExperimentError::Seeds(text.into());
    let seeds = match text.trim().parse::<u64>() {
        Ok(count) => (1..=count.min(MOST_SEEDS + 1)).collect(),
        Err(_) => {
            let parts = text.split(',').map(|part| range(part.trim()).ok_or_else(wrong));
            parts.collect::<Result<Vec<_>, _>>()?.concat()
        }
    };
    let twice = (1..seeds.len()).any(|at| seeds[..at].contains(&seeds[at]));
    if seeds.is_empty() || seeds.len() as u64 > MOST_SEEDS || twice {
        return Err(wrong());
    }
    Ok(format!("{seeds:?}"))
}

/// `7`, `0-4` with both ends, or `0..5` without the last one.
fn range(text: &str) -> Option<Vec<u64>> {
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let (first, end) = if let Some((first, last)) = text.split_once("..=").or_else(|| text.split_once('-')) {
        (number(first)?, number(last)?.checked_add(1)?)
    } else if let Some((first, end)) = text.split_once("..") {
        (number(first)?, number(end)?)
    } else {
        let only = number(text)?;
        (only, only.checked_add(1)?)
    };
    (first < end && end - first <= MOST_SEEDS).then(|| (first..end).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experiments_are_listed_as_json() {
        let listed: Vec<serde_json::Value> = serde_json::from_str(&list(Format::Json).unwrap()).unwrap();
        let table = list(Format::Table).unwrap();
        assert_eq!(listed.len(), ALL.len());
        assert!(table.lines().all(|line| line.chars().count() <= COLUMNS), "{table}");
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let both = |listed: &serde_json::Value| {
            let (name, title) = (listed["name"].as_str().unwrap(), listed["title"].as_str().unwrap());
            assert!(!title.is_empty(), "{name}");
            words(&format!("{name} {title}"))
        };
        assert_eq!(words(&table), listed.iter().flat_map(both).collect::<Vec<_>>());
    }

    #[test]
    fn seeds_are_a_number_a_list_or_ranges() {
        for (text, seeds) in [
            ("3", "[1, 2, 3]"),
            ("7, 9", "[7, 9]"),
            ("0-4", "[0, 1, 2, 3, 4]"),
            ("0..5", "[0, 1, 2, 3, 4]"),
            ("1000..=1002", "[1000, 1001, 1002]"),
            ("42,5-6", "[42, 5, 6]"),
        ] {
            assert_eq!(seed_list(text).unwrap(), seeds, "{text}");
        }
        for wrong in ["0", "x", "1,x", "-1", "99999999", "5-3", "0..0", "1,1", "1-3,2", "0-99999999", ""] {
            let error = seed_list(wrong).unwrap_err().to_string();
            assert!(error.contains("0-4"), "{wrong}: {error}");
        }
    }
}
