//! FedProx: devices minimise `F_i(w) + (mu/2) ||w - theta||^2`; the rest is FedAvg.

use common::{DeviceId, brief::Brief};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    parameter::not_negative,
    registry::Build,
    strategy::{Exchange, Strategy},
};

/// Parameters of `fedprox`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FedProxParams {
    /// Pull towards the received model; 0 is FedAvg.
    pub mu: f64,
}

impl Default for FedProxParams {
    fn default() -> Self {
        Self { mu: 0.1 }
    }
}

/// Devices are pulled towards the received model.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct FedProx {
    params: FedProxParams,
}

impl Build for FedProx {
    const NAME: &'static str = "fedprox";
    const ABOUT: &'static str = "devices are pulled towards the received model";

    type Params = FedProxParams;

    fn build(params: FedProxParams) -> Result<Self, String> {
        // As devices receive it.
        not_negative("mu", f64::from(params.mu as f32))?;
        Ok(Self { params })
    }
}

impl Strategy for FedProx {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn uses_loss(&self, _trained: bool) -> bool {
        false
    }

    fn brief(&self, _: &DeviceId, _: &[Exchange], brief: &mut Brief) {
        brief.objective.prox = self.params.mu as f32;
    }
}

#[cfg(test)]
mod tests {
    use crate::method::by_name;
    use serde_json::{Value, json};

    use super::{super::fleet::Fleet, *};

    #[test]
    fn devices_are_pulled_and_the_server_averages() {
        let prox = |params: Value| {
            let mut brief = Brief::sgd(1, 10, 0.1, 0);
            by_name("fedprox", params).unwrap().brief(&"a".parse().unwrap(), &[], &mut brief);
            brief.objective.prox
        };
        assert_eq!([prox(Value::Null), prox(json!({"mu": 0})), prox(json!({"mu": 2}))], [0.1, 0.0, 2.0]);
        let fleet = Fleet::random(4, 3, false);
        let run = |name| fleet.combine(&mut by_name(name, Value::Null).unwrap());
        assert_eq!(run("fedprox"), run("fedavg"));
    }

    #[test]
    fn parameters_are_checked() {
        for mu in [-0.1, 1e300] {
            let why = by_name("fedprox", json!({"mu": mu})).unwrap_err().to_string();
            assert!(why.contains("`mu` must be 0 or more"), "{why}");
        }
    }
}
