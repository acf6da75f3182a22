//! Hardware in the loop, from the command line.
//!
//! ```text
//! hil                                   the fleet of tests/hil/boards with both strategies
//! hil --board /dev/ttyACM0=stm32f407    the same with a real board in place of an emulated one
//! hil figures                           instructions, flash and RAM of every kind of board
//! hil faults --cases 1000               emulated boards on bad lines
//! ```
//! `FAIRTIER_LOG=info` shows what aggregator, bridge and clients say.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use edge_client::host::board::Board;
use fleet::hil::{
    self,
    boards::BenchBoard,
    faults, figures,
    run::{self, Boards, Outcome},
};

/// Boards, emulated or real, and Linux clients in one fleet.
#[derive(Parser, Debug)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    /// A real board: its serial port and its kind, as in /dev/ttyACM0=stm32f407; takes an emulated one's place
    #[arg(long = "board", value_name = "PORT=KIND")]
    boards: Vec<String>,
    /// Rounds of training
    #[arg(long, default_value_t = run::ROUNDS)]
    rounds: u32,
    #[arg(long, default_value_t = run::SEED)]
    seed: u64,
    /// Let hosts with the same arithmetic stand in for the boards
    #[arg(long)]
    hosts: bool,
    /// Also write the result as JSON
    #[arg(long)]
    out: Option<PathBuf>,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Instructions, flash and RAM of every kind of emulated board
    Figures,
    /// Emulated boards on lines that lose, flip and repeat bytes, and that are reset
    Faults {
        /// Rounds of single boards
        #[arg(long, default_value_t = 50)]
        cases: u32,
    },
}

fn main() {
    let cli = Cli::parse();
    match cli.command {
        Some(Command::Figures) => {
            let emulated = Board::all().into_iter().filter(|board| board.machine.is_some());
            let figures: Vec<_> = emulated.map(|board| figures::measure(&board)).collect();
            print!("{}", figures::table(&figures));
        }
        Some(Command::Faults { cases }) => _ = faults::in_qemu(cases),
        None => contest(&cli),
    }
}

fn contest(cli: &Cli) {
    let mut boards = BenchBoard::all();
    for (place, text) in boards.iter_mut().zip(&cli.boards) {
        let Some((port, kind)) = text.split_once('=') else {
            eprintln!("error: --board {text}: write PORT=KIND");
            std::process::exit(2);
        };
        (place.port, place.kind) = (port.into(), kind.into());
    }
    let fleet = hil::fleet(cli.seed);
    let who = if cli.hosts { Boards::StoodInFor } else { Boards::Real };
    let outcomes = run::contest_with(&fleet, &boards, who, cli.seed, cli.rounds);
    print(&boards, &outcomes);
    if let Some(path) = &cli.out {
        let reports: Vec<_> = outcomes.iter().map(|outcome| &outcome.reports).collect();
        let text = serde_json::to_string_pretty(&reports).unwrap_or_default();
        if let Err(error) = std::fs::write(path, text) {
            eprintln!("error: {}: {error}", path.display());
        }
    }
}

fn print(boards: &[BenchBoard], [plain, fair]: &[Outcome; 2]) {
    println!("{:<8} {:>4}  {:<14} {:>9} {:>12}", "device", "tier", "board", "HeteroFL", "FairHeteroFL");
    for (a, b) in plain.last().devices.iter().zip(&fair.last().devices) {
        let kind = boards.iter().find(|board| board.device == a.device).map_or("Linux", |board| &board.kind);
        let loss = |line: &aggregator::report::DeviceLine| line.test_loss.unwrap_or(line.loss_before);
        println!("{:<8} {:>4}  {kind:<14} {:>9.4} {:>12.4}", a.device, a.tier, loss(a), loss(b));
    }
    let (before, after) = (&plain.last().loss, &fair.last().loss);
    let change = |a: f64, b: f64| 100.0 * (b / a - 1.0);
    println!(
        "mean     {:>40.4} {:>12.4}  {:+.1} %",
        before.mean,
        after.mean,
        change(before.mean, after.mean)
    );
    println!(
        "variance {:>40.4} {:>12.4}  {:+.1} %",
        before.variance,
        after.variance,
        change(before.variance, after.variance)
    );
    println!("{:.0} s and {:.0} s", plain.seconds, fair.seconds);
}
