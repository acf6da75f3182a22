//! Client parity: the same loss on every device.
//!
//! Client 0 is the device with the smallest id. For all others:
//!
//! ```text
//! mu_i = L_i - L_0        lambda <- nearest point of {lambda >= 0, sum <= 1} to lambda + alpha_t * mu
//! v_i  = n lambda_i/n_i,  v_0 = n (1 - sum lambda)/n_0        start lambda_i = n_i/n, where all v are 1
//! ```
//! A device that does not answer counts with its last known loss; without one, mu_i = 0. Without a loss of client 0 there is no
//! step. v is the same for all samples of a device, so it changes how much the device counts, not how it trains.

use std::collections::BTreeMap;

use common::DeviceId;

use crate::{
    kernel::sum,
    methods::{
        fedfb::step_size::{StepSize, move_by},
        simplex::project_below,
    },
};

/// See the module.
#[derive(Clone, PartialEq, Debug)]
pub struct ClientParity {
    samples: BTreeMap<DeviceId, f64>,
    /// All devices but client 0.
    lambda: BTreeMap<DeviceId, f64>,
    /// Last known losses.
    losses: BTreeMap<DeviceId, f64>,
}

impl ClientParity {
    /// The start. Devices that `samples` does not name are left out.
    pub fn new(samples: BTreeMap<DeviceId, f64>) -> Self {
        let n = sum(samples.values().copied());
        let share = |(device, samples): (&DeviceId, &f64)| (device.clone(), samples / n);
        let lambda = samples.iter().skip(1).map(share).collect();
        Self { samples, lambda, losses: BTreeMap::new() }
    }

    /// Continues from earlier values; devices that are not named keep those of the start.
    pub fn resume(&mut self, lambda: &BTreeMap<DeviceId, f64>, losses: &BTreeMap<DeviceId, f64>) {
        for (device, slot) in &mut self.lambda {
            *slot = lambda.get(device).copied().unwrap_or(*slot);
        }
        self.losses.clone_from(losses);
    }

    /// Samples by device.
    pub fn samples(&self) -> &BTreeMap<DeviceId, f64> {
        &self.samples
    }

    /// Weights by device; the first device has none.
    pub fn lambda(&self) -> &BTreeMap<DeviceId, f64> {
        &self.lambda
    }

    /// Last losses by device.
    pub fn losses(&self) -> &BTreeMap<DeviceId, f64> {
        &self.losses
    }

    /// One step with the losses that arrived in round t.
    pub fn step<'a>(
        &mut self,
        heard: impl IntoIterator<Item = (&'a DeviceId, f64)>,
        step_size: StepSize,
        t: u32,
    ) {
        for (device, loss) in heard {
            if self.samples.contains_key(device) {
                self.losses.insert(device.clone(), loss);
            }
        }
        let first = self.samples.keys().next();
        let Some(reference) = first.and_then(|first| self.losses.get(first)).copied() else { return };
        let gap = |device| self.losses.get(device).map_or(0.0, |loss| loss - reference);
        let mu: Vec<f64> = self.lambda.keys().map(gap).collect();
        let lambda: Vec<f64> = self.lambda.values().copied().collect();
        if let Some(moved) = move_by(&lambda, &mu, step_size, t) {
            self.lambda.values_mut().zip(project_below(&moved, 1.0)).for_each(|(slot, value)| *slot = value);
        }
    }

    /// v of every device.
    pub fn weights(&self) -> BTreeMap<DeviceId, f64> {
        let n = sum(self.samples.values().copied());
        let rest = 1.0 - sum(self.lambda.values().copied());
        let of = |(device, samples): (&DeviceId, &f64)| {
            let lambda = self.lambda.get(device).copied().unwrap_or(rest);
            (device.clone(), (n * lambda / samples).max(0.0))
        };
        self.samples.iter().map(of).collect()
    }
}
