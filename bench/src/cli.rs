//! `fairtier bench`.

use anyhow::Result;
use clap::{Subcommand, ValueEnum};
use common::output::print;
use strategies::Registry;

mod attack;
#[expect(clippy::print_stdout, reason = "`bench load` reads the lines that `bench bare` prints")]
mod load;

/// `fairtier bench`.
#[derive(Subcommand, Debug)]
pub enum Bench {
    /// Loads a real gateway with many devices and measures it
    #[command(after_help = load::EXAMPLES)]
    Load(Box<load::LoadArgs>),
    /// Measures what the guard costs honest devices and how much damage it prevents
    #[command(after_help = attack::EXAMPLES)]
    Attack(Box<attack::AttackArgs>),
    /// Serves bare streams, as `bench load --reference` starts it
    #[command(hide = true)]
    Bare(load::BareArgs),
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Format {
    Table,
    Json,
}

impl Bench {
    /// Measures, then prints a table or JSON. With `--check` it fails if a bar is missed.
    pub fn run(&self, registry: &Registry) -> Result<()> {
        let text = match self {
            Self::Load(args) => load::run(args)?,
            Self::Attack(args) => attack::run(registry, args)?,
            Self::Bare(args) => load::bare(args)?,
        };
        Ok(print(&text)?)
    }
}
