//! The run in a gateway's store: it can be read, and the configuration fits it.

use std::path::Path;

use super::CheckReport;
use crate::{
    run::{PreparedRun, fingerprint},
    store::{DiskStore, StoreError},
};

const ABOUT: &str = "run";

/// `own`: the directory of the active run; `rounds`: those of the whole run.
pub(super) fn check(
    report: &mut CheckReport,
    dir: &Path,
    own: &Path,
    prepared: &PreparedRun,
    rounds: u32,
    serving: bool,
) {
    if serving {
        return report.ok(ABOUT, "a server runs in this directory and has the store open");
    }
    let shown = dir.display();
    match DiskStore::committed_with(&own.join("store"), &fingerprint(&prepared.model)) {
        Ok(None) => report.ok(ABOUT, "none has begun; `serve` begins one"),
        Ok(Some(committed)) if committed >= rounds => {
            let more = "raise run.rounds to continue";
            report.ok(ABOUT, format!("all {committed} rounds are committed; {more}"));
        }
        Ok(Some(committed)) => {
            report.ok(ABOUT, format!("{committed} rounds are committed; `serve` goes on with the next one"));
        }
        Err(error @ StoreError::OtherModel { .. }) => {
            let remedy = "restore model.source and model.tiers of the stored run, or begin another run with `fairtier gateway run new NAME`";
            report.problem(ABOUT, error, remedy);
        }
        Err(error @ StoreError::Locked { .. }) => {
            report.problem(ABOUT, error, "end the process that has the store open; `lslocks` names it");
        }
        Err(error) => {
            let remedy = format!(
                "`fairtier gateway verify --dir {shown}` lists all damage; `rollback` goes back to a sound model, `restore` to a backup"
            );
            report.problem(ABOUT, error, remedy);
        }
    }
}
