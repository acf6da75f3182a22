//! Commands that say who is a member of the fleet.

use std::{fs, path::Path, time::Duration};

use aggregator::ca::{Authority, Draft, Secrecy};
use anyhow::{Context, Result, ensure};
use common::DeviceId;

use super::{print, terms::TermsArgs};

pub(super) fn enroll(
    dir: &Path,
    out: &Path,
    serial: bool,
    terms: &TermsArgs,
    devices: &[DeviceId],
) -> Result<()> {
    let authority = Authority::open(dir)?;
    fs::create_dir_all(out).with_context(|| out.display().to_string())?;
    for device in devices {
        let path = out.join(format!("{device}.{}", if serial { "page" } else { "pem" }));
        let name = || path.display().to_string();
        // Before what the device has now ceases to be good.
        let draft = Draft::open(&path, Secrecy::Secret).with_context(name)?;
        let bundle = match serial {
            true => authority.enroll_serial_under(device, terms.membership())?,
            false => authority.enroll_under(device, terms.membership())?.into_bytes(),
        };
        draft.keep(&bundle).with_context(name)?;
        print(&format!("{}\n", path.display()))?;
    }
    Ok(())
}

pub(super) fn token(dir: &Path, hours: u32, terms: &TermsArgs, device: &DeviceId) -> Result<()> {
    let good_for = Duration::from_secs(3600 * u64::from(hours));
    let token = Authority::open(dir)?.token(device, good_for, terms.membership())?;
    Ok(print(&format!("{token}\n"))?)
}

/// Every one that can be is revoked, whatever is wrong with the others.
pub(super) fn revoke(dir: &Path, devices: &[DeviceId]) -> Result<()> {
    let authority = Authority::open(dir)?;
    let (mut revoked, mut wrong) = (String::new(), vec![]);
    for device in devices {
        match authority.revoke(device) {
            Ok(true) => revoked += &format!("revoked {device}\n"),
            Ok(false) => wrong.push(format!("{device} is not enrolled")),
            Err(error) => wrong.push(format!("{device}: {error}")),
        }
    }
    print(&revoked)?;
    ensure!(wrong.is_empty(), "{}", wrong.join("; "));
    Ok(())
}
