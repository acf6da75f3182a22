//! Progress of an experiment: a bar on a terminal, plain lines elsewhere.

use std::{
    io::{IsTerminal, stderr},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};

use crate::experiment::RunEvent;

const EXPERIMENT: &str = "{bar:32.cyan/238} {pos:>5}/{len} rounds  left {eta:>4}  {msg}";
const EXPERIMENT_LINE_EVERY: Duration = Duration::from_secs(10);

/// Shows the rounds of all units together, with the remaining time.
pub fn experiment(name: &str, quiet: bool) -> impl FnMut(RunEvent) + use<> {
    let name = name.to_owned();
    let bar = match (quiet, stderr().is_terminal()) {
        (false, true) => Some(ProgressBar::new(1)),
        _ => None,
    };
    let style = ProgressStyle::with_template(EXPERIMENT).unwrap_or_else(|_| ProgressStyle::default_bar());
    let (mut done, mut all, mut unit) = (0u64, 0u64, String::new());
    let (mut started, mut said) = (Instant::now(), Instant::now());
    move |event| {
        match &event {
            RunEvent::Begin { there, units, rounds } => {
                (all, started, said) = (*rounds, Instant::now(), Instant::now());
                if !quiet {
                    eprintln!("{name}: {units} units to run, {there} already finished");
                }
                if let Some(bar) = &bar {
                    bar.set_style(style.clone());
                    bar.set_length(all);
                }
            }
            // Also when progress is not wanted.
            RunEvent::Note(note) => match &bar {
                Some(bar) => bar.suspend(|| eprintln!("note: {note}")),
                None => eprintln!("note: {note}"),
            },
            RunEvent::Unit { label, seed } => unit = format!("{label}, seed {seed}"),
            RunEvent::Round => done += 1,
            RunEvent::Written(path) if !quiet && bar.is_none() => eprintln!("wrote {}", path.display()),
            _ => {}
        }
        if let Some(bar) = &bar {
            bar.set_position(done);
            bar.set_message(unit.clone());
        } else if !quiet && event == RunEvent::Round && said.elapsed() >= EXPERIMENT_LINE_EVERY {
            said = Instant::now();
            let left = started.elapsed().as_secs_f64() / done.max(1) as f64 * all.saturating_sub(done) as f64;
            eprintln!("{unit}: {done}/{all} rounds, about {left:.0} s left");
        }
    }
}
