//! `fairtier gateway check`.

use std::{fmt::Write as _, net::SocketAddr, path::PathBuf};

use anyhow::{Result, bail};
use common::output::{COLUMNS, print, table, wrap};
use serde_json::json;
use strategies::registry::Registry;

use super::Format;
use crate::check::{Addresses, CheckReport, State, TierCost, check};

#[derive(clap::Args, Debug)]
pub(super) struct CheckArgs {
    #[arg(long, default_value = "gateway")]
    dir: PathBuf,
    /// Instead of server.listen
    #[arg(long)]
    listen: Option<SocketAddr>,
    /// Also check that this address is free for `serve --metrics`
    #[arg(long)]
    metrics: Option<SocketAddr>,
    #[arg(long, default_value = "table")]
    format: Format,
}

pub(super) fn run(registry: &Registry, args: &CheckArgs) -> Result<()> {
    let CheckArgs { dir, listen, metrics, format } = args;
    let report = check(registry, dir, Addresses { listen: *listen, metrics: *metrics });
    let problems = report.findings.iter().filter(|finding| finding.state == State::Problem).count();
    match format {
        Format::Json => {
            let json = json!({ "state": report.state(), "findings": report.findings, "tiers": report.tiers });
            print(&format!("{json}\n"))?;
        }
        Format::Table => print(&show(&report))?,
    }
    if problems > 0 {
        bail!("{}: {problems} problems; nothing was changed", dir.display());
    }
    Ok(())
}

fn show(report: &CheckReport) -> String {
    let mut text = String::new();
    for finding in &report.findings {
        let state = match finding.state {
            State::Ok => "ok",
            State::Warning => "warning",
            State::Problem => "PROBLEM",
        };
        let head = format!("{state:<7}  {:<13}  ", finding.about);
        let _ = writeln!(text, "{head}{}", wrap(&finding.what, head.len(), COLUMNS));
        if !finding.remedy.is_empty() {
            let lead = " ".repeat(head.len()) + "do: ";
            let _ = writeln!(text, "{lead}{}", wrap(&finding.remedy, lead.len(), COLUMNS));
        }
    }
    if !report.tiers.is_empty() {
        let header = ["tier", "widths", "parameters", "down B/round", "up B/round", "RAM B"];
        let mut rows = vec![header.map(str::to_owned).to_vec()];
        rows.extend(report.tiers.iter().map(|tier| {
            let widths = tier.widths.iter().map(u32::to_string).collect::<Vec<_>>().join("-");
            let numbers = [tier.parameters, tier.down_bytes, tier.up_bytes, tier.ram_bytes];
            let mut row = vec![tier.tier.to_string(), widths];
            row.extend(numbers.map(|number| number.to_string()));
            row
        }));
        let _ = write!(text, "\n{}", table(&rows, 2, COLUMNS));
        let _ = write!(text, "{}", wrap(&who_gets_which(&report.tiers), 0, COLUMNS));
        text.push('\n');
    }
    text
}

/// How devices are divided among tiers. A model that is small for its devices is in the widest tier everywhere.
fn who_gets_which(tiers: &[TierCost]) -> String {
    let rule = "A device gets the widest tier whose RAM is within its --ram, which has no limit by default";
    let widest = tiers.first().map_or(0, |tier| tier.ram_bytes);
    match tiers.len() {
        0 | 1 => format!("{rule}."),
        _ => format!(
            "{rule}. With --ram {widest} or more it is in tier 0: narrower tiers are for devices with less."
        ),
    }
}
