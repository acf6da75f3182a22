//! How many samples a device has: held against its first Hello and against its peers.
//!
//! ```text
//! x = ln n     c = median of the peers' x     s = 1.4826 min(median of x - c where that is not negative, 2 median |x - c|)
//! believed    x <= c + max(ln m, spread / 2 * s)     m from peer_samples / 6 where s = 0 to peer_samples where s >= 0.4
//! otherwise   it counts as the middle of its peers
//! ```
//! Peers are all of the tier that have ever taken part, so that a round of three knows them, too. Honest shards differ
//! by orders of magnitude, so the band is wide; but most of that is devices with hardly any samples (as in Dirichlet
//! partitions), which are no reason to believe in huge ones, so deviations are those above the middle. The second term is
//! for fleets in which more than a quarter lie. Too few samples are believed: nobody gains weight by them.

use std::collections::BTreeMap;

use common::{Code, DeviceId, Tier};

use super::{
    super::{Participant, cohort::Cohort},
    AGAINST, Findings, Guard, Mode, PEERS,
    band::{Band, count_bands},
};
use crate::fleet::DeviceRecord;

const ENROLMENT: &str = "is far from what it enrolled with";

impl Guard {
    /// Gives what is usual in every tier, as far as that is known.
    pub(super) fn check_samples(&self, cohort: &mut Cohort<'_>, findings: &mut Findings) -> Vec<Option<f64>> {
        let own: Vec<f64> =
            cohort.participants().iter().map(|participant| self.by_enrolment(participant)).collect();
        let bands = count_bands(&self.counts(cohort, &own), cohort.regions().tiers(), &self.config);
        for (index, own) in own.into_iter().enumerate() {
            let Some(participant) = cohort.participants().get(index) else { continue };
            let band = bands.get(participant.tier.index()).copied().flatten();
            let found_out = band.map(|band| band.usual().round().max(1.0));
            let found_out = found_out.filter(|&usual| cohort.credit(index) < 1.0 && own > usual);
            let (counted, why) = match (self.by_peers(&participant.device, own, band), found_out) {
                (Some(middle), _) => (middle, PEERS),
                (None, Some(middle)) => (middle, AGAINST),
                (None, None) => (own, ENROLMENT),
            };
            let known = self.devices.get(&participant.device);
            if let Some(past) = known.filter(|past| past.tier != participant.tier) {
                let tiers = (participant.tier.index() as f64, past.tier.index() as f64);
                findings.line(cohort, index, "tier", "noted", tiers, "is no longer in the tier it had");
            }
            let said = f64::from(cohort.samples_said(index));
            if counted != said {
                findings.note(cohort, index, "samples", Code::ImplausibleSamples, (said, counted), why);
                cohort.set_samples(index, counted as u32);
            }
        }
        bands.into_iter().map(|band| band.map(|band| band.usual().max(1.0))).collect()
    }

    /// The fleet with as many samples as can be believed, for strategies that start from everybody's counts.
    pub fn enrolled(&self, fleet: &BTreeMap<DeviceId, DeviceRecord>) -> Vec<DeviceRecord> {
        let mut records: Vec<_> = fleet.values().cloned().collect();
        if self.config.mode == Mode::Off {
            return records;
        }
        let said = |record: &DeviceRecord| (record.tier, f64::from(record.data.train_samples));
        let counts: Vec<_> = records.iter().map(said).collect();
        let tiers = counts.iter().map(|(tier, _)| tier.index() + 1).max().unwrap_or(0);
        let bands = count_bands(&counts, tiers, &self.config);
        for DeviceRecord { device, tier, data, .. } in &mut records {
            let band = bands.get(tier.index()).copied().flatten();
            if let Some(middle) = self.by_peers(device, data.train_samples.into(), band) {
                data.train_samples = middle as u32;
            }
            let (all, counted) =
                (data.groups.iter().map(|&n| f64::from(n)).sum::<f64>(), f64::from(data.train_samples));
            if all > self.config.samples * counted {
                data.groups.iter_mut().for_each(|n| *n = (f64::from(*n) * counted / all) as u32);
            }
        }
        records
    }

    /// What counts if nobody else is looked at.
    fn by_enrolment(&self, participant: &Participant) -> f64 {
        let said = participant.samples();
        let known = self.devices.get(&participant.device).map(|past| f64::from(past.samples));
        let differs =
            |&enrolled: &f64| said > enrolled * self.config.samples || said * self.config.samples < enrolled;
        known.filter(differs).map_or(said, |enrolled| enrolled.max(1.0))
    }

    /// What counts instead of more than the peers allow.
    pub(super) fn by_peers(&self, device: &DeviceId, count: f64, band: Option<Band>) -> Option<f64> {
        let band = band.filter(|band| count > band.limit && !self.config.large_shards.contains(device));
        band.map(|band| band.usual().round().max(1.0))
    }

    /// Of everybody who takes part or ever did.
    fn counts(&self, cohort: &Cohort<'_>, own: &[f64]) -> Vec<(Tier, f64)> {
        let absent = self.absent(cohort).map(|past| (past.tier, f64::from(past.samples)));
        cohort
            .participants()
            .iter()
            .map(|participant| participant.tier)
            .zip(own.iter().copied())
            .chain(absent)
            .collect()
    }
}
