//! Commands that manage the members of the fleet.

use std::{fs, path::Path, time::Duration};

use crate::{
    ca::{Authority, Credential, Existing, MemberRecord, MemberState},
    clock::since_1970,
};
use anyhow::{Context, Result, ensure};
use common::{DeviceId, Tier, TierSet};
use serde_json::{Value, json};

use super::{Format, grant::GrantArgs, print, say};

/// What an enrolment may take the place of.
#[derive(Copy, Clone, Debug)]
pub(super) struct Overwrite {
    /// The identity that this gateway gave the name before.
    pub(super) replace: bool,
    /// A file of any origin.
    pub(super) force: bool,
}

pub(super) fn enroll(
    dir: &Path,
    out: &Path,
    serial: bool,
    Overwrite { replace, force }: Overwrite,
    grant: &GrantArgs,
    devices: &[DeviceId],
    format: Format,
) -> Result<()> {
    let mut made = vec![];
    let (authority, existing, grant) = (Authority::open(dir)?, existing(replace), grant.options());
    fs::create_dir_all(out).with_context(|| out.display().to_string())?;
    // All names are checked first: if one may not be enrolled, none is.
    devices.iter().try_for_each(|device| authority.may_enroll(device, existing))?;
    let file = |device: &DeviceId| out.join(format!("{device}.{}", if serial { "board" } else { "pem" }));
    for device in devices.iter().filter(|device| !force && file(device).exists()) {
        // Only the file of a name that is enrolled here is known to be from this gateway.
        let known = replace && authority.may_enroll(device, Existing::Refuse).is_err();
        ensure!(
            known,
            "{} exists, and may be an identity of another gateway; choose another folder with --out, or overwrite it with --force",
            file(device).display()
        );
    }
    for device in devices {
        let path = file(device);
        match serial {
            true => authority.enroll_serial_as(device, grant, existing, Some(&path)).map(drop)?,
            false => authority.enroll_as(device, grant, existing, Some(&path)).map(drop)?,
        }
        if format == Format::Table {
            print(&format!("{}\n", path.display()))?;
        }
        made.push(json!({ "device": device, "file": path }));
    }
    if format == Format::Json { Ok(print(&format!("{}\n", Value::from(made)))?) } else { Ok(()) }
}

pub(super) fn token(
    dir: &Path,
    hours: u32,
    replace: bool,
    grant: &GrantArgs,
    device: &DeviceId,
    format: Format,
) -> Result<()> {
    let valid_for = Duration::from_secs(3600 * u64::from(hours));
    let token = Authority::open(dir)?.token_as(device, valid_for, grant.options(), existing(replace))?;
    say(format, &format!("{token}\n"), &json!({ "device": device, "token": token.to_string() }))
}

fn existing(replace: bool) -> Existing {
    if replace { Existing::Replace } else { Existing::Refuse }
}

/// Revokes every device that can be revoked, even if others fail.
pub(super) fn revoke(dir: &Path, devices: &[DeviceId], format: Format) -> Result<()> {
    let authority = Authority::open(dir)?;
    let (mut revoked, mut wrong) = (vec![], vec![]);
    for device in devices {
        match authority.revoke(device) {
            Ok(true) => revoked.push(device),
            Ok(false) => wrong.push(format!("{device} is not enrolled")),
            Err(error) => wrong.push(format!("{device}: {error}")),
        }
    }
    let text: String = revoked.iter().map(|device| format!("revoked {device}\n")).collect();
    say(format, &text, &json!({ "revoked": revoked, "problems": wrong }))?;
    ensure!(wrong.is_empty(), "{}", wrong.join("; "));
    Ok(())
}

pub(super) fn list(dir: &Path, format: Format) -> Result<()> {
    let members = Authority::open(dir)?.members()?;
    if format == Format::Json {
        return Ok(print(&format!("{}\n", Value::from_iter(members.iter().map(row))))?);
    }
    let now = since_1970().as_secs();
    let mut text = format!("{:<32} {:<11} {:>9} {:<9} tiers\n", "device", "credential", "days left", "state");
    for member in &members {
        let left = member.expires.map_or("-".to_owned(), |expires| {
            format!("{:.1}", expires.saturating_sub(now) as f64 / (24.0 * 3600.0))
        });
        let (device, credential, state) = (&member.device, credential(member), state(member.state));
        let tiers = match member.tiers {
            TierSet::ALL => "all".to_owned(),
            some => numbers(some).iter().map(usize::to_string).collect::<Vec<_>>().join(","),
        };
        text += &format!("{device:<32} {credential:<11} {left:>9} {state:<9} {tiers}\n");
    }
    let restored: Vec<_> = members
        .iter()
        .filter(|member| member.state == MemberState::Restored)
        .map(|member| member.device.as_str())
        .collect();
    if !restored.is_empty() {
        text += &format!(
            "revoked, but in identity/ again, as after restoring a backup: {}; they stay refused; \
             `fairtier gateway enroll --replace` makes one a member again, `fairtier gateway revoke` removes its file\n",
            restored.join(", ")
        );
    }
    Ok(print(&text)?)
}

fn row(member: &MemberRecord) -> Value {
    json!({
        "device": member.device.as_str(),
        "credential": credential(member),
        "state": state(member.state),
        "issued": member.issued,
        "expires": member.expires,
        "tiers": (member.tiers != TierSet::ALL).then(|| numbers(member.tiers)),
    })
}

fn numbers(tiers: TierSet) -> Vec<usize> {
    tiers.iter().map(Tier::index).collect()
}

fn credential(member: &MemberRecord) -> &'static str {
    match member.credential {
        Some(Credential::Certificate) => "certificate",
        Some(Credential::SerialKey) => "serial key",
        None => "-",
    }
}

fn state(state: MemberState) -> &'static str {
    match state {
        MemberState::Member => "member",
        MemberState::Expired => "expired",
        MemberState::Revoked => "revoked",
        MemberState::Restored => "restored",
        MemberState::Damaged => "damaged",
    }
}

pub(super) fn rotate_server_key(dir: &Path, format: Format) -> Result<()> {
    let issued = Authority::open(dir)?.rotate_server_key()?;
    let dir = dir.display();
    let text = format!(
        "the server has a new key; its certificate is number {issued}\n\
         next: restart `fairtier gateway serve --dir {dir}`, so that all devices reconnect and see it\n"
    );
    say(format, &text, &json!({ "issued": issued }))
}
