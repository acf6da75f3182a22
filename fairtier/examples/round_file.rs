//! Reads a recorded round, and computes it again with three strategies.
//!
//! `cargo run --release --example round_file -- gateway/rounds/round-000002.json`; a gateway with `store.record = true`
//! writes such files.

use std::{env, error::Error, path::Path};

use fairtier::{
    Registry,
    round::{RoundFile, replay},
};

fn main() -> Result<(), Box<dyn Error>> {
    let path = env::args().nth(1).ok_or("usage: round_file ROUND.json")?;
    let file = RoundFile::open(Path::new(&path))?;
    println!("round {}, {} parameters", file.round, file.parameters.len());
    for device in &file.devices {
        let loss = device.loss_before.map_or_else(|| "-".to_owned(), |loss| format!("{loss:.3}"));
        println!("{}: tier {}, {} samples, loss {loss}", device.id, device.tier.index(), device.samples);
    }
    let registry = Registry::standard();
    for strategy in ["fedavg", "qffl", "fairheterofl"] {
        let answer = replay(&registry, &file, strategy, serde_json::Value::Null)?;
        let weights: Vec<String> =
            answer.weights.iter().map(|(device, weight)| format!("{device} {weight:.3}")).collect();
        println!("{strategy}: {}", weights.join(", "));
    }
    Ok(())
}
