//! A strategy together with the options that any strategy takes: server momentum, FedVARP, local
//! self-regularisation.
//!
//! ```text
//! server_momentum   b = beta * b + step;  theta += b                  a vector of the model's length is kept
//! varp              step = mean_S(D_i - y_i) + mean_N(y_i), then y_i = D_i for i in S      one tier; buffered
//! lsr               devices train against noisy labels: Ts, Td, gamma_reg
//! fairness          a target drives a parameter of the strategy, see [`crate::fairness`]
//! ```

use std::collections::BTreeMap;

use common::{
    DeviceId, Tier,
    brief::{Augment, Brief, SelfRegular},
    region::RegionMap,
};
use models::graph::Graph;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{
    cohort::Cohort,
    error::{FairnessError, StrategyError},
    fairness::{Fairness, FairnessLine, FairnessSettings, FairnessState, RecordedReport, RoundFairness},
    guard::CappedShare,
    parameter::{not_negative, positive},
    registry::Registry,
    strategy::{Exchange, Needs, Strategy},
};

/// See the module.
#[derive(Debug)]
pub struct Method {
    /// Decides how much devices count.
    pub strategy: Box<dyn Strategy>,
    /// With `server_momentum`.
    pub momentum: Option<Momentum>,
    /// With `varp`.
    pub varp: Option<Varp>,
    /// With `lsr`.
    pub lsr: Option<SelfRegular>,
    /// Set by [`Method::aim`].
    pub fairness: Option<Fairness>,
    /// Rounds in a row whose steps were shortened to less than half; counted anew after a restart.
    pub short_steps: u32,
}

/// The sum of the steps of earlier rounds.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Momentum {
    /// Share of the last step that is kept.
    pub beta: f64,
    /// Whole model; empty before the first round.
    pub buffer: Vec<f64>,
}

/// The last update of every device.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Varp {
    /// By device; one tier only, so all have the same length.
    pub last: BTreeMap<DeviceId, Vec<f64>>,
}

/// Keys of the options among the parameters.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Options {
    server_momentum: MomentumOption,
    varp: bool,
    lsr: LsrOption,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "`server_momentum` must be false or a number in [0, 1)")]
enum MomentumOption {
    Switch(bool),
    Beta(f64),
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "`lsr` must be false, true, or { Ts, Td, gamma_reg }")]
enum LsrOption {
    Switch(bool),
    Terms(Lsr),
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Lsr {
    #[serde(rename = "Ts")]
    ts: f64,
    #[serde(rename = "Td")]
    td: f64,
    gamma_reg: f64,
}

impl Default for MomentumOption {
    fn default() -> Self {
        Self::Switch(false)
    }
}

impl Default for LsrOption {
    fn default() -> Self {
        Self::Switch(false)
    }
}

impl Default for Lsr {
    fn default() -> Self {
        Self { ts: 0.5, td: 3.0, gamma_reg: 0.4 }
    }
}

impl Registry {
    /// A strategy with the options that any strategy takes, from its name and parameters (an object; null = all defaults).
    pub fn method(&self, name: &str, params: Value) -> Result<Method, StrategyError> {
        let strategy = self.find(name)?;
        let fault = |why: String| StrategyError::Parameters { strategy, why };
        let mut params = match params {
            Value::Null => Map::new(),
            Value::Object(params) => params,
            // A list would be read as values without keys.
            other => return Err(fault(format!("expected keys and values, not {other}"))),
        };
        let options: Map<_, _> = ["server_momentum", "varp", "lsr"]
            .into_iter()
            .filter_map(|key| Some((key.to_owned(), params.remove(key)?)))
            .collect();
        let options: Options =
            serde_json::from_value(options.into()).map_err(|error| fault(error.to_string()))?;
        let momentum = match options.server_momentum {
            MomentumOption::Switch(false) => None,
            MomentumOption::Switch(true) => Some(0.9),
            MomentumOption::Beta(beta) if (0.0..1.0).contains(&beta) => Some(beta),
            MomentumOption::Beta(beta) => {
                return Err(fault(format!("`server_momentum` must be false or lie in [0, 1), not {beta}")));
            }
        };
        let terms = match options.lsr {
            LsrOption::Switch(false) => None,
            LsrOption::Switch(true) => Some(Lsr::default()),
            LsrOption::Terms(terms) => Some(terms),
        };
        let lsr = terms.map(|terms| terms.checked().map_err(fault)).transpose()?;
        let strategy = self.build(name, params.into())?;
        let varp = options.varp.then(Varp::default);
        if varp.is_some() && strategy.rolls() {
            return Err(fault("`varp` keeps updates of units that move on".into()));
        }
        if varp.is_some() && (strategy.scope().is_some() || strategy.needs().product != Default::default()) {
            return Err(fault("`varp` needs plain updates that are averaged".into()));
        }
        let momentum = momentum.map(|beta| Momentum { beta, buffer: vec![] });
        Ok(Method { momentum, varp, lsr, ..Method::new(strategy) })
    }
}

/// A method of [`Registry::standard`].
#[cfg(test)]
pub(crate) fn by_name(name: &str, params: Value) -> Result<Method, StrategyError> {
    Registry::standard().method(name, params)
}

impl Lsr {
    fn checked(self) -> Result<SelfRegular, String> {
        positive("lsr.Ts", self.ts)?;
        positive("lsr.Td", self.td)?;
        not_negative("lsr.gamma_reg", self.gamma_reg)?;
        Ok(SelfRegular {
            sharpen: self.ts as f32,
            soften: self.td as f32,
            gamma: self.gamma_reg as f32,
            augment: Augment::Noise(0.05),
        })
    }
}

impl Method {
    /// A strategy without options.
    pub fn new(strategy: Box<dyn Strategy>) -> Self {
        Self { strategy, momentum: None, varp: None, lsr: None, fairness: None, short_steps: 0 }
    }

    /// Name of the strategy.
    pub fn name(&self) -> &'static str {
        self.strategy.name()
    }

    /// What the strategy and the options need from devices.
    pub fn needs(&self) -> Needs {
        let needs = self.strategy.needs();
        let signal = needs.signal || self.fairness.as_ref().is_some_and(Fairness::wants_validation);
        Needs { gradients: needs.gradients || self.lsr.is_some(), signal, ..needs }
    }

    /// Moves the hidden units of the model on by one, if the strategy wants that; after a round that has given a new model.
    pub fn roll(&mut self, graph: &Graph, parameters: &mut Vec<f32>) {
        if !self.strategy.rolls() {
            return;
        }
        *parameters = graph.rolled(parameters);
        if let Some(momentum) = self.momentum.as_mut().filter(|momentum| !momentum.buffer.is_empty()) {
            momentum.buffer = graph.rolled(&momentum.buffer);
        }
    }

    /// Sets a fairness target, in place of one set before. `given` are the strategy's parameters as the user states them: one
    /// that the target drives must not be among them. The parameters start from their neutral values: call this before
    /// [`Method::restore`].
    pub fn aim(
        &mut self,
        settings: FairnessSettings,
        given: &Map<String, Value>,
        regions: &RegionMap,
    ) -> Result<(), StrategyError> {
        self.fairness = Fairness::new(settings, &*self.strategy, given, regions.tiers())?;
        self.turn();
        Ok(())
    }

    /// The knobs of a target at present, with nothing measured since; empty without one.
    pub fn fairness_lines(&self) -> Vec<FairnessLine> {
        self.fairness.as_ref().map_or_else(Vec::new, Fairness::lines)
    }

    /// Another target from the next round on.
    pub fn retarget(&mut self, target: f64) -> Result<(), StrategyError> {
        let none = FairnessError::NoKnob { strategy: self.strategy.name(), key: "target" };
        self.fairness.as_mut().ok_or(none)?.retarget(target)
    }

    /// Computes the state of a target again from the reports of the rounds so far: after a rollback, which leaves no other trace.
    pub fn recall_fairness(&mut self, reports: Vec<RecordedReport>) -> Result<(), StrategyError> {
        if let Some(fairness) = &mut self.fairness {
            fairness.recall(reports)?;
        }
        self.turn();
        Ok(())
    }

    /// Whether the loss before training enters; see [`Strategy::uses_loss`].
    pub fn uses_loss(&self, trained: bool) -> bool {
        self.strategy.uses_loss(trained) || self.fairness.as_ref().is_some_and(Fairness::wants_loss)
    }

    /// Measures a round that has given a new model, and sets the parameters of the next one.
    pub(crate) fn measure(&mut self, cohort: &Cohort, capped: &[CappedShare]) -> RoundFairness {
        let Some(fairness) = &mut self.fairness else { return RoundFairness::default() };
        let measured = fairness.learn(cohort, capped);
        self.turn();
        measured
    }

    /// Gives the strategy the values of the present state.
    fn turn(&mut self) {
        if let Some(fairness) = &self.fairness {
            fairness.turn(&mut *self.strategy);
        }
    }

    /// Takes up a state of the target; without a target it is dropped.
    fn set_fairness(&mut self, state: Option<&FairnessState>) -> Result<(), StrategyError> {
        if let Some(fairness) = &mut self.fairness {
            fairness.set_state(state)?;
        }
        self.turn();
        Ok(())
    }

    /// Whether strategy and options can work with these tiers.
    pub fn fits(&self, regions: &RegionMap) -> Result<(), StrategyError> {
        match regions.tiers() {
            tiers if tiers > 1 && self.varp.is_some() => Err(StrategyError::OneTier { key: "varp", tiers }),
            _ => self.strategy.fits(regions),
        }
    }

    /// Checks that the vectors of a saved state have the length that the model needs.
    pub(crate) fn check_state(&self, regions: &RegionMap) -> Result<(), StrategyError> {
        let check = |name: &str, got: usize, expected: usize| match got == expected {
            true => Ok(()),
            false => {
                let why = format!("{name} has {got} numbers, not {expected}");
                Err(StrategyError::State { strategy: self.name(), why })
            }
        };
        if let Some(Momentum { buffer, .. }) =
            self.momentum.as_ref().filter(|momentum| !momentum.buffer.is_empty())
        {
            check("`momentum`", buffer.len(), regions.parameters())?;
        }
        // With varp there is one tier, whose slice every update covers.
        let slice = Tier::new(0).map_or(0, |tier| regions.slice_len(tier));
        let mut last = self.varp.iter().flat_map(|varp| &varp.last);
        last.try_for_each(|(device, last)| check(&format!("`varp` of {device}"), last.len(), slice))
    }

    /// Self-regularisation shifts images, and mirrors colour images; other samples get noise.
    pub fn see_images(&mut self, shape: &[usize]) {
        if let (Some(lsr), &[channels, height, width]) = (&mut self.lsr, shape) {
            let [channels, height, width] = [channels, height, width].map(|size| size as u16);
            lsr.augment = Augment::Shift { channels, height, width, pixels: 2, flip: channels == 3 };
        }
    }

    /// Whether single updates are stored or compared, so that memory or disk grows with the fleet.
    pub fn is_buffered(&self) -> bool {
        self.varp.is_some() || self.strategy.scope().is_some()
    }

    /// Adds to the brief of a device what strategy and options need.
    pub fn brief(&self, device: &DeviceId, made: &[Exchange], brief: &mut Brief) {
        brief.objective.robust = self.lsr;
        self.strategy.brief(device, made, brief);
    }

    /// The state in the form of a round file.
    pub fn state(&self) -> Value {
        let mut state = match self.strategy.save() {
            Value::Object(state) => state,
            _ => Map::new(),
        };
        if let Some(momentum) = self.momentum.as_ref().filter(|momentum| !momentum.buffer.is_empty()) {
            state.insert("momentum".into(), json!(momentum.buffer));
        }
        if let Some(varp) = self.varp.as_ref().filter(|varp| !varp.last.is_empty()) {
            state.insert("varp".into(), json!(varp.last));
        }
        if let Some(fairness) = &self.fairness {
            state.insert("fairness".into(), json!(fairness.state()));
        }
        if state.is_empty() { Value::Null } else { state.into() }
    }

    /// Restores the result of [`Method::state`]. Null is the state of a first round.
    pub fn set_state(&mut self, state: Value) -> Result<(), StrategyError> {
        let strategy = self.strategy.name();
        let fault = |why: String| StrategyError::State { strategy, why };
        let mut state = match state {
            Value::Null => Map::new(),
            Value::Object(state) => state,
            other => return Err(fault(format!("expected keys and values, not {other}"))),
        };
        if let (Some(buffer), Some(momentum)) = (state.remove("momentum"), &mut self.momentum) {
            momentum.buffer =
                serde_json::from_value(buffer).map_err(|error| fault(format!("momentum: {error}")))?;
        }
        if let (Some(last), Some(varp)) = (state.remove("varp"), &mut self.varp) {
            varp.last = serde_json::from_value(last).map_err(|error| fault(format!("varp: {error}")))?;
        }
        let fairness: Option<FairnessState> = state
            .remove("fairness")
            .map(serde_json::from_value)
            .transpose()
            .map_err(|error| fault(format!("fairness: {error}")))?;
        let rest = if state.is_empty() { Value::Null } else { state.into() };
        self.strategy.restore(rest)?;
        self.set_fairness(fairness.as_ref())
    }

    /// The same in bytes, for a store. The state of a fairness target follows the rest.
    pub fn save(&self) -> Vec<u8> {
        let strategy = self.strategy.save().to_string();
        let empty = strategy == "null" && self.momentum.is_none() && self.varp.is_none();
        let saved = SavedMethod { strategy, momentum: self.momentum.clone(), varp: self.varp.clone() };
        let fairness = self.fairness.as_ref().map(|fairness| fairness.state().to_bytes());
        if empty && fairness.is_none() {
            return Vec::new();
        }
        let mut bytes = postcard::to_allocvec(&saved).expect("numbers and names always encode");
        bytes.extend(fairness.into_iter().flatten());
        bytes
    }

    /// Restores the result of [`Method::save`].
    pub fn restore(&mut self, bytes: &[u8]) -> Result<(), StrategyError> {
        if bytes.is_empty() {
            self.strategy.restore(Value::Null)?;
            return self.set_fairness(None);
        }
        let strategy = self.strategy.name();
        let why = "it was saved by another strategy or version";
        let fault = |_| StrategyError::State { strategy, why: why.into() };
        let (saved, rest): (SavedMethod, _) = postcard::take_from_bytes(bytes).map_err(fault)?;
        // A state of before there were targets ends here.
        let fairness = match rest {
            [] => None,
            rest => Some(
                FairnessState::from_bytes(rest)
                    .ok_or_else(|| StrategyError::State { strategy, why: why.into() })?,
            ),
        };
        let state = serde_json::from_str(&saved.strategy)
            .map_err(|error| StrategyError::State { strategy, why: error.to_string() })?;
        self.strategy.restore(state)?;
        if let (Some(saved), Some(momentum)) = (saved.momentum, &mut self.momentum) {
            momentum.buffer = saved.buffer;
        }
        if let (Some(saved), Some(varp)) = (saved.varp, &mut self.varp) {
            *varp = saved;
        }
        self.set_fairness(fairness.as_ref())
    }
}

#[derive(Serialize, Deserialize)]
struct SavedMethod {
    strategy: String,
    momentum: Option<Momentum>,
    varp: Option<Varp>,
}

#[cfg(test)]
mod tests;
