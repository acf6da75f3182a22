//! HeteroFL: per region j, `theta^(j) += eta * sum_{C(j)} n_i D_i^(j) / sum_{C(j)} n_i`.
//!
//! On tiers FedAvg does the same. Both names are kept because both are published, and because HeteroFL adds the `scaler`.

use crate::{
    cohort::{Cohort, Participant},
    methods::AverageParams,
    registry::Build,
    strategy::{Needs, Strategy, Weights},
};

/// The same as `fedavg`, under the name of its paper for sliced models.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct HeteroFl {
    params: AverageParams,
}

impl Build for HeteroFl {
    const NAME: &'static str = "heterofl";
    const ABOUT: &'static str = "the same as `fedavg`, under the name of its paper for sliced models";

    type Params = AverageParams;

    fn build(params: AverageParams) -> Result<Self, String> {
        params.checked().map(|params| Self { params })
    }
}

impl Strategy for HeteroFl {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn uses_loss(&self, _trained: bool) -> bool {
        false
    }

    fn needs(&self) -> Needs {
        self.params.needs()
    }

    fn weigh(&self, cohort: &Cohort) -> Weights {
        Weights::per_device(cohort.participants().iter().map(Participant::samples).collect())
    }

    fn eta(&self) -> Option<f64> {
        self.params.eta
    }
}
