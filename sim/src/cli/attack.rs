//! `sim attack`: a table of what hostile devices can do.

use clap::Args;
use sim::attack::{AttackError, AttackOptions, run as run_attacks, table};

#[derive(Args, Debug)]
pub struct AttackArgs {
    /// Devices in the fleet
    #[arg(long, default_value_t = AttackOptions::default().devices)]
    devices: usize,
    #[arg(long, default_value_t = AttackOptions::default().rounds)]
    rounds: u32,
    #[arg(long, default_value_t = AttackOptions::default().seed)]
    seed: u64,
    /// Keys of `[guard]` in the defended runs, as in 'screen = 0.2' or 'robust = "median"'
    #[arg(long, default_value_t = AttackOptions::default().guard)]
    guard: String,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

pub fn run(args: &AttackArgs) -> Result<String, AttackError> {
    let AttackArgs { devices, rounds, seed, guard, .. } = args;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let options = AttackOptions {
        devices: *devices,
        rounds: *rounds,
        seed: *seed,
        guard: guard.clone(),
        threads,
        ..AttackOptions::default()
    };
    let result = run_attacks(&options, |_| {})?;
    let json = || serde_json::to_string(&result).map(|text| text + "\n").unwrap_or_default();
    Ok(if args.json { json() } else { table(&result) })
}
