//! An experiment from code: FedAvg and FairHeteroFL on a simulated fleet of three tiers.
//!
//! `cargo run --release --example experiment -- [DIR]`; results go to DIR. Finished results are not computed again.

use std::{env, error::Error, path::PathBuf};

use fairtier::{
    Registry,
    experiment::{LoadedExperiment, RunOptions, run},
};

const EXPERIMENT: &str = r#"
    title = "Fairness between tiers"
    model = "digits-mlp"
    rounds = 10
    seeds = [1, 2]
    data = { set = "digits", partition = "dominant:0.8", clients = 12, testing = 0.25 }
    fleet = { tiers = [1, 0.5, 0.25] }
    training = { epochs = 1, batch = 16, lr = 0.1 }
    strategies = [
        { id = "plain", label = "FedAvg", name = "fedavg" },
        { id = "fair", label = "FairHeteroFL", name = "fairheterofl", params = { q = 10 } },
    ]
"#;

fn main() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(env::args().nth(1).unwrap_or_else(|| "results".to_owned()));
    let experiment = LoadedExperiment::parse("tiers", EXPERIMENT, "full", &[])?;
    let options =
        RunOptions { out, data: None, threads: 2, registry: Registry::standard(), twin: false, runs: None };
    let ran = run(&experiment, &options, &mut |_| {})?;
    println!(
        "{:<14} {:>4} {:>10} {:>9} {:>14}",
        "strategy", "seed", "mean loss", "variance", "between tiers"
    );
    for unit in &ran.units {
        let (loss, inter) = (&unit.last.loss, unit.last.inter);
        println!(
            "{:<14} {:>4} {:>10.3} {:>9.4} {:>14.4}",
            unit.label, unit.unit.seed, loss.mean, loss.variance, inter
        );
    }
    Ok(())
}
