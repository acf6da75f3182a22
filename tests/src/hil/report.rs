//! What a comparison with boards leaves behind: the simulator's kind of page, as text, and as JSON.

use std::{fs, io, path::Path};

use sim::{
    demo::{DemoOptions, DemoResult, Fleet},
    report::{BoardLine, bench_html, bench_markdown},
};

use super::{
    boards::BenchBoard,
    figures::{self, Figures},
    run::Outcome,
};

/// The comparison, as the simulator's demo has it.
pub fn result(options: &DemoOptions, fleet: &Fleet, outcomes: &[Outcome]) -> DemoResult {
    let runs: Vec<_> = outcomes.iter().map(|outcome| (outcome.reports.clone(), outcome.seconds)).collect();
    DemoResult::of(options, fleet, &runs).expect("runs end with scores")
}

/// Every board with what it has and what it used.
pub fn lines(boards: &[BenchBoard], fleet: &Fleet, outcomes: &[Outcome]) -> Vec<BoardLine> {
    let line = |bench: &BenchBoard| {
        let board = bench.board();
        let measured: Option<Figures> = bench.is_emulated().then(|| figures::measure(&board));
        let used = || outcomes.iter().filter_map(|outcome| outcome.carried.get(&bench.device));
        let tier = fleet.devices.iter().find(|device| device.device.as_str() == bench.device);
        BoardLine {
            device: bench.device.clone(),
            board: board.name.clone(),
            core: board.core.clone(),
            port: bench.port.clone(),
            tier: tier.map_or(0, |device| device.tier),
            flash: measured.as_ref().map(|figures| figures.flash),
            ram: measured.as_ref().map(|figures| figures.ram),
            stack: used().filter_map(|used| used.stack).max(),
            instructions: measured.as_ref().map(|figures| figures.instructions),
            model: measured.as_ref().map(|figures| format!("64-{}-10", figures.hidden)),
            down: used().map(|used| used.down).sum(),
            up: used().map(|used| used.up).sum(),
            seconds: used().map(|used| used.seconds()).sum(),
        }
    };
    boards.iter().map(line).collect()
}

/// Writes `report.html`, `report.md` and `report.json` into a directory.
pub fn write(dir: &Path, result: &DemoResult, boards: &[BoardLine]) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    fs::write(dir.join("report.html"), bench_html(result, boards))?;
    fs::write(dir.join("report.md"), bench_markdown(result, boards))?;
    let json = serde_json::json!({ "result": result, "boards": boards });
    fs::write(dir.join("report.json"), serde_json::to_string_pretty(&json)?)
}
