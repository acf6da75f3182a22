//! How far the demo or an experiment is: a bar on a terminal, plain lines elsewhere.

use std::{
    io::{IsTerminal, stderr},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::{
    demo::{Observe, Progress},
    experiment::Event,
};
use indicatif::{ProgressBar, ProgressStyle};

const BAR: &str = "{prefix:<14} {bar:32.cyan/238} round {pos:>4}/{len}  left {eta:>3}  {msg}";
const EXPERIMENT: &str = "{bar:32.cyan/238} {pos:>5}/{len} rounds  left {eta:>4}  {msg}";
const EXPERIMENT_LINE_EVERY: Duration = Duration::from_secs(10);
/// Without a terminal, a line this often and for the end of each run.
const LINE_EVERY: Duration = Duration::from_secs(2);

/// What to hand to the demo.
pub fn observer(quiet: bool) -> Observe {
    match (quiet, stderr().is_terminal()) {
        (true, _) => Arc::new(|_| {}),
        (false, true) => bars(),
        (false, false) => lines(),
    }
}

fn bars() -> Observe {
    let bars: Mutex<Vec<ProgressBar>> = Mutex::default();
    let style = ProgressStyle::with_template(BAR).unwrap_or_else(|_| ProgressStyle::default_bar());
    Arc::new(move |progress| {
        let mut bars = bars.lock().unwrap_or_else(PoisonError::into_inner);
        while bars.len() <= progress.run {
            let bar = ProgressBar::new(progress.rounds.into()).with_style(style.clone());
            bars.push(bar.with_prefix(progress.title));
        }
        let Some(bar) = bars.get(progress.run) else { return };
        bar.set_message(figures(&progress));
        bar.set_position(done(&progress).into());
        if is_last(&progress) {
            bar.abandon();
        }
    })
}

fn lines() -> Observe {
    let last: Mutex<Option<(usize, Instant)>> = Mutex::default();
    Arc::new(move |progress| {
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        let due = match *last {
            Some((run, at)) => run != progress.run || at.elapsed() >= LINE_EVERY,
            None => true,
        };
        if due || is_last(&progress) {
            *last = Some((progress.run, Instant::now()));
            let Progress { title, rounds, .. } = progress;
            eprintln!("{title:<12} round {:>4}/{rounds}  {}", done(&progress), figures(&progress));
        }
    })
}

fn is_last(progress: &Progress<'_>) -> bool {
    progress.report.purpose == "evaluate"
}

fn done(progress: &Progress<'_>) -> u32 {
    progress.report.round.min(progress.rounds)
}

fn figures(progress: &Progress<'_>) -> String {
    let loss = &progress.report.loss;
    format!("mean loss {:.3}  spread ±{:.3}", loss.mean, loss.std)
}

/// The same for `fairtier sim run`: rounds of all units together, with the time that is left.
pub fn experiment(name: &str, quiet: bool) -> impl FnMut(Event) + use<> {
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
            Event::Begin { there, units, rounds } => {
                (all, started, said) = (*rounds, Instant::now(), Instant::now());
                if !quiet {
                    eprintln!("{name}: {units} units to run, {there} there already");
                }
                if let Some(bar) = &bar {
                    bar.set_style(style.clone());
                    bar.set_length(all);
                }
            }
            Event::Unit { label, seed } => unit = format!("{label}, seed {seed}"),
            Event::Round => done += 1,
            Event::Written(path) if !quiet && bar.is_none() => eprintln!("wrote {}", path.display()),
            _ => {}
        }
        if let Some(bar) = &bar {
            bar.set_position(done);
            bar.set_message(unit.clone());
        } else if !quiet && event == Event::Round && said.elapsed() >= EXPERIMENT_LINE_EVERY {
            said = Instant::now();
            let left = started.elapsed().as_secs_f64() / done.max(1) as f64 * all.saturating_sub(done) as f64;
            eprintln!("{unit}: {done}/{all} rounds, about {left:.0} s left");
        }
    }
}
