//! The report for a fleet with boards: the demo's page plus the resources of each board.

use plots::{
    markup::{Element, el},
    number,
};
use serde::Serialize;

use super::{html::page, table::table};
use crate::demo::DemoResult;

/// One board of the fleet. Fields are `None` if they were not measured.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct BoardUsage {
    /// Name of the device.
    pub device: String,
    /// Kind of board.
    pub board: String,
    /// Processor core.
    pub core: String,
    /// `emulated`, or its serial port.
    pub port: String,
    /// Tier of the device.
    pub tier: usize,
    /// Bytes of flash.
    pub flash: Option<u32>,
    /// Bytes of statically allocated RAM.
    pub ram: Option<u32>,
    /// Peak stack use in bytes.
    pub stack: Option<u32>,
    /// Instructions (not cycles) of one SGD step of batch 16 on `model`.
    pub instructions: Option<u64>,
    /// Model of the instruction count.
    pub model: Option<String>,
    /// Bytes to the board in all runs.
    pub down: u64,
    /// Bytes from the board in all runs.
    pub up: u64,
    /// Seconds from the first byte to the last, in all runs.
    pub seconds: f64,
}

const COLUMNS: [&str; 12] = [
    "Device",
    "Board",
    "Core",
    "Where",
    "Tier",
    "Flash, B",
    "Static RAM, B",
    "Stack, B",
    "Instructions per step",
    "To the board, B",
    "From the board, B",
    "Time, s",
];
const NOTE: &str = "Instructions: one SGD step of batch 16 from gathered batch to updated weights, QEMU -icount shift=0, on the \
     model in parentheses; an instruction count is not a cycle count. Bytes and time are those of the serial line, over both runs.";

impl BoardUsage {
    fn cells(&self) -> [String; 12] {
        let some = |value: Option<u64>| value.map_or_else(|| "–".into(), |value| value.to_string());
        let steps = match (&self.model, self.instructions) {
            (Some(model), Some(count)) => format!("{count} ({model})"),
            _ => "–".into(),
        };
        [
            self.device.clone(),
            self.board.clone(),
            self.core.clone(),
            self.port.clone(),
            self.tier.to_string(),
            some(self.flash.map(Into::into)),
            some(self.ram.map(Into::into)),
            some(self.stack.map(Into::into)),
            steps,
            self.down.to_string(),
            self.up.to_string(),
            format!("{:.1}", self.seconds),
        ]
    }
}

/// A complete HTML document.
pub fn boards_html(result: &DemoResult, boards: &[BoardUsage]) -> String {
    page(
        result,
        "FairTier: boards and Linux clients in one fleet",
        board_section(result, boards),
        "Written by hil. report.json has every number; hover over a mark to read it.",
    )
}

fn board_section(result: &DemoResult, boards: &[BoardUsage]) -> Element {
    let row = |cells: &[String]| el("tr").all(cells.iter().map(|cell| el("td").text(cell)));
    let table = el("table")
        .with(el("thead").with(el("tr").all(COLUMNS.map(|name| el("th").set("scope", "col").text(name)))))
        .with(el("tbody").all(boards.iter().map(|board| row(&board.cells()))));
    let lead = format!(
        "{} of the {} devices are microcontrollers behind a bridge, the others Linux clients. Both runs took {}.",
        boards.len(),
        result.setup.devices,
        number::seconds(result.runs.iter().map(|run| run.seconds).sum())
    );
    el("section")
        .set("aria-labelledby", "boards")
        .with(el("h2").set("id", "boards").text("Boards"))
        .with(el("p").text(lead))
        .with(el("div").class("scroll").with(table))
        .with(el("p").class("soft").text(NOTE))
}

/// The same report in Markdown.
pub fn boards_markdown(result: &DemoResult, boards: &[BoardUsage]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let mut text = format!("# Boards and Linux clients in one fleet\n\n```\n{}```\n\n", table(result));
    text += &line(&COLUMNS.map(String::from));
    text += &format!("|{}\n", "---|".repeat(COLUMNS.len()));
    for board in boards {
        text += &line(&board.cells());
    }
    text + "\n" + NOTE + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::tests::TINY;

    #[test]
    fn page_and_text_show_every_board() {
        let board = BoardUsage {
            device: "t0-00".into(),
            board: "mps2-an386".into(),
            core: "Cortex-M4F".into(),
            port: "emulated".into(),
            tier: 0,
            flash: Some(64_000),
            ram: Some(38_000),
            stack: None,
            instructions: Some(159_240),
            model: Some("64-32-10".into()),
            down: 12_345,
            up: 6_789,
            seconds: 7.25,
        };
        for text in [
            boards_html(&TINY, std::slice::from_ref(&board)),
            boards_markdown(&TINY, std::slice::from_ref(&board)),
        ] {
            for part in ["mps2-an386", "159240 (64-32-10)", "12345", "6789", "7.2", "–", "not a cycle count"]
            {
                assert!(text.contains(part), "{part}");
            }
        }
    }
}
