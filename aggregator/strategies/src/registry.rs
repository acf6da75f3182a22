//! Strategies by name. A program takes [`Registry::standard`], adds strategies of its own, and passes the registry to the
//! gateway, to the simulator or to `round combine`.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use crate::{
    error::StrategyError,
    parameter::{self, Parameter},
    strategy::{Needs, Strategy},
};

/// A strategy that is made from parameters.
pub trait Build: Strategy + Sized + 'static {
    /// As in `strategy.name` of a configuration.
    const NAME: &'static str;
    /// What it does, in one line.
    const ABOUT: &'static str;

    /// Its parameters. Comments on the fields become their documentation.
    type Params: Default + Serialize + DeserializeOwned + JsonSchema;

    /// Makes the strategy. An error states the invalid value and the requirement.
    fn build(params: Self::Params) -> Result<Self, String>;
}

/// Parameters of a strategy that has none.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoParams {}

/// See the module.
#[derive(Clone, Default)]
pub struct Registry {
    entries: Vec<Entry>,
}

#[derive(Copy, Clone)]
struct Entry {
    name: &'static str,
    about: &'static str,
    parameters: fn() -> Result<Vec<Parameter>, serde_json::Error>,
    build: fn(Value) -> Result<Box<dyn Strategy>, StrategyError>,
}

impl Registry {
    /// A registry without strategies.
    pub fn empty() -> Self {
        Self::default()
    }

    /// Adds a strategy, or replaces the one with the same name.
    #[must_use]
    pub fn with<S: Build>(mut self) -> Self {
        let entry = Entry {
            name: S::NAME,
            about: S::ABOUT,
            parameters: parameter::describe::<S::Params>,
            build: build::<S>,
        };
        match self.entries.iter_mut().find(|known| known.name == S::NAME) {
            Some(known) => *known = entry,
            None => self.entries.push(entry),
        }
        self
    }

    /// In the order in which they were added.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.entries.iter().map(|entry| entry.name)
    }

    /// All strategies with their parameters, for documentation. An error names a strategy whose default parameters are invalid.
    pub fn describe(&self) -> Result<Vec<Description>, StrategyError> {
        let describe = |&Entry { name, about, parameters, build }: &Entry| {
            let fault =
                |why: serde_json::Error| StrategyError::Parameters { strategy: name, why: why.to_string() };
            let needs = build(Value::Object(Map::new()))?.needs();
            Ok(Description { name, about, needs, parameters: parameters().map_err(fault)? })
        };
        self.entries.iter().map(describe).collect()
    }

    /// The name as stored in the registry.
    pub(crate) fn find(&self, name: &str) -> Result<&'static str, StrategyError> {
        self.entry(name).map(|entry| entry.name)
    }

    /// Makes a strategy from its parameters: an object, in which absent keys have their defaults.
    pub fn build(&self, name: &str, params: Value) -> Result<Box<dyn Strategy>, StrategyError> {
        (self.entry(name)?.build)(params)
    }

    fn entry(&self, name: &str) -> Result<&Entry, StrategyError> {
        self.entries.iter().find(|entry| entry.name == name).ok_or_else(|| StrategyError::Unknown {
            name: name.to_owned(),
            known: self.names().collect::<Vec<_>>().join(", "),
        })
    }
}

/// A strategy as documentation shows it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Description {
    /// As in `strategy.name`.
    pub name: &'static str,
    /// What it does, in one line.
    pub about: &'static str,
    /// With default parameters.
    #[serde(skip)]
    pub needs: Needs,
    /// All parameters, by key.
    pub parameters: Vec<Parameter>,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

fn build<S: Build>(params: Value) -> Result<Box<dyn Strategy>, StrategyError> {
    let fault = |why: String| StrategyError::Parameters { strategy: S::NAME, why };
    let params = serde_json::from_value(params).map_err(|error| fault(error.to_string()))?;
    Ok(Box::new(S::build(params).map_err(fault)?))
}
