//! The disk of a gateway: it can be written, it keeps what is written, and it has room.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use common::files;
use rustix::fs::statvfs;

use super::CheckReport;
use crate::config::Config;

const ABOUT: &str = "disk";
/// Written and removed again. Allocating nothing would not notice a full disk.
const PROBE: [u8; 64 << 10] = [1; 64 << 10];
/// Below this, a run soon ends whatever its model is.
const LEAST: u64 = 64 << 20;

/// `members`: how many devices may send updates in a round.
pub(super) fn check(report: &mut CheckReport, dir: &Path, config: Option<&Config>, members: usize) {
    if !dir.is_dir() {
        return;
    }
    let store = dir.join("store");
    let place = if store.is_dir() { store } else { dir.to_owned() };
    let free = match statvfs(&place) {
        Ok(disk) => disk.f_bavail.saturating_mul(disk.f_frsize),
        Err(error) => {
            let what = format!("{}: the free space is unknown: {error}", place.display());
            return report.problem(ABOUT, what, "check that the disk is mounted");
        }
    };
    if let Err(error) = probe(&place) {
        let what = format!("{}: a file cannot be written durably: {error}", place.display());
        let remedy = "free some space, make the directory writable for this user, or check the disk";
        return report.problem(ABOUT, what, remedy);
    }
    let need = need(report, config, members).max(LEAST);
    let what = format!(
        "{}: {} MB free, a round with all {members} members needs up to {} MB",
        place.display(),
        free >> 20,
        need.div_ceil(1 << 20)
    );
    let remedy = "free some space, or lower store.keep_models";
    if free < need {
        report.problem(ABOUT, what, remedy);
    } else if free < need.saturating_mul(2) {
        report.warn(ABOUT, what, remedy);
    } else {
        report.ok(ABOUT, what);
    }
}

/// Bytes of the updates of a round in which every member is of the widest tier, and of the models that are kept.
fn need(report: &CheckReport, config: Option<&Config>, members: usize) -> u64 {
    let Some((widest, config)) = report.tiers.first().zip(config) else { return 0 };
    let updates = widest.up_bytes.saturating_mul(members as u64);
    // A model is written before the oldest one is removed.
    let models = widest.parameters.saturating_mul(4).saturating_mul(config.store.keep_models as u64 + 1);
    updates.saturating_add(models)
}

fn probe(place: &Path) -> io::Result<()> {
    let path = place.join("check~");
    let _removed = RemoveOnDrop(path.clone());
    let mut file = files::private().write(true).create(true).truncate(true).open(&path)?;
    io::Write::write_all(&mut file, &PROBE)?;
    file.sync_all()?;
    drop(file);
    if fs::read(&path)? != PROBE {
        return Err(io::Error::other("another content was read back"));
    }
    files::sync_parent(&path)
}

struct RemoveOnDrop(PathBuf);

impl Drop for RemoveOnDrop {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
