//! Ditto: the global model is that of FedAvg; each device also trains a personal model v that stays there.
//!
//! ```text
//! v -= lr * (grad F_i(v) + lambda * (v - theta))       as many steps, after theta has been received
//! ```

use common::{DeviceId, brief::Brief};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    parameter::not_negative,
    registry::Build,
    strategy::{Exchange, Needs, Strategy},
};

/// Parameters of `ditto`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DittoParams {
    /// Pull of the personal models towards the global one; 0: purely local models.
    pub lambda: f64,
}

impl Default for DittoParams {
    fn default() -> Self {
        Self { lambda: 0.5 }
    }
}

/// FedAvg, and a personal model that never leaves the device.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Ditto {
    params: DittoParams,
}

impl Build for Ditto {
    const NAME: &'static str = "ditto";
    const ABOUT: &'static str = "FedAvg, and a personal model that never leaves the device";

    type Params = DittoParams;

    fn build(params: DittoParams) -> Result<Self, String> {
        // As devices receive it.
        not_negative("lambda", f64::from(params.lambda as f32))?;
        Ok(Self { params })
    }
}

impl Strategy for Ditto {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn uses_loss(&self, _trained: bool) -> bool {
        false
    }

    fn needs(&self) -> Needs {
        Needs { personal: true, ..Needs::default() }
    }

    fn brief(&self, _: &DeviceId, _: &[Exchange], brief: &mut Brief) {
        brief.personal = Some(self.params.lambda as f32);
    }
}

#[cfg(test)]
mod tests {
    use crate::method::by_name;
    use serde_json::{Value, json};

    use super::{super::fleet::Fleet, *};

    #[test]
    fn devices_keep_a_model_and_the_server_averages() {
        let personal = |params: Value| {
            let mut brief = Brief::sgd(1, 10, 0.1, 0);
            by_name("ditto", params).unwrap().brief(&"a".parse().unwrap(), &[], &mut brief);
            brief.personal
        };
        assert_eq!([personal(Value::Null), personal(json!({"lambda": 0}))], [Some(0.5), Some(0.0)]);
        assert!(by_name("ditto", Value::Null).unwrap().needs().personal);
        let fleet = Fleet::random(4, 3, false);
        let run = |name| fleet.combine(&mut by_name(name, Value::Null).unwrap());
        assert_eq!(run("ditto"), run("fedavg"));
    }

    #[test]
    fn parameters_are_checked() {
        for lambda in [-1.0, 1e39] {
            let why = by_name("ditto", json!({"lambda": lambda})).unwrap_err().to_string();
            assert!(why.contains("`lambda` must be 0 or more"), "{why}");
        }
    }
}
