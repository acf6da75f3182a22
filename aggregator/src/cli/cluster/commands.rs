//! What the commands of a cluster do.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::symlink,
    path::Path,
};

use anyhow::{Context, Result, bail};
use common::files;

use crate::cli::{Format, load, place::Place, say, standby};
use crate::{
    ca::Authority,
    config::Config,
    store::{ClusterDatabase, ClusterStatus},
};

/// What all gateways of a cluster share, by name below `cluster.shared`.
const IDENTITY: &str = "identity";
const REVOKED: &str = "revoked.jsonl";
/// A gateway that has told nothing for this many seconds is shown as gone.
const GONE_S: f64 = 30.0;

/// The configuration of a gateway in a cluster.
fn config_of(dir: &Path) -> Result<Config> {
    let config = load(&Place::of(dir)?.run)?;
    if !config.cluster.is_on() {
        bail!("cluster.database is empty in {}/fairtier.toml: this gateway is alone", dir.display());
    }
    Ok(config)
}

async fn connect(config: &Config, dir: &Path) -> Result<ClusterDatabase> {
    let options = standby::options(&config.cluster, dir, config.server.listen)?;
    Ok(ClusterDatabase::connect(&options).await?)
}

pub(super) async fn init(dir: &Path, format: Format) -> Result<()> {
    let config = config_of(dir)?;
    let shared = Path::new(&config.cluster.shared);
    let failed = || shared.display().to_string();
    files::make_private_dir(shared).with_context(failed)?;
    // Before anything moves: a database that cannot be used changes nothing.
    let database = connect(&config, dir).await?;
    let (_, version) = database.migrate().await?;
    let (from, to) = (dir.join(IDENTITY), shared.join(IDENTITY));
    let given = !to.exists();
    if given {
        give(&from, &to).with_context(failed)?;
        give(&dir.join(REVOKED), &shared.join(REVOKED)).with_context(failed)?;
    }
    if !shared.join(REVOKED).exists() {
        let empty = files::private().create(true).append(true).open(shared.join(REVOKED));
        empty.and_then(|file| file.sync_all()).and_then(|()| sync(shared)).with_context(failed)?;
    }
    link(dir, IDENTITY, &to)?;
    link(dir, REVOKED, &shared.join(REVOKED))?;
    let authority = Authority::open(dir)?.root()?;
    if !database.adopt_authority(&authority).await? {
        bail!("the database belongs to a fleet with another authority than {}", to.display());
    }
    let what = if given { "given to" } else { "taken from" };
    let text = format!(
        "tables of version {version}; certificates {what} {}\nnext: `fairtier gateway serve --dir {}` on every gateway\n",
        shared.display(),
        dir.display()
    );
    let json = serde_json::json!({ "schema": version, "shared": shared, "given": given });
    say(format, &text, &json)
}

/// Moves a file or directory, also to another file system. One that is missing is fine.
fn give(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => copy(from, to).and_then(|()| {
            // The copy is complete and durable.
            if from.is_dir() { fs::remove_dir_all(from) } else { fs::remove_file(from) }
        }),
        moved => moved,
    }
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    // Under another name first: an authority that is there is complete.
    let part = to.with_extension("part");
    copy_all(from, &part)?;
    fs::rename(&part, to)?;
    to.parent().map_or(Ok(()), sync)
}

fn copy_all(from: &Path, to: &Path) -> io::Result<()> {
    if !from.is_dir() {
        let mut file = files::private().write(true).create(true).truncate(true).open(to)?;
        io::copy(&mut File::open(from)?, &mut file)?;
        return file.sync_all();
    }
    files::make_private_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        copy_all(&entry.path(), &to.join(entry.file_name()))?;
    }
    sync(to)
}

fn sync(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Replaces a file or directory of the gateway by a link; what it had is kept beside it.
fn link(dir: &Path, name: &str, to: &Path) -> Result<()> {
    let own = dir.join(name);
    if fs::read_link(&own).is_ok_and(|there| there == to) {
        return Ok(());
    }
    let before = dir.join(format!("{name}.before"));
    let failed = || own.display().to_string();
    match fs::symlink_metadata(&own) {
        Ok(_) if before.exists() => bail!("{} exists; move it away first", before.display()),
        Ok(_) => fs::rename(&own, &before).with_context(failed)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(failed),
    }
    symlink(to, &own).and_then(|()| sync(dir)).with_context(failed)
}

pub(super) async fn migrate(dir: &Path, format: Format) -> Result<()> {
    let (before, now) = connect(&config_of(dir)?, dir).await?.migrate().await?;
    let text = match before == now {
        true => format!("the tables have version {now} already\n"),
        false => format!("the tables had version {before}, now {now}\n"),
    };
    say(format, &text, &serde_json::json!({ "before": before, "schema": now }))
}

pub(super) async fn status(dir: &Path, format: Format) -> Result<()> {
    let status = connect(&config_of(dir)?, dir).await?.status().await?;
    let ClusterStatus { schema, epoch, leader, leads, lease_s, committed, open, devices, gateways } = status;
    let gateway = |(node, version, address, seen_s): &(String, String, String, f64)| {
        serde_json::json!({
            "node": node, "version": version, "address": address, "seen_s": seen_s,
            "role": role(leads && *node == leader, *seen_s),
        })
    };
    let json = serde_json::json!({
        "schema": schema, "epoch": epoch, "leader": leads.then_some(&leader), "last_leader": leader, "lease_s": lease_s,
        "committed": committed, "open_receipts": open, "devices": devices,
        "gateways": gateways.iter().map(gateway).collect::<Vec<_>>(),
    });
    let mut text = match leads {
        true => format!("{leader} leads with epoch {epoch}\n"),
        false => format!("no gateway leads; epoch {epoch}\n"),
    };
    text += &match (committed, open) {
        (None, _) => "no run has begun\n".to_owned(),
        (Some(committed), None) => format!("{committed} rounds committed; {devices} devices\n"),
        (Some(committed), Some(open)) => {
            format!(
                "{committed} rounds committed, round {} open with {open} receipts; {devices} devices\n",
                committed + 1
            )
        }
    };
    for (node, version, address, seen) in &gateways {
        let role = role(leads && *node == leader, *seen);
        text += &format!("{node:<16} {role:<8} {address:<22} {version:<8} seen {seen:.0} s ago\n");
    }
    say(format, &text, &json)
}

fn role(leads: bool, seen_s: f64) -> &'static str {
    match (leads, seen_s < GONE_S) {
        (true, _) => "leads",
        (false, true) => "standby",
        (false, false) => "gone",
    }
}
