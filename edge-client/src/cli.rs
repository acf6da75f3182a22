//! Commands of the device.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use crate::{
    Event, Profile,
    data::{Shard, VecShard, schema::Schema},
    host::{
        Client, ClientError, GatewayAddresses, Identity, PrivateFile, ReadBy, SampleSource, SaveModel,
        WatchedFiles,
        args::{BudgetArgs, DataArgs, PrivacyArgs},
        enrol::{self, EnrolError, Token},
        privacy::spent_file,
        refusals::LEAVE_AFTER,
    },
    train::{Backend, Fast, Portable},
};
use anyhow::{Context, Result, bail};
use clap::{Subcommand, ValueEnum};
use common::{
    Code, DeviceId,
    message::{Errors, Score},
    metrics::ErrorSums,
    output::print,
};

use serde_json::{Value, json};
use tracing::level_filters::LevelFilter;

mod agreed;
mod ask;
mod boards;
mod data;
mod examples;
mod figures;
#[cfg(feature = "predict")]
mod predict;

pub use data::DataTools;

/// `fairtier device`, and the whole of `fairtier-client`.
#[derive(clap::Args, Debug)]
#[command(after_help = examples::DEVICE)]
pub struct Device {
    /// off, error, warn, info, debug or trace; also from FAIRTIER_LOG
    #[arg(long, global = true, default_value = "info", env = "FAIRTIER_LOG")]
    log: LevelFilter,
    #[command(subcommand)]
    command: DeviceCommand,
}

/// `fairtier board`.
#[derive(clap::Args, Debug)]
#[command(after_help = examples::BOARD)]
pub struct Board {
    /// off, error, warn, info, debug or trace; also from FAIRTIER_LOG
    #[arg(long, global = true, default_value = "info", env = "FAIRTIER_LOG")]
    log: LevelFilter,
    #[command(subcommand)]
    command: BoardCommand,
}

#[derive(Subcommand, Debug)]
enum DeviceCommand {
    /// Take part in rounds until the run is over; reconnects after a lost link
    #[command(after_help = examples::RUN)]
    Run(Box<RunArgs>),
    /// Carry serial devices to the aggregator
    #[command(after_help = examples::BRIDGE)]
    Bridge(boards::BridgeArgs),
    /// Trade a token of `fairtier gateway token` for an identity; the key is generated here and never leaves this machine
    #[command(after_help = examples::ENROLL)]
    Enroll {
        /// Address of the gateway; several of one fleet as HOST:PORT,HOST:PORT
        #[arg(long, default_value = "127.0.0.1:4433")]
        server: String,
        /// Token that `fairtier gateway token` printed; also from FAIRTIER_TOKEN, which other users cannot see
        #[arg(long, env = "FAIRTIER_TOKEN", hide_env_values = true)]
        token: Token,
        /// Where to put NAME.pem
        #[arg(long, default_value = ".")]
        out: PathBuf,
        #[arg(long, default_value = "table")]
        format: Format,
    },
    /// Replace an identity by one with a new key and certificate
    #[command(after_help = examples::RENEW)]
    Renew {
        /// Address of the gateway; several of one fleet as HOST:PORT,HOST:PORT
        #[arg(long, default_value = "127.0.0.1:4433")]
        server: String,
        /// File that holds the identity; it is replaced
        #[arg(long)]
        identity: PathBuf,
        #[arg(long, default_value = "table")]
        format: Format,
    },
    /// Predict with an ONNX model; labels are not needed
    #[cfg(feature = "predict")]
    #[command(after_help = examples::PREDICT)]
    Predict(Box<predict::PredictArgs>),
}

#[derive(Subcommand, Debug)]
enum BoardCommand {
    /// Put the firmware onto a board, or start an emulated one
    #[command(after_help = examples::FLASH)]
    Flash(boards::FlashArgs),
    /// Print the status of a board
    #[command(after_help = examples::MONITOR)]
    Monitor(boards::MonitorArgs),
    /// Give a board its samples over the serial line
    #[command(after_help = examples::PROVISION)]
    Provision(boards::ProvisionArgs),
    /// Ask a board what the model of the last round says of samples
    #[command(after_help = examples::ASK)]
    Predict(ask::AskArgs),
    /// Write a board's samples as a file for its flash
    #[command(after_help = examples::SHARD)]
    Shard(boards::ShardArgs),
    /// Print the flash, RAM and instructions that emulated boards need, measured in QEMU
    #[command(after_help = figures::EXAMPLES)]
    Figures(figures::FiguresArgs),
}

#[derive(clap::Args, Debug)]
struct RunArgs {
    /// Address of the gateway; several of one fleet as HOST:PORT,HOST:PORT
    #[arg(long, default_value = "127.0.0.1:4433")]
    server: String,
    /// Identity file that `fairtier gateway enroll` wrote for this device
    #[arg(long)]
    identity: PathBuf,
    /// Name of the device, if it differs from that of the identity file
    #[arg(long)]
    device: Option<DeviceId>,
    #[command(flatten)]
    data: DataArgs,
    /// CSV file with validation samples, in the columns of the others; without it, every fifth training sample is kept for validation
    /// in rounds that ask for it
    #[arg(long)]
    validation_csv: Option<PathBuf>,
    #[command(flatten)]
    budget: BudgetArgs,
    /// fast (matrixmultiply) or portable (the arithmetic of boards)
    #[arg(long, default_value = "fast")]
    backend: BackendName,
    /// Save the device's sub-model as ONNX to this file, readable by its owner only (0600)
    #[arg(long)]
    save_model: Option<PathBuf>,
    /// Also save it every N rounds; 0 saves it only at the end
    #[arg(long, default_value_t = 0, requires = "save_model")]
    save_every: u32,
    /// Seconds without a link after which the device gives up; without this option, never
    #[arg(long)]
    give_up_after: Option<u64>,
    /// Idle timeout of a link in seconds, after which the device reconnects; values above 60 have no effect
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    silence: u64,
    /// Seconds over which the gateway must answer "not enrolled" (E30), at least five times, before the device exits
    #[arg(long, default_value_t = LEAVE_AFTER.as_secs())]
    leave_after: u64,
    #[command(flatten)]
    privacy: PrivacyArgs,
    /// Format of the final summary
    #[arg(long, default_value = "table")]
    format: Format,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
enum Format {
    Table,
    Json,
}

#[derive(Copy, Clone, Debug, ValueEnum)]
enum BackendName {
    Fast,
    Portable,
}

impl Device {
    /// Runs the command.
    pub fn run(self) -> Result<()> {
        start_log(self.log);
        match self.command {
            DeviceCommand::Run(args) => run(&args),
            DeviceCommand::Bridge(args) => boards::bridge(&args),
            DeviceCommand::Enroll { server, token, out, format } => {
                let path = out.join(format!("{}.pem", token.device));
                let file = PrivateFile::create(&path)?;
                let bundle =
                    ask_each(&server, token.device.as_str(), |address| enrol::enrol(address, &token))?;
                file.commit(&bundle)?;
                say(
                    format,
                    &format!("{}\n", path.display()),
                    &json!({ "device": token.device, "file": path }),
                )
            }
            DeviceCommand::Renew { server, identity, format } => {
                let (present, file) = (Identity::load(&identity)?, PrivateFile::create(&identity)?);
                let name = present.name().unwrap_or_default();
                file.commit(&ask_each(&server, name, |address| enrol::renew(address, &present))?)?;
                say(format, &format!("{}\n", identity.display()), &json!({ "file": identity }))
            }
            #[cfg(feature = "predict")]
            DeviceCommand::Predict(args) => predict::predict(&args),
        }
    }
}

impl Board {
    /// Runs the command.
    pub fn run(self) -> Result<()> {
        start_log(self.log);
        match self.command {
            BoardCommand::Flash(args) => boards::flash(&args),
            BoardCommand::Monitor(args) => boards::monitor(&args),
            BoardCommand::Provision(args) => boards::provision(&args),
            BoardCommand::Predict(args) => ask::predict(&args),
            BoardCommand::Shard(args) => boards::shard(&args),
            BoardCommand::Figures(args) => figures::figures(&args),
        }
    }
}

/// Prints the text, or the same content as one line of JSON.
fn say(format: Format, text: &str, json: &Value) -> Result<()> {
    match format {
        Format::Table => print(text)?,
        Format::Json => print(&format!("{json}\n"))?,
    }
    Ok(())
}

fn start_log(level: LevelFilter) {
    tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).with_target(false).init();
}

/// Another gateway may have an answer.
fn is_passing(error: &EnrolError) -> bool {
    use EnrolError::{Link, Refused, Socket};
    matches!(error, Link(_) | Socket(_) | Refused(Code::Busy | Code::NotReady))
}

/// Asks one gateway after another for an identity, until one answers.
fn ask_each<E>(server: &str, name: &str, ask: impl Fn(SocketAddr) -> E) -> Result<String>
where
    E: Future<Output = Result<String, EnrolError>>,
{
    let order = resolve(server)?.order_of(name);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        for (number, &address) in order.iter().enumerate() {
            match ask(address).await {
                Err(error) if is_passing(&error) && number + 1 < order.len() => {
                    tracing::warn!("{address}: {error}; trying {}", order[number + 1]);
                }
                answer => return Ok(answer?),
            }
        }
        bail!("--server {server}: no address")
    })
}

fn run(args: &RunArgs) -> Result<()> {
    loop {
        let ended = run_with(args, agreed::schema(args)?.as_ref());
        let other = |error: &anyhow::Error| matches!(error.downcast_ref(), Some(ClientError::OtherSchema));
        if !args.data.asks_gateway() || !ended.as_ref().is_err_and(other) {
            return ended;
        }
        tracing::info!("the run reads files by another schema; samples are read again");
    }
}

/// Takes part with samples that are read by this schema.
fn run_with(args: &RunArgs, schema: Option<&Schema>) -> Result<()> {
    let files: Vec<PathBuf> = args.data.files().into_iter().chain(args.validation_csv.clone()).collect();
    let read_by = match schema {
        Some(schema) => ReadBy::Schema(schema),
        None if files.is_empty() => ReadBy::Unknown,
        None => ReadBy::NoSchema,
    };
    let samples = WatchedFiles::load(files, || shard(args, schema))?.read_by(read_by);
    let device = device_name(args)?;
    let identity = Identity::load(&args.identity)?;
    let privacy = args.privacy.beside(&args.identity)?;
    let client = Client {
        gateways: resolve(&args.server)?,
        identity,
        profile: Profile { device, budget: args.budget.budget(), data: samples.shard().summary(), privacy },
        spent: privacy.most().map(|_| spent_file(&args.identity)),
        save_model: args.save_model.clone().map(|path| SaveModel { path, every: args.save_every }),
        give_up_after: args.give_up_after.map(Duration::from_secs),
        silence: Duration::from_secs(args.silence),
        leave_after: Duration::from_secs(args.leave_after),
    };
    let (mut fast, mut portable) = (Fast::new(), Portable::plain());
    let backend: &mut dyn Backend<f32> = match args.backend {
        BackendName::Fast => &mut fast,
        BackendName::Portable => &mut portable,
    };
    // The link has its own thread, because during a long batch the device would otherwise seem to be gone.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let end = runtime.block_on(async {
        let stop = stop_signal()?;
        client.run(samples, backend, stop, report).await.map_err(anyhow::Error::from)
    })?;
    let how = if end.finished { "run is over" } else { "stopped before its end" };
    let json = json!({ "rounds": end.rounds, "finished": end.finished });
    say(args.format, &format!("{} rounds, {how}\n", end.rounds), &json)
}

/// The samples as the files are now.
fn shard(args: &RunArgs, schema: Option<&Schema>) -> Result<VecShard> {
    let shard = args.data.shard_by(schema)?;
    let Some(file) = &args.validation_csv else { return Ok(shard) };
    let wrong = || format!("--validation-csv {}", file.display());
    shard.with_validation(args.data.csv_by(file, schema)?).with_context(wrong)
}

fn device_name(args: &RunArgs) -> Result<DeviceId> {
    if let Some(device) = &args.device {
        return Ok(device.clone());
    }
    let unnamed = "the file name of --identity is not a device name; give the name with --device";
    let stem = args.identity.file_stem().and_then(|stem| stem.to_str()).context(unnamed)?;
    stem.parse().context(unnamed)
}

fn report(event: &Event) {
    if let Event::Answered { round, scalars, refused: None } = event {
        let score = |name: &str, score: Option<Score>| {
            score.map_or(String::new(), |score| match scalars.errors {
                Some(_) => format!(", {name} loss {:.4}", score.loss),
                None => format!(", {name} loss {:.4}, accuracy {:.4}", score.loss, score.accuracy()),
            })
        };
        let errors = scalars.errors.map_or(String::new(), |errors| {
            let Errors { absolute, squared, mean, variance } = errors;
            let mut sums = ErrorSums::default();
            sums.add(1.0, absolute, squared, (mean, variance));
            let r2 = sums.r2().map_or("-".to_owned(), |r2| format!("{r2:.4}"));
            format!(", MAE {absolute:.4}, R2 {r2}")
        });
        let (test, personal) = (score("test", scalars.test), score("personal", scalars.personal));
        let gap = scalars.gap.map_or(String::new(), |gap| format!(", gap {gap:+.4}"));
        let validation =
            scalars.validation.map_or(String::new(), |found| format!(", validation loss {:.4}", found.loss));
        tracing::info!(
            "round {round}: loss {:.4}{test}{errors}{validation}{personal}{gap}",
            scalars.loss_before
        );
    }
}

fn resolve(server: &str) -> Result<GatewayAddresses> {
    GatewayAddresses::resolve(server).with_context(|| format!("--server {server}"))
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
