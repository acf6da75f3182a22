//! FedRolex: rolling windows (Alam, Liu, Yan, Zhang: "FedRolex: Model-Heterogeneous Federated Learning with Rolling Sub-Model
//! Extraction", NeurIPS 2022).
//!
//! ```text
//! round t, tier m, hidden axis of K units, of which the tier holds k:
//!     window   S = {t mod K, (t + 1) mod K, .. (t + k - 1) mod K}
//!     theta_c += eta * sum_{C(c)} n_i D_i,c / sum_{C(c)} n_i         over the devices whose window holds coordinate c
//! ```
//! A tier always holds the first units of an axis here. So the units roll, not the window: after every round, unit 1 of each
//! hidden axis becomes the first one, and the first one the last. The model computes the same, and the first k units are then
//! those of the next window. Regions, Plans and messages stay as they are.
//!
//! Differences from the paper: devices weigh by their samples, as its equation has it and its program has not. Its figures
//! are those of the whole model on the server; a device here predicts with its tier's present window.

use crate::{
    methods::AverageParams,
    registry::Build,
    strategy::{Needs, Strategy},
};

/// HeteroFL with windows that roll over the hidden units.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct FedRolex {
    params: AverageParams,
}

impl Build for FedRolex {
    const NAME: &'static str = "fedrolex";
    const ABOUT: &'static str =
        "mean weighted by samples; tiers hold other units in every round, so that all of them are trained";

    type Params = AverageParams;

    fn build(params: AverageParams) -> Result<Self, String> {
        params.checked().map(|params| Self { params })
    }
}

impl Strategy for FedRolex {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn uses_loss(&self, _trained: bool) -> bool {
        false
    }

    fn needs(&self) -> Needs {
        self.params.needs()
    }

    fn eta(&self) -> Option<f64> {
        self.params.eta
    }

    fn rolls(&self) -> bool {
        true
    }
}
