//! A device inside another program, with samples from that program.
//!
//! `cargo run --release --example device -- ADDRESS NAME.pem`; `examples/gateway.rs` is a gateway for it.

use std::{env, error::Error, path::PathBuf, time::Duration};

use fairtier::device::{
    Budget, Client, Event, GatewayAddresses, Identity, Privacy, Profile, SaveModel,
    data::{DataError, Samples, Shard},
    train::Fast,
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let usage = "usage: device ADDRESS NAME.pem";
    let gateways = GatewayAddresses::resolve(&env::args().nth(1).ok_or(usage)?)?;
    let path = PathBuf::from(env::args().nth(2).ok_or(usage)?);
    let device = path.file_stem().and_then(|name| name.to_str()).ok_or(usage)?.parse()?;
    // A fifth of the samples is kept for evaluation.
    let shard = readings(300)?.split(0.2, 0)?;
    let budget = Budget { ram: 16 << 10, ..Budget::UNLIMITED };
    let client = Client {
        gateways,
        identity: Identity::load(&path)?,
        profile: Profile { device, budget, data: shard.summary(), privacy: Privacy::default() },
        spent: None,
        save_model: Some(SaveModel { path: path.with_extension("onnx"), every: 0 }),
        give_up_after: Some(Duration::from_secs(60)),
        silence: Duration::from_secs(60),
        leave_after: Duration::from_secs(600),
    };
    let stop = async { drop(tokio::signal::ctrl_c().await) };
    let print_loss = |event: &Event| {
        if let Event::Answered { round, scalars, .. } = event {
            println!("round {round}: loss {:.3}", scalars.loss_before);
        }
    };
    let end = client.run(&shard, &mut Fast::new(), stop, print_loss).await?;
    println!("finished: {}", end.finished);
    Ok(())
}

/// Two sensor values, and whether the machine is faulty. A real device reads its sensors here.
fn readings(count: u32) -> Result<Samples, DataError> {
    let (mut features, mut labels) = (vec![], vec![]);
    for number in 0..count {
        let (faulty, wave) = (number % 2, (number as f32).sin() * 0.2);
        features.extend([0.2 + 0.5 * faulty as f32 + wave, 0.4 - wave]);
        labels.push(faulty);
    }
    Samples::new(features, labels, 2)
}
