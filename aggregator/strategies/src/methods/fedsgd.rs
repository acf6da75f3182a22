//! FedSGD: devices send the full gradient at the received model and make no step of their own.
//!
//! ```text
//! theta^(j) -= lr * sum_{C(j)} n_i g_i^(j) / sum_{C(j)} n_i
//! ```
//! Gradients arrive where updates otherwise do, so the step is that of FedAvg times -lr.

use common::brief::Product;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    cohort::Cohort,
    parameter::positive,
    registry::Build,
    strategy::{Mix, Needs, Strategy, TierSums},
};

/// Parameters of `fedsgd`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FedSgdParams {
    /// Length of the step; absent: the learning rate of the devices.
    pub lr: Option<f64>,
}

/// One full gradient from each device, no local steps.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct FedSgd {
    params: FedSgdParams,
}

impl Build for FedSgd {
    const NAME: &'static str = "fedsgd";
    const ABOUT: &'static str = "one full gradient from each device, no local steps";

    type Params = FedSgdParams;

    fn build(params: FedSgdParams) -> Result<Self, String> {
        params.lr.map(|lr| positive("lr", lr)).transpose()?;
        Ok(Self { params })
    }
}

impl Strategy for FedSgd {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn uses_lr(&self) -> bool {
        self.params.lr.is_none()
    }

    fn uses_loss(&self, _trained: bool) -> bool {
        false
    }

    fn needs(&self) -> Needs {
        Needs { product: Product::Gradient, gradients: true, ..Needs::default() }
    }

    fn mix(&self, cohort: &Cohort, sums: &TierSums) -> Mix {
        let mut mix = Mix::mean(cohort.regions(), sums);
        mix.scale(-self.params.lr.unwrap_or(cohort.lr));
        mix
    }
}

#[cfg(test)]
mod tests {
    use crate::method::by_name;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::{
        super::fleet::{Fleet, assert_close},
        *,
    };

    /// One device moves by its gradient.
    #[test]
    fn one_gradient() {
        let mut fleet = Fleet::new(&[1.0, 2.0], 0.5, &[&[0, 1]]);
        fleet.add("a", 0, 7, 1.0, &[2.0, -4.0]);
        assert_eq!(fleet.combine(&mut by_name("fedsgd", Value::Null).unwrap()).0, [0.0, 4.0]);
        assert_eq!(fleet.combine(&mut by_name("fedsgd", json!({"lr": 0.25})).unwrap()).0, [0.5, 3.0]);
    }

    #[test]
    fn gradients_are_asked_for() {
        let method = by_name("fedsgd", Value::Null).unwrap();
        assert_eq!((method.needs().product, method.needs().gradients), (Product::Gradient, true));
        assert!(by_name("fedsgd", json!({"lr": 0})).unwrap_err().to_string().contains("above 0"));
        assert!(by_name("fedsgd", json!({"varp": true})).is_err());
    }

    proptest! {
        #[test]
        fn as_fedavg_with_updates_of_one_step(seed: u64, tiers in 1usize..5, nested: bool) {
            let fleet = Fleet::random(seed, tiers, nested);
            let mut steps = fleet.clone();
            for member in &mut steps.devices {
                member.update.iter_mut().for_each(|value| *value *= -fleet.lr);
            }
            let (theta, _) = fleet.combine(&mut by_name("fedsgd", Value::Null).unwrap());
            assert_close(&theta, &steps.weighted_mean(|member| f64::from(member.samples)), 1e-12);
        }
    }
}
