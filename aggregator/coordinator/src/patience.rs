//! How long a round waits, and for whom. Four rules decide:
//!
//! 1. A device that gives signs of life is waited for until its tier's deadline, and longer while its tier has no quorum.
//!    `give_up_s` ends every wait.
//! 2. A device that is silent or gone is waited for a little longer than it usually is silent ([`Past::silence`]). After
//!    that it counts neither for its tier nor for the quorum, until it is heard of again. Where the quorum is 1, it counts.
//! 3. A device that holds up the others in vain is waited for no longer than it usually takes, for [`DEBT`] times the time
//!    that it has cost. After that it is given twice the silence, until it delivers.
//! 4. A device that is revoked is not waited for. A round without any update, in which every device is silent or gone, ends
//!    as soon as another device is there.
//!
//! Rule 1 keeps slow hardware in the fleet, and so does the doubling in rule 3: a device that is silent for long because each
//! of its batches takes long is given more time until it gets done. Rule 3 also bounds what one device costs: with its debt
//! of eight times, no more than a ninth of all time is lost to it.
//!
//! A sign of life is any frame: a message, a part of an update, an acknowledgement. A device that trains sends one at least
//! every five seconds, as long as a batch takes no longer. All of this is about when a round closes. What comes of the round
//! follows from the updates that are stored, and from nothing else.
//!
//! ```text
//! a tier is done        when every able device has delivered (rules 2 and 3 say who is able), or as many as were wanted,
//!                       or its deadline has passed and ceil(quorum * able) of its devices have delivered
//! a round closes        when every tier is done and at least one update is there
//! a round is given up   after give_up_s: it closes with the updates that are there, unchanged if there are none
//! ```
//! Devices that were refused are not able, either: counting them could keep a round open for ever.

use common::{Duration, Tier};

use strategies::strategy::PerTier;

mod idle;
mod past;
mod pulse;
mod recent;

pub use idle::{comeback, idle};
pub use past::{Answer, Past, Whereabouts};
pub use pulse::Pulse;
pub use recent::ByKind;

/// Silence beyond twice the usual one that a device is given, and all that one without a connection and a past is given.
/// A device that has lost its link is back within a second, if it comes back at once.
pub const MARGIN: Duration = Duration::from_secs(2);
/// The silence that a device is given which has never answered: three times what a device at work leaves between two signs
/// of life. Twice the usual time of the others, if that is longer.
pub const NEW: Duration = Duration::from_secs(15);
/// How long a device may take to come back after the gateway was started again, besides its place among all of them. The
/// longest pause between two attempts of a device is 38 s, and an attempt takes up to 10 s.
pub const RETURN: Duration = Duration::from_secs(60);
/// For how many times what it has cost a device is waited for no longer than usual.
pub const DEBT: u64 = 8;
/// Delays below this are noise.
pub const NOISE: Duration = Duration::from_millis(250);
/// Exchanges from which it follows what is usual: the middle of so many.
pub const REMEMBERED: usize = 8;
/// How often it is looked, at most, whether devices have fallen silent.
pub const LOOK: Duration = Duration::from_millis(200);

/// When a round may end.
#[derive(Clone, PartialEq, Debug)]
pub struct Patience {
    /// How long a tier's devices are waited for.
    pub deadline_s: PerTier,
    /// Share of a tier's able devices without which a round does not close late.
    pub quorum: PerTier,
    /// After which time a round closes with what is there; never before the longest deadline. 0: never.
    pub give_up_s: f64,
}

/// What has become of the devices of a tier.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    pub asked: usize,
    pub delivered: usize,
    pub refused: usize,
    /// Complete, not yet durable.
    pub storing: usize,
    /// Of those that have not answered, who is not waited for any more.
    pub absent: usize,
}

impl Tally {
    /// Devices that count for the tier.
    pub fn able(&self) -> usize {
        self.asked.saturating_sub(self.refused + self.absent)
    }

    /// Every device has answered.
    pub fn is_settled(&self) -> bool {
        self.delivered + self.refused >= self.asked
    }

    /// Every device that is waited for has answered.
    pub fn is_complete(&self) -> bool {
        self.delivered >= self.able()
    }
}

impl Patience {
    pub fn deadline(&self, tier: Tier) -> Duration {
        seconds(self.deadline_s.of(tier).unwrap_or(0.0))
    }

    pub fn give_up(&self) -> Option<Duration> {
        let longest = self.deadline_s.values().iter().copied().fold(0.0, f64::max);
        (self.give_up_s > 0.0).then(|| seconds(self.give_up_s.max(longest)))
    }

    /// Whether a tier's deadline has passed with its quorum.
    pub fn may_leave(&self, tier: Tier, tally: &Tally, waited: Duration) -> bool {
        waited >= self.deadline(tier) && self.has_quorum(tier, tally)
    }

    /// Whether enough of a tier's able devices have delivered.
    pub fn has_quorum(&self, tier: Tier, tally: &Tally) -> bool {
        let quorum = self.quorum.of(tier).unwrap_or(0.0);
        tally.delivered >= (quorum * tally.able() as f64).ceil() as usize
    }

    /// The operator wants every device of the tier, also one that is silent or gone.
    pub fn wants_all(&self, tier: Tier) -> bool {
        self.quorum.of(tier).is_some_and(|quorum| quorum >= 1.0)
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::from_millis((seconds * 1000.0) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tier(index: usize) -> Tier {
        Tier::new(index).unwrap()
    }

    #[test]
    fn a_tier_is_left_after_its_own_deadline_and_with_its_own_quorum() {
        let patience = Patience {
            deadline_s: PerTier::Each(vec![10.0, 60.0]),
            quorum: PerTier::Each(vec![0.5, 1.0]),
            give_up_s: 30.0,
        };
        let tally = |delivered| Tally { asked: 5, delivered, refused: 1, ..Tally::default() };
        let at = Duration::from_secs;
        assert!(!patience.may_leave(tier(0), &tally(2), at(9)));
        assert!(patience.may_leave(tier(0), &tally(2), at(10)));
        assert!(!patience.may_leave(tier(0), &tally(1), at(10)));
        assert!(!patience.may_leave(tier(1), &tally(3), at(60)));
        assert!(patience.may_leave(tier(1), &tally(4), at(60)));
        // Giving up before a deadline would make it meaningless.
        assert_eq!(patience.give_up(), Some(at(60)));
        assert_eq!(Patience { give_up_s: 0.0, ..patience }.give_up(), None);
    }

    #[test]
    fn absent_devices_count_neither_for_the_tier_nor_for_its_quorum() {
        let patience = Patience { deadline_s: 10.0.into(), quorum: 0.5.into(), give_up_s: 0.0 };
        let at = Duration::from_secs(10);
        let tally = Tally { asked: 6, delivered: 1, absent: 4, ..Tally::default() };
        assert!(patience.may_leave(tier(0), &tally, at) && !tally.is_complete());
        assert!(!patience.may_leave(tier(0), &Tally { absent: 3, ..tally }, at));
        assert!(Tally { absent: 5, ..tally }.is_complete() && !Tally { absent: 5, ..tally }.is_settled());
    }
}
