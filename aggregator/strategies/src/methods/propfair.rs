//! PropFair: maximises `sum_i p_i ln(M - F_i)`. Devices replace the loss l of a batch by
//!
//! ```text
//! phi(l) = -ln(M - l)                          if M - l >= eps
//!          -ln(eps) + (eps - (M - l)) / eps    else          phi'(l) = 1 / max(M - l, eps)
//! ```
//! and the server averages as FedAvg does.

use common::{
    DeviceId,
    brief::{Brief, PropFair as Transform},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    parameter::positive,
    registry::Build,
    strategy::{Exchange, Strategy},
};

/// Parameters of `propfair`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PropFairParams {
    /// The loss at which a device gains nothing; above the loss of the first model.
    #[serde(rename = "M")]
    pub m: f64,
    /// Distance to M below which the logarithm continues as a line.
    pub eps: f64,
}

impl Default for PropFairParams {
    fn default() -> Self {
        Self { m: 5.0, eps: 0.2 }
    }
}

/// Proportional fairness, computed on the device.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PropFair {
    params: PropFairParams,
}

impl Build for PropFair {
    const NAME: &'static str = "propfair";
    const ABOUT: &'static str = "proportional fairness, computed on the device";

    type Params = PropFairParams;

    fn build(params: PropFairParams) -> Result<Self, String> {
        // As devices receive them.
        positive("M", f64::from(params.m as f32))?;
        positive("eps", f64::from(params.eps as f32))?;
        Ok(Self { params })
    }
}

impl Strategy for PropFair {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn uses_loss(&self, _trained: bool) -> bool {
        false
    }

    fn brief(&self, _: &DeviceId, _: &[Exchange], brief: &mut Brief) {
        brief.objective.transform = Some(Transform { m: self.params.m as f32, eps: self.params.eps as f32 });
    }
}

#[cfg(test)]
mod tests {
    use crate::method::by_name;
    use serde_json::{Value, json};

    use super::{super::fleet::Fleet, *};

    #[test]
    fn devices_transform_and_the_server_averages() {
        let transform = |params: Value| {
            let mut brief = Brief::sgd(1, 10, 0.1, 0);
            by_name("propfair", params).unwrap().brief(&"a".parse().unwrap(), &[], &mut brief);
            brief.objective.transform
        };
        assert_eq!(transform(Value::Null), Some(Transform { m: 5.0, eps: 0.2 }));
        assert_eq!(transform(json!({"M": 2, "eps": 0.5})), Some(Transform { m: 2.0, eps: 0.5 }));
        let fleet = Fleet::random(4, 3, false);
        let run = |name| fleet.combine(&mut by_name(name, Value::Null).unwrap());
        assert_eq!(run("propfair"), run("fedavg"));
    }

    #[test]
    fn parameters_are_checked() {
        for (params, key) in
            [(json!({"M": 0}), "`M`"), (json!({"eps": 0}), "`eps`"), (json!({"m": 1}), "`m`")]
        {
            let why = by_name("propfair", params).unwrap_err().to_string();
            assert!(why.contains(key), "{why}");
        }
    }
}
