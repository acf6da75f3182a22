//! How long an exchange waits for its devices: deadlines, quorum and silence. Four rules decide.
//!
//! 1. A device that gives signs of life is waited for until its tier's deadline, and longer while its tier has no quorum.
//!    `give_up_s` ends every wait.
//! 2. A silent or disconnected device is waited for a little longer than it is usually silent
//!    ([`DeviceTiming::allowed_silence`]). After that it is absent: it counts neither for its tier nor for the quorum until it
//!    is heard again. Where the quorum is 1, it still counts.
//! 3. A device that delays the others without result is penalized. For [`PENALTY_FACTOR`] times the lost time, it is waited
//!    for no longer than it usually takes. Afterwards it is allowed twice the silence, until it delivers.
//! 4. A revoked device is not waited for. An exchange without any update, in which every device is absent, ends as soon as
//!    another device is connected.
//!
//! Rule 1 keeps slow hardware in the fleet. The doubling in rule 3 does the same for a device whose batches take so long that
//! it is silent meanwhile. Rule 3 also bounds the cost of one device: with a factor of eight, at most a ninth of all time.
//!
//! A sign of life is any frame: a message, a part of an update, an acknowledgement. A training device sends one at least
//! every five seconds, unless a batch takes longer. These rules only decide when an exchange closes. The result of a round
//! depends on the stored updates alone.
//!
//! ```text
//! a tier is done            when every eligible device has delivered (rules 2 and 3), or the wanted number of devices has,
//!                           or its deadline has passed and ceil(quorum * eligible) of its devices have delivered
//! an exchange closes        when every tier is done and at least one update has arrived
//! an exchange is given up   after give_up_s: it closes with the updates that have arrived, even if there are none
//! ```
//! Refused devices are not eligible either: counting them could keep an exchange open forever.

use common::{Duration, Tier};

use strategies::strategy::PerTier;

use crate::per_tier::value_of;

mod idle;
mod liveness;
mod recent;
mod timing;

pub use idle::{idle_wait, return_time};
pub use liveness::Liveness;
pub use recent::RecentByKind;
pub use timing::{AnswerTiming, DeviceTiming, LinkState};

/// Silence that a device is allowed beyond twice its usual one. A disconnected device without a history is allowed this much
/// in all. A device that reconnects at once takes less than a second.
pub const SILENCE_MARGIN: Duration = Duration::from_secs(2);
/// Silence that a device is allowed before its first answer: three times the longest pause between two signs of life.
/// Twice the usual time of the others, if that is longer.
pub const NEW_DEVICE_SILENCE: Duration = Duration::from_secs(15);
/// Time to reconnect after the gateway was restarted, without the [spread](return_time) over the fleet. The longest pause
/// between two attempts of a device is 38 s, and an attempt takes up to 10 s.
pub const RETURN_TIME: Duration = Duration::from_secs(60);
/// A penalty lasts this many times the time that the device has cost the others.
pub const PENALTY_FACTOR: u64 = 8;
/// Shorter delays are ignored.
pub const NOISE: Duration = Duration::from_millis(250);
/// Exchanges whose median is the usual value.
pub const HISTORY_LEN: usize = 8;
/// Shortest time between two checks for silent devices.
pub const SILENCE_CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// When an exchange may close before every device has answered.
#[derive(Clone, PartialEq, Debug)]
pub struct Deadlines {
    /// Seconds until the deadline of a tier.
    pub deadline_s: PerTier,
    /// Share of a tier's eligible devices that must have delivered before the deadline counts.
    pub quorum: PerTier,
    /// Seconds after which an exchange closes with what has arrived; at least the longest deadline. 0: never.
    pub give_up_s: f64,
}

/// How many devices of a tier are in which state.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct TierCounts {
    /// All of them.
    pub asked: usize,
    /// Their update is durable.
    pub delivered: usize,
    /// Their answer was refused.
    pub refused: usize,
    /// Complete, not yet durable.
    pub storing: usize,
    /// Have not answered and are no longer waited for.
    pub absent: usize,
}

impl TierCounts {
    /// Devices that count for the tier and its quorum.
    pub fn eligible(&self) -> usize {
        self.asked.saturating_sub(self.refused + self.absent)
    }

    /// Every device has answered.
    pub fn is_settled(&self) -> bool {
        self.delivered + self.refused >= self.asked
    }

    /// Every device that is waited for has answered.
    pub fn is_complete(&self) -> bool {
        self.delivered >= self.eligible()
    }
}

impl Deadlines {
    /// The deadline of a tier, from the opening of the exchange.
    pub fn deadline(&self, tier: Tier) -> Duration {
        seconds(value_of(&self.deadline_s, tier))
    }

    /// When an exchange is given up, if ever.
    pub fn give_up(&self) -> Option<Duration> {
        let longest = self.deadline_s.values().iter().copied().fold(0.0, f64::max);
        (self.give_up_s > 0.0).then(|| seconds(self.give_up_s.max(longest)))
    }

    /// Whether a tier's deadline has passed with its quorum.
    pub fn may_close(&self, tier: Tier, counts: &TierCounts, waited: Duration) -> bool {
        waited >= self.deadline(tier) && self.has_quorum(tier, counts)
    }

    /// Share of its eligible devices that a tier needs to close late.
    pub fn quorum_of(&self, tier: Tier) -> f64 {
        value_of(&self.quorum, tier)
    }

    /// Whether enough of a tier's eligible devices have delivered.
    pub fn has_quorum(&self, tier: Tier, counts: &TierCounts) -> bool {
        counts.delivered >= (value_of(&self.quorum, tier) * counts.eligible() as f64).ceil() as usize
    }

    /// The operator wants every device of the tier, even silent and disconnected ones.
    pub fn needs_every_device(&self, tier: Tier) -> bool {
        value_of(&self.quorum, tier) >= 1.0
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
    fn a_tier_closes_after_its_own_deadline_and_with_its_own_quorum() {
        let deadlines = Deadlines {
            deadline_s: PerTier::Each(vec![10.0, 60.0]),
            quorum: PerTier::Each(vec![0.5, 1.0]),
            give_up_s: 30.0,
        };
        let counts = |delivered| TierCounts { asked: 5, delivered, refused: 1, ..TierCounts::default() };
        let at = Duration::from_secs;
        assert!(!deadlines.may_close(tier(0), &counts(2), at(9)));
        assert!(deadlines.may_close(tier(0), &counts(2), at(10)));
        assert!(!deadlines.may_close(tier(0), &counts(1), at(10)));
        assert!(!deadlines.may_close(tier(1), &counts(3), at(60)));
        assert!(deadlines.may_close(tier(1), &counts(4), at(60)));
        // Giving up before a deadline would make it meaningless.
        assert_eq!(deadlines.give_up(), Some(at(60)));
        assert_eq!(Deadlines { give_up_s: 0.0, ..deadlines }.give_up(), None);
    }

    #[test]
    fn absent_devices_count_neither_for_the_tier_nor_for_its_quorum() {
        let deadlines = Deadlines { deadline_s: 10.0.into(), quorum: 0.5.into(), give_up_s: 0.0 };
        let at = Duration::from_secs(10);
        let counts = TierCounts { asked: 6, delivered: 1, absent: 4, ..TierCounts::default() };
        assert!(deadlines.may_close(tier(0), &counts, at) && !counts.is_complete());
        assert!(!deadlines.may_close(tier(0), &TierCounts { absent: 3, ..counts }, at));
        assert!(TierCounts { absent: 5, ..counts }.is_complete());
        assert!(!TierCounts { absent: 5, ..counts }.is_settled());
    }
}
