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
    /// The loss at which a device has gained nothing; above the loss of the first model.
    #[serde(rename = "M")]
    pub m: f64,
    /// Distance to M from where the logarithm goes on as a line.
    pub eps: f64,
}

impl Default for PropFairParams {
    fn default() -> Self {
        Self { m: 5.0, eps: 0.2 }
    }
}

impl PropFairParams {
    /// What devices minimise in place of the loss.
    pub fn phi(&self, loss: f64) -> f64 {
        let room = self.m - loss;
        if room >= self.eps { -room.ln() } else { -self.eps.ln() + (self.eps - room) / self.eps }
    }

    /// The factor that the gradient of the loss gets.
    pub fn slope(&self, loss: f64) -> f64 {
        1.0 / (self.m - loss).max(self.eps)
    }
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct PropFair {
    params: PropFairParams,
}

impl Build for PropFair {
    const NAME: &'static str = "propfair";
    const ABOUT: &'static str = "proportional fairness, computed on the device";

    type Params = PropFairParams;

    fn build(params: PropFairParams) -> Result<Self, String> {
        // As devices will see them.
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
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::{
        super::fleet::{Fleet, assert_close},
        *,
    };

    #[test]
    fn worked_numbers() {
        let params = PropFairParams { m: 2.0, eps: 0.2 };
        let losses = [0.5, 1.8, 2.5];
        let phi = [-0.4054651081, 1.6094379124, 5.1094379124];
        assert_close(&losses.map(|loss| params.phi(loss)), &phi, 1e-10);
        assert_close(&losses.map(|loss| params.slope(loss)), &[0.6666666667, 5.0, 5.0], 1e-10);
    }

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

    proptest! {
        /// Property 17: value and slope meet where the line begins, and the slope is that of phi everywhere.
        #[test]
        fn one_smooth_curve(m in 0.2..10.0f64, eps in 0.05..1.0f64, away in -3.0..3.0f64) {
            let params = PropFairParams { m, eps };
            let joint = m - eps;
            let (left, right) = (joint - 1e-9, joint + 1e-9);
            prop_assert!((params.phi(left) - params.phi(right)).abs() < 1e-7);
            prop_assert!((params.slope(left) - params.slope(right)).abs() < 1e-5);
            let loss = joint + away;
            let step = 1e-6;
            let slope = (params.phi(loss + step) - params.phi(loss - step)) / (2.0 * step);
            prop_assert!((slope - params.slope(loss)).abs() < 1e-3 * slope.abs());
        }
    }
}
