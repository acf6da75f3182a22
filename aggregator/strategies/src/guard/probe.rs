//! Opt-in, `probe = FILE`: devices whose updates keep pointing away from the gateway's own samples do not count.
//!
//! ```text
//! D_0  one epoch on the probe's samples, from the model that devices received
//! e_i <- 0.9 e_i + 0.1 cos(D_i, D_0)        over i's slice; e_i = 0 at first; e_i < -0.3: left out from the next round on
//! ```
//! The probe uses labels, which the updates alone do not show, so it stops flipped updates. It helps a minority whose classes
//! are in the probe, and hurts one whose data are not: therefore it is opt-in. `e_i` is updated while a device is left out, so
//! the device can return.

use std::collections::BTreeMap;

use common::{Code, DeviceId, Tier, region::Piece};

use super::{Findings, Guard};
use crate::{
    cohort::Cohort,
    error::CombineError,
    kernel::Scalar,
    updates::{UpdateRef, Updates},
};

const SMOOTHING: f64 = 0.9;
const LEAVE_OUT_BELOW: f64 = -0.3;

impl Guard {
    /// Removes the devices that point away from the probe.
    pub(super) fn leave_out(
        &self,
        cohort: &mut Cohort,
        findings: &mut Findings<'_>,
    ) -> Vec<(DeviceId, Tier)> {
        let mut left_out = vec![];
        if self.config.probe.as_os_str().is_empty() {
            return left_out;
        }
        for index in (0..cohort.participants().len()).rev() {
            let device = &cohort.participants()[index].device;
            let Some(&alignment) = self.state.probe.get(device) else { continue };
            if alignment < LEAVE_OUT_BELOW {
                findings.add(
                    cohort,
                    index,
                    "probe",
                    (alignment, 0.0),
                    "points away from the gateway's probe",
                );
                left_out.push(cohort.remove(index, Code::PointsAway));
            }
        }
        left_out.reverse();
        left_out
    }

    /// Adds a round in which updates were compared with the probe's.
    pub fn note_probe(&mut self, cosines: &BTreeMap<DeviceId, f64>) {
        for (device, cosine) in cosines {
            let alignment = self.state.probe.entry(device.clone()).or_default();
            *alignment = SMOOTHING * *alignment + (1.0 - SMOOTHING) * cosine;
        }
    }
}

/// Cosine of every update with `own`, a vector over the whole model; absent if one of them is 0.
pub fn cosines<U: Updates>(
    cohort: &Cohort,
    own: &[f64],
    updates: &mut U,
) -> Result<BTreeMap<DeviceId, f64>, CombineError<U::Error>> {
    let (mut found, mut buffer) = (BTreeMap::new(), Vec::new());
    let parameters = cohort.regions().parameters();
    if own.len() != parameters {
        return Err(CombineError::Model { expected: parameters, got: own.len() });
    }
    for (index, participant) in cohort.participants().iter().enumerate() {
        let sent = UpdateRef::Update(index, participant);
        let update = updates.read(sent, &mut buffer).map_err(CombineError::Read)?;
        sent.check_len(cohort.regions(), update.len())?;
        let (mut product, mut squares) = (0.0, [0.0, 0.0]);
        for &Piece { full, packed, len, .. } in cohort.regions().pieces(participant.tier) {
            let (update, own) = (&update[packed..packed + len], &own[full..full + len]);
            for (update, own) in update.iter().map(|value| value.wide()).zip(own) {
                product += update * own;
                squares[0] += update * update;
                squares[1] += own * own;
            }
        }
        let length = (squares[0] * squares[1]).sqrt();
        if length > 0.0 {
            found.insert(participant.device.clone(), product / length);
        }
    }
    Ok(found)
}
