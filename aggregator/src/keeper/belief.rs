//! What reports say of devices: what counts, not what was said.

use common::{DeviceId, Tier, message::Scalars};
use tracing::warn;

use super::Keeper;
use crate::{
    combine::{
        Cohort,
        guard::{self, GuardLine, Verdict},
    },
    report::RoundReport,
    round::{ClosedRound, Purpose},
    store::Entry,
    strategy::Kind,
};

/// What a device said, or what counts of it.
pub(super) type Delivered = (DeviceId, Tier, Scalars);

pub(super) fn delivered(entries: &[Entry]) -> Vec<Delivered> {
    let of = |Entry { header, .. }: &Entry| (header.device.clone(), header.tier, header.scalars.clone());
    entries.iter().map(of).collect()
}

pub(super) fn warn_of(lines: &[GuardLine]) {
    for GuardLine { device, what, action, why, said, counted, .. } in lines {
        warn!(device, what, action, said, counted, "{why}");
    }
}

impl Keeper {
    /// The scores of the final model, as far as they can be believed.
    pub(super) fn final_report(&self, mut closed: ClosedRound) -> RoundReport {
        let (regions, tiers) = (&self.model.regions, self.model.plans.len());
        let (mut cohort, norms) = (Cohort::new(regions, closed.lr.into()), vec![0.0; regions.sets().len()]);
        for (device, tier, scalars) in &closed.delivered {
            // Who can not be admitted is not judged by its losses.
            let _ = cohort.admit(device.clone(), *tier, scalars.clone(), &norms);
        }
        let Verdict { mut lines, refused, .. } = self.guard.inspect(&mut cohort, Kind::Losses);
        guard::count(&mut closed.delivered, &cohort, &lines);
        self.guard.check_scores(&mut closed.delivered, tiers, &mut lines);
        warn_of(&lines);
        RoundReport::new(&closed, Purpose::Evaluate, None, tiers).with_guard(lines, &refused)
    }
}
