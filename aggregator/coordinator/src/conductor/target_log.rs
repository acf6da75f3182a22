//! Logs what keeps a fairness target from being told or reached: one line for each knob and cause.

use std::collections::BTreeSet;

use strategies::fairness::{FairnessLine, FairnessStatus};
use tracing::warn;

/// What was logged since this process was started.
#[derive(Clone, Debug, Default)]
pub struct TargetLog {
    /// Parameter, tier and cause.
    logged: BTreeSet<(String, Option<usize>, Cause)>,
}

#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Cause {
    /// The measurement cannot tell so low a target from chance.
    Resolution,
    /// The guard bounds shares at the end of the knob.
    Guard,
}

impl TargetLog {
    /// Takes note of a round.
    pub fn note(&mut self, round: u32, lines: &[FairnessLine]) {
        for line in lines {
            for cause in causes(line) {
                let FairnessLine { parameter, tier, target, .. } = line;
                if !self.logged.insert((parameter.clone(), *tier, cause)) {
                    continue;
                }
                let advice = [line.advice()].into_iter().chain(line.notes()).collect::<Vec<_>>().join("; ");
                match cause {
                    Cause::Resolution => {
                        let resolution = line.resolution.map(|resolution| resolution.limit);
                        warn!(
                            round,
                            parameter, tier, target, resolution, advice, "fairness target is below noise"
                        );
                    }
                    Cause::Guard => {
                        let devices = line.capped.devices;
                        warn!(
                            round,
                            parameter, tier, target, devices, advice, "guard limits the fairness target"
                        );
                    }
                }
            }
        }
    }
}

/// Judged like the status: not before a whole window of a model that learns.
fn causes(line: &FairnessLine) -> Vec<Cause> {
    let judged = !matches!(line.status, FairnessStatus::Measuring | FairnessStatus::Early);
    let coarse = judged && line.is_below_resolution();
    let bound = line.status == FairnessStatus::NotReachable && !line.capped.is_empty();
    let found = [(coarse, Cause::Resolution), (bound, Cause::Guard)];
    found.into_iter().filter(|(holds, _)| *holds).map(|(_, cause)| cause).collect()
}
