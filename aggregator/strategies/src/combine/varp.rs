//! FedVARP: updates are taken relative to the device's last one, and the mean of all last ones is added.
//!
//! ```text
//! step = (1/m) sum_S (D_i - y_i) + (1/N) sum_all y_i          then y_i = D_i for i in S
//! ```
//! With a strategy whose weights are those of the data, all participants count the same, as published;
//! other strategies keep their own weights in the first sum.

use crate::{
    cohort::Cohort,
    error::CombineError,
    kernel::{Scalar, sum},
    method::Varp,
    strategy::{Strategy, Weights},
    updates::{Row, Updates},
};

/// How much each participant counts: the same for all where the strategy would go by samples.
pub(crate) fn weigh(strategy: &dyn Strategy, cohort: &Cohort) -> Weights {
    let mut weights = strategy.weigh(cohort);
    let data = cohort.data_shares();
    if weights.shares().iter().zip(&data).all(|(share, data)| (share - data).abs() <= 1e-12) {
        weights.level();
    }
    weights
}

/// Updates minus what the device sent last.
pub(crate) struct Corrected<'a, U> {
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

    fn read<'a>(&'a mut self, row: Row<'_>, buffer: &'a mut Vec<f64>) -> Result<&'a [f64], U::Error> {
        let device = match row {
            Row::Update(_, participant) | Row::First(_, participant) => &participant.device,
            Row::Absent(_, absent) => &absent.device,
        };
        let mut raw = Vec::new();
        let update = self.updates.read(row, &mut raw)?;
        buffer.clear();
        buffer.extend(update.iter().map(|value| value.wide()));
        if let Some(last) = self.varp.last.get(device) {
            buffer.iter_mut().zip(last).for_each(|(value, last)| *value -= last);
        }
        Ok(buffer)
    }
}

impl Varp {
    /// Mean of the last updates over all devices of the fleet.
    pub(crate) fn mean(&self, cohort: &Cohort) -> Vec<f64> {
        let clients = cohort.clients().max(self.last.len()) as f64;
        let at = |index: usize| sum(self.last.values().filter_map(|last| last.get(index).copied())) / clients;
        (0..cohort.regions().parameters()).map(at).collect()
    }

    pub(crate) fn learn<U: Updates>(
        &mut self,
        cohort: &Cohort,
        updates: &mut U,
    ) -> Result<(), CombineError<U::Error>> {
        let mut buffer = Vec::new();
        for (index, participant) in cohort.participants().iter().enumerate() {
            let update = updates.read(Row::Update(index, participant), &mut buffer);
            let update = update.map_err(CombineError::Read)?.iter().map(|value| value.wide()).collect();
            self.last.insert(participant.device.clone(), update);
        }
        Ok(())
    }
}
