//! The fleet's authority, the server's certificate, and the members.

use std::path::Path;

use common::certificate::Grant;

use super::CheckReport;
use crate::{
    ca::{Authority, CaError, MemberState},
    clock::since_1970,
    quic,
};

const ABOUT: &str = "certificates";
const DAY: u64 = 24 * 3600;
/// Certificates that end within this time are reported.
const SOON: u64 = 30 * DAY;

/// Returns the number of members.
pub(super) fn check(report: &mut CheckReport, dir: &Path) -> usize {
    let authority = match Authority::open(dir) {
        Ok(authority) => authority,
        Err(error @ CaError::Missing(_)) => {
            let remedy = format!(
                "restore identity/ from a backup; `fairtier gateway init {}` makes a new authority, for which every device is enrolled again",
                dir.display()
            );
            report.problem(ABOUT, error, remedy);
            return 0;
        }
        Err(error) => {
            report.problem(
                ABOUT,
                error,
                "restore the file from a backup, or run this as the user of the gateway",
            );
            return 0;
        }
    };
    check_server(report, dir, &authority);
    check_members(report, dir, &authority)
}

fn check_server(report: &mut CheckReport, dir: &Path, authority: &Authority) {
    let rotate = format!("make a new one with `fairtier gateway rotate-server-key --dir {}`", dir.display());
    if let Err(error) = quic::check_server_certificate(authority) {
        let what = format!("the server's certificate and key cannot be used: {error}");
        return report.problem(ABOUT, what, rotate);
    }
    let expires = match authority.server() {
        Ok((certificate, _)) => Grant::of(&certificate).map(|grant| grant.expires),
        Err(error) => return report.problem(ABOUT, error, rotate),
    };
    let now = since_1970().as_secs();
    match expires {
        Some(expires) if expires <= now => {
            report.problem(ABOUT, "the server's certificate has expired", rotate)
        }
        Some(expires) if expires - now < SOON => {
            let what = format!("the server's certificate expires in {} days", (expires - now) / DAY);
            report.warn(ABOUT, what, rotate);
        }
        Some(expires) => {
            report.ok(
                ABOUT,
                format!("the server's certificate is valid for {} more days", (expires - now) / DAY),
            );
        }
        None => report.warn(
            ABOUT,
            "the server's certificate is of an earlier version and does not state its end",
            rotate,
        ),
    }
}

fn check_members(report: &mut CheckReport, dir: &Path, authority: &Authority) -> usize {
    let members = match authority.members() {
        Ok(members) => members,
        Err(error) => {
            report.problem(ABOUT, error, "restore the file from a backup");
            return 0;
        }
    };
    let count = |state| members.iter().filter(|member| member.state == state).count();
    let now = since_1970().as_secs();
    let ending = |expires: u64| expires > now && expires - now < SOON;
    let soon = members
        .iter()
        .filter(|member| member.state == MemberState::Member && member.expires.is_some_and(ending))
        .count();
    let (valid, expired) = (count(MemberState::Member), count(MemberState::Expired));
    let (damaged, restored) = (count(MemberState::Damaged), count(MemberState::Restored));
    let what = format!(
        "{valid} members, {expired} expired, {soon} that end within 30 days, {damaged} damaged, {restored} revoked and restored"
    );
    let dir = dir.display();
    if damaged + expired + restored > 0 {
        let remedy = format!(
            "`fairtier gateway members --dir {dir}` names them; enrol again with --replace, or revoke"
        );
        report.warn(ABOUT, what, remedy);
    } else if valid == 0 {
        report.ok(
            ABOUT,
            format!("no device is enrolled yet; `fairtier gateway enroll --dir {dir} NAME` does it"),
        );
    } else {
        report.ok(ABOUT, what);
    }
    valid
}
