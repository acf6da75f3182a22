//! Whom the run waits for now, for people who look.

use common::{DeviceId, Duration, Instant, Tier};

use super::{Coordinator, Phase};
use crate::exchange::Purpose;

/// What the run waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Waiting {
    /// The round that is open, or the next one.
    pub round: u32,
    pub purpose: Purpose,
    /// It was opened then; none while devices are gathered for it.
    pub opened: Option<Instant>,
    /// It has been open for noticeably longer than usual.
    pub is_long: bool,
    /// Devices that have not answered and are waited for, in DeviceId order.
    pub devices: Vec<WaitedFor>,
    /// While a round cannot begin.
    pub gathering: Option<Gathering>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WaitedFor {
    pub device: DeviceId,
    pub tier: Tier,
    /// Since when, if it is silent for longer than usual.
    pub silent: Option<Instant>,
    /// It is waited for until then at most; if it is silent, only if it stays so. None: without end.
    pub until: Option<Instant>,
}

/// Devices that are there, and devices that a round needs to begin.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Gathering {
    pub have: usize,
    pub need: usize,
}

/// A round is long after three times the usual time, and never before this one.
const LONG: Duration = Duration::from_secs(3);

impl Coordinator {
    /// What the run waits for; none while it waits for nothing but the disk, or is over.
    pub fn waiting(&self, now: Instant) -> Option<Waiting> {
        match &self.phase {
            Phase::Gathering => {
                let (have, need) = (self.fleet.connected().count(), self.needed());
                let gathering = Some(Gathering { have, need });
                let (round, over) = (self.committed + 1, self.committed >= self.settings.rounds);
                let purpose = if over { Purpose::Evaluate } else { Purpose::Train };
                Some(Waiting { round, purpose, opened: None, is_long: true, devices: vec![], gathering })
            }
            Phase::Collecting(round) => {
                let others = self.usual_time();
                let long = others.map_or(LONG, |usual| LONG.max(usual.times(3)));
                let devices = round.seats.expected().filter_map(|(device, tier)| {
                    let member = self.fleet.member(device)?;
                    let since = member.pulse.since();
                    let silent = Some(since).filter(|&since| member.past.is_unusual(round.kind, now - since));
                    let own = silent.and_then(|_| self.limit_of(device, others, now));
                    let until = own.into_iter().chain(self.end_of(round, tier)).min();
                    Some(WaitedFor { device: device.clone(), tier, silent, until })
                });
                Some(Waiting {
                    round: round.number,
                    purpose: round.purpose,
                    opened: Some(round.opened),
                    is_long: now - round.opened >= long,
                    devices: devices.collect(),
                    gathering: None,
                })
            }
            Phase::Opening | Phase::Closing | Phase::Finished { .. } => None,
        }
    }
}
