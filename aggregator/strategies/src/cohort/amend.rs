//! Changes that the guard makes in a cohort before a strategy sees it.

use common::{
    Code, DeviceId, Tier,
    message::{Scalars, Validation},
};

use super::{Cohort, Participant};

impl Cohort {
    /// Removes a participant and notes why.
    pub(crate) fn remove(&mut self, index: usize, code: Code) -> (DeviceId, Tier) {
        let Participant { device, tier, .. } = self.participants.remove(index);
        self.norms.remove(index);
        if !self.device_weights.is_empty() {
            self.device_weights.remove(index);
        }
        self.refuse(device.clone(), code);
        (device, tier)
    }

    /// Replaces F_i.
    pub(crate) fn set_loss(&mut self, index: usize, loss: f64) {
        self.participants[index].loss = loss;
    }

    /// Replaces FK_i.
    pub(crate) fn set_loss_after(&mut self, index: usize, loss: f64) {
        self.participants[index].loss_after = Some(loss);
    }

    /// Replaces x_i and v_i.
    pub(crate) fn set_validation(&mut self, index: usize, validation: Validation) {
        self.participants[index].validation = Some(validation);
    }

    /// Changes the scalars that only some strategies ask for. Does nothing for a participant without any.
    pub(crate) fn amend(&mut self, index: usize, change: impl FnOnce(&mut Scalars)) {
        if let Some(extra) = &mut self.participants[index].extra {
            change(extra);
        }
    }

    /// Shortens the update by this factor.
    pub(crate) fn scale_norms(&mut self, index: usize, scale: f64) {
        self.norms.row_mut(index).iter_mut().for_each(|norm| *norm *= scale * scale);
    }
}
