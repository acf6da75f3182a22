//! `fairtier gateway run`: several runs of one fleet, one after another.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Subcommand;
use serde_json::{Value, json};

use super::{Format, examples, print, say};
use crate::{
    config::Config,
    runs::{self, RunName},
    status,
};

#[derive(Subcommand, Debug)]
pub(super) enum RunCommand {
    /// Begin another run: it gets a copy of the configuration, and is the active one from now on
    ///
    /// The files of the present run stay. Stop `serve` first.
    #[command(after_help = examples::RUN_NEW)]
    New {
        #[arg(long, default_value = "gateway")]
        dir: PathBuf,
        #[arg(long, default_value = "table")]
        format: Format,
        /// Up to 32 of a-z A-Z 0-9 . _ -
        #[arg(allow_hyphen_values = true)]
        name: RunName,
    },
    /// List the runs; a star marks the active one
    #[command(after_help = examples::RUN_LIST)]
    List {
        #[arg(long, default_value = "gateway")]
        dir: PathBuf,
        #[arg(long, default_value = "table")]
        format: Format,
    },
    /// Make another run the active one: the next `serve` continues it. Stop `serve` first
    #[command(after_help = examples::RUN_SWITCH)]
    Switch {
        #[arg(long, default_value = "gateway")]
        dir: PathBuf,
        #[arg(long, default_value = "table")]
        format: Format,
        /// As `list` shows it; the run in the directory itself is `default`
        #[arg(allow_hyphen_values = true)]
        name: RunName,
    },
}

impl RunCommand {
    pub fn run(self) -> Result<()> {
        match self {
            Self::New { dir, format, name } => new(&dir, &name, format),
            Self::List { dir, format } => list(&dir, format),
            Self::Switch { dir, format, name } => switch(&dir, &name, format),
        }
    }
}

fn new(dir: &Path, name: &RunName, format: Format) -> Result<()> {
    expect_gateway(dir)?;
    let own = runs::create(dir, name)?;
    let config = own.join("fairtier.toml");
    let next =
        format!("next: edit {}, then `fairtier gateway serve --dir {}`", config.display(), dir.display());
    let json = json!({ "run": name.to_string(), "dir": own, "config": config });
    say(format, &format!("run {name} is the active one\n{next}\n"), &json)
}

fn switch(dir: &Path, name: &RunName, format: Format) -> Result<()> {
    expect_gateway(dir)?;
    runs::switch(dir, name)?;
    let next = format!("next: `fairtier gateway serve --dir {}` continues it", dir.display());
    say(format, &format!("run {name} is the active one\n{next}\n"), &json!({ "run": name.to_string() }))
}

fn list(dir: &Path, format: Format) -> Result<()> {
    expect_gateway(dir)?;
    // Shown even if the active one is gone.
    let active = runs::active(dir).ok();
    let row = |name: RunName| {
        let own = name.dir(dir);
        let mut last = status::last(&own).unwrap_or_default();
        let config = Config::load(&own.join("fairtier.toml")).ok();
        let field = |key: &str, config: Option<Value>| match last[key].clone() {
            Value::Null => config.unwrap_or_default(),
            value => value,
        };
        let rounds = field("rounds", config.as_ref().map(|config| config.run.rounds.into()));
        let strategy = field("strategy", config.as_ref().map(|config| config.strategy.name.clone().into()));
        json!({
            "run": name.to_string(), "active": active.as_ref() == Some(&name), "strategy": strategy,
            "committed": last["committed"].as_u64().unwrap_or(0), "rounds": rounds,
            "finished": last["finished"] == true, "best": last["best"].take(), "dir": own,
        })
    };
    let rows: Vec<Value> = runs::all(dir)?.into_iter().map(row).collect();
    if format == Format::Json {
        return Ok(print(&format!("{}\n", Value::from(rows)))?);
    }
    let mut text = format!("  {:<32} {:>9} {:>7} {:<10} strategy\n", "run", "committed", "rounds", "state");
    for row in rows {
        let star = if row["active"] == true { '*' } else { ' ' };
        let state = match (row["finished"] == true, row["committed"].as_u64()) {
            (true, _) => "finished",
            (false, Some(0)) => "not begun",
            _ => "begun",
        };
        let word = |key: &str| row[key].as_str().unwrap_or("-").to_owned();
        let number = |key: &str| row[key].as_u64().map_or("-".to_owned(), |number| number.to_string());
        text += &format!(
            "{star} {:<32} {:>9} {:>7} {state:<10} {}\n",
            word("run"),
            number("committed"),
            number("rounds"),
            word("strategy")
        );
    }
    Ok(print(&text)?)
}

fn expect_gateway(dir: &Path) -> Result<()> {
    if dir.join("fairtier.toml").exists() { Ok(()) } else { super::load(dir).map(drop) }
}
