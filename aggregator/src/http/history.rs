//! What has happened in a run, read from the history on disk: figures by round, and what is known of each device.
//!
//! Only new lines are read, so looking costs the same in round ten as in round ten thousand. Pages show at most the last
//! [`ROUNDS`] rounds.

use std::{
    collections::{BTreeMap, VecDeque},
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::Deserialize;
use strategies::fairness::FairnessLine;

use crate::{
    status,
    store::{ReportReader, StoreError},
};

mod device;
mod report;

pub use device::{DeviceHistory, DevicePoint};
pub use report::{Figures, Heard, Participation, Report, Traffic};

/// Rounds that figures cover.
pub const ROUNDS: usize = 1000;
/// Bytes of reports that are read for one page, so that the first page of a large fleet takes seconds: fewer rounds then.
const READ: usize = 256 << 20;
/// Lines that are read first; more only if rounds are missing.
const FIRST_READ: usize = 4;

/// The figures of one round, without its devices.
#[derive(Clone, Debug)]
pub struct RoundFigures {
    pub round: u32,
    pub seconds: Option<f64>,
    pub loss: Figures,
    pub loss_by_tier: Vec<Figures>,
    pub accuracy: Figures,
    pub participation: Vec<Participation>,
    pub weight_by_tier: Vec<Option<f64>>,
    pub traffic: Option<Traffic>,
    pub traffic_by_tier: Vec<Traffic>,
    pub effective: Option<f64>,
    pub heard: usize,
    pub refused: usize,
    pub silent: usize,
    pub findings: usize,
    pub fairness: Option<KnobFigures>,
}

/// The first knob of a fairness target.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct KnobFigures {
    pub target: f64,
    pub measured: Option<f64>,
    pub value: f64,
}

/// The history of one directory.
#[derive(Debug)]
pub struct RunHistory {
    dir: PathBuf,
    /// Of the history file and the status file when they were read.
    stamps: [Option<Stamp>; 2],
    pub rounds: VecDeque<RoundFigures>,
    /// Rounds that `devices` covers: the last ones when the first page was made, and all since.
    pub counted: usize,
    pub devices: BTreeMap<String, DeviceHistory>,
    /// The report of the last round.
    pub last: Option<Arc<Report>>,
    /// The scores of the final model, once the run is over.
    pub scores: Option<Arc<Report>>,
    /// Losses of the last report, for places in the fleet; lowest first.
    pub losses: Vec<f64>,
    /// Disparity of the mean losses of tiers, by round, in the order of `rounds`.
    pub disparity: VecDeque<Option<f64>>,
}

/// Changes whenever the file does.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Stamp {
    inode: u64,
    len: u64,
    changed: (i64, i64),
}

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        let file = fs::metadata(path).ok()?;
        Some(Self { inode: file.ino(), len: file.len(), changed: (file.mtime(), file.mtime_nsec()) })
    }
}

impl RunHistory {
    /// Nothing is read yet.
    pub fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            stamps: [None; 2],
            rounds: VecDeque::new(),
            counted: 0,
            devices: BTreeMap::new(),
            last: None,
            scores: None,
            losses: vec![],
            disparity: VecDeque::new(),
        }
    }

    /// Whether the files have changed since they were read.
    pub fn is_stale(&self) -> bool {
        self.paths().map(|path| Stamp::of(&path)) != self.stamps
    }

    /// Reads what is new.
    pub fn refresh(&mut self) -> Result<(), StoreError> {
        // Before reading: what is written meanwhile is read next time.
        let stamps = self.paths().map(|path| Stamp::of(&path));
        if stamps == self.stamps {
            return Ok(());
        }
        self.read_rounds()?;
        self.read_scores();
        self.stamps = stamps;
        let shown = self.shown().cloned();
        let mut losses: Vec<f64> =
            shown.iter().flat_map(|report| report.devices.iter().filter_map(Heard::loss)).collect();
        losses.sort_unstable_by(f64::total_cmp);
        self.losses = losses;
        Ok(())
    }

    /// The report whose figures are the present ones.
    pub fn shown(&self) -> Option<&Arc<Report>> {
        self.scores.as_ref().or(self.last.as_ref())
    }

    /// The number of the last round that was read.
    pub fn committed(&self) -> u32 {
        self.rounds.back().map_or(0, |last| last.round)
    }

    /// The place of a device among all of the present report, from 1 for the lowest loss; `None` if it is not among them.
    pub fn place(&self, device: &DeviceHistory) -> Option<usize> {
        let loss =
            device.loss.filter(|_| self.shown().is_some_and(|report| report.round == device.reported_in))?;
        Some(self.losses.partition_point(|&other| other < loss) + 1)
    }

    fn paths(&self) -> [PathBuf; 2] {
        [self.dir.join("store").join("history.jsonl"), self.dir.join(status::FILE)]
    }

    fn read_rounds(&mut self) -> Result<(), StoreError> {
        let store = self.dir.join("store");
        let known = self.committed();
        let mut wanted = if known == 0 { most(&store)? } else { FIRST_READ };
        'wider: loop {
            let Some(mut reader) = ReportReader::last(&store, wanted)? else { return Ok(()) };
            let mut is_first = true;
            while let Some(line) = reader.read_next()? {
                if is_first && known > 0 && line.round > known + 1 {
                    let wider = (wanted * 8).min(most(&store)?);
                    if wider > wanted {
                        wanted = wider;
                        continue 'wider;
                    }
                }
                is_first = false;
                // One report at a time is in memory: a thousand of a large fleet have gigabytes.
                if line.round > known
                    && let Ok(report) = serde_json::from_str::<Report>(line.text)
                {
                    self.add(report);
                }
            }
            return Ok(());
        }
    }

    fn add(&mut self, report: Report) {
        device::add(&mut self.devices, &report);
        self.counted += 1;
        self.disparity.push_back(disparity(&report));
        self.rounds.push_back(RoundFigures::of(&report));
        while self.rounds.len() > ROUNDS {
            self.rounds.pop_front();
            self.disparity.pop_front();
        }
        self.last = Some(Arc::new(report));
    }

    /// The scores of the final model are in the status file alone.
    fn read_scores(&mut self) {
        #[derive(Deserialize)]
        struct Finished {
            #[serde(default)]
            finished: bool,
        }
        #[derive(Deserialize)]
        struct Last {
            last_round: Option<Report>,
        }
        self.scores = None;
        let Ok(text) = fs::read_to_string(self.dir.join(status::FILE)) else { return };
        if !serde_json::from_str::<Finished>(&text).is_ok_and(|status| status.finished) {
            return;
        }
        let last = serde_json::from_str::<Last>(&text).ok().and_then(|status| status.last_round);
        self.scores = last.filter(|report| report.purpose == "evaluate").map(Arc::new);
        if let Some(scores) = &self.scores {
            device::show(&mut self.devices, scores);
        }
    }
}

impl RoundFigures {
    fn of(report: &Report) -> Self {
        let knob = |line: &FairnessLine| KnobFigures {
            target: line.target,
            measured: line.measured,
            value: line.value,
        };
        Self {
            round: report.round,
            seconds: report.seconds,
            loss: report.loss,
            loss_by_tier: report.loss_by_tier.clone(),
            accuracy: report.accuracy,
            participation: report.participation.clone(),
            weight_by_tier: report.weight_by_tier.clone(),
            traffic: report.traffic,
            traffic_by_tier: report.traffic_by_tier.clone(),
            effective: report.weights.and_then(|weights| weights.effective),
            heard: report.devices.len(),
            refused: report.refused.len(),
            silent: report.silent.len(),
            findings: report.guard.len(),
            fairness: report.fairness.first().map(knob),
        }
    }
}

/// Rounds that are read for one page, by the length of the last report.
fn most(store: &Path) -> Result<usize, StoreError> {
    let Some(mut reader) = ReportReader::last(store, 1)? else { return Ok(ROUNDS) };
    Ok(reader.read_next()?.map_or(ROUNDS, |line| rounds_within(READ, line.text.len())))
}

fn rounds_within(bytes: usize, each: usize) -> usize {
    (bytes / each.max(1)).clamp(FIRST_READ, ROUNDS)
}

/// Standard deviation of the mean losses of tiers, over their mean.
pub fn disparity(report: &Report) -> Option<f64> {
    let means: Vec<f64> = report.loss_by_tier.iter().filter_map(Figures::shown_mean).collect();
    let (mean, variance) = common::metrics::mean_variance(&means);
    (means.len() > 1 && mean > 0.0).then(|| variance.sqrt() / mean)
}

/// The report of one round, from the history.
pub fn report_of(dir: &Path, round: u32, committed: u32) -> Result<Option<Report>, StoreError> {
    let Some(back) = committed.checked_sub(round).filter(|_| round > 0) else { return Ok(None) };
    // A damaged line counts as a line, so the wanted one may be further back than its number says.
    let Some(mut reader) = ReportReader::last(&dir.join("store"), back as usize + 1 + FIRST_READ)? else {
        return Ok(None);
    };
    while let Some(line) = reader.read_next()? {
        if line.round == round {
            return Ok(serde_json::from_str(line.text).ok());
        }
        if line.round > round {
            break;
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
