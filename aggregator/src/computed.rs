//! The directory of a run that no gateway has served, such as a simulated one, for commands and pages that read.

use std::{fs, io, path::Path};

use common::files::{Secrecy, write_file};
use coordinator::report::RoundReport;
use serde_json::json;

use crate::{
    config::Config,
    status::{self, replace},
    store::{LEDGER, write_history},
};

/// Writes configuration, reports and status as a gateway leaves them; `fairtier gateway dashboard` shows the directory. An
/// earlier run of the same kind is replaced, a gateway's own directory is refused.
pub fn write(dir: &Path, config: &Config, reports: &[RoundReport]) -> io::Result<()> {
    let store = dir.join("store");
    if store.join(LEDGER).exists() || dir.join("identity").exists() {
        let why = format!("{} is the directory of a gateway; choose another one", dir.display());
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
    }
    fs::create_dir_all(&store)?;
    let text = toml::to_string(config).map_err(io::Error::other)?;
    write_file(&dir.join("fairtier.toml"), text, Secrecy::Secret)?;
    let mut rounds = reports.iter().filter(|report| report.purpose == "train");
    let lines: Vec<String> = rounds.clone().map(|report| json!(report).to_string()).collect();
    write_history(&store, &lines)?;
    let last = reports.last();
    let status = json!({
        "strategy": config.strategy.name,
        "committed": rounds.next_back().map_or(0, |report| report.round),
        "rounds": config.run.rounds,
        "finished": last.is_some_and(|report| report.purpose == "evaluate"),
        "last_round": last,
    });
    replace(dir, status::FILE, status.to_string().as_bytes())
}
