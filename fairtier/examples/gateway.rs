//! A gateway inside another program. It enrols two devices, serves five rounds, and ends.
//!
//! `cargo run --release --example gateway -- DIR`, then for `a` and `b`:
//! `cargo run --release --example device -- ADDRESS DIR/a.pem`

use std::{env, error::Error, fs, path::PathBuf};

use fairtier::{
    Registry, RoundReport,
    common::files::{Secrecy, write_file},
    gateway::{Authority, Config, Server},
};

/// As in `fairtier.toml`; keys that are absent have their defaults. Port 0 is any free port.
const CONFIG: &str = r#"
    model = { source = "mlp:2-8-2", tiers = [1.0, 0.5] }
    run = { rounds = 5, min_devices = 2 }
    store = { record = true }
    server = { listen = "127.0.0.1:0" }
"#;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let dir = PathBuf::from(env::args().nth(1).ok_or("usage: gateway DIR")?);
    fs::create_dir_all(&dir)?;
    let authority = Authority::create(&dir)?;
    for name in ["a", "b"] {
        let identity = authority.enroll(&name.parse()?)?;
        write_file(&dir.join(format!("{name}.pem")), identity.as_bytes(), Secrecy::Secret)?;
    }
    let print_round = |report: &RoundReport| {
        println!(
            "round {}: mean loss {:.3}, variance {:.4}",
            report.round, report.loss.mean, report.loss.variance
        );
    };
    let config = Config::parse(CONFIG)?;
    let server = Server::start(&Registry::standard(), &config, &dir, Some(Box::new(print_round)))?;
    println!("listening on {}", server.address());
    server.finished().await;
    // Keeps serving while devices fetch their models.
    server.all_disconnected().await;
    // Fails if the run ended because the store failed.
    server.stop().await?;
    println!("the model is {}", dir.join("model.onnx").display());
    Ok(())
}
