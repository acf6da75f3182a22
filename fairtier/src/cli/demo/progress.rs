//! Progress of the demo: a bar on a terminal, plain lines elsewhere.

use std::{
    io::{IsTerminal, stderr},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};

use crate::demo::{Observe, Progress};

const BAR: &str = "{prefix:<17} {bar:32.cyan/238} round {pos:>4}/{len}  left {eta:>3}  {msg}";
/// Without a terminal, the interval between two lines. The end of each run also prints one.
const LINE_EVERY: Duration = Duration::from_secs(2);

/// The observer that the demo calls after every round.
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
            bars.push(bar.with_prefix(format!("seed {} {}", progress.seed, progress.title)));
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
            let Progress { title, seed, rounds, .. } = progress;
            eprintln!("seed {seed} {title:<8} round {:>4}/{rounds}  {}", done(&progress), figures(&progress));
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
    match progress.report.fairness.first().and_then(|line| Some((line.measured?, line))) {
        Some((measured, line)) => {
            format!(
                "mean loss {:.3}  disparity {measured:.3}  {} {:.2}",
                loss.mean, line.parameter, line.value
            )
        }
        None => format!("mean loss {:.3}  spread ±{:.3}", loss.mean, loss.std),
    }
}
