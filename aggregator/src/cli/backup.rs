//! `fairtier gateway backup` and `fairtier gateway restore`.

use std::{io::BufWriter, io::Write, path::Path};

use anyhow::{Context, Result};
use common::files::{AtomicFile, Secrecy};
use serde_json::json;

use super::{Format, place::Place, say};
use crate::{
    backup::{self, Manifest},
    control,
    status::is_serving,
    store::DiskStore,
};

pub(super) fn backup(dir: &Path, file: &Path, format: Format) -> Result<()> {
    super::store::expect_alone(dir)?;
    let place = Place::of(dir)?;
    super::load(&place.run)?;
    let name = || file.display().to_string();
    let mut out = BufWriter::new(AtomicFile::create(file, Secrecy::Secret).with_context(name)?);
    let serving = is_serving(dir).with_context(|| dir.display().to_string())?;
    let manifest = if serving {
        control::request_backup(&place.run, &mut out)?
    } else {
        let snapshot = DiskStore::snapshot_of(&place.run.join("store"))?;
        backup::write(dir, &place.name, snapshot.as_ref(), &mut out)?
    };
    out.flush().with_context(name)?;
    let out = out.into_inner().map_err(std::io::IntoInnerError::into_error).with_context(name)?;
    out.commit("").with_context(name)?;
    let mut text = format!("{}: {}\n", file.display(), describe(&manifest));
    for path in &manifest.outside {
        text += &format!("not in the backup, because it lies outside {}: {path}\n", dir.display());
    }
    if !manifest.runs_left_out.is_empty() {
        text += &format!(
            "only the active run is in the backup, without the runs {}: stop the gateway and copy {}/runs\n",
            manifest.runs_left_out.join(", "),
            dir.display()
        );
    }
    text += "it holds the keys of the fleet: keep it as safe as the gateway\n";
    say(format, &text, &json!({ "file": file, "serving": serving, "manifest": manifest }))
}

pub(super) fn restore(file: &Path, dir: &Path, format: Format) -> Result<()> {
    let manifest = backup::restore(file, dir)?;
    let (shown, created) = (dir.display(), manifest.created);
    let mut text = format!("restored {shown}: {}\n", describe(&manifest));
    for path in &manifest.outside {
        text += &format!("the configuration names a file that was not in the backup: {path}\n");
    }
    text += &format!(
        "revocations and new server keys since second {created} (of 1970) are not in it: repeat them before devices connect\n\
         next: stop the other gateway for good, then `fairtier gateway resume --dir {shown}`\n"
    );
    say(format, &text, &json!({ "dir": dir, "manifest": manifest }))
}

fn describe(manifest: &Manifest) -> String {
    let Manifest { run, committed, open, files, .. } = manifest;
    let open = open.map_or(String::new(), |round| format!(", round {round} open"));
    let run = match run {
        Some(run) => format!("run {run}, {committed} rounds committed{open}"),
        None => "no run has begun".to_owned(),
    };
    format!("{run}; {} files with {} bytes", files.len(), manifest.bytes())
}
