//! Checks a configuration for errors that types alone cannot rule out.

use std::fmt::Display;

use common::Codec;

use super::{ClusterConfig, Config, ConfigError, DashboardConfig, ServerConfig, StoreConfig, TrainingConfig};
use strategies::strategy::PerTier;

/// Most places for transfers. A larger number would not be a bound, and tokio's semaphores have a maximum.
const MOST_PLACES: usize = 1 << 20;
const _: () = assert!(MOST_PLACES <= tokio::sync::Semaphore::MAX_PERMITS);

/// A requirement on the value of a key.
struct Rule {
    key: &'static str,
    value: String,
    holds: bool,
    why: &'static str,
}

fn rule(key: &'static str, value: impl Display, holds: bool, why: &'static str) -> Rule {
    Rule { key, value: value.to_string(), holds, why }
}

impl Config {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        self.task()?;
        self.guard.check().map_err(|(key, value, why)| ConfigError::Value { key, value, why })?;
        let mut rules = training(&self.training, self.run.rounds);
        rules.extend(self.rounds());
        rules.extend(self.tiers());
        rules.extend(server(&self.server));
        rules.extend(store(&self.store));
        rules.extend(dashboard(&self.dashboard));
        rules.extend(cluster(&self.cluster));
        let level = &self.log.level;
        let known = tracing_subscriber::EnvFilter::try_new(level).is_ok() && !level.is_empty();
        rules.push(rule(
            "log.level",
            format!("{level:?}"),
            known,
            "must be error, warn, info, debug or trace",
        ));
        match rules.into_iter().find(|rule| !rule.holds) {
            Some(Rule { key, value, why, .. }) => Err(ConfigError::Value { key, value, why }),
            None => Ok(()),
        }
    }

    fn rounds(&self) -> Vec<Rule> {
        let Self { run, round, .. } = self;
        let listed = |list: &[f64]| list.len() == self.model.tiers.len();
        let quorum = match &round.quorum {
            PerTier::All(quorum) => share(*quorum),
            PerTier::Each(list) => listed(list) && list.iter().all(|x| (0.0..=1.0).contains(x)),
        };
        let deadlines = round.deadline_s.values().iter().all(|&x| positive(x))
            && (matches!(round.deadline_s, PerTier::All(_)) || listed(round.deadline_s.values()));
        let give_up = round.give_up_s >= 0.0 && round.give_up_s.is_finite();
        let over_selection = (1.0..=10.0).contains(&round.over_selection);
        vec![
            rule(
                "run.divergence",
                run.divergence,
                run.divergence == 0.0 || run.divergence > 1.0 && run.divergence.is_finite(),
                "must be above 1, or 0",
            ),
            rule("run.rounds", run.rounds, run.rounds < 1 << 27, "must be below 2^27"),
            rule(
                "round.participation",
                round.participation,
                share(round.participation),
                "must lie in (0, 1]",
            ),
            rule(
                "round.quorum",
                shown(&round.quorum),
                quorum,
                "must lie in (0, 1], or be a list with one number in [0, 1] per tier",
            ),
            rule(
                "round.deadline_s",
                shown(&round.deadline_s),
                deadlines,
                "must be positive, or a list with one positive number per tier",
            ),
            rule("round.give_up_s", round.give_up_s, give_up, "must be 0 (never) or more"),
            rule("round.over_selection", round.over_selection, over_selection, "must lie in [1, 10]"),
            rule(
                "round.arrivals_per_s",
                round.arrivals_per_s,
                positive(round.arrivals_per_s),
                "must be positive",
            ),
        ]
    }

    fn tiers(&self) -> Vec<Rule> {
        let tiers = self.model.tiers.len();
        let codecs = |key, codecs: &PerTier<Codec>| {
            let names: Vec<_> = codecs.values().iter().map(|codec| codec.name()).collect();
            let fits = codecs.fits("", tiers).is_ok();
            rule(key, format!("{names:?}"), fits, "must be one codec, or a list with one per tier")
        };
        vec![
            rule("model.tiers", "[]", tiers > 0, "at least one tier is needed"),
            codecs("wire.down", &self.wire.down),
            codecs("wire.up", &self.wire.up),
        ]
    }
}

fn training(training: &TrainingConfig, rounds: u32) -> Vec<Rule> {
    let TrainingConfig { epochs, batch, lr, lr_decay, momentum, weight_decay, clip, .. } = *training;
    let not_negative = |x: f32| x >= 0.0 && x.is_finite();
    // Devices are told the rate as an f32.
    let told = |lr: f64| f64::from(lr as f32);
    let last = told(lr * lr_decay.powf(f64::from(rounds)));
    vec![
        rule("training.momentum", momentum, (0.0..1.0).contains(&momentum), "must lie in [0, 1)"),
        rule("training.weight_decay", weight_decay, not_negative(weight_decay), "must be 0 or more"),
        rule("training.clip", clip, not_negative(clip), "must be 0 (off) or more"),
        rule("training.epochs", epochs, epochs > 0, "must be at least 1"),
        rule("training.batch", batch, batch > 0, "must be at least 1"),
        rule("training.lr", lr, positive(told(lr)), "must be positive, and a number that an f32 can hold"),
        rule("training.lr_decay", lr_decay, positive(lr_decay), "must be positive"),
        rule(
            "training.lr_decay",
            lr_decay,
            last.is_finite(),
            "the rate of the last round is too large for an f32",
        ),
    ]
}

fn server(server: &ServerConfig) -> Vec<Rule> {
    let some = |key, value: usize| rule(key, value, value > 0, "must be at least 1, or no device is served");
    let places = |key, value: usize| {
        rule(key, value, (1..=MOST_PLACES).contains(&value), "must lie between 1 and 1048576")
    };
    vec![
        some("server.max_connections", server.max_connections),
        some("server.max_per_address", server.max_per_address),
        some("server.max_handshakes_per_s", server.max_handshakes_per_s),
        places("server.max_uploads", server.max_uploads),
        places("server.max_downloads", server.max_downloads),
    ]
}

fn cluster(config: &ClusterConfig) -> Vec<Rule> {
    let ClusterConfig { objects, shared, node, lease_s, keep_dropped_h, .. } = config;
    let off = !config.is_on();
    vec![
        rule(
            "cluster.objects",
            format!("{objects:?}"),
            off || objects.starts_with("file:///"),
            "must be file:///PATH, a directory that all gateways of the cluster share",
        ),
        rule(
            "cluster.shared",
            format!("{shared:?}"),
            off || shared.starts_with('/'),
            "must be the absolute path of a directory that all gateways of the cluster share",
        ),
        rule(
            "cluster.node",
            format!("{node:?}"),
            node.len() <= 64 && node.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)),
            "must be at most 64 of a-z A-Z 0-9 . _ -",
        ),
        rule("cluster.lease_s", lease_s, (1.0..=600.0).contains(lease_s), "must lie between 1 and 600"),
        rule(
            "cluster.keep_dropped_h",
            keep_dropped_h,
            (0.0..=87_600.0).contains(keep_dropped_h),
            "must lie between 0 and 87600",
        ),
    ]
}

fn dashboard(config: &DashboardConfig) -> Vec<Rule> {
    let DashboardConfig { listen, names, .. } = config;
    let addressed = listen.is_empty() || config.address().is_some();
    let named = |name: &String| {
        !name.is_empty()
            && name.len() < 254
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-:".contains(&byte))
    };
    vec![
        rule(
            "dashboard.listen",
            listen,
            addressed,
            "must be an address with a port, as in 127.0.0.1:8080, or empty",
        ),
        rule(
            "dashboard.names",
            names.join(" "),
            names.iter().all(named),
            "must be names of hosts or addresses",
        ),
    ]
}

fn store(store: &StoreConfig) -> Vec<Rule> {
    let some =
        |key, value: usize| rule(key, value, value > 0, "must be at least 1: the last one is always kept");
    let rounds = store.history_rounds;
    vec![
        some("store.keep_models", store.keep_models),
        some("store.keep_reports", store.keep_reports),
        rule("store.history_rounds", rounds, rounds > 0, "must be at least 1: a file holds a round or more"),
    ]
}

fn share(x: f64) -> bool {
    x > 0.0 && x <= 1.0
}

fn positive(x: f64) -> bool {
    x > 0.0 && x.is_finite()
}

fn shown(values: &PerTier) -> String {
    match values {
        PerTier::All(value) => value.to_string(),
        PerTier::Each(list) => format!("{list:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_named() {
        let error = |text: &str| Config::parse(text).unwrap_err().to_string();
        assert!(error("[training]\nlearning_rate = 0.1").contains("learning_rate"));
        assert!(error("[round]\nquorum = 1.5").contains("round.quorum = 1.5"));
        assert!(error("[model]\ntiers = []").contains("model.tiers"));
        assert!(error("[round]\nquorum = 0").contains("round.quorum = 0"));
        assert!(error("[round]\ndeadline_s = [1, 2]").contains("one positive number per tier"));
        assert!(error("[round]\nover_selection = 0.5").contains("over_selection"));
        assert!(error("[guard]\nbonus = \"some\"").contains("agreeing"));
        assert!(error("[guard]\nshare = 0.5").contains("guard.share = 0.5"));
        assert!(error("[guard]\nfloor = 2").contains("guard.floor = 2"));
        assert!(error("[guard]\ntrusted_counts = [\"..\"]").contains("device name"));
        assert!(error("[wire]\nup = \"int4\"").contains("expected one of `f32`, `f16`, `int8`"));
        assert!(error("[wire]\nup = [\"int8\"]").contains("wire.up = [\"int8\"]: must be one codec"));
        assert!(error("[devices]\n\"..\" = 1").contains("device name"));
        assert!(error("[log]\nlevel = \"loud=9\"").contains("log.level"));
        assert!(error("[training]\nlr = nan").contains("training.lr"));
    }

    #[test]
    fn unusable_numbers_are_refused() {
        let check = |text: &str| Config::parse(text).map_err(|error| error.to_string());
        for (section, key, value) in [
            ("server", "max_connections", "0"),
            ("server", "max_per_address", "0"),
            ("server", "max_handshakes_per_s", "0"),
            ("server", "max_uploads", "0"),
            ("server", "max_uploads", "9223372036854775807"),
            ("server", "max_downloads", "0"),
            ("server", "max_downloads", "9223372036854775807"),
            ("store", "keep_models", "0"),
            ("store", "keep_reports", "0"),
            ("store", "history_rounds", "0"),
            ("training", "lr", "1e40"),
            ("training", "lr", "1e-60"),
            ("training", "lr_decay", "10.0"),
        ] {
            let error = check(&format!("[{section}]\n{key} = {value}")).unwrap_err();
            assert!(error.starts_with(&format!("{section}.{key} = ")), "{error}");
        }
        for text in
            ["[server]\nmax_downloads = 1048576", "[training]\nlr_decay = 1.01", "[store]\nkeep_models = 1"]
        {
            check(text).unwrap();
        }
    }
}
