//! HeteroFL: per region j, `theta^(j) += eta * sum_{C(j)} n_i D_i^(j) / sum_{C(j)} n_i`.
//!
//! On tiers this is also what FedAvg does; the two names are kept because both are published and
//! because HeteroFL brings the `scaler`.

use super::{AverageParams, Build, Needs, Strategy, Weights};
use crate::combine::{Cohort, Participant};

#[derive(Clone, PartialEq, Debug, Default)]
pub struct HeteroFl {
    params: AverageParams,
}

impl Build for HeteroFl {
    type Params = AverageParams;

    fn build(params: AverageParams) -> Result<Self, String> {
        params.checked().map(|params| Self { params })
    }
}

impl Strategy for HeteroFl {
    fn name(&self) -> &'static str {
        "heterofl"
    }

    fn needs(&self) -> Needs {
        self.params.needs()
    }

    fn weigh(&self, cohort: &Cohort<'_>) -> Weights {
        Weights::per_device(cohort.participants().iter().map(Participant::samples).collect())
    }

    fn eta(&self) -> Option<f64> {
        self.params.eta
    }
}
