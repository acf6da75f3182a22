//! `fairtier bench load`: an aggregator under the load of many devices.

use std::{
    io::{self, Write},
    net::SocketAddr,
    ops::RangeInclusive,
    path::PathBuf,
};

use crate::load::{
    self, LoadError, LoadOptions, Target,
    bare::{Bare, StreamSetup},
    cost::{self, LoadCost, Subject},
};
use clap::{Args, ValueEnum};
use common::Codec;

use super::Format;

pub const EXAMPLES: &str = "\
Examples:
  fairtier bench load                                        2,000 devices, 5 rounds of a 178,110-parameter model
  fairtier bench load --devices 50 --rounds 20 --reference   beside bare QUIC streams with the same bytes
  fairtier bench load --devices 50 --rounds 20 --codec int8 --reference --format json
  fairtier bench load --devices 50 --rounds 20 --reference tuned   bare streams with the aggregator's transport
  fairtier bench load --check                                exit code 1 if a bar is missed
  fairtier bench load --devices 50 --rounds 20 --reference --check --format json | jq .checks
  fairtier bench load --devices 50 --rounds 40 --fairness 0.3 --pairs 10   what a fairness target costs the gateway
  fairtier bench load --dashboard --pairs 10                 what five followed pages of the dashboard cost
  fairtier bench load --devices 200 --server 127.0.0.1:4433 --dir gateway --pid 4711   an aggregator that runs already

Devices hold real connections with their own certificates and follow the whole protocol, but have no data and do not
train. The aggregator is a separate process with its durable store in a temporary directory.

With --reference, the aggregator and the bare streams take turns of up to six rounds. The first round of each turn overlaps
with the end of the other side's turn, so it does not count. Additional rounds make up for it: --rounds of each side count.

--check fails if one of these bars is missed:
  accepted     every update is accepted (a run with missing updates fails without --check, too)
  peak_rss_kb  peak memory of the aggregator is at most 64 MB plus 80 KB for each device (1 KB = 1024 bytes)
  peak_growth  the peak of the last round is at most 5 % above that of the first
  ratio        with --reference: at least 0.6 of the updates per second of the bare streams
With --fairness the only bar is the cost of a target: at most 3 % more processor time of the gateway per round.
It is met if the whole 95 % interval over the pairs is within it, missed if none of it is, and undecided otherwise.
With --dashboard the only bar is the cost of its pages: at most 5 % fewer accepted updates per second.
Undecided fails, too: raise --pairs.
A bar that is not measured counts as missed. Growth needs two rounds; memory needs a process (--pid with --server).";

/// A number of at least 1.
const SOME: RangeInclusive<i64> = 1..=u32::MAX as i64;

#[derive(Args, Debug)]
pub struct LoadArgs {
    /// Number of devices, all connected at once
    #[arg(long, value_name = "N", default_value_t = LoadOptions::default().devices as u32, value_parser = clap::value_parser!(u32).range(SOME))]
    devices: u32,
    /// Number of rounds that count
    #[arg(long, value_name = "N", default_value_t = LoadOptions::default().rounds, value_parser = clap::value_parser!(u32).range(SOME))]
    rounds: u32,
    /// Number of connections that are opened at the same time
    #[arg(long, value_name = "N", default_value_t = LoadOptions::default().concurrency as u32, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    concurrency: u32,
    /// Encoding of models and updates
    #[arg(long, value_enum, default_value_t = LoadCodec::F32)]
    codec: LoadCodec,
    /// Name of a model of the zoo
    #[arg(long, default_value_t = LoadOptions::default().model)]
    model: String,
    #[arg(long, default_value_t = LoadOptions::default().strategy)]
    strategy: String,
    /// Also move the same bytes through bare QUIC streams between two processes, taking turns with the aggregator
    #[arg(long, value_enum, num_args = 0..=1, default_missing_value = "plain")]
    reference: Option<LoadSetup>,
    /// Run in pairs, with this fairness target and without, and print by how much it raises the gateway's processor time
    #[arg(long, value_name = "DISPARITY", group = "subject", conflicts_with_all = ["reference", "server"], value_parser = target)]
    fairness: Option<f64>,
    /// Run in pairs, with so many followed pages of the dashboard and without, and print by how much they lower the updates per
    /// second
    #[arg(long, value_name = "VIEWERS", num_args = 0..=1, default_missing_value = "5", group = "subject", conflicts_with_all = ["reference", "server"], value_parser = clap::value_parser!(u32).range(1..=32))]
    dashboard: Option<u32>,
    /// Number of such pairs
    #[arg(long, value_name = "N", default_value_t = 6, requires = "subject", value_parser = clap::value_parser!(u32).range(SOME))]
    pairs: u32,
    /// Use an aggregator that already runs on this machine. Its model, `run.min_devices` and `run.rounds` must match;
    /// with --reference it needs one more round for every five
    #[arg(long, value_name = "ADDRESS", requires = "dir")]
    server: Option<SocketAddr>,
    /// Directory of that aggregator, to enrol the devices
    #[arg(long, value_name = "DIR", requires = "server")]
    dir: Option<PathBuf>,
    /// Process id of that aggregator, to measure its memory
    #[arg(long, requires = "server")]
    pid: Option<u32>,
    /// Fail if a bar is missed: accepted updates, peak memory and its growth, and the ratio with --reference
    #[arg(long)]
    check: bool,
    #[arg(long, default_value_t = LoadOptions::default().seed)]
    seed: u64,
    /// How to print the result
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Print no progress
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
enum LoadCodec {
    F32,
    F16,
    Int8,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
enum LoadSetup {
    /// quinn's default transport
    Plain,
    /// The aggregator's transport
    Tuned,
}

impl From<LoadSetup> for StreamSetup {
    fn from(setup: LoadSetup) -> Self {
        match setup {
            LoadSetup::Plain => Self::Plain,
            LoadSetup::Tuned => Self::Tuned,
        }
    }
}

/// The server of the reference. `fairtier bench load` starts it.
#[derive(Args, Debug)]
pub struct BareArgs {
    #[arg(long)]
    dir: PathBuf,
    #[arg(long, value_enum)]
    setup: LoadSetup,
    #[arg(long)]
    devices: usize,
    #[arg(long)]
    down: u32,
    #[arg(long)]
    up: u32,
}

pub fn run(args: &LoadArgs) -> anyhow::Result<String> {
    let target = match (&args.server, &args.dir) {
        (Some(server), Some(dir)) => Some(Target { server: *server, dir: dir.clone(), pid: args.pid }),
        _ => None,
    };
    let options = LoadOptions {
        devices: args.devices as usize,
        rounds: args.rounds,
        concurrency: args.concurrency as usize,
        codec: match args.codec {
            LoadCodec::F32 => Codec::F32,
            LoadCodec::F16 => Codec::F16,
            LoadCodec::Int8 => Codec::Int8,
        },
        model: args.model.clone(),
        strategy: args.strategy.clone(),
        reference: args.reference.map(StreamSetup::from),
        target,
        fairness: None,
        viewers: 0,
        seed: args.seed,
    };
    let quiet = args.quiet;
    let dashboard = args.dashboard.map(|viewers| Subject::Dashboard(viewers as usize));
    if let Some(subject) = args.fairness.map(Subject::Target).or(dashboard) {
        return cost(args, &options, subject);
    }
    let progress = move |round: u32, seconds: f64| {
        if !quiet {
            eprintln!("round {round:>4}: {seconds:.3} s");
        }
    };
    let result = runtime()?.block_on(load::run(&options, Box::new(progress)))?;
    let text = match args.format {
        Format::Json => serde_json::to_string(&result)? + "\n",
        Format::Table => load::table(&result),
    };
    let verdict = if args.check { result.check() } else { result.complete() };
    verdict.inspect_err(|_| {
        // The figures are printed even if the run fails. Errors are ignored: the output may be closed.
        let _ = io::stdout().write_all(text.as_bytes());
    })?;
    Ok(text)
}

/// What a fairness target or the dashboard costs the gateway.
fn cost(args: &LoadArgs, options: &LoadOptions, subject: Subject) -> anyhow::Result<String> {
    let progress = |pair: u32, change: f64| {
        if !args.quiet {
            eprintln!("pair {pair:>4}: {:+.1} %", 100.0 * change);
        }
    };
    let cost: LoadCost = runtime()?.block_on(cost::compare(options, subject, args.pairs, progress))?;
    let text = match args.format {
        Format::Json => serde_json::to_string(&cost)? + "\n",
        Format::Table => cost.table(),
    };
    if args.check {
        cost.check().inspect_err(|_| {
            let _ = io::stdout().write_all(text.as_bytes());
        })?;
    }
    Ok(text)
}

/// A fairness target.
fn target(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "must be a number above 0, for example 0.3".into())
}

pub fn bare(args: &BareArgs) -> Result<String, LoadError> {
    let bare = Bare { setup: args.setup.into(), devices: args.devices, bytes: [args.down, args.up] };
    runtime()?.block_on(load::bare::serve(&args.dir, bare, |address| println!("listening on {address}")))?;
    Ok(String::new())
}

fn runtime() -> Result<tokio::runtime::Runtime, LoadError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(|source| LoadError::Io { what: "threads".into(), source })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser, Debug)]
    struct Load {
        #[command(flatten)]
        load: LoadArgs,
    }

    #[test]
    fn zero_devices_rounds_or_connections_are_refused() {
        let parse =
            |args: [&str; 3]| Load::try_parse_from(args).map(|Load { load }| (load.devices, load.rounds));
        assert_eq!(parse(["load", "--devices", "7"]).unwrap(), (7, LoadOptions::default().rounds));
        assert!(parse(["load", "--devices", "0"]).is_err() && parse(["load", "--rounds", "0"]).is_err());
        for wrong in ["0", "1048577", "18446744073709551615"] {
            assert!(parse(["load", "--concurrency", wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_reference_is_plain_by_default() {
        let parse = |args: &[&str]| {
            let load = Load::try_parse_from([&["load"], args].concat()).map(|Load { load }| load.reference);
            load.map(|setup| setup.map(StreamSetup::from))
        };
        assert_eq!(parse(&[]).unwrap(), None);
        assert_eq!(parse(&["--reference", "--quiet"]).unwrap(), Some(StreamSetup::Plain));
        assert_eq!(parse(&["--reference", "tuned"]).unwrap(), Some(StreamSetup::Tuned));
        assert!(parse(&["--reference", "fast"]).is_err());
        // The serving process is started with the same names.
        for (setup, name) in [(LoadSetup::Plain, "plain"), (LoadSetup::Tuned, "tuned")] {
            assert_eq!(
                (StreamSetup::from(setup).name(), LoadSetup::from_str(name, false)),
                (name, Ok(setup))
            );
        }
    }
}
