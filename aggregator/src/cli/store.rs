//! Looking after the store while no server runs.

use std::path::Path;

use aggregator::store::DiskStore;
use anyhow::{Context, Result, bail};
use tracing::info;

use super::{Format, status};

pub(super) fn verify(dir: &Path, format: Format) -> Result<()> {
    let store = dir.join("store");
    let found = DiskStore::verify(&store).with_context(|| store.display().to_string())?;
    if format == Format::Json {
        let json = serde_json::json!({
            "committed": found.committed, "open": found.open, "models": found.models, "reports": found.reports,
            "devices": found.devices, "updates": found.updates, "bytes": found.bytes, "problems": found.problems,
        });
        println!("{json}");
    } else {
        let rounds =
            found.committed.map_or("no run has begun".to_owned(), |n| format!("{n} rounds committed"));
        let open = found.open.map_or(String::new(), |round| format!(", round {round} open"));
        println!("{rounds}{open}");
        println!("models kept: {:?}; {} reports, {} devices", found.models, found.reports, found.devices);
        println!("{} updates with {} bytes agree with their checksums", found.updates, found.bytes);
        for problem in &found.problems {
            println!("problem: {problem}");
        }
    }
    if found.problems.is_empty() {
        return Ok(());
    }
    bail!("{}: {} problems; nothing was changed", store.display(), found.problems.len());
}

/// Says where the run stands; an error if none has begun.
pub(super) fn expect_run(dir: &Path) -> Result<()> {
    let store = dir.join("store");
    let committed = DiskStore::committed(&store).with_context(|| store.display().to_string())?;
    let Some(committed) = committed else {
        bail!(
            "no run has begun in {dir}; `aggregator serve --dir {dir}` begins one, `--dir` names another directory",
            dir = dir.display()
        );
    };
    info!("{committed} rounds are committed; going on with round {}", u64::from(committed) + 1);
    Ok(())
}

pub(super) fn rollback(dir: &Path, to: u32) -> Result<()> {
    let store = dir.join("store");
    let done = DiskStore::rollback(&store, to).with_context(|| store.display().to_string())?;
    status::rewrite(dir, &done)?;
    println!("went back from round {} to the model after round {}", done.from, done.to);
    if let Some(reports) = done.reports {
        println!("reports of the rounds between are in {}", reports.display());
    }
    println!("next: `aggregator serve --dir {}` goes on with round {}", dir.display(), u64::from(to) + 1);
    Ok(())
}
