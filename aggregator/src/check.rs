//! What can be checked of a gateway before it starts: configuration, model, run, certificates, disk and ports, and what each
//! tier costs a device.
//!
//! Nothing is changed, except that a file is written beside the store for a moment.

use std::{fmt::Display, net::SocketAddr, path::Path};

use serde::Serialize;
use strategies::registry::Registry;

use crate::{
    config::Config,
    run::{PreparedRun, Run},
    runs,
    status::is_serving,
};

mod cost;
mod disk;
mod identity;
mod ports;
mod store;

pub use cost::TierCost;

/// How a check has ended.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Nothing is to be done.
    Ok,
    /// The gateway starts, but something should be done.
    Warning,
    /// The gateway does not start, or its run cannot go on.
    Problem,
}

/// One line of a report.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// `configuration`, `model`, `run`, `certificates`, `disk` or `ports`.
    pub about: &'static str,
    /// How serious it is.
    pub state: State,
    /// A sentence for the operator.
    pub what: String,
    /// What to do; empty if nothing.
    pub remedy: String,
}

/// What was found.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct CheckReport {
    /// In the order in which they were checked.
    pub findings: Vec<Finding>,
    /// Empty if the configuration has no model.
    pub tiers: Vec<TierCost>,
}

impl CheckReport {
    /// The worst of all findings.
    pub fn state(&self) -> State {
        self.findings.iter().map(|finding| finding.state).max().unwrap_or(State::Ok)
    }

    fn ok(&mut self, about: &'static str, what: impl Display) {
        let (what, remedy) = (what.to_string(), String::new());
        self.findings.push(Finding { about, state: State::Ok, what, remedy });
    }

    fn warn(&mut self, about: &'static str, what: impl Display, remedy: impl Display) {
        let (what, remedy) = (what.to_string(), remedy.to_string());
        self.findings.push(Finding { about, state: State::Warning, what, remedy });
    }

    fn problem(&mut self, about: &'static str, what: impl Display, remedy: impl Display) {
        let (what, remedy) = (what.to_string(), remedy.to_string());
        self.findings.push(Finding { about, state: State::Problem, what, remedy });
    }
}

/// What the gateway listens on, where it differs from the configuration.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Addresses {
    /// Instead of `server.listen`.
    pub listen: Option<SocketAddr>,
    /// For monitors.
    pub metrics: Option<SocketAddr>,
}

/// Checks a gateway's directory.
pub fn check(registry: &Registry, dir: &Path, addresses: Addresses) -> CheckReport {
    let mut report = CheckReport::default();
    let serving = match is_serving(dir) {
        Ok(serving) => serving,
        Err(error) => {
            let what = format!("{}/serving.lock cannot be read: {error}", dir.display());
            report.problem("run", what, "run this command as the user of the gateway");
            false
        }
    };
    let own = match runs::active_dir(dir) {
        Ok(own) => own,
        Err(error) => {
            let remedy = "choose a run with `fairtier gateway run switch`";
            report.problem("run", error, remedy);
            return report;
        }
    };
    let config = check_config(&mut report, &own);
    let prepared = config.as_ref().and_then(|config| check_run(&mut report, registry, config));
    if let (Some(config), Some(prepared)) = (&config, &prepared) {
        report.tiers = cost::of(config, prepared);
        store::check(&mut report, dir, &own, prepared, config.run.rounds, serving);
    }
    let members = identity::check(&mut report, dir);
    disk::check(&mut report, &own, config.as_ref(), members);
    let listen = addresses.listen.or(config.as_ref().map(|config| config.server.listen));
    let dashboard = config.as_ref().and_then(|config| config.dashboard.address());
    let dashboard = dashboard.filter(|_| cfg!(feature = "dashboard"));
    ports::check(&mut report, listen, addresses.metrics, dashboard, serving);
    report
}

fn check_config(report: &mut CheckReport, dir: &Path) -> Option<Config> {
    let path = dir.join("fairtier.toml");
    let name = path.display();
    if !path.exists() {
        let remedy = format!("create it with `fairtier gateway init {}`", dir.display());
        report.problem("configuration", format!("{name} is missing"), remedy);
        return None;
    }
    match Config::load(&path) {
        Ok(config) => {
            report.ok("configuration", format!("{name}: all keys are known and their values possible"));
            Some(config)
        }
        Err(error) => {
            let what = format!("{name}: {}", error.to_string().trim_end());
            report.problem("configuration", what, "correct this key; docs/REFERENCE.md lists all keys");
            None
        }
    }
}

fn check_run(report: &mut CheckReport, registry: &Registry, config: &Config) -> Option<PreparedRun> {
    match Run::prepare(registry, config) {
        Ok(prepared) => {
            let (source, tiers) = (&config.model.source, prepared.model.plans.len());
            let (parameters, strategy) = (prepared.model.regions.parameters(), prepared.method.name());
            let what = format!("{source}: {parameters} parameters, {tiers} tiers, strategy {strategy}");
            report.ok("model", what);
            Some(prepared)
        }
        Err(error) => {
            let remedy = "correct the key that is named; `fairtier model check` explains refused model files";
            report.problem("model", error, remedy);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, net::UdpSocket, os::unix::fs::PermissionsExt};

    use super::*;
    use crate::ca::{Authority, GrantOptions};

    const CONFIG: &str =
        "[model]\nsource = \"mlp:4-16-3\"\ntiers = [1.0, 0.5]\n[server]\nlisten = \"127.0.0.1:0\"";

    fn gateway(config: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        Authority::create(dir.path()).unwrap();
        fs::write(dir.path().join("fairtier.toml"), config).unwrap();
        dir
    }

    fn found(dir: &Path) -> CheckReport {
        check(&Registry::standard(), dir, Addresses::default())
    }

    /// The only finding that is not ok.
    fn only(report: &CheckReport) -> (&'static str, State, &str) {
        let bad: Vec<_> = report.findings.iter().filter(|finding| finding.state != State::Ok).collect();
        let [finding] = bad[..] else { panic!("{bad:?}") };
        assert!(!finding.remedy.is_empty(), "{finding:?}");
        (finding.about, finding.state, &finding.what)
    }

    #[test]
    fn a_sound_gateway_has_no_findings_and_its_tiers_have_a_price() {
        let dir = gateway(CONFIG);
        Authority::open(dir.path()).unwrap().enroll(&"cam-1".parse().unwrap()).unwrap();
        let before: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        let report = found(dir.path());
        assert_eq!(report.state(), State::Ok, "{:?}", report.findings);
        // 4 * 16 + 16 + 16 * 3 + 3, and half of the hidden units.
        let parameters: Vec<_> = report.tiers.iter().map(|tier| tier.parameters).collect();
        assert_eq!(parameters, [131, 67]);
        assert_eq!(report.tiers[1].down_bytes, 4 * 67);
        assert!(report.tiers[0].ram_bytes > report.tiers[1].ram_bytes);
        let after: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(before, after, "a check leaves nothing behind");
    }

    #[test]
    fn each_mistake_is_named_with_its_remedy() {
        let bad = gateway("[round]\nquorum = 7");
        assert!(
            matches!(only(&found(bad.path())), ("configuration", State::Problem, what) if what.contains("round.quorum = 7"))
        );
        let unknown = gateway("[model]\nsource = \"nets/none.onnx\"\n[server]\nlisten = \"127.0.0.1:0\"");
        assert!(
            matches!(only(&found(unknown.path())), ("model", State::Problem, what) if what.contains("none.onnx"))
        );
        let lost = gateway(CONFIG);
        fs::remove_dir_all(lost.path().join("identity")).unwrap();
        assert!(matches!(only(&found(lost.path())), ("certificates", State::Problem, _)));
        let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
        let busy = gateway(&CONFIG.replace("127.0.0.1:0", &taken.local_addr().unwrap().to_string()));
        assert!(
            matches!(only(&found(busy.path())), ("ports", State::Problem, what) if what.contains("in use"))
        );
    }

    #[test]
    fn expired_certificates_are_counted() {
        let dir = gateway(CONFIG);
        let over = GrantOptions { valid_for: std::time::Duration::ZERO, ..GrantOptions::default() };
        Authority::open(dir.path()).unwrap().enroll_with(&"cam-1".parse().unwrap(), over).unwrap();
        assert!(
            matches!(only(&found(dir.path())), ("certificates", State::Warning, what) if what.contains("1 expired"))
        );
    }

    #[test]
    fn a_server_key_that_does_not_match_is_a_problem() {
        let (dir, other) = (gateway(CONFIG), gateway(CONFIG));
        let [mine, others] = [&dir, &other].map(|dir| dir.path().join("identity/server.pem"));
        let [own, foreign] = [&mine, &others].map(|path| fs::read_to_string(path).unwrap());
        let at = |text: &str| text.find("-----BEGIN PRIVATE").unwrap();
        fs::write(&mine, format!("{}{}", &own[..at(&own)], &foreign[at(&foreign)..])).unwrap();
        assert!(
            matches!(only(&found(dir.path())), ("certificates", State::Problem, what) if what.contains("key"))
        );
    }

    #[test]
    fn a_directory_that_cannot_be_written_is_a_problem() {
        let dir = gateway(CONFIG);
        fs::create_dir(dir.path().join("store")).unwrap();
        let mode =
            |mode| fs::set_permissions(dir.path().join("store"), fs::Permissions::from_mode(mode)).unwrap();
        mode(0o500);
        let report = found(dir.path());
        mode(0o700);
        // Root may write everywhere.
        if !rustix::process::geteuid().is_root() {
            assert_eq!(only(&report).0, "disk");
        }
    }
}
