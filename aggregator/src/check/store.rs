//! The run in a gateway's store: it can be read, and the configuration fits it.

use std::path::Path;

use super::CheckReport;
use crate::{
    config::Config,
    run::{PreparedRun, expect_same, fingerprint},
    store::{DiskStore, StoreError, weights_digest},
};

const ABOUT: &str = "run";

/// `own`: the directory of the active run.
pub(super) fn check(
    report: &mut CheckReport,
    dir: &Path,
    own: &Path,
    (config, prepared): (&Config, &PreparedRun),
    serving: bool,
) {
    if serving {
        return report.ok(ABOUT, "a server runs in this directory and has the store open");
    }
    let shown = dir.display();
    match DiskStore::saved(&own.join("store"), &fingerprint(&prepared.model)) {
        Ok(None) => report.ok(ABOUT, "none has begun; `serve` begins one"),
        Ok(Some(saved)) => match expect_same(&saved, config, weights_digest(&prepared.initial)) {
            Ok(()) => {
                let committed = saved.next_round.saturating_sub(1);
                let what = if committed >= config.run.rounds {
                    format!("all {committed} rounds are committed; raise run.rounds to continue")
                } else {
                    format!("{committed} rounds are committed; `serve` goes on with the next one")
                };
                report.ok(ABOUT, what);
            }
            Err(error) => {
                let remedy =
                    "restore the stored run's, or begin another run with `fairtier gateway run new NAME`";
                report.problem(ABOUT, error, remedy);
            }
        },
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
