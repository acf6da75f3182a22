//! `fairtier sim leaderboard`: the table of all strategies, and runs of what it lacks.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use strategies::Registry;

use super::CommandError;
use crate::{
    experiment::RunOptions,
    leaderboard::{Board, Fill, NAME, fill, page, read, registered},
    progress,
    results::write,
};

pub const EXAMPLES: &str = "\
Examples:
  fairtier sim leaderboard                                  the board of the kept results
  fairtier sim leaderboard --format json | jq '.ranks[0].rows[0]'
  fairtier sim leaderboard --run digits --minutes 30        run missing cells first, at the lowest priority
  fairtier sim leaderboard --out docs/leaderboard.md        write the page of the book

Cells that are kept are not run again. Other data sets than digits must be there: fairtier sim data list";

#[derive(Args, Debug)]
pub struct LeaderboardArgs {
    /// Directory of kept results
    #[arg(value_name = "DIR", default_value = "sim/results")]
    dir: PathBuf,
    /// Run what is missing of these data sets (digits, wisdm, har, adult, mnist), or of all, and keep it in DIR
    #[arg(long, value_name = "SET,..", value_delimiter = ',')]
    run: Vec<String>,
    /// Begin no cell after this time
    #[arg(long, value_name = "N", requires = "run")]
    minutes: Option<u32>,
    /// Number of training threads
    #[arg(long, value_name = "N", default_value_t = 1, requires = "run")]
    threads: usize,
    /// First place to look for data sets, before $FAIRTIER_DATA and ../shared/data
    #[arg(long = "data", value_name = "DIR", requires = "run")]
    data: Option<PathBuf>,
    /// Directory for results while they are run
    #[arg(long, value_name = "DIR", default_value = "results")]
    results: PathBuf,
    /// Output file; - prints to the terminal
    #[arg(long, value_name = "FILE", default_value = "-")]
    out: PathBuf,
    /// The page in Markdown, or every number as JSON
    #[arg(long, value_enum, default_value_t = BoardFormat::Md)]
    format: BoardFormat,
    /// Print no progress
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, clap::ValueEnum)]
enum BoardFormat {
    Md,
    Json,
}

pub fn run(registry: &Registry, args: &LeaderboardArgs) -> Result<String, CommandError> {
    let loaded = registered()?;
    if !args.run.is_empty() {
        // Where it is not permitted, the run takes place all the same.
        let _ = rustix::process::setpriority_process(None, 19);
        let options = RunOptions {
            out: args.results.clone(),
            data: args.data.clone(),
            threads: args.threads.max(1),
            registry: registry.clone(),
            twin: false,
            runs: None,
        };
        let limit = args.minutes.map(|minutes| Duration::from_secs(60 * u64::from(minutes)));
        let what = Fill { sets: &args.run, limit, kept: &args.dir };
        fill(&loaded, &what, &options, &mut progress::experiment(NAME, args.quiet))?;
    }
    let board = Board::new(&loaded, read(&args.dir, &loaded)?.as_ref());
    let text = match args.format {
        BoardFormat::Md => page(&board),
        BoardFormat::Json => serde_json::to_string_pretty(&board)? + "\n",
    };
    if args.out == Path::new("-") {
        return Ok(text);
    }
    write(&args.out, &text)?;
    Ok(format!("wrote {}\n", args.out.display()))
}
