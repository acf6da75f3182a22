//! FedVARP: takes updates relative to the device's last one, and adds the mean of all last ones.
//!
//! ```text
//! step = (1/m) sum_S (D_i - y_i) + (1/N) sum_all y_i          then y_i = D_i for i in S
//! ```
//! With a strategy that weighs by samples, all participants count the same, as published. Other strategies keep their own
//! weights in the first sum.

use common::Tier;

use crate::{
    cohort::Cohort,
    combine::weigh_checked,
    error::{CombineError, StrategyError},
    kernel::{Scalar, sum},
    method::Varp,
    strategy::{Strategy, Weights},
    updates::{UpdateRef, Updates},
};

/// How much each participant counts: the same for all if the strategy weighs by samples.
pub(super) fn weigh(strategy: &dyn Strategy, cohort: &Cohort) -> Result<Weights, StrategyError> {
    let mut weights = weigh_checked(strategy, cohort)?;
    let data = cohort.data_shares();
    if weights.shares().iter().zip(&data).all(|(share, data)| (share - data).abs() <= 1e-12) {
        weights.equalise();
    }
    Ok(weights)
}

/// Updates minus the last update of the same device.
pub(super) struct Corrected<'a, U> {
    updates: &'a mut U,
    varp: &'a Varp,
}

impl<'a, U> Corrected<'a, U> {
    pub fn new(updates: &'a mut U, varp: &'a Varp) -> Self {
        Self { updates, varp }
    }
}

impl<U: Updates> Updates for Corrected<'_, U> {
    type Value = f64;
    type Error = U::Error;

    fn read<'a>(&'a mut self, which: UpdateRef<'_>, buffer: &'a mut Vec<f64>) -> Result<&'a [f64], U::Error> {
        let mut raw = Vec::new();
        let update = self.updates.read(which, &mut raw)?;
        buffer.clear();
        buffer.extend(update.iter().map(|value| value.wide()));
        if let Some(last) = self.varp.last.get(which.device()) {
            buffer.iter_mut().zip(last).for_each(|(value, last)| *value -= last);
        }
        Ok(buffer)
    }
}

impl Varp {
    /// Mean of the last updates over all devices of the fleet.
    pub(super) fn mean(&self, cohort: &Cohort) -> Vec<f64> {
        let clients = cohort.clients().max(self.last.len()) as f64;
        let regions = cohort.regions();
        let mut mean = vec![0.0; regions.parameters()];
        // There is one tier; see `Method::fits`.
        for piece in (0..regions.tiers()).map_while(Tier::new).flat_map(|tier| regions.pieces(tier)) {
            for (place, mean) in mean[piece.full..piece.full + piece.len].iter_mut().enumerate() {
                *mean = sum(self.last.values().map(|last| last[piece.packed + place])) / clients;
            }
        }
        mean
    }

    pub(super) fn learn<U: Updates>(
        &mut self,
        cohort: &Cohort,
        updates: &mut U,
    ) -> Result<(), CombineError<U::Error>> {
        let mut buffer = Vec::new();
        for (index, participant) in cohort.participants().iter().enumerate() {
            let sent = UpdateRef::Update(index, participant);
            let update = updates.read(sent, &mut buffer).map_err(CombineError::Read)?;
            sent.check_len(cohort.regions(), update.len())?;
            let update = update.iter().map(|value| value.wide()).collect();
            self.last.insert(participant.device.clone(), update);
        }
        Ok(())
    }
}
