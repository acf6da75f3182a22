//! `fairtier bench attack`: the cost of the guard to honest devices, and the damage it prevents.

use crate::attack::{AttackData, AttackError, AttackOptions, GuardRow, run as run_attacks, table};
use clap::Args;
use common::output::COLUMNS;
use strategies::Registry;

use super::Format;

pub const EXAMPLES: &str = "\
Examples:
  fairtier bench attack                                   all rows under four guards, five seeds (some minutes)
  fairtier bench attack --row rare-classes --row flipped:20 --seeds 2
  fairtier bench attack --tiers 1.0                       all devices alike; --devices 40 --tiers 1.0,0.7,0.5,0.25,0.125: five tiers
  fairtier bench attack --strategy fedavg --guard off --guard default
  fairtier bench attack --guard 'share = 3.0'             other keys of [guard]
  fairtier bench attack --data wisdm --devices 36         phones of people; needs that data set
  fairtier bench attack --format json | jq .rows";

/// Upper limit of `--seeds`, so that the last seed does not overflow.
const MOST_SEEDS: u64 = 10_000;

#[derive(Args, Debug)]
pub struct AttackArgs {
    /// Data set of the fleet
    #[arg(long, value_enum, default_value_t = AttackData::Digits)]
    data: AttackData,
    /// Devices in the fleet
    #[arg(long, default_value_t = AttackOptions::default().devices)]
    devices: usize,
    /// Widths of the tiers, widest first
    #[arg(long, value_delimiter = ',', default_values_t = AttackOptions::default().tiers)]
    tiers: Vec<f64>,
    #[arg(long, default_value_t = AttackOptions::default().rounds)]
    rounds: u32,
    /// Name of the strategy [default: the one that `init` writes]
    #[arg(long, default_value_t = String::new(), hide_default_value = true)]
    strategy: String,
    /// Parameters of the strategy, as in 'q = 2, step = "hessian"'
    #[arg(long, default_value_t = String::new(), hide_default_value = true)]
    params: String,
    /// Share of the devices asked in a round
    #[arg(long, default_value_t = AttackOptions::default().participation)]
    participation: f64,
    /// off, default, agreeing, probe, or keys of [guard] as in 'share = 3.0'; may be given several times [default: the four]
    #[arg(long)]
    guard: Vec<String>,
    /// Only these rows; may be given several times
    #[arg(long)]
    row: Vec<String>,
    /// Print the names of all rows and exit
    #[arg(long)]
    list: bool,
    /// Seed of the first run
    #[arg(long, default_value_t = AttackOptions::default().seed, value_parser = clap::value_parser!(u64).range(..=u64::MAX - MOST_SEEDS))]
    seed: u64,
    /// Number of seeds; every case runs once per seed
    #[arg(long, default_value_t = AttackOptions::default().seeds, value_parser = clap::value_parser!(u64).range(1..=MOST_SEEDS))]
    seeds: u64,
    /// How to print the result
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// One table, however wide; without it, guards beyond 80 columns follow below
    #[arg(long)]
    wide: bool,
    /// Print no progress
    #[arg(long, short)]
    quiet: bool,
}

pub fn run(registry: &Registry, args: &AttackArgs) -> anyhow::Result<String> {
    let json = args.format == Format::Json;
    if args.list {
        let rows: Vec<String> = GuardRow::all().iter().map(GuardRow::to_string).collect();
        return Ok(if json { serde_json::to_string(&rows)? + "\n" } else { rows.join("\n") + "\n" });
    }
    let options = options(args)?;
    let progress = |done: usize, all: usize| {
        if !args.quiet && (done.is_multiple_of(10) || done == all) {
            eprintln!("{done} of {all} runs");
        }
    };
    let columns = if args.wide { usize::MAX } else { COLUMNS };
    let result = run_attacks(registry, &options, progress)?;
    Ok(if json { serde_json::to_string(&result)? + "\n" } else { table(&result, columns) })
}

fn options(args: &AttackArgs) -> Result<AttackOptions, AttackError> {
    let default = AttackOptions::default();
    let guard = |name: &String| {
        let known = default.guards.iter().find(|(known, _)| known == name);
        known.cloned().unwrap_or_else(|| (name.clone(), name.clone()))
    };
    let mut guards: Vec<_> = args.guard.iter().map(guard).collect();
    if guards.is_empty() {
        guards.clone_from(&default.guards);
    }
    let mut rows: Vec<GuardRow> = args.row.iter().map(|row| row.parse()).collect::<Result<_, _>>()?;
    if rows.is_empty() {
        rows = default.rows;
    }
    if args.data == AttackData::Wisdm {
        // WISDM's devices are given, so only the plain row applies. It has too few classes for a probe.
        rows.retain(
            |row| !matches!(row, GuardRow::Honest(honest) if *honest != crate::attack::Honest::Plain),
        );
        guards.retain(|(name, _)| name != "probe");
    }
    Ok(AttackOptions {
        data: args.data,
        devices: args.devices,
        tiers: args.tiers.clone(),
        rounds: args.rounds,
        strategy: args.strategy.clone(),
        params: args.params.clone(),
        participation: args.participation,
        guards,
        rows,
        seed: args.seed,
        seeds: args.seeds,
        threads: std::thread::available_parallelism().map_or(1, usize::from),
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser, Debug)]
    struct Attack {
        #[command(flatten)]
        attack: AttackArgs,
    }

    #[test]
    fn seeds_that_would_overflow_are_refused() {
        let parse = |args: [&str; 3]| Attack::try_parse_from(args).map(|Attack { attack }| attack.seed);
        assert_eq!(parse(["attack", "--seed", "18446744073709541615"]).unwrap(), u64::MAX - MOST_SEEDS);
        for wrong in [
            ["attack", "--seed", "18446744073709551615"],
            ["attack", "--seeds", "0"],
            ["attack", "--seeds", "10001"],
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_guard_is_a_name_or_keys_of_the_table() {
        let args = ["attack", "--guard", "off", "--guard", "share = 3.0", "--row", "flipped:20"];
        let options = options(&Attack::parse_from(args).attack).unwrap();
        let keys: Vec<_> = options.guards.iter().map(|(_, keys)| keys.as_str()).collect();
        assert_eq!(keys, ["mode = \"off\"", "share = 3.0"]);
        assert_eq!(options.rows.len(), 1);
    }
}
