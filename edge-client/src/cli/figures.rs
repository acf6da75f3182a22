//! `fairtier board figures`.

use std::path::PathBuf;

use anyhow::Result;
use serde_json::Value;

use super::{Format, say};
use crate::host::{board::Board, footprint::Footprint};

#[derive(clap::Args, Debug)]
pub(super) struct FiguresArgs {
    /// Kinds of emulated boards, such as microbit [default: all]
    boards: Vec<String>,
    /// Directory in which `scripts/firmware` has put the images
    #[arg(long, value_name = "DIR", default_value = "target/firmware")]
    images: PathBuf,
    #[arg(long, default_value = "table")]
    format: Format,
}

/// What `fairtier board figures --help` shows after the options.
pub(super) const EXAMPLES: &str = "\
Examples:
  fairtier board figures                    all emulated boards; `scripts/firmware` builds their images
  fairtier board figures microbit --format json

Needs qemu-system-arm (`apt install qemu-system-arm`).";

pub(super) fn figures(args: &FiguresArgs) -> Result<()> {
    let boards = if args.boards.is_empty() {
        Board::all().into_iter().filter(|board| board.machine.is_some()).collect()
    } else {
        args.boards.iter().map(|name| Board::by_name(name)).collect::<Result<Vec<_>, _>>()?
    };
    let footprints =
        boards.iter().map(|board| Footprint::measure(board, &args.images)).collect::<Result<Vec<_>, _>>()?;
    let json: Vec<Value> = footprints.iter().map(Footprint::json).collect();
    say(args.format, &Footprint::table(&footprints), &json.into())
}
