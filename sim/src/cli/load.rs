//! `sim load`: an aggregator under the load of many devices.

use std::{net::SocketAddr, ops::RangeInclusive, path::PathBuf};

use clap::{Args, ValueEnum};
use common::Codec;
use sim::load::{self, LoadError, LoadOptions, Target, bare::Bare};

use super::Format;

pub const EXAMPLES: &str = "\
Examples:
  sim load                                        2,000 devices, 5 rounds of a 178,110-parameter model
  sim load --devices 50 --rounds 20 --reference   beside bare QUIC streams with the same bytes
  sim load --devices 50 --rounds 20 --codec int8 --reference --format json
  sim load --devices 200 --server 127.0.0.1:4433 --dir gateway --pid 4711   one that runs already

Devices hold real connections with certificates of their own and follow the whole protocol, but have no data and
do not train. The aggregator is a process of its own with its durable store in a temporary directory.";

/// A number of things, of which there must be some.
const SOME: RangeInclusive<i64> = 1..=u32::MAX as i64;

#[derive(Args, Debug)]
pub struct LoadArgs {
    /// Devices, all connected at once
    #[arg(long, value_name = "N", default_value_t = LoadOptions::default().devices as u32, value_parser = clap::value_parser!(u32).range(SOME))]
    devices: u32,
    #[arg(long, value_name = "N", default_value_t = LoadOptions::default().rounds, value_parser = clap::value_parser!(u32).range(SOME))]
    rounds: u32,
    /// Connections that are opened at the same time
    #[arg(long, value_name = "N", default_value_t = LoadOptions::default().concurrency as u32, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    concurrency: u32,
    /// Encoding of models and updates
    #[arg(long, value_enum, default_value_t = LoadCodec::F32)]
    codec: LoadCodec,
    /// Model of the zoo
    #[arg(long, default_value_t = LoadOptions::default().model)]
    model: String,
    #[arg(long, default_value_t = LoadOptions::default().strategy)]
    strategy: String,
    /// Also move the same bytes through bare QUIC streams between two processes, in turns with the aggregator
    #[arg(long)]
    reference: bool,
    /// An aggregator that runs already on this machine; its `run.min_devices` and model must suit
    #[arg(long, value_name = "ADDRESS", requires = "dir")]
    server: Option<SocketAddr>,
    /// Its directory, where the devices are enrolled
    #[arg(long, value_name = "DIR", requires = "server")]
    dir: Option<PathBuf>,
    /// Its process, to see its memory
    #[arg(long, requires = "server")]
    pid: Option<u32>,
    #[arg(long, default_value_t = LoadOptions::default().seed)]
    seed: u64,
    /// How to print the result
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// No progress
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
enum LoadCodec {
    F32,
    F16,
    Int8,
}

/// The serving side of the reference; started by `sim load`.
#[derive(Args, Debug)]
pub struct BareArgs {
    #[arg(long)]
    dir: PathBuf,
    #[arg(long)]
    devices: usize,
    #[arg(long)]
    down: u32,
    #[arg(long)]
    up: u32,
}

pub fn run(args: &LoadArgs) -> Result<String, LoadError> {
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
        reference: args.reference,
        target,
        seed: args.seed,
    };
    let quiet = args.quiet;
    let progress = move |round: &load::LoadRound| {
        if !quiet {
            eprintln!(
                "round {:>4}: {:.3} s, {:.0} updates/s",
                round.round, round.seconds, round.updates_per_s
            );
        }
    };
    let result = runtime()?.block_on(load::run(&options, Box::new(progress)))?;
    let json = || serde_json::to_string(&result).map(|text| text + "\n").unwrap_or_default();
    Ok(if args.format == Format::Json { json() } else { load::table(&result) })
}

pub fn bare(args: &BareArgs) -> Result<String, LoadError> {
    let bare = Bare { devices: args.devices, bytes: [args.down, args.up] };
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
    fn a_load_of_nothing_is_refused() {
        let parse =
            |args: [&str; 3]| Load::try_parse_from(args).map(|Load { load }| (load.devices, load.rounds));
        assert_eq!(parse(["load", "--devices", "7"]).unwrap(), (7, LoadOptions::default().rounds));
        assert!(parse(["load", "--devices", "0"]).is_err() && parse(["load", "--rounds", "0"]).is_err());
        for wrong in ["0", "1048577", "18446744073709551615"] {
            assert!(parse(["load", "--concurrency", wrong]).is_err(), "{wrong}");
        }
    }
}
