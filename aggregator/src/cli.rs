//! Commands of the gateway.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use aggregator::{
    ca::{Authority, Secrecy, write_file},
    config::{self, Config},
    server::{Server, open_model},
    strategy::Needs,
};
use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand, ValueEnum};
use common::{Code, DeviceId};
use models::{Graph, onnx};
use tracing::info;

mod combine;
mod history;
mod store;
mod terms;

use terms::TermsArgs;

const EXAMPLES: &str = "\
Examples:
  aggregator init gateway                      create configuration and certificates
  aggregator enroll --dir gateway cam-1 cam-2  write cam-1.pem and cam-2.pem for two devices
  aggregator enroll --dir gateway --serial m4  write m4.page for a board behind a bridge
  aggregator token --dir gateway cam-3         a one-time token: `edge-client enroll --token ..` on the device
  aggregator enroll --dir gateway --tiers 1,2 --days 90 cam-4  good for two tiers; renewed by the device itself
  aggregator revoke --dir gateway cam-2        cam-2 is a stranger from now on
  aggregator serve --dir gateway               serve until the run is over or Ctrl-C
  aggregator resume --dir gateway              the same, but refuses to begin a new run
  aggregator status --dir gateway              how the last round went, tier by tier
  aggregator history --dir gateway --format csv  one line per round
  aggregator verify --dir gateway              read everything through, say what is damaged
  aggregator rollback --dir gateway --to 41    make the model after round 41 the present one
  aggregator combine --strategy fedlf round.json  compute a recorded round again, with any strategy
  aggregator export --dir gateway --out onnx   the present model as ONNX, one file per tier";

/// Trains one model fairly on unequal devices: the gateway.
#[derive(Parser, Debug)]
#[command(name = "aggregator", version, after_help = EXAMPLES)]
pub(crate) struct Cli {
    /// error, warn, info, debug or trace; also from FAIRTIER_LOG
    #[arg(long, global = true, default_value = "info", env = "FAIRTIER_LOG")]
    log: String,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Create a directory with a documented configuration and the fleet's certificates
    Init {
        #[arg(default_value = "gateway")]
        dir: PathBuf,
    },
    /// Make devices members of the fleet and write the identity file each of them needs
    Enroll {
        #[arg(long, default_value = "gateway")]
        dir: PathBuf,
        /// Where to put NAME.pem
        #[arg(long, default_value = ".")]
        out: PathBuf,
        /// For boards behind a bridge: a key instead of a certificate, as NAME.page for their flash
        #[arg(long)]
        serial: bool,
        #[command(flatten)]
        terms: TermsArgs,
        /// Names of devices: up to 32 of a-z A-Z 0-9 . _ -
        #[arg(required = true)]
        devices: Vec<DeviceId>,
    },
    /// Print a token with which a device can enrol itself, once
    Token {
        #[arg(long, default_value = "gateway")]
        dir: PathBuf,
        /// Hours for which it is good
        #[arg(long, default_value_t = 24)]
        hours: u32,
        #[command(flatten)]
        terms: TermsArgs,
        device: DeviceId,
    },
    /// Make devices strangers: their certificates are refused, and open connections closed
    Revoke {
        #[arg(long, default_value = "gateway")]
        dir: PathBuf,
        #[arg(required = true)]
        devices: Vec<DeviceId>,
    },
    /// Serve the fleet; goes on where it was stopped
    Serve(ServeArgs),
    /// The same, but only if there is a run to go on with: a wrong directory starts no new one
    Resume(ServeArgs),
    /// Show the last round: losses, accuracy and fairness by tier
    Status {
        #[arg(long, default_value = "gateway")]
        dir: PathBuf,
        #[arg(long, default_value = "table")]
        format: Format,
    },
    /// Show all rounds: one line each
    History {
        #[arg(long, default_value = "gateway")]
        dir: PathBuf,
        #[arg(long, default_value = "table")]
        format: history::Format,
    },
    /// Read the whole store through and say what is wrong with it; changes nothing
    Verify {
        #[arg(long, default_value = "gateway")]
        dir: PathBuf,
        #[arg(long, default_value = "table")]
        format: Format,
    },
    /// Go back to the model after an earlier round, if it is kept; `serve` then goes on from there
    Rollback {
        #[arg(long, default_value = "gateway")]
        dir: PathBuf,
        /// The round whose result becomes the present model; 0 is the initial model
        #[arg(long)]
        to: u32,
    },
    /// Compute a round from its file, with any strategy
    Combine(combine::Args),
    /// Write the present model as ONNX, whole and for every tier
    Export {
        #[arg(long, default_value = "gateway")]
        dir: PathBuf,
        #[arg(long)]
        out: PathBuf,
        #[arg(long, default_value = "table")]
        format: Format,
    },
    /// List the numbered errors
    Codes {
        #[arg(long, default_value = "table")]
        format: Format,
    },
}

#[derive(clap::Args, Debug)]
struct ServeArgs {
    #[arg(long, default_value = "gateway")]
    dir: PathBuf,
    /// Overrides server.listen
    #[arg(long)]
    listen: Option<SocketAddr>,
    /// Stop when the run is over instead of keeping its models available
    #[arg(long)]
    exit_when_done: bool,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
enum Format {
    Table,
    Json,
}

impl Cli {
    pub(crate) fn run(self) -> Result<()> {
        start_log(&self.log)?;
        match self.command {
            Command::Init { dir } => init(&dir),
            Command::Enroll { dir, out, serial, terms, devices } => {
                enroll(&dir, &out, serial, &terms, &devices)
            }
            Command::Token { dir, hours, terms, device } => {
                let good_for = std::time::Duration::from_secs(3600 * u64::from(hours));
                println!("{}", Authority::open(&dir)?.token(&device, good_for, terms.membership())?);
                Ok(())
            }
            Command::Revoke { dir, devices } => revoke(&dir, &devices),
            Command::Serve(args) => serve(&args),
            Command::Resume(args) => {
                store::expect_run(&args.dir)?;
                serve(&args)
            }
            Command::Status { dir, format } => status(&dir, format),
            Command::History { dir, format } => history::history(&dir, format),
            Command::Verify { dir, format } => store::verify(&dir, format),
            Command::Rollback { dir, to } => store::rollback(&dir, to),
            Command::Combine(args) => combine::combine(args),
            Command::Export { dir, out, format } => export(&dir, &out, format),
            Command::Codes { format } => {
                codes(format);
                Ok(())
            }
        }
    }
}

fn start_log(level: &str) -> Result<()> {
    let filter = tracing_subscriber::EnvFilter::try_new(level).context("--log")?;
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false).init();
    Ok(())
}

fn init(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    Authority::create(dir)?;
    let config = dir.join("fairtier.toml");
    if !config.exists() {
        write_file(&config, config::DEFAULT, Secrecy::Public)
            .with_context(|| config.display().to_string())?;
    }
    println!("created {}", dir.display());
    println!(
        "next: edit {}, enrol devices with `aggregator enroll --dir {} NAME`",
        config.display(),
        dir.display()
    );
    Ok(())
}

fn enroll(dir: &Path, out: &Path, serial: bool, terms: &TermsArgs, devices: &[DeviceId]) -> Result<()> {
    let authority = Authority::open(dir)?;
    fs::create_dir_all(out).with_context(|| out.display().to_string())?;
    for device in devices {
        let path = out.join(format!("{device}.{}", if serial { "page" } else { "pem" }));
        let bundle = match serial {
            true => authority.enroll_serial(device)?.to_vec(),
            false => authority.enroll_under(device, terms.membership())?.into_bytes(),
        };
        write_file(&path, &bundle, Secrecy::Secret).with_context(|| path.display().to_string())?;
        println!("{}", path.display());
    }
    Ok(())
}

fn revoke(dir: &Path, devices: &[DeviceId]) -> Result<()> {
    let authority = Authority::open(dir)?;
    for device in devices {
        if !authority.revoke(device)? {
            bail!("{device} is not enrolled");
        }
        println!("revoked {device}");
    }
    Ok(())
}

fn load(dir: &Path) -> Result<Config> {
    let path = dir.join("fairtier.toml");
    if !path.exists() {
        bail!("{} is missing; create it with `aggregator init {}`", path.display(), dir.display());
    }
    Config::load(&path).with_context(|| format!("{}: {}", Code::BadConfig, path.display()))
}

fn serve(args: &ServeArgs) -> Result<()> {
    let ServeArgs { dir, listen, exit_when_done } = args;
    let mut config = load(dir)?;
    if let Some(listen) = *listen {
        config.server.listen = listen;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let server = Server::start(&config, dir, None)?;
        // For scripts and tests that let the system choose the port.
        println!("listening on {}", server.address());
        let stop = stop_signal()?;
        tokio::pin!(stop);
        tokio::select! {
            () = &mut stop => info!("stopping"),
            () = server.finished() => {
                if *exit_when_done {
                    // Devices may still fetch their sub-models.
                    let _ = tokio::time::timeout(std::time::Duration::from_secs(30), server.deserted()).await;
                } else {
                    info!("the run is over; devices can fetch their models until Ctrl-C");
                    stop.await;
                }
            }
        }
        server.stop().await?;
        Ok(())
    })
}

/// Resolves on SIGINT or SIGTERM.
fn stop_signal() -> Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

fn status(dir: &Path, format: Format) -> Result<()> {
    let path = dir.join("status.json");
    let text = fs::read_to_string(&path).with_context(|| {
        format!("{}: no round is finished yet, or this is not an aggregator's directory", path.display())
    })?;
    if format == Format::Json {
        println!("{text}");
        return Ok(());
    }
    let status: serde_json::Value = serde_json::from_str(&text).context("status.json is damaged")?;
    let round = &status["last_round"];
    let state = if status["finished"] == true { "finished" } else { "running" };
    println!("strategy {}, {} rounds committed, {state}", status["strategy"], status["committed"]);
    println!(
        "{:>8} {:>8} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "tier", "devices", "loss", "variance", "worst10%", "best10%", "accuracy"
    );
    let line = |name: &str, loss: &serde_json::Value, accuracy: &serde_json::Value| {
        let number = |value: &serde_json::Value| value.as_f64().unwrap_or(0.0);
        println!(
            "{name:>8} {:>8} {:>9.4} {:>9.4} {:>9.4} {:>9.4} {:>9.4}",
            loss["count"],
            number(&loss["mean"]),
            number(&loss["variance"]),
            number(&loss["worst10"]),
            number(&loss["best10"]),
            number(&accuracy["mean"]),
        );
    };
    let empty = vec![];
    let tiers = round["loss_by_tier"].as_array().unwrap_or(&empty);
    for (tier, loss) in tiers.iter().enumerate() {
        line(&tier.to_string(), loss, &round["accuracy_by_tier"][tier]);
    }
    line("all", &round["loss"], &round["accuracy"]);
    for refused in round["refused"].as_array().unwrap_or(&empty) {
        println!("refused: {} (E{} {})", refused["device"], refused["code"], refused["why"]);
    }
    for silent in round["silent"].as_array().unwrap_or(&empty) {
        println!("not heard: {} (tier {})", silent["device"], silent["tier"]);
    }
    Ok(())
}

fn export(dir: &Path, out: &Path, format: Format) -> Result<()> {
    let config = load(dir)?;
    let path = dir.join("model.onnx");
    let file = fs::read(&path).with_context(|| format!("{}: serve first", path.display()))?;
    let (graph, parameters) = Graph::from_onnx(&file).with_context(|| path.display().to_string())?;
    let (model, _) = open_model(&config, Needs::default())?;
    fs::create_dir_all(out).with_context(|| out.display().to_string())?;
    let mut rows = vec![];
    for (tier, mask) in model.masks.iter().enumerate() {
        let name = out.join(format!("tier-{tier}.onnx"));
        let slice = graph.gather(mask, &parameters)?;
        let bytes = onnx::export(&graph.slice(mask)?, &slice, &onnx::ExportOptions::default())?;
        fs::write(&name, &bytes).with_context(|| name.display().to_string())?;
        rows.push((tier, slice.len(), bytes.len(), name.display().to_string()));
    }
    if format == Format::Json {
        let rows: Vec<_> = rows
            .iter()
            .map(|(tier, parameters, bytes, file)| {
                serde_json::json!({ "tier": tier, "parameters": parameters, "bytes": bytes, "file": file })
            })
            .collect();
        println!("{}", serde_json::Value::from(rows));
        return Ok(());
    }
    println!("{:>5} {:>11} {:>10}  file", "tier", "parameters", "bytes");
    for (tier, parameters, bytes, file) in rows {
        println!("{tier:>5} {parameters:>11} {bytes:>10}  {file}");
    }
    Ok(())
}

fn codes(format: Format) {
    if format == Format::Json {
        let rows: Vec<_> = Code::ALL
            .iter()
            .map(
                |code| serde_json::json!({ "code": code.number(), "name": code.name(), "text": code.text() }),
            )
            .collect();
        println!("{}", serde_json::Value::from(rows));
        return;
    }
    for code in Code::ALL {
        println!("E{:02}  {:<18} {}", code.number(), code.name(), code.text());
    }
}
