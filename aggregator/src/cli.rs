//! Commands of the gateway.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use clap::{Subcommand, ValueEnum};
use common::{
    Code, DeviceId,
    output::{COLUMNS, print, wrap},
};
use strategies::{registry::Registry, strategy::Needs};

use crate::{
    ca::{Authority, Secrecy, write_file},
    config::{self, Config},
    export,
    run::open_model,
};

mod combine;
#[cfg(feature = "dashboard")]
mod dashboard;
mod examples;
mod fairness;
mod grant;
mod history;
mod members;
mod output;
mod replay;
mod serve;
mod status;
mod store;

pub use crate::remedies::remedy;
use grant::GrantArgs;
use serve::ServeArgs;

/// `fairtier gateway`.
#[derive(clap::Args, Debug)]
#[command(after_help = examples::ALL)]
pub struct Gateway {
    /// error, warn, info, debug or trace; also from FAIRTIER_LOG
    #[arg(long, global = true, default_value = "info", env = "FAIRTIER_LOG")]
    log: String,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Create a directory with a documented configuration and the fleet's certificates
    #[command(after_help = examples::INIT)]
    Init {
        #[arg(default_value = "gateway")]
        dir: PathBuf,
        #[arg(long, default_value = "table")]
        format: Format,
    },
    /// Make devices members of the fleet and write the identity file each of them needs
    #[command(after_help = examples::ENROLL)]
    Enroll {
        #[arg(long, default_value = "gateway")]
        dir: PathBuf,
        /// Where to put NAME.pem
        #[arg(long, default_value = ".")]
        out: PathBuf,
        /// For boards behind a bridge: a key instead of a certificate, as NAME.board for their flash
        #[arg(long)]
        serial: bool,
        /// Also enrol names that are enrolled or were revoked; their present credentials become invalid
        #[arg(long)]
        replace: bool,
        /// Also overwrite NAME.pem if it may be the identity of another gateway
        #[arg(long)]
        force: bool,
        #[arg(long, default_value = "table")]
        format: Format,
        #[command(flatten)]
        grant: GrantArgs,
        /// Names of devices: up to 32 of a-z A-Z 0-9 . _ -
        #[arg(required = true)]
        devices: Vec<DeviceId>,
    },
    /// Print a token with which a device can enrol itself, once
    #[command(after_help = examples::TOKEN)]
    Token {
        #[arg(long, default_value = "gateway")]
        dir: PathBuf,
        /// Hours for which it is valid
        #[arg(long, default_value_t = 24)]
        hours: u32,
        /// Also for a name that is enrolled or was revoked; once the token is used, its present credentials are invalid
        #[arg(long)]
        replace: bool,
        #[arg(long, default_value = "table")]
        format: Format,
        #[command(flatten)]
        grant: GrantArgs,
        device: DeviceId,
    },
    /// Revoke devices: their certificates, board keys and open tokens become invalid, their connections are closed, and the run
    /// no longer waits for them
    #[command(after_help = examples::REVOKE)]
    Revoke {
        #[arg(long, default_value = "gateway")]
        dir: PathBuf,
        #[arg(long, default_value = "table")]
        format: Format,
        #[arg(required = true)]
        devices: Vec<DeviceId>,
    },
    /// List members, expired members and revoked devices
    ///
    /// `restored`: revoked, but its file is in identity/ again, as after restoring a backup. It stays refused.
    #[command(after_help = examples::MEMBERS)]
    Members {
        #[arg(long, default_value = "gateway")]
        dir: PathBuf,
        #[arg(long, default_value = "table")]
        format: Format,
    },
    /// Give the server a new key and certificate, for example if its key was stolen
    ///
    /// A running server uses it within seconds, and open connections stay open. A device refuses the earlier certificate once
    /// it has seen the new one. Restart the server to make all devices reconnect at once.
    #[command(after_help = examples::ROTATE)]
    RotateServerKey {
        #[arg(long, default_value = "gateway")]
        dir: PathBuf,
        #[arg(long, default_value = "table")]
        format: Format,
    },
    /// Serve the fleet: begin a run, or continue the one in the directory
    ///
    /// Ctrl-C or SIGTERM stop it cleanly, and no acknowledged update is lost if it is killed. If the disk is full or fails, it
    /// reports the error and exits with code 1. A store of an older version is migrated first. If a round takes longer than
    /// usual, the log names the devices it waits for.
    #[command(after_help = examples::SERVE)]
    Serve(ServeArgs),
    /// Continue the run in the directory; never begins a new one
    ///
    /// For service files and after a failure: with a wrong --dir, it fails instead of beginning a new run. Acknowledged updates
    /// are not requested again, and devices reconnect by themselves.
    #[command(after_help = examples::RESUME)]
    Resume(ServeArgs),
    /// Show the state of the run, the devices it waits for, and the last round tier by tier
    ///
    /// Also works while `serve` runs. Shows whether a server runs and, if a round takes longer than usual, the devices it waits
    /// for. Columns: asked, delivered, late (delivered after the deadline), silent (asked, no answer), refused, held (limited
    /// by the guard), and mean, variance, worst and best tenth of the losses.
    #[command(after_help = examples::STATUS)]
    Status {
        #[arg(long, default_value = "gateway")]
        dir: PathBuf,
        #[arg(long, default_value = "table")]
        format: Format,
    },
    /// Show all rounds: one line each
    ///
    /// Reads store/history.jsonl and the files before it, also while `serve` runs. After a crash the last round may be missing
    /// until the next start. Damaged lines are reported and left out.
    #[command(after_help = examples::HISTORY)]
    History {
        #[arg(long, default_value = "gateway")]
        dir: PathBuf,
        #[arg(long, default_value = "table")]
        format: history::Format,
        /// Only this many of the last rounds
        #[arg(long, value_name = "ROUNDS")]
        last: Option<usize>,
    },
    /// Show where the fairness target stands, one line per knob, or change it
    ///
    /// A line has the measured disparity, the target, the parameter that is driven, and the status. A changed target is written
    /// to fairtier.toml; everything else in the file stays. A running server takes it up before its next round.
    #[command(after_help = examples::FAIRNESS)]
    Fairness {
        #[arg(long, default_value = "gateway")]
        dir: PathBuf,
        /// The new target; above 0
        #[arg(long, value_name = "DISPARITY", value_parser = fairness::parse_target)]
        target: Option<f64>,
        #[arg(long, default_value = "table")]
        format: Format,
    },
    /// Check the whole store and list everything that is damaged; changes nothing
    ///
    /// Writes to no disk, so it also works if the disk is full or read-only. Stop the server first.
    #[command(after_help = examples::VERIFY)]
    Verify {
        #[arg(long, default_value = "gateway")]
        dir: PathBuf,
        #[arg(long, default_value = "table")]
        format: Format,
    },
    /// Go back to the model after an earlier round, if it is kept; `serve` then continues from there
    #[command(after_help = examples::ROLLBACK)]
    Rollback {
        #[arg(long, default_value = "gateway")]
        dir: PathBuf,
        /// The round whose result becomes the present model; 0 is the initial model
        #[arg(long)]
        to: u32,
        #[arg(long, default_value = "table")]
        format: Format,
    },
    /// Show a run to browsers without serving it, and manage the accounts of its dashboard
    ///
    /// Only reads, also while `serve` runs. A running gateway has its own dashboard: `serve --dashboard 127.0.0.1:8080`.
    #[cfg(feature = "dashboard")]
    #[command(after_help = examples::DASHBOARD)]
    Dashboard(dashboard::DashboardArgs),
    /// Write the present model as ONNX, whole and for every tier
    #[command(after_help = examples::EXPORT)]
    Export {
        #[arg(long, default_value = "gateway")]
        dir: PathBuf,
        #[arg(long)]
        out: PathBuf,
        #[arg(long, default_value = "table")]
        format: Format,
    },
}

/// `fairtier round`.
#[derive(Subcommand, Debug)]
pub enum Round {
    /// Compute a round from its file, with any strategy
    #[command(after_help = examples::COMBINE)]
    Combine(combine::Args),
}

impl Round {
    pub fn run(self, registry: &Registry) -> Result<()> {
        match self {
            Self::Combine(args) => combine::combine(registry, args),
        }
    }
}

/// `fairtier fairness`.
#[derive(Subcommand, Debug)]
pub enum FairnessTools {
    /// Compute what a fairness target would do over recorded sums: disparity, knob, status and certificate of every round
    ///
    /// FILE is a gateway's store/history.jsonl, what `gateway history --format json` prints, or sums per tier: n devices with a
    /// signal x of `size` enrolled ones, s1 = sum x, s2 = sum x^2, sv = sum of the squared standard errors of x. The losses are
    /// those of the recorded run: another target shows what is measured and when the knob moves, not what it achieves.
    #[command(after_help = examples::REPLAY)]
    Replay(replay::Args),
}

impl FairnessTools {
    pub fn run(&self, registry: &Registry) -> Result<()> {
        match self {
            Self::Replay(args) => replay::replay(registry, args),
        }
    }
}

/// `fairtier codes`.
#[derive(clap::Args, Debug)]
#[command(after_help = examples::CODES)]
pub struct Codes {
    /// Codes to explain, as in E33; without any, the whole table
    #[arg(value_name = "CODE", value_parser = crate::remedies::parse)]
    codes: Vec<Code>,
    #[arg(long, default_value = "table")]
    format: Format,
}

impl Codes {
    pub fn run(&self) -> Result<()> {
        codes(&self.codes, self.format)
    }
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
enum Format {
    Table,
    Json,
}

impl Gateway {
    pub fn run(self, registry: &Registry) -> Result<()> {
        start_log(&self.log)?;
        match self.command {
            Command::Init { dir, format } => init(&dir, format),
            Command::Enroll { dir, out, serial, replace, force, format, grant, devices } => members::enroll(
                &dir,
                &out,
                serial,
                members::Overwrite { replace, force },
                &grant,
                &devices,
                format,
            ),
            Command::Token { dir, hours, replace, format, grant, device } => {
                members::token(&dir, hours, replace, &grant, &device, format)
            }
            Command::Members { dir, format } => members::list(&dir, format),
            Command::RotateServerKey { dir, format } => members::rotate_server_key(&dir, format),
            Command::Revoke { dir, devices, format } => members::revoke(&dir, &devices, format),
            Command::Serve(args) => serve::serve(registry, &args),
            Command::Resume(args) => {
                store::expect_run(&args.dir)?;
                serve::serve(registry, &args)
            }
            Command::Status { dir, format } => status::status(&dir, format),
            Command::History { dir, format, last } => history::history(&dir, format, last),
            Command::Fairness { dir, target, format } => fairness::fairness(registry, &dir, target, format),
            Command::Verify { dir, format } => store::verify(&dir, format),
            Command::Rollback { dir, to, format } => store::rollback(&dir, to, format),
            #[cfg(feature = "dashboard")]
            Command::Dashboard(args) => dashboard::dashboard(registry, args),
            Command::Export { dir, out, format } => export(&dir, &out, format),
        }
    }
}

fn start_log(level: &str) -> Result<()> {
    let filter = tracing_subscriber::EnvFilter::try_new(level).context("--log")?;
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false).init();
    Ok(())
}

/// Prints a text for people, or the same as JSON on one line.
fn say(format: Format, text: &str, json: &serde_json::Value) -> Result<()> {
    match format {
        Format::Table => print(text)?,
        Format::Json => print(&format!("{json}\n"))?,
    }
    Ok(())
}

fn init(dir: &Path, format: Format) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    Authority::create(dir)?;
    let config = dir.join("fairtier.toml");
    if !config.exists() {
        write_file(&config, config::DEFAULT, Secrecy::Public)
            .with_context(|| config.display().to_string())?;
    }
    let (config, dir) = (config.display(), dir.display());
    let next = format!("next: edit {config}, enrol devices with `fairtier gateway enroll --dir {dir} NAME`");
    say(
        format,
        &format!("created {dir}\n{next}\n"),
        &serde_json::json!({ "dir": dir.to_string(), "config": config.to_string() }),
    )
}

fn load(dir: &Path) -> Result<Config> {
    let path = dir.join("fairtier.toml");
    if !path.exists() {
        bail!("{} is missing; create it with `fairtier gateway init {}`", path.display(), dir.display());
    }
    Config::load(&path).with_context(|| format!("{}: {}", Code::BadConfig, path.display()))
}

fn export(dir: &Path, out: &Path, format: Format) -> Result<()> {
    let config = load(dir)?;
    let (graph, parameters) = export::read_model(dir)?;
    let (model, _) = open_model(&config, Needs::default())?;
    fs::create_dir_all(out).with_context(|| out.display().to_string())?;
    let mut rows = vec![];
    for (tier, mask) in model.masks.iter().enumerate() {
        let name = out.join(format!("tier-{tier}.onnx"));
        let (slice, bytes) = export::slice(&graph, mask, &parameters)?;
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
        return Ok(print(&format!("{}\n", serde_json::Value::from(rows)))?);
    }
    let mut text = format!("{:>5} {:>11} {:>10}  file\n", "tier", "parameters", "bytes");
    for (tier, parameters, bytes, file) in rows {
        text += &format!("{tier:>5} {parameters:>11} {bytes:>10}  {file}\n");
    }
    Ok(print(&text)?)
}

fn codes(named: &[Code], format: Format) -> Result<()> {
    let shown = if named.is_empty() { Code::ALL } else { named };
    let text = match format {
        Format::Json => {
            let row = |code: &Code| serde_json::json!({ "code": code.number(), "name": code.name(), "text": code.text(), "remedy": remedy(*code) });
            serde_json::Value::from_iter(shown.iter().map(row)).to_string() + "\n"
        }
        Format::Table if named.is_empty() => {
            let row = |code: &Code| {
                let head = format!("E{:02}  {:<18} ", code.number(), code.name());
                format!("{head}{}\n", wrap(code.text(), head.len(), COLUMNS))
            };
            shown.iter().map(row).collect()
        }
        Format::Table => shown.iter().map(|code| format!("{code}\n{}\n", remedy(*code))).collect(),
    };
    Ok(print(&text)?)
}
