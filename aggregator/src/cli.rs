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
use strategies::registry::Registry;

use crate::{
    ca::{Authority, Secrecy, write_file},
    config::{self, Config},
};

mod backup;
mod check;
mod cluster;
mod combine;
#[cfg(feature = "dashboard")]
mod dashboard;
mod examples;
mod export;
mod fairness;
mod follow;
mod grant;
mod history;
mod log;
mod members;
#[cfg(feature = "dashboard")]
mod monitor;
#[cfg(not(feature = "dashboard"))]
#[path = "cli/no_monitor.rs"]
mod monitor;
mod output;
mod place;
mod reconfigure;
mod replay;
mod run;
mod serve;
#[cfg(feature = "cluster")]
mod standby;
mod status;
mod store;

pub use crate::remedies::remedy;
use check::CheckArgs;
use export::Which;
use grant::GrantArgs;
use log::LogArgs;
use place::Place;
use serve::ServeArgs;

/// `fairtier gateway`.
#[derive(clap::Args, Debug)]
#[command(after_help = examples::ALL)]
pub struct Gateway {
    #[command(flatten)]
    log: LogArgs,
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
    /// Check configuration, model, certificates, disk and ports, and print what each tier costs; changes nothing
    ///
    /// Each problem has its remedy. Exits with code 1 if the gateway would not start. Bytes are those of one training exchange;
    /// RAM is the arena in which a device trains, and its program needs more. Also works while `serve` runs.
    #[command(after_help = examples::CHECK)]
    Check(CheckArgs),
    /// Print the JSON schema of fairtier.toml, for editors and for checks of generated files
    #[command(after_help = examples::SCHEMA)]
    Schema,
    /// Write everything that the gateway needs to go on into one file, also while `serve` runs
    ///
    /// The file holds the keys of the fleet and updates of the open round, and only its owner can read it. Round files (rounds/)
    /// and model.onnx are left out. A running server writes it from a snapshot: no round waits for it.
    #[command(after_help = examples::BACKUP)]
    Backup {
        #[arg(long, default_value = "gateway")]
        dir: PathBuf,
        /// Replaced as a whole if it exists
        file: PathBuf,
        #[arg(long, default_value = "table")]
        format: Format,
    },
    /// Restore a backup into a new directory; every checksum is verified first
    ///
    /// The restored gateway has the same authority: devices connect to it at the same address. Two gateways of one fleet must
    /// not run at once. Revocations after the backup are not in it.
    #[command(after_help = examples::RESTORE)]
    Restore {
        file: PathBuf,
        /// Must not exist, or be empty
        #[arg(long)]
        dir: PathBuf,
        #[arg(long, default_value = "table")]
        format: Format,
    },
    /// Serve the fleet: begin a run, or continue the one in the directory
    ///
    /// Ctrl-C or SIGTERM stop it cleanly, and no acknowledged update is lost if it is killed. If the disk is full or fails, it
    /// reports the error and exits with code 1. A store of an older version is migrated first. If a round takes longer than
    /// usual, the log names the devices it waits for. SIGHUP makes it read fairtier.toml again: the log names every changed key,
    /// and says which of them need a restart. A service manager is told of it over NOTIFY_SOCKET.
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
    /// for. Columns: asked, delivered, late (delivered after the deadline), silent (asked, no answer), refused and held (limited
    /// by the guard). Then mean, variance, worst and best tenth of the losses.
    #[command(after_help = examples::STATUS)]
    Status {
        #[arg(long, default_value = "gateway")]
        dir: PathBuf,
        #[arg(long, default_value = "table")]
        format: Format,
        /// Print every round as it is finished, until the run ends or Ctrl-C; with --format json, one object per line
        ///
        /// Also works while the server is started again.
        #[arg(long)]
        follow: bool,
    },
    /// Show all rounds: one line each
    ///
    /// A line between two rounds names the keys of the configuration that have changed. The last lines name the best model and,
    /// if the run has stopped early, the reason.
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
    /// Write a model as ONNX for every tier: the present one, the best one, or that of a round that is kept
    #[command(after_help = examples::EXPORT)]
    Export {
        #[arg(long, default_value = "gateway")]
        dir: PathBuf,
        #[arg(long)]
        out: PathBuf,
        /// The round whose result is exported, `best` or `latest`
        #[arg(long, default_value = "latest")]
        round: Which,
        #[arg(long, default_value = "table")]
        format: Format,
    },
    /// Begin, list and choose runs: one fleet, several runs one after another
    ///
    /// Identities, tokens and revocations belong to the fleet; configuration, rounds and models to a run. All other commands mean
    /// the active run.
    #[command(subcommand, after_help = examples::RUN)]
    Run(run::RunCommand),
    /// Several gateways of one fleet, of which one serves and the others take over when it ends
    ///
    /// The run is in PostgreSQL, updates and models in a directory that the gateways share: table [cluster] of fairtier.toml.
    /// Needs a program that is built with the feature `cluster`.
    #[command(subcommand, after_help = examples::CLUSTER)]
    Cluster(cluster::ClusterCommand),
}

/// `fairtier round`.
#[derive(Subcommand, Debug)]
pub enum Round {
    /// Compute a round from its file, with any strategy
    #[command(after_help = examples::COMBINE)]
    Combine(combine::Args),
}

impl Round {
    /// Runs the command; fails if the round file cannot be read or the strategy cannot compute it.
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
    /// Runs the command; fails if the file has no sums that a target can be measured on.
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
    /// Prints the table; fails only if standard output cannot be written.
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
    /// Starts the log, then runs the command. `serve` and `resume` return when the server has stopped.
    pub fn run(self, registry: &Registry) -> Result<()> {
        let log = self.log.start()?;
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
            Command::Check(args) => check::run(registry, &args),
            Command::Schema => Ok(print(&config::schema_text()?)?),
            Command::Backup { dir, file, format } => backup::backup(&dir, &file, format),
            Command::Restore { file, dir, format } => backup::restore(&file, &dir, format),
            Command::Serve(args) => serve::serve(registry, &args, &log),
            Command::Resume(args) => {
                if !args.config()?.cluster.is_on() {
                    store::expect_run(&Place::of(&args.dir)?)?;
                }
                serve::serve(registry, &args, &log)
            }
            Command::Status { dir, format, follow: true } => follow::follow(&Place::of(&dir)?, format),
            Command::Status { dir, format, follow: false } => status::status(&Place::of(&dir)?, format),
            Command::History { dir, format, last } => history::history(&Place::of(&dir)?.run, format, last),
            Command::Fairness { dir, target, format } => {
                fairness::fairness(registry, &Place::of(&dir)?, target, format)
            }
            Command::Verify { dir, format } => {
                store::expect_alone(&dir)?;
                store::verify(&Place::of(&dir)?.run, format)
            }
            Command::Rollback { dir, to, format } => {
                store::expect_alone(&dir)?;
                store::rollback(&Place::of(&dir)?, to, format)
            }
            Command::Export { dir, out, round, format } => {
                export::export(&Place::of(&dir)?, round, &out, format)
            }
            Command::Run(command) => command.run(),
            Command::Cluster(command) => command.run(),
            #[cfg(feature = "dashboard")]
            Command::Dashboard(args) => dashboard::dashboard(registry, args),
        }
    }
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
