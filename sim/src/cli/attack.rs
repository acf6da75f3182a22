//! `sim attack`: a table of what hostile devices can do.

use clap::Args;
use sim::attack::{AttackError, AttackOptions, AttackRow, Case, run as run_attacks, table};

use super::Format;

pub const EXAMPLES: &str = "\
Examples:
  sim attack                                 all cases against the guard as it is by default, means over 3 seeds
  sim attack --guard 'screen = 0'            the same without looking where updates point
  sim attack --seeds 1 --rounds 20           a quick look
  sim attack --guard 'robust = \"median\"'     another defence
  sim attack --format json | jq .rows";

/// So that the last seed is a number, too.
const MOST_SEEDS: u64 = 10_000;

#[derive(Args, Debug)]
pub struct AttackArgs {
    /// Devices in the fleet
    #[arg(long, default_value_t = AttackOptions::default().devices)]
    devices: usize,
    #[arg(long, default_value_t = AttackOptions::default().rounds)]
    rounds: u32,
    /// Of the first run
    #[arg(long, default_value_t = AttackOptions::default().seed, value_parser = clap::value_parser!(u64).range(..=u64::MAX - MOST_SEEDS))]
    seed: u64,
    /// Runs of every case, with this many seeds
    #[arg(long, default_value_t = AttackOptions::default().seeds, value_parser = clap::value_parser!(u64).range(1..=MOST_SEEDS))]
    seeds: u64,
    /// Keys of `[guard]` in the defended runs that are not as by default, as in 'screen = 0' or 'robust = "median"'.
    /// Undefended runs have mode = "off"
    #[arg(long, default_value_t = AttackOptions::default().guard)]
    guard: String,
    /// How to print the result
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// No progress
    #[arg(long, short)]
    quiet: bool,
}

pub fn run(args: &AttackArgs) -> Result<String, AttackError> {
    let AttackArgs { devices, rounds, seed, seeds, guard, .. } = args;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let options = AttackOptions {
        devices: *devices,
        rounds: *rounds,
        seed: *seed,
        seeds: *seeds,
        guard: guard.clone(),
        threads,
        ..AttackOptions::default()
    };
    let progress = |row: &AttackRow| {
        if !args.quiet {
            let Case { inflation, samples, updates, tactic } = row.case;
            let share = 100.0 * row.share;
            eprintln!(
                "{share:.0} % hostile, F x {inflation:e}, n x {samples}, {updates:?}, {tactic:?}: done"
            );
        }
    };
    let result = run_attacks(&options, progress)?;
    let json = || serde_json::to_string(&result).map(|text| text + "\n").unwrap_or_default();
    Ok(if args.format == Format::Json { json() } else { table(&result) })
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
    fn seeds_that_would_run_out_are_refused() {
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
}
