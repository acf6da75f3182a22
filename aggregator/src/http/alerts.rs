//! What an operator must know of without looking for it.

use coordinator::PhaseName;
use strategies::fairness::FairnessStatus;

use super::{pages::span, view::View};
use crate::{ca::MemberState, live::LiveView};

/// Devices that are named in one alert.
const NAMED: usize = 5;
/// A certificate that ends sooner is reported.
const ENDS_SOON_S: f64 = 14.0 * 86_400.0;
const SERVER_ENDS_SOON_S: f64 = 30.0 * 86_400.0;
/// Less free disk than this share, or this many bytes, is reported.
const FREE_SHARE: f64 = 0.05;
const FREE_BYTES: u64 = 1 << 30;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Alert {
    /// Needs an action now.
    pub urgent: bool,
    pub text: String,
}

impl Alert {
    pub fn class(&self) -> &'static str {
        if self.urgent { "urgent" } else { "note" }
    }
}

/// The urgent ones first.
pub fn alerts(view: &View<'_>) -> Vec<Alert> {
    let mut found = vec![];
    waiting(view, &mut found);
    disk(view, &mut found);
    certificates(view, &mut found);
    refused(view, &mut found);
    last_round(view, &mut found);
    found.sort_by_key(|alert| !alert.urgent);
    found
}

fn add(found: &mut Vec<Alert>, urgent: bool, text: String) {
    found.push(Alert { urgent, text });
}

/// As in `a, b and 3 more`.
fn some<'a>(names: impl Iterator<Item = &'a str>, all: usize) -> String {
    let named: Vec<&str> = names.take(NAMED).collect();
    let text = named.join(", ");
    match all.saturating_sub(named.len()) {
        0 => text,
        more => format!("{text} and {more} more"),
    }
}

fn waiting(view: &View<'_>, found: &mut Vec<Alert>) {
    let Some(live) = &view.live else { return };
    if live.paused {
        add(found, true, "The run is paused. No further round begins until it is resumed.".into());
    } else if let Some(gathering) = live.gathering.filter(|gathering| gathering.have < gathering.need) {
        let (have, need) = (gathering.have, gathering.need);
        let so_far = span(view.now - live.since);
        let mut text =
            format!("The next round waits for devices: {have} of {need} are connected, for {so_far} so far.");
        let missing = missing(view, live);
        if !missing.is_empty() {
            text += &format!(" Not connected: {}.", some(missing.iter().copied(), missing.len()));
        }
        add(found, true, text);
    }
    if let Some(exchange) = &live.exchange {
        for (number, tier) in live.tiers.iter().enumerate().filter(|(_, tier)| tier.asked > 0) {
            let passed = tier.until.is_some_and(|until| until <= view.now);
            if passed && !tier.has_quorum {
                let (got, asked) = (tier.delivered, tier.asked);
                let share = 100.0 * tier.quorum;
                add(
                    found,
                    true,
                    format!(
                        "Tier {number} has no quorum: {got} of {asked} devices have delivered, {share:.0} % are needed."
                    ),
                );
            }
        }
        if live.waiting_count == 0 && live.gathering.is_none() && (live.waits_long || exchange.overdue) {
            let round = exchange.round;
            add(
                found,
                true,
                format!("Round {round} waits for an answer; all its devices are silent or disconnected."),
            );
        }
        if live.waits_long && live.waiting_count > 0 {
            let names = live.waiting.iter().map(|wait| wait.device.as_str());
            let most = live.waiting.iter().filter_map(|wait| wait.until).fold(0.0, f64::max);
            let most = if most > view.now {
                format!(", at most {} more", span(most - view.now))
            } else {
                String::new()
            };
            add(
                found,
                false,
                format!(
                    "Round {} waits for {}{most}. It is open for {}.",
                    exchange.round,
                    some(names, live.waiting_count),
                    span(view.now - exchange.opened)
                ),
            );
        }
    }
    if live.phase == PhaseName::Finished {
        add(found, false, "The run is finished. Export its model, or raise run.rounds to continue.".into());
    }
}

/// Members of the fleet that could join, and are not connected.
fn missing<'a>(view: &'a View<'_>, live: &LiveView) -> Vec<&'a str> {
    let members = view.members.iter().filter(|(_, member)| member.state == MemberState::Member);
    let away = members.filter(|(name, _)| live.device(name).is_none_or(|device| !device.connected));
    away.map(|(name, _)| name.as_str()).collect()
}

fn disk(view: &View<'_>, found: &mut Vec<Alert>) {
    if let Some((free, all)) = view.disk
        && all > 0
        && (free < FREE_BYTES || (free as f64) < FREE_SHARE * all as f64)
    {
        let gigabytes = |bytes: u64| bytes as f64 / 1e9;
        add(
            found,
            true,
            format!(
                "The disk of the gateway is nearly full: {:.1} of {:.1} GB are free.",
                gigabytes(free),
                gigabytes(all)
            ),
        );
    }
}

fn certificates(view: &View<'_>, found: &mut Vec<Alert>) {
    let of = |wanted: &dyn Fn(&super::members::Member) -> bool| -> Vec<&str> {
        let chosen = view.members.iter().filter(|(_, member)| wanted(member));
        chosen.map(|(name, _)| name.as_str()).collect()
    };
    if let Some(left) =
        view.server_expires.map(|end| end as f64 - view.now).filter(|left| *left < SERVER_ENDS_SOON_S)
    {
        let when =
            if left > 0.0 { format!("ends in {}", span(left)) } else { format!("ended {} ago", span(left)) };
        let text =
            format!("The server's certificate {when}: `fairtier gateway rotate-server-key` makes a new one.");
        add(found, true, text);
    }
    let expired = of(&|member| member.state == MemberState::Expired);
    let ending = of(&|member| {
        let left = member.expires.map(|end| end as f64 - view.now);
        member.state == MemberState::Member && left.is_some_and(|left| left < ENDS_SOON_S)
    });
    let restored = of(&|member| member.state == MemberState::Restored);
    let damaged = of(&|member| member.state == MemberState::Damaged);
    for (names, urgent, what) in [
        (expired, true, "The certificate has expired"),
        (ending, false, "The certificate ends within 14 days, and a connected device renews it by itself"),
        (
            restored,
            true,
            "Revoked, but the file is in identity/ again, as after restoring a backup; it stays refused",
        ),
        (
            damaged,
            true,
            "The file in identity/ cannot be read, so the device is refused: `fairtier gateway enroll --replace` makes a new one",
        ),
    ] {
        if !names.is_empty() {
            add(found, urgent, format!("{what}: {}.", some(names.iter().copied(), names.len())));
        }
    }
}

fn refused(view: &View<'_>, found: &mut Vec<Alert>) {
    let Some(live) = &view.live else { return };
    let out: Vec<&crate::live::LiveRefusal> = live
        .refusals
        .iter()
        .filter(|line| live.device(line.device.as_str()).is_none_or(|device| !device.connected))
        .collect();
    for line in out.iter().take(NAMED) {
        let what = if line.by_device { "cannot do what it is asked to" } else { "is refused" };
        add(found, false, format!("{} {what}: {}.", line.device, line.code));
    }
    if out.len() > NAMED {
        add(found, false, format!("{} more devices are refused.", out.len() - NAMED));
    }
}

fn last_round(view: &View<'_>, found: &mut Vec<Alert>) {
    let Some(report) = view.history.shown() else { return };
    if let Some(code) = report.kept.and_then(common::Code::of) {
        add(found, true, format!("Round {} left the model unchanged: {code}.", report.round));
    }
    let mut limited: Vec<&str> = report.guard.iter().map(|finding| finding.device.as_str()).collect();
    limited.sort_unstable();
    limited.dedup();
    if !limited.is_empty() {
        let names = some(limited.iter().copied(), limited.len());
        add(found, false, format!("The guard limited {names} in round {}.", report.round));
    }
    for line in &report.fairness {
        if !matches!(line.status, FairnessStatus::Met) {
            add(found, false, format!("Fairness target: {}", line.advice()));
        }
    }
}
