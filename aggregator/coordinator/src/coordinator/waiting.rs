//! What the run waits for now, for logs and status pages.

use common::{DeviceId, Duration, Instant, Tier};

use super::{Coordinator, Phase};
use crate::{exchange::Purpose, fleet::RegisteredDevice};

/// What the run waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Waiting {
    /// The open round, or the next one.
    pub round: u32,
    /// Of the exchange that is open or comes next.
    pub purpose: Purpose,
    /// When the open exchange was opened; `None` between two rounds.
    pub opened: Option<Instant>,
    /// The wait is noticeably longer than usual.
    pub is_long: bool,
    /// Devices that have not answered and are waited for, in DeviceId order.
    pub devices: Vec<WaitedFor>,
    /// While a round cannot begin.
    pub gathering: Option<Gathering>,
}

/// A device that has not answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WaitedFor {
    /// Its name.
    pub device: DeviceId,
    /// The tier that it has in the round.
    pub tier: Tier,
    /// Since when it is silent, if that is longer than usual.
    pub silent: Option<Instant>,
    /// When the wait for it ends; `None`: never. The wait for a silent device continues if it is heard from again.
    pub until: Option<Instant>,
}

/// Devices that are connected, and devices that a round needs to begin.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Gathering {
    /// Connected devices.
    pub have: usize,
    /// Devices that a round needs.
    pub need: usize,
}

/// A wait is long after three times the usual time, and never before this time.
const LONG: Duration = Duration::from_secs(3);

impl Coordinator {
    /// What the run waits for; `None` while it waits for the disk only, is paused between two rounds, or is over.
    pub fn waiting(&self, now: Instant) -> Option<Waiting> {
        match &self.phase {
            // It waits for the operator.
            Phase::Gathering if self.paused => None,
            Phase::Gathering => {
                let (have, need) = (self.fleet.connected_len(), self.needed());
                let gathering = Some(Gathering { have, need });
                let (round, over) = (self.committed + 1, self.has_trained());
                let purpose = if over { Purpose::Evaluate } else { Purpose::Train };
                Some(Waiting { round, purpose, opened: None, is_long: true, devices: vec![], gathering })
            }
            Phase::Collecting(exchange) => {
                let others = self.usual_time();
                let long = others.map_or(LONG, |usual| LONG.max(usual.times(3)));
                let devices = exchange.roster.expected().filter_map(|(device, entry)| {
                    let RegisteredDevice { liveness, timing, .. } = self.fleet.get(device)?;
                    let unusual = |since: &Instant| timing.is_unusually_silent(exchange.kind, now - *since);
                    let silent = Some(liveness.silent_since()).filter(unusual);
                    let own = silent.and_then(|_| self.limit_of(device, others, now));
                    let until = own.into_iter().chain(self.end_of(exchange, entry.tier)).min();
                    Some(WaitedFor { device: device.clone(), tier: entry.tier, silent, until })
                });
                Some(Waiting {
                    round: exchange.id.round,
                    purpose: exchange.purpose,
                    opened: Some(exchange.opened),
                    is_long: now - exchange.opened >= long,
                    devices: devices.collect(),
                    gathering: None,
                })
            }
            Phase::Opening | Phase::Closing | Phase::Finished { .. } => None,
        }
    }
}
