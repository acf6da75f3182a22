//! `fairtier gateway dashboard`: the pages of a run without a server, and accounts.

use std::{
    io::{self, BufRead, IsTerminal},
    net::SocketAddr,
    path::PathBuf,
};

use anyhow::{Context, Result, ensure};
use clap::Subcommand;
use rustix::termios::{self, LocalModes, OptionalActions};
use serde_json::{Value, json};
use strategies::Registry;

use super::{Format, examples, place::Place, print, say, serve::stop_signal};
use crate::http::{
    DashboardStart,
    access::{Accounts, Role},
    start,
};

/// Bytes of a password that are read.
const LONGEST: u64 = 1024;

#[derive(clap::Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct DashboardArgs {
    #[arg(long, default_value = "gateway")]
    dir: PathBuf,
    /// Other addresses than loopback need HTTPS and a login
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    #[command(subcommand)]
    command: Option<DashboardCommand>,
}

#[derive(Subcommand, Debug)]
enum DashboardCommand {
    /// Accounts of the dashboard
    #[command(subcommand, after_help = examples::DASHBOARD)]
    User(UserCommand),
}

#[derive(Subcommand, Debug)]
enum UserCommand {
    /// Add an account; the password is the first line of standard input, or asked for on a terminal
    #[command(after_help = examples::DASHBOARD)]
    Add {
        #[arg(long, default_value = "gateway")]
        dir: PathBuf,
        #[arg(long, value_enum, default_value = "read")]
        role: Role,
        #[arg(long, default_value = "table")]
        format: Format,
        name: String,
    },
    /// Remove an account; its sessions end at once
    #[command(after_help = examples::DASHBOARD)]
    Remove {
        #[arg(long, default_value = "gateway")]
        dir: PathBuf,
        #[arg(long, default_value = "table")]
        format: Format,
        name: String,
    },
    /// List accounts
    #[command(after_help = examples::DASHBOARD)]
    List {
        #[arg(long, default_value = "gateway")]
        dir: PathBuf,
        #[arg(long, default_value = "table")]
        format: Format,
    },
}

pub(super) fn dashboard(registry: &Registry, args: DashboardArgs) -> Result<()> {
    let DashboardArgs { dir, listen, command } = args;
    if let Some(DashboardCommand::User(command)) = command {
        return user(command);
    }
    let config = super::load(&Place::of(&dir)?.run)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let registry = registry.clone();
        let site = DashboardStart { listen, dir, config, registry, live: None, actions: false };
        let running = start(site).await?;
        print(&format!("dashboard on {}\n", running.url()))?;
        stop_signal()?.await;
        Ok(())
    })
}

fn user(command: UserCommand) -> Result<()> {
    match command {
        UserCommand::Add { dir, role, format, name } => {
            ensure!(
                Place::of(&dir)?.run.join("fairtier.toml").exists(),
                "{} is not a gateway's directory",
                dir.display()
            );
            Accounts::of(&dir).add(&name, role, &password()?)?;
            let text = format!("{name} can log in as {}\n", role.name());
            say(format, &text, &json!({ "name": name, "role": role.name() }))
        }
        UserCommand::Remove { dir, format, name } => {
            Accounts::of(&dir).remove(&name)?;
            say(format, &format!("{name} has no account any more\n"), &json!({ "removed": name }))
        }
        UserCommand::List { dir, format } => {
            let accounts = Accounts::of(&dir).list()?;
            let text: String = accounts
                .iter()
                .map(|account| format!("{:<32} {}\n", account.name, account.role.name()))
                .collect();
            let rows =
                accounts.iter().map(|account| json!({ "name": account.name, "role": account.role.name() }));
            let text = if text.is_empty() { "no accounts\n".to_owned() } else { text };
            say(format, &text, &Value::from_iter(rows))
        }
    }
}

/// The first line of standard input; on a terminal it is not shown, and asked for twice.
fn password() -> Result<String> {
    let input = io::stdin();
    if !input.is_terminal() {
        return read_line(input.lock());
    }
    let before = termios::tcgetattr(&input)?;
    let mut silent = before.clone();
    silent.local_modes.remove(LocalModes::ECHO);
    termios::tcsetattr(&input, OptionalActions::Flush, &silent)?;
    let read = || {
        eprint!("password: ");
        let first = read_line(input.lock())?;
        eprint!("\nagain: ");
        let second = read_line(input.lock())?;
        eprintln!();
        ensure!(first == second, "the two passwords differ; try again");
        Ok(first)
    };
    let given = read();
    termios::tcsetattr(&input, OptionalActions::Flush, &before)?;
    given
}

fn read_line(input: impl BufRead) -> Result<String> {
    let mut line = String::new();
    input.take(LONGEST).read_line(&mut line).context("standard input")?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}
