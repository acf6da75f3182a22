//! Targets that are refused, each with its keys and the next step.

use common::Tier;
use serde_json::{Map, Value, json};

use crate::{
    error::StrategyError,
    fairness::FairnessSettings,
    method::{Method, by_name},
    methods::fleet::Fleet,
    registry::Registry,
    strategy::{Knob, Scale, Strategy},
};

fn settings(value: Value) -> FairnessSettings {
    serde_json::from_value(value).unwrap()
}

fn aim(strategy: &str, params: Value, target: Value) -> Result<Method, StrategyError> {
    let given = params.as_object().cloned().unwrap_or_else(Map::new);
    let mut method = by_name(strategy, params)?;
    method.aim(settings(target), &given, &Fleet::random(1, 3, true).regions)?;
    Ok(method)
}

#[track_caller]
fn refused(strategy: &str, params: Value, target: Value, words: &[&str]) {
    let why = aim(strategy, params, target).unwrap_err().to_string();
    assert!(words.iter().all(|word| why.contains(word)), "{why}");
}

#[test]
fn settings_have_the_keys_and_defaults_of_the_specification() {
    let defaults = json!({
        "target": 0.0, "inside": 0.0, "scope": "default", "measure": "cv", "signal": "validation", "most": "default",
        "budget": 0.0, "warmup": 0, "gains": "auto"
    });
    assert_eq!(json!(FairnessSettings::default()), defaults);
    assert_eq!(settings(json!({})), FairnessSettings::default());
    let all = settings(json!({"inside": [0.1, 0], "most": 5, "gains": [0.1, 2], "scope": "devices"}));
    assert_eq!(settings(json!(all)), all);
    for bad in [
        json!({"most": "x"}),
        json!({"gains": [1]}),
        json!({"gains": 1}),
        json!({"tarrget": 1}),
        json!({"correct": false}),
    ] {
        assert!(serde_json::from_value::<FairnessSettings>(bad.clone()).is_err(), "{bad}");
    }
    let described = FairnessSettings::describe().unwrap();
    assert_eq!(described.len(), 9);
    assert!(described.iter().all(|key| !key.about.is_empty()), "{described:?}");
    let scope = described.iter().find(|key| key.key == "scope").unwrap();
    assert_eq!(scope.values, ["default", "tiers", "devices"]);
    let toml: FairnessSettings = toml::from_str("target = 1\nmost = 3\ngains = [0.1, 1]").unwrap();
    assert_eq!(toml.target, 1.0);
}

#[test]
fn no_target_is_no_target() {
    for name in Registry::standard().names() {
        assert!(aim(name, Value::Null, json!({})).unwrap().fairness.is_none());
    }
}

#[test]
fn strategies_without_a_knob() {
    let target = json!({"target": 0.3});
    for name in ["fedlf", "afl", "fedavg", "fedeba_plus", "ditto"] {
        refused(name, Value::Null, target.clone(), &[name, "fairness.target"]);
    }
    refused("qffl", json!({"step": "reweight"}), json!({"inside": 0.3}), &["qffl", "fairness.inside"]);
}

#[test]
fn steps_that_look_fair() {
    let target = json!({"target": 0.3});
    refused(
        "qffl",
        Value::Null,
        target.clone(),
        &["strategy.params.step", "reweight", "short steps look fair"],
    );
    refused(
        "fairheterofl",
        json!({"step": "hessian"}),
        target.clone(),
        &["strategy.params.step", "short steps"],
    );
    refused("fairheterofl", json!({"step": "hessian"}), json!({"inside": 0.3}), &["fairness.inside"]);
    assert!(aim("fairheterofl", Value::Null, target.clone()).unwrap().needs().signal);
    assert!(aim("qffl", json!({"step": "reweight"}), target).is_ok());
}

#[test]
fn values_that_are_not_possible() {
    for bad in [f64::NAN, f64::INFINITY, -0.1] {
        let mut method = by_name("term", Value::Null).unwrap();
        let regions = Fleet::random(1, 2, true).regions;
        for target in [
            FairnessSettings { target: bad, ..FairnessSettings::default() },
            FairnessSettings { target: 0.1, budget: bad, ..FairnessSettings::default() },
            FairnessSettings { target: 0.1, inside: bad.into(), ..FairnessSettings::default() },
        ] {
            let why = method.aim(target, &Map::new(), &regions).unwrap_err().to_string();
            assert!(why.contains("`fairness."), "{why}");
        }
        method.aim(settings(json!({"target": 0.1})), &Map::new(), &regions).unwrap();
        assert!(method.retarget(bad).is_err());
    }
    let term = |target| refused("term", Value::Null, target, &["fairness."]);
    term(json!({"target": 0.1, "gains": [0, 1]}));
    term(json!({"target": 0.1, "most": 0}));
    term(json!({"target": 0.1, "most": -0.5}));
    refused("fedeba", Value::Null, json!({"target": 0.1, "most": 30}), &["tau", "fairness.most"]);
    refused("fairheterofl", Value::Null, json!({"inside": [0.1, 0.2]}), &["fairness.inside", "3 tiers"]);
    assert!(by_name("term", Value::Null).unwrap().retarget(0.1).is_err());
}

#[test]
fn one_place_for_one_parameter() {
    let words = ["fairness.target", "strategy.params.q", "delete"];
    refused("fairheterofl", json!({"q": 2}), json!({"target": 0.3}), &words);
    assert!(aim("fairheterofl", json!({"q_m": 0}), json!({"target": 0.3})).is_ok());
    refused(
        "fairheterofl",
        json!({"q_m": 0}),
        json!({"inside": 0.3}),
        &["fairness.inside", "strategy.params.q_m"],
    );
}

#[test]
fn measures_that_mislead() {
    let training = json!({"target": 0.3, "signal": "training"});
    refused("term", Value::Null, training, &["fairness.measure", "fairness.signal", "spread"]);
    let spread =
        aim("term", Value::Null, json!({"target": 0.3, "signal": "training", "measure": "spread"})).unwrap();
    assert!(!spread.needs().signal);
    refused("eagle", Value::Null, json!({"target": 0.3}), &["eagle", "fairness.measure", "spread"]);
    for (key, value) in [("signal", json!("training")), ("budget", json!(0.1))] {
        let mut target = json!({"target": 0.3, "measure": "spread"});
        target[key] = value;
        refused("eagle", Value::Null, target, &["eagle", "delete `fairness."]);
    }
    assert!(aim("eagle", Value::Null, json!({"target": 0.3, "measure": "spread"})).is_ok());
}

/// Only what it declares counts.
#[test]
fn a_strategy_from_elsewhere() {
    #[derive(Debug)]
    struct Mine(f64, f64);
    impl Strategy for Mine {
        fn name(&self) -> &'static str {
            "mine"
        }
        fn knobs(&self) -> Vec<Knob> {
            vec![Knob::new("k", self.0, 4.0, Scale::Linear)]
        }
        fn turn(&mut self, parameter: &str, tier: Option<Tier>, value: f64) {
            assert_eq!((parameter, tier), ("k", None));
            self.1 = value;
        }
        fn save(&self) -> Value {
            json!({ "k": self.1 })
        }
    }
    let regions = Fleet::random(1, 2, true).regions;
    let mut method = Method::new(Box::new(Mine(1.0, 9.0)));
    method.aim(settings(json!({"target": 0.3})), &Map::new(), &regions).unwrap();
    assert_eq!(method.strategy.save(), json!({"k": 1.0}));
    let mut still = Method::new(Box::new(Mine(4.0, 9.0)));
    let why = still.aim(settings(json!({"target": 0.3})), &Map::new(), &regions).unwrap_err().to_string();
    assert!(why.contains("`k` cannot go from 4 to 4"), "{why}");
}
