//! The result as text.

use std::fmt::Write as _;

use common::output::{COLUMNS, wrap};

use super::{LoadResult, LoadRound, Peaks, bare::StreamSetup};

pub fn table(result: &LoadResult) -> String {
    let LoadResult { options, connect, bytes, .. } = result;
    let setup = format!(
        "{} devices, {} parameters ({}), {} bytes down and {} up per device and round",
        options.devices,
        result.parameters,
        options.codec.name(),
        bytes[0],
        bytes[1],
    );
    let connected = format!(
        "connected: {} devices in {:.1} s, {:.0} per second, {} at a time; {} attempts repeated, {} connections lost later",
        connect.devices,
        connect.seconds,
        connect.devices as f64 / connect.seconds,
        options.concurrency,
        connect.repeated,
        connect.lost,
    );
    let mut text = [setup, connected].map(|line| wrap(&line, 0, COLUMNS) + "\n").concat();
    let _ = writeln!(text, "round    seconds  collecting  accepted  refused  updates/s  peak RSS MB");
    for row in &result.rounds {
        let LoadRound { round, counted, seconds, collecting_s, accepted, refused, updates_per_s, .. } = row;
        let peak = megabytes(row.peak_rss_kb);
        let mark = if *counted { "" } else { " *" };
        let _ = writeln!(
            text,
            "{round:>5} {seconds:>10.3} {collecting_s:>11.3} {accepted:>9} {refused:>8} {updates_per_s:>10.1} {peak:>12}{mark}"
        );
    }
    if result.reference.is_some() {
        let _ = writeln!(text, "* not counted: the first round of each turn, here and of the bare streams");
    }
    let _ = writeln!(
        text,
        "median round {:.3} s, {:.1} updates/s; {} of {} accepted, {} refused",
        result.round_s, result.updates_per_s, result.accepted, result.expected, result.refused,
    );
    let Peaks { connecting, round, between, leaving, overall } = result.peak_rss_kb;
    let peaks = format!(
        "peak RSS {} MB: connecting {}, in a round {}, between rounds {}, scoring and leaving {}",
        megabytes(overall),
        megabytes(connecting),
        megabytes(round),
        megabytes(between),
        megabytes(leaving),
    );
    text += &(wrap(&peaks, 0, COLUMNS) + "\n");
    if let Some(reference) = &result.reference {
        let _ = writeln!(
            text,
            "bare QUIC streams ({}): median round {:.3} s, {:.1} updates/s; ratio {:.2}",
            match reference.setup {
                StreamSetup::Plain => "plain: quinn's defaults",
                StreamSetup::Tuned => "tuned: with the aggregator's transport",
            },
            reference.round_s,
            reference.updates_per_s,
            reference.ratio,
        );
    }
    for check in &result.checks {
        let _ = writeln!(text, "{}: {check}", if check.passed { "met" } else { "missed" });
    }
    text
}

fn megabytes(kilobytes: Option<u64>) -> String {
    kilobytes.map_or("-".into(), |kb| format!("{:.1}", kb as f64 / 1024.0))
}
