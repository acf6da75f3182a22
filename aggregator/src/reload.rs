//! A changed configuration in a running gateway: which keys apply at once, and which need a restart.

use serde_json::Value;

use crate::{
    admission::Limits,
    config::{Config, ConfigError},
};

/// What becomes of a changed key.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// It applies from the next decision on.
    Now,
    /// It applies from the next round on.
    NextRound,
    /// It applies when the gateway is started again.
    Restart,
}

/// A key whose value has changed.
#[derive(Clone, PartialEq, Debug)]
pub struct Change {
    /// As in `round.deadline_s`.
    pub key: String,
    /// Null: the key was not there.
    pub from: Value,
    /// Null: the key is gone.
    pub to: Value,
    /// When it applies.
    pub effect: Effect,
}

/// Keys that apply at once. [`adopted`] takes exactly these.
const NOW: [&str; 12] = [
    "log.level",
    "round.arrivals_per_s",
    "round.deadline_s",
    "round.give_up_s",
    "round.over_selection",
    "round.participation",
    "round.quorum",
    "run.min_devices",
    "server.max_connections",
    "server.max_handshakes_per_s",
    "server.max_per_address",
    "server.max_uploads",
];
/// A list has one value per tier, and the number of tiers cannot change.
const PER_TIER: [&str; 2] = ["round.deadline_s", "round.quorum"];

/// The keys that differ between two configurations, in the order of their names.
pub fn changes(before: &Config, after: &Config) -> Result<Vec<Change>, ConfigError> {
    let (old, new) = (keys(before)?, keys(after)?);
    let mut names: Vec<_> = old.keys().chain(new.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let value = |map: &serde_json::Map<String, Value>, name: &str| match map.get(name) {
        // It may hold a password, and changes are logged.
        Some(_) if name == "cluster.database" => "(not shown)".into(),
        found => found.cloned().unwrap_or(Value::Null),
    };
    let changed = names.into_iter().filter(|name| old.get(*name) != new.get(*name));
    Ok(changed
        .map(|name| Change {
            key: name.clone(),
            from: value(&old, name),
            to: value(&new, name),
            effect: effect(name, before, after),
        })
        .collect())
}

fn effect(key: &str, before: &Config, after: &Config) -> Effect {
    let same_tiers = before.model.tiers.len() == after.model.tiers.len();
    match key {
        _ if PER_TIER.contains(&key) && !same_tiers => Effect::Restart,
        _ if NOW.contains(&key) => Effect::Now,
        // Fewer rounds than are committed end the run; a run that is over does not begin again.
        "run.rounds" => Effect::Now,
        // A target is set up or removed with the strategy.
        "fairness.target" if before.fairness.target > 0.0 && after.fairness.target > 0.0 => Effect::NextRound,
        _ => Effect::Restart,
    }
}

/// The configuration that a gateway has after these changes: what needs a restart stays as it was.
pub fn adopted(before: &Config, after: &Config) -> Config {
    let mut config = before.clone();
    let new = after.clone();
    config.log.level = new.log.level;
    (config.run.rounds, config.run.min_devices) = (new.run.rounds, new.run.min_devices);
    let same_tiers = before.model.tiers.len() == after.model.tiers.len();
    if same_tiers {
        (config.round.deadline_s, config.round.quorum) = (new.round.deadline_s, new.round.quorum);
    }
    config.round.give_up_s = new.round.give_up_s;
    config.round.participation = new.round.participation;
    config.round.over_selection = new.round.over_selection;
    config.round.arrivals_per_s = new.round.arrivals_per_s;
    config.server.max_connections = new.server.max_connections;
    config.server.max_per_address = new.server.max_per_address;
    config.server.max_handshakes_per_s = new.server.max_handshakes_per_s;
    config.server.max_uploads = new.server.max_uploads;
    if before.fairness.target > 0.0 && after.fairness.target > 0.0 {
        config.fairness.target = new.fairness.target;
    }
    config
}

/// The limits on connections.
pub fn limits(config: &Config) -> Limits {
    Limits {
        connections: config.server.max_connections,
        per_address: config.server.max_per_address,
        handshakes: config.server.max_handshakes_per_s,
    }
}

/// All keys with their values: `section.key`.
fn keys(config: &Config) -> Result<serde_json::Map<String, Value>, ConfigError> {
    let table = toml::Table::try_from(config)?;
    let mut keys = serde_json::Map::new();
    for (section, table) in table {
        match table {
            toml::Value::Table(table) => {
                for (key, value) in table {
                    keys.insert(format!("{section}.{key}"), json(value));
                }
            }
            other => _ = keys.insert(section, json(other)),
        }
    }
    Ok(keys)
}

fn json(value: toml::Value) -> Value {
    match value {
        toml::Value::String(text) => text.into(),
        toml::Value::Integer(number) => number.into(),
        toml::Value::Float(number) => number.into(),
        toml::Value::Boolean(yes) => yes.into(),
        toml::Value::Datetime(time) => time.to_string().into(),
        toml::Value::Array(values) => values.into_iter().map(json).collect(),
        toml::Value::Table(table) => table.into_iter().map(|(key, value)| (key, json(value))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(before: &str, after: &str) -> Vec<(String, Effect)> {
        let [before, after] = [before, after].map(|text| Config::parse(text).unwrap());
        let list = changes(&before, &after).unwrap();
        list.into_iter().map(|change| (change.key, change.effect)).collect()
    }

    #[test]
    fn every_changed_key_is_named_with_its_effect() {
        let named = changed(
            "fairness = { target = 0.3 }",
            "fairness = { target = 0.2 }\nround = { quorum = 1.0 }\nmodel = { seed = 4 }\n[devices]\ncam-1 = 2",
        );
        let expected = [
            ("devices.cam-1", Effect::Restart),
            ("fairness.target", Effect::NextRound),
            ("model.seed", Effect::Restart),
            ("round.quorum", Effect::Now),
        ];
        assert_eq!(named, expected.map(|(key, effect)| (key.to_owned(), effect)));
        assert_eq!(changed("", "fairness = { target = 0.2 }"), [("fairness.target".into(), Effect::Restart)]);
        assert_eq!(changed("run = { rounds = 7 }", "run = { rounds = 7 }"), []);
        let fewer = "[model]\ntiers = [1.0, 0.5]\n[round]\nquorum = [1.0, 0.5]";
        let all: Vec<_> = changed("", fewer).into_iter().map(|(_, effect)| effect).collect();
        assert_eq!(all, [Effect::Restart, Effect::Restart], "a list of another length");
    }

    /// Otherwise a key would be reported as reloaded and stay, or change without a word.
    #[test]
    fn what_is_reported_as_reloaded_is_what_is_adopted() {
        let other = "[model]\nseed = 9\n[strategy]\nname = \"qffl\"\n[run]\nrounds = 9\nmin_devices = 9\nseed = 9\n\
            [round]\nparticipation = 0.9\ndeadline_s = 9.0\nquorum = 0.9\ngive_up_s = 9.0\nover_selection = 1.9\n\
            arrivals_per_s = 9.0\n[guard]\nloss = 9.0\n[training]\nepochs = 9\n[wire]\nup = \"f16\"\n\
            [server]\nlisten = \"127.0.0.1:9\"\nmax_connections = 9\nmax_per_address = 9\nmax_handshakes_per_s = 9\n\
            max_uploads = 9\nmax_downloads = 9\nmax_message = 99999999\n[store]\nkeep_models = 9\n\
            [log]\nlevel = \"warn\"\n[fairness]\ntarget = 0.9\nwarmup = 9";
        let before = Config::parse("[fairness]\ntarget = 0.3").unwrap();
        let after = Config::parse(other).unwrap();
        let adopted = adopted(&before, &after);
        let named = |list: Vec<Change>| list.into_iter().map(|change| change.key).collect::<Vec<_>>();
        let applied =
            changes(&before, &after).unwrap().into_iter().filter(|change| change.effect != Effect::Restart);
        assert_eq!(named(applied.collect()), named(changes(&before, &adopted).unwrap()));
        let left = changes(&adopted, &after).unwrap();
        assert!(left.iter().all(|change| change.effect == Effect::Restart), "{left:?}");
    }
}
