//! Everything that a page shows, at one moment.

use std::sync::Arc;

use common::DeviceId;

use super::{
    access::{Role, User},
    history::{DeviceHistory, RunHistory},
    members::{Member, MemberList},
};
use crate::{
    ca::MemberState,
    config::Config,
    live::{Answer, LiveDevice, LiveView, TierShape},
    phases::PhaseTimes,
};

/// The input of pages.
#[derive(Debug)]
pub struct View<'a> {
    /// Seconds since 1970.
    pub now: f64,
    /// Absent if no server runs.
    pub live: Option<Arc<LiveView>>,
    pub phases: Vec<PhaseTimes>,
    /// The name of the run in its directory.
    pub run: &'a str,
    /// What tiers hold, also if no server runs.
    pub shapes: &'a [TierShape],
    pub history: &'a RunHistory,
    pub members: Arc<MemberList>,
    /// When the server's certificate expires, in seconds since 1970.
    pub server_expires: Option<u64>,
    pub config: &'a Config,
    /// Free and all bytes of the disk.
    pub disk: Option<(u64, u64)>,
    pub user: Option<&'a User>,
    /// The operator may change the run.
    pub actions: bool,
    /// Whether rounds can be computed again with other strategies.
    pub strategies: &'a [&'static str],
    /// What was done for the request, if it did something.
    pub said: Option<&'a str>,
}

impl View<'_> {
    /// Whether forms that change something are shown.
    pub fn operates(&self) -> Option<&User> {
        self.user.filter(|user| self.actions && user.role == Role::Operator)
    }

    pub fn committed(&self) -> u32 {
        // A snapshot may be older than the history, and before the first report only it knows.
        self.live.as_ref().map_or(0, |live| live.committed).max(self.history.committed())
    }

    pub fn rounds(&self) -> u32 {
        self.live.as_ref().map_or(self.config.run.rounds, |live| live.rounds)
    }

    /// Number of tiers.
    pub fn tiers(&self) -> usize {
        let reported = self.history.shown().map_or(0, |report| report.loss_by_tier.len());
        self.live.as_ref().map_or(reported.max(self.shapes.len()), |live| live.tiers.len())
    }

    /// All devices that are known, by name.
    pub fn devices(&self) -> Vec<DeviceRow<'_>> {
        let mut rows: Vec<DeviceRow<'_>> = vec![];
        let named = self
            .members
            .keys()
            .map(String::as_str)
            .chain(self.history.devices.keys().map(String::as_str))
            .chain(self.live.iter().flat_map(|live| live.devices.iter().map(|device| device.device.as_str())))
            .chain(self.live.iter().flat_map(|live| live.refusals.iter().map(|line| line.device.as_str())));
        let mut names: Vec<&str> = named.collect();
        names.sort_unstable();
        names.dedup();
        rows.extend(names.into_iter().map(|name| self.device(name)));
        rows
    }

    /// One device; all parts are absent if it is not known.
    pub fn device<'b>(&'b self, name: &'b str) -> DeviceRow<'b> {
        let live = self.live.as_ref().and_then(|live| live.device(name));
        let past = self.history.devices.get(name);
        let member = self.members.get(name).copied();
        let refusals = self.live.as_ref().map_or(&[][..], |live| &live.refusals);
        let refused = refusals
            .binary_search_by(|line| line.device.as_str().cmp(name))
            .ok()
            .and_then(|at| refusals.get(at))
            .map(|line| line.code.number());
        let tier = live.map(|live| live.tier).or(past.map(|past| past.tier));
        DeviceRow { name, tier, live, past, member, refused }
    }
}

/// A device with all that is known of it.
#[derive(Copy, Clone, Debug)]
pub struct DeviceRow<'a> {
    pub name: &'a str,
    pub tier: Option<usize>,
    pub live: Option<&'a LiveDevice>,
    pub past: Option<&'a DeviceHistory>,
    pub member: Option<Member>,
    /// The code of a refusal since the gateway was started.
    pub refused: Option<u16>,
}

/// What an operator wants to know first of a device.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum DeviceState {
    Revoked,
    Refused,
    Expired,
    Damaged,
    Late,
    Absent,
    Disconnected,
    Works,
    Delivered,
    Connected,
    NeverSeen,
}

impl DeviceState {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Revoked => "revoked",
            Self::Refused => "refused",
            Self::Expired => "certificate expired",
            Self::Damaged => "certificate damaged",
            Self::Late => "late",
            Self::Absent => "silent",
            Self::Disconnected => "disconnected",
            Self::Works => "works",
            Self::Delivered => "delivered",
            Self::Connected => "connected",
            Self::NeverSeen => "never seen",
        }
    }

    /// Needs a look.
    pub fn is_bad(self) -> bool {
        matches!(
            self,
            Self::Revoked | Self::Refused | Self::Expired | Self::Damaged | Self::Late | Self::Absent
        )
    }
}

impl DeviceRow<'_> {
    pub fn is_known(&self) -> bool {
        self.live.is_some() || self.past.is_some() || self.member.is_some() || self.refused.is_some()
    }

    pub fn state(&self) -> DeviceState {
        match self.member.map(|member| member.state) {
            Some(MemberState::Revoked | MemberState::Restored) => return DeviceState::Revoked,
            Some(MemberState::Expired) => return DeviceState::Expired,
            Some(MemberState::Damaged) => return DeviceState::Damaged,
            Some(MemberState::Member) | None => {}
        }
        let Some(live) = self.live else {
            return match (self.refused, self.past) {
                (Some(_), _) => DeviceState::Refused,
                (None, Some(_)) => DeviceState::Disconnected,
                (None, None) => DeviceState::NeverSeen,
            };
        };
        match live.answer {
            Answer::Refused(_) => DeviceState::Refused,
            Answer::Delivered if live.late => DeviceState::Late,
            Answer::Delivered => DeviceState::Delivered,
            Answer::Absent => DeviceState::Absent,
            _ if !live.connected => DeviceState::Disconnected,
            Answer::Works | Answer::Queued | Answer::Uploads => DeviceState::Works,
            Answer::NotAsked => DeviceState::Connected,
        }
    }

    /// The code of the last refusal.
    pub fn code(&self) -> Option<u16> {
        let open = self.live.and_then(|live| match live.answer {
            Answer::Refused(code) => Some(code.number()),
            _ => None,
        });
        let past = self.past.and_then(|past| past.last_refusal.as_ref()).map(|refusal| refusal.code);
        open.or(self.refused).or(past)
    }

    pub fn loss(&self) -> Option<f64> {
        self.past.and_then(|past| past.loss)
    }

    pub fn delivered(&self) -> u32 {
        self.past.map_or(0, |past| past.delivered)
    }

    pub fn dropped(&self) -> u32 {
        self.past.map_or(0, |past| past.dropped)
    }

    pub fn last_seen(&self) -> Option<f64> {
        self.live.and_then(|live| live.last_seen)
    }

    pub fn expires(&self) -> Option<u64> {
        self.member.and_then(|member| member.expires)
    }

    /// The name, if it can be one: reports of other origin may hold anything.
    pub fn id(&self) -> Option<DeviceId> {
        self.name.parse().ok()
    }
}
