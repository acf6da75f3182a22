//! AAggFF: mixing coefficients p over all K clients as decisions of an online learner (Hahn, Kim, Lee: "Pursuing Overall Welfare
//! in Federated Learning through Sequential Decision Making", ICML 2024). With `form = "devices"` AAggFF-D, for many devices of
//! which a share C takes part; with `form = "silos"` AAggFF-S, for few clients that all take part: [`silos`].
//!
//! AAggFF-D:
//!
//! ```text
//! x_i  = F_i / mean F          r_i = C * cdf(x_i)          rbar = mean r              over the participants of the round
//! r~_i = rbar + (r_i - rbar) / C  for participants, rbar for others                   doubly robust estimate
//! loss of a decision: -ln(1 + <p, r>), its gradient linearised at rbar:
//!        g_i = -r~_i / (1 + rbar) + rbar <p, r~ - rbar> / (1 + rbar)^2
//! p_i  = exp(-b sum_t g_i) / sum_k exp(..)       b = sqrt(ln K) / ((2 + C) sqrt(t + 1))       FTRL with the entropy
//! theta^(j) += sum_{C(j)} p_i D_i^(j) / sum_{C(j)} p_i                                        p after this round's losses
//! ```
//! What all clients have in common cancels in p. There remains `S_i = sum_t (r_i - rbar) / (C (1 + rbar))` over the rounds in which i
//! took part, and p_i is proportional to `exp(b S_i)`: the state names only these clients, and others have S = 0.
//!
//! Formulas follow the paper as the authors' program computes them. Differences: their program leaves rbar out of r~ for
//! participants, and turns the normal distribution round. Here r~ is as in the paper, and `cdf` rises with the loss. Not verified
//! against the paper's text: the constant 2 + C, and its choice of `cdf`.

use std::collections::BTreeMap;

use common::DeviceId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    cohort::Cohort,
    error::StrategyError,
    kernel::sum,
    methods::softmax::{exp_shares, greatest, of_members},
    registry::Build,
    strategy::{Exchange, FleetDevice, Strategy, Weights, decode_state},
};

mod silos;
use silos::Silos;

/// Parameters of `aaggff`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AaggffParams {
    /// How losses, divided by their mean, become responses from 0 to 1.
    pub cdf: ResponseCdf,
    /// The online learner: for many devices that take part in turn, or for few that always do. That of `silos` keeps K x K numbers
    /// for K devices.
    pub form: AaggffForm,
}

/// One of the two learners of the paper.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AaggffForm {
    /// AAggFF-D: exponential weights.
    #[default]
    Devices,
    /// AAggFF-S: an online Newton step.
    Silos,
}

/// A distribution function with mean or scale 1.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ResponseCdf {
    /// Mean 1, deviation 1.
    #[default]
    Normal,
    /// `1 - exp(-x^2)`
    Weibull,
    /// `1 - exp(-x)`
    Exponential,
    /// `exp(-1/x)`
    Frechet,
    /// `exp(-exp(1 - x))`
    Gumbel,
    /// `1 / (1 + exp(1 - x))`
    Logistic,
}

impl ResponseCdf {
    fn at(self, x: f64) -> f64 {
        match self {
            Self::Normal => 0.5 * libm::erfc((1.0 - x) / std::f64::consts::SQRT_2),
            Self::Weibull => -(-x * x).exp_m1(),
            Self::Exponential => -(-x).exp_m1(),
            Self::Frechet if x > 0.0 => (-1.0 / x).exp(),
            Self::Frechet => 0.0,
            Self::Gumbel => (-(1.0 - x).exp()).exp(),
            Self::Logistic => 1.0 / (1.0 + (1.0 - x).exp()),
        }
    }
}

/// Weights by an online learner that favours clients with high losses.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Aaggff {
    params: AaggffParams,
    state: AaggffState,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct AaggffState {
    /// S of the clients that have taken part.
    sums: BTreeMap<DeviceId, f64>,
    /// t: rounds so far.
    rounds: u32,
    /// With `form = "silos"`.
    #[serde(skip_serializing_if = "Silos::is_empty")]
    silos: Silos,
}

impl Build for Aaggff {
    const NAME: &'static str = "aaggff";
    const ABOUT: &'static str = "weights by an online learner that favours clients with high losses";

    type Params = AaggffParams;

    fn build(params: AaggffParams) -> Result<Self, String> {
        Ok(Self { params, state: AaggffState::default() })
    }
}

impl Strategy for Aaggff {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn begin(&mut self, fleet: &[FleetDevice<'_>]) {
        if self.params.form == AaggffForm::Silos {
            self.state.silos.join(fleet.iter().map(|member| member.device));
        }
    }

    fn weigh(&self, cohort: &Cohort) -> Weights {
        if self.params.form == AaggffForm::Silos {
            let decision = self.silos_with(cohort).decisions(cohort);
            return Weights::by_region(cohort, |members| silos::scaled(&of_members(&decision, members)));
        }
        let logs = self.logs(cohort);
        Weights::by_region(cohort, |members| exp_shares(&of_members(&logs, members)))
    }

    /// The first decision is the same for all.
    fn base_weights(&self, cohort: &Cohort) -> Vec<f64> {
        vec![1.0; cohort.participants().len()]
    }

    fn learn(&mut self, cohort: &Cohort, _: &[Exchange]) {
        if self.params.form == AaggffForm::Silos {
            self.state.silos = self.silos_with(cohort);
            self.state.rounds = self.state.rounds.saturating_add(1);
            return;
        }
        let sums = self.sums_with(cohort);
        for (participant, sum) in cohort.participants().iter().zip(sums) {
            self.state.sums.insert(participant.device.clone(), sum);
        }
        self.state.rounds = self.state.rounds.saturating_add(1);
    }

    fn save(&self) -> Value {
        // What `begin` has shown is part of the state.
        if self.state.rounds == 0 && self.state.silos.is_empty() { Value::Null } else { json!(self.state) }
    }

    fn restore(&mut self, saved: Value) -> Result<(), StrategyError> {
        let state: AaggffState = decode_state(self.name(), saved)?;
        if let Some((device, sum)) = state.sums.iter().find(|(_, sum)| !sum.is_finite()) {
            let why = format!("`sums.{device}` must be a number, not {sum}");
            return Err(StrategyError::State { strategy: self.name(), why });
        }
        state.silos.check().map_err(|why| StrategyError::State { strategy: self.name(), why })?;
        self.state = state;
        Ok(())
    }
}

impl Aaggff {
    /// b S of the participants after this round.
    fn logs(&self, cohort: &Cohort) -> Vec<f64> {
        let clients = cohort.clients().max(1) as f64;
        let share = cohort.participants().len() as f64 / clients;
        // t + 1, where t counts this round.
        let time = f64::from(self.state.rounds) + 2.0;
        let b = clients.ln().sqrt() / ((2.0 + share) * time.sqrt());
        self.sums_with(cohort).into_iter().map(|sum| b * sum).collect()
    }

    /// cdf(F_i / mean F) of the participants.
    fn responses(&self, cohort: &Cohort) -> Vec<f64> {
        let participants = cohort.participants();
        // Divided by the largest first, so that the mean of huge losses exists.
        let top = greatest(participants.iter().map(|participant| participant.loss()));
        let relative = |loss: f64| if top > 0.0 { loss / top } else { 1.0 };
        let count = participants.len() as f64;
        let mean = sum(participants.iter().map(|participant| relative(participant.loss()))) / count;
        let response = |loss: f64| self.params.cdf.at(relative(loss) / mean);
        participants.iter().map(|participant| response(participant.loss())).collect()
    }

    /// The other learner after this round.
    fn silos_with(&self, cohort: &Cohort) -> Silos {
        let devices = cohort.participants().iter().map(|participant| &participant.device);
        let mut silos = self.state.silos.clone();
        silos.join(devices.clone());
        silos.learn(&devices.zip(self.responses(cohort)).collect());
        silos
    }

    /// S of the participants with this round.
    fn sums_with(&self, cohort: &Cohort) -> Vec<f64> {
        let participants = cohort.participants();
        let count = participants.len() as f64;
        let share = count / cohort.clients().max(1) as f64;
        let responses: Vec<f64> =
            self.responses(cohort).into_iter().map(|response| share * response).collect();
        let middle = sum(responses.iter().copied()) / count;
        let after = |(device, response): (&DeviceId, f64)| {
            // A client that never took part has S = 0.
            let before = self.state.sums.get(device).map_or(0.0, |&sum| sum);
            before + (response - middle) / (share * (1.0 + middle))
        };
        participants.iter().map(|participant| &participant.device).zip(responses).map(after).collect()
    }
}

#[cfg(test)]
mod tests;
