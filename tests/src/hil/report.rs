//! Reports of a comparison with boards: a page like the demo's, Markdown and JSON.

use std::{fs, io, path::Path};

use client::host::footprint::Footprint;
use fairtier::demo::{
    DemoOptions, DemoResult, Fleet,
    report::{BoardUsage, boards_html, boards_markdown},
};

use super::{
    boards::{BenchBoard, images},
    run::Outcome,
};

/// The comparison in the demo's format.
pub fn result(options: &DemoOptions, fleet: &Fleet, outcomes: &[Outcome]) -> DemoResult {
    let runs: Vec<_> = outcomes.iter().map(|outcome| (outcome.reports.clone(), outcome.seconds)).collect();
    DemoResult::of(options, fleet, &runs).expect("runs end with scores")
}

/// Every board with its resources and their use.
pub fn lines(boards: &[BenchBoard], fleet: &Fleet, outcomes: &[Outcome]) -> Vec<BoardUsage> {
    let line = |bench: &BenchBoard| {
        let board = bench.board();
        let measured =
            bench.is_emulated().then(|| Footprint::measure(&board, &images()).expect("a footprint"));
        let used = || outcomes.iter().filter_map(|outcome| outcome.carried.get(&bench.device));
        let tier = fleet.devices.iter().find(|device| device.device.as_str() == bench.device);
        BoardUsage {
            device: bench.device.clone(),
            board: board.name.clone(),
            core: board.core.clone(),
            port: bench.port.clone(),
            tier: tier.map_or(0, |device| device.tier),
            flash: measured.as_ref().map(|footprint| footprint.image.flash),
            ram: measured.as_ref().map(|footprint| footprint.image.ram),
            stack: used().filter_map(|used| used.stack).max(),
            instructions: measured.as_ref().map(|footprint| footprint.instructions),
            model: measured.as_ref().map(Footprint::model),
            down: used().map(|used| used.down).sum(),
            up: used().map(|used| used.up).sum(),
            seconds: used().map(|used| used.seconds()).sum(),
        }
    };
    boards.iter().map(line).collect()
}

/// Writes `report.html`, `report.md` and `report.json` into a directory.
pub fn write(dir: &Path, result: &DemoResult, boards: &[BoardUsage]) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    fs::write(dir.join("report.html"), boards_html(result, boards))?;
    fs::write(dir.join("report.md"), boards_markdown(result, boards))?;
    let json = serde_json::json!({ "result": result, "boards": boards });
    fs::write(dir.join("report.json"), serde_json::to_string_pretty(&json)?)
}
