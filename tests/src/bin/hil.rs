//! Hardware in the loop, from the command line.
//!
//! ```text
//! hil                                   the fleet of tests/hil/boards with both strategies
//! hil --board /dev/ttyACM0=stm32f407    the same with a real board in place of an emulated one
//! hil images --rounds 30                a CNN for 28x28 images on boards with 128 KB
//! hil faults --cases 1000               emulated boards on bad lines
//! hil faults --in-process 100000        the same code in one process, in virtual time
//! ```
//! `FAIRTIER_LOG=info` shows the logs of aggregator, bridge and clients.

use std::path::{Path, PathBuf};

use clap::{Parser, Subcommand};
use fairtier::demo::DemoOptions;
use fleet::{
    hil::{
        self,
        boards::{self, BenchBoard},
        faults::{self, Badness},
        images, report,
        run::{self, Boards, Outcome},
    },
    seeds::for_seeds,
};

/// Boards, emulated or real, and Linux clients in one fleet.
#[derive(Parser, Debug)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    /// A real board in place of an emulated one: its serial port and kind, as in /dev/ttyACM0=stm32f407
    #[arg(long = "board", value_name = "PORT=KIND")]
    boards: Vec<String>,
    /// Rounds of training
    #[arg(long, default_value_t = run::ROUNDS)]
    rounds: u32,
    #[arg(long, default_value_t = run::SEED)]
    seed: u64,
    /// Use hosts with the same arithmetic in place of the boards
    #[arg(long)]
    hosts: bool,
    /// Directory for report.html, report.md and report.json
    #[arg(long, default_value = "target/hil")]
    out: PathBuf,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// A CNN for 28x28 images: two boards with 128 KB of RAM and two Linux clients, 160 images each
    Images {
        #[arg(long, default_value_t = 30)]
        rounds: u32,
        #[arg(long, default_value_t = run::SEED)]
        seed: u64,
        /// Directory with MNIST's files; without it, the built-in digits drawn at 28x28
        #[arg(long)]
        data: Option<PathBuf>,
        /// Use hosts with the same arithmetic in place of the boards
        #[arg(long)]
        hosts: bool,
    },
    /// Emulated boards on lines that lose, flip and repeat bytes, with resets
    Faults {
        /// Number of board rounds
        #[arg(long, default_value_t = 50)]
        cases: u32,
        /// Instead, run this many seeded cases in one process, in virtual time
        #[arg(long)]
        in_process: Option<u64>,
    },
}

fn main() {
    let cli = Cli::parse();
    let hosts = match cli.command {
        Some(Command::Images { hosts, .. }) => hosts,
        Some(Command::Faults { in_process, .. }) => in_process.is_some(),
        None => cli.hosts,
    };
    if !hosts && let Some(missing) = boards::missing() {
        eprintln!("error: {missing}");
        std::process::exit(1);
    }
    match cli.command {
        Some(Command::Images { rounds, seed, data, hosts }) => {
            images(rounds, seed, data.as_deref(), hosts);
        }
        Some(Command::Faults { in_process: Some(cases), .. }) => faults_in_process(cases),
        Some(Command::Faults { cases, .. }) => _ = faults::in_qemu(cases),
        None => contest(&cli),
    }
}

fn contest(cli: &Cli) {
    let mut boards = BenchBoard::all();
    for (place, text) in boards.iter_mut().zip(&cli.boards) {
        let Some((port, kind)) = text.split_once('=') else {
            eprintln!("error: --board {text}: expected PORT=KIND");
            std::process::exit(2);
        };
        (place.port, place.kind) = (port.into(), kind.into());
    }
    let fleet = hil::fleet(cli.seed);
    let who = if cli.hosts { Boards::StoodInFor } else { Boards::Real };
    let outcomes = run::contest_with(&fleet, &boards, who, cli.seed, cli.rounds);
    print(&boards, &outcomes);
    let options = DemoOptions { rounds: cli.rounds, ..hil::options(cli.seed) };
    let result = report::result(&options, &fleet, &outcomes);
    let lines = report::lines(if cli.hosts { &[] } else { &boards }, &fleet, &outcomes);
    match report::write(&cli.out, &result, &lines) {
        Ok(()) => println!("{}", cli.out.join("report.html").display()),
        Err(error) => {
            eprintln!("error: {}: {error}", cli.out.display());
            std::process::exit(1);
        }
    }
}

fn images(rounds: u32, seed: u64, data: Option<&Path>, hosts: bool) {
    let (fleet, boards) = (images::fleet(data, seed), images::boards());
    let who = if hosts { Boards::StoodInFor } else { Boards::Real };
    let outcome = run::run(&images::config(rounds, seed), &fleet, &boards, who);
    let what = if data.is_some() { "MNIST" } else { "the built-in digits, drawn at 28x28" };
    println!(
        "{}, {what}, {} devices with 120 images to train on and 40 to test",
        images::MODEL,
        fleet.devices.len()
    );
    for report in
        outcome.reports.iter().filter(|report| report.round % 5 == 1 || report.purpose == "evaluate")
    {
        let rounds = report.round - 1;
        println!(
            "after {rounds:>3} rounds: loss {:.4}, accuracy {:.1} %",
            report.loss.mean,
            100.0 * report.accuracy.mean
        );
    }
    for line in &outcome.last().devices {
        let used = outcome.carried.get(&line.device);
        let kind =
            boards.iter().find(|board| board.device == line.device).map_or("Linux", |board| &board.kind);
        let accuracy = 100.0 * line.test_accuracy.unwrap_or(0.0);
        print!("{:<8} {kind:<16} accuracy {accuracy:.1} %", line.device);
        match used {
            Some(used) => {
                println!(", {} bytes down, {} up, stack {}", used.down, used.up, used.stack.unwrap_or(0));
            }
            None => println!(),
        }
    }
    println!("{:.0} s", outcome.seconds);
}

fn faults_in_process(cases: u64) {
    let good = faults::in_process(Badness::NONE, 0);
    let (started, done) = (std::time::Instant::now(), std::sync::atomic::AtomicU64::new(0));
    for_seeds(cases, |seed| {
        faults::check(seed, &good);
        let done = done.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
        if done.is_multiple_of(10_000) {
            eprintln!("{done} of {cases}, {:.0} s", started.elapsed().as_secs_f64());
        }
    });
    println!("{cases} cases in {:.0} s: no hang, the model is unchanged", started.elapsed().as_secs_f64());
}

fn print(boards: &[BenchBoard], [plain, fair]: &[Outcome; 2]) {
    println!("{:<8} {:>4}  {:<14} {:>9} {:>12}", "device", "tier", "board", "HeteroFL", "FairHeteroFL");
    for (a, b) in plain.last().devices.iter().zip(&fair.last().devices) {
        let kind = boards.iter().find(|board| board.device == a.device).map_or("Linux", |board| &board.kind);
        let loss = |line: &coordinator::report::DeviceLine| line.test_loss.unwrap_or(line.loss_before);
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
