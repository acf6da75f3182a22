//! Checks and rolls back the store while no server runs.

use std::{fs, path::Path};

use crate::{
    status::replace,
    store::{DiskStore, RolledBack},
};
use anyhow::{Context, Result, bail};
use models::{Graph, onnx};
use tracing::info;

use super::{Format, place::Place, print, say, status};
use crate::export::MODEL;

pub(super) fn verify(dir: &Path, format: Format) -> Result<()> {
    let store = dir.join("store");
    let found = DiskStore::verify(&store).with_context(|| store.display().to_string())?;
    let text = if format == Format::Json {
        let json = serde_json::json!({
            "format": found.format, "committed": found.committed, "open": found.open, "models": found.models, "best": found.best, "reports": found.reports,
            "devices": found.devices, "updates": found.updates, "bytes": found.bytes, "problems": found.problems,
        });
        format!("{json}\n")
    } else {
        let rounds =
            found.committed.map_or("no run has begun".to_owned(), |n| format!("{n} rounds committed"));
        let open = found.open.map_or(String::new(), |round| format!(", round {round} open"));
        let best = found.best.as_ref().map_or(String::new(), |best| format!("the best model is {best}\n"));
        let problems: String = found.problems.iter().map(|problem| format!("problem: {problem}\n")).collect();
        format!(
            "{rounds}{open}; store format {}\n\
             models kept: {:?}; {} reports, {} devices\n\
             {best}{} updates with {} bytes agree with their checksums\n{problems}",
            found.format, found.models, found.reports, found.devices, found.updates, found.bytes
        )
    };
    print(&text)?;
    if found.problems.is_empty() {
        return Ok(());
    }
    bail!("{}: {} problems; nothing was changed", store.display(), found.problems.len());
}

/// Fails if the run is in the database of a cluster, where this command cannot reach it.
pub(super) fn expect_alone(dir: &Path) -> Result<()> {
    let config = super::load(&Place::of(dir)?.run);
    // Without a readable configuration, the store decides.
    if config.is_ok_and(|config| config.cluster.is_on()) {
        bail!(
            "the run of {} is in the database of a cluster, and this command reads store/ alone;              back up and check the database and cluster.objects with their own tools",
            dir.display()
        );
    }
    Ok(())
}

/// Logs where the run stands; an error if none has begun.
pub(super) fn expect_run(place: &Place) -> Result<()> {
    let (dir, store) = (&place.gateway, place.run.join("store"));
    let committed = DiskStore::committed(&store).with_context(|| store.display().to_string())?;
    let Some(committed) = committed else {
        bail!(
            "no run has begun in {dir}; `fairtier gateway serve --dir {dir}` begins one, `--dir` names another directory",
            dir = dir.display()
        );
    };
    info!("{committed} rounds are committed; going on with round {}", u64::from(committed) + 1);
    Ok(())
}

/// Replaces the exported model by the one that the run has now.
fn rewrite_model(dir: &Path, done: &RolledBack) -> Result<()> {
    let path = dir.join(MODEL);
    let Ok(file) = onnx::read(&path) else { return Ok(()) };
    let formed = Graph::from_onnx(&file).map_err(anyhow::Error::from).and_then(|(graph, _)| {
        let metadata = [("round", done.to.to_string())];
        let options = onnx::ExportOptions { metadata: &metadata, ..onnx::ExportOptions::default() };
        Ok(onnx::export(&graph, &done.parameters, &options)?)
    });
    // An unreadable file is removed; `serve` writes it again.
    let replaced = match formed {
        Ok(file) => replace(dir, MODEL, &file),
        Err(_) => fs::remove_file(&path),
    };
    replaced.with_context(|| path.display().to_string())
}

pub(super) fn rollback(place: &Place, to: u32, format: Format) -> Result<()> {
    let Place { gateway, run, .. } = place;
    let store = run.join("store");
    let done = DiskStore::rollback(&store, to).with_context(|| store.display().to_string())?;
    status::rewrite(run, &done)?;
    rewrite_model(run, &done)?;
    let mut text = format!("went back from round {} to the model after round {}\n", done.from, done.to);
    let json =
        serde_json::json!({ "from": done.from, "to": done.to, "reports": done.reports, "best": done.best });
    match &done.best {
        Some(best) => text += &format!("the best model is {best}\n"),
        None => text += "none of the models that are left is known as the best one\n",
    }
    if let Some(reports) = done.reports {
        text += &format!("reports of the rounds between are in {}\n", reports.display());
    }
    let next = u64::from(to) + 1;
    text +=
        &format!("next: `fairtier gateway serve --dir {}` goes on with round {next}\n", gateway.display());
    say(format, &text, &json)
}
