//! How long a round waits, tier by tier, and how devices without work are kept apart.
//!
//! ```text
//! a tier may be left    when its deadline has passed and ceil(quorum * able) of its devices have delivered
//! a round closes late   when every tier that was asked may be left, so slow hardware is not silently dropped
//! a round closes early  when all have answered but those who were waited for in vain in the last rounds, and every tier
//!                       that answers at all has its quorum: who never answers holds up nobody
//! a round is given up   when nothing helps: it closes with whoever is there, unchanged if that is nobody
//! ```
//! Able are devices that were not refused: counting those could keep a round open for ever.

use common::{
    DeviceId, Duration, Tier,
    message::IDLE,
    rng::{Rng, derive},
    wire::crc32,
};

use crate::strategy::PerTier;

/// When a round may end.
#[derive(Clone, PartialEq, Debug)]
pub struct Patience {
    /// How long to wait for everybody of a tier.
    pub deadline_s: PerTier,
    /// Share of a tier's able devices without which a round does not close late.
    pub quorum: PerTier,
    /// After which time a round closes whoever is there; never before the longest deadline. 0: never.
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
    /// Of those who have not answered, who were waited for in vain before.
    pub mute: usize,
}

impl Tally {
    pub fn able(&self) -> usize {
        self.asked.saturating_sub(self.refused)
    }

    pub fn is_settled(&self) -> bool {
        self.delivered + self.refused >= self.asked
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

    /// Whether a tier is no longer waited for.
    pub fn may_leave(&self, tier: Tier, tally: &Tally, waited: Duration) -> bool {
        waited >= self.deadline(tier) && self.has_quorum(tier, tally)
    }

    /// Whether nobody is left in a tier of whom anything is expected.
    pub fn may_resign(&self, tier: Tier, tally: &Tally) -> bool {
        let expected = tally.able().saturating_sub(tally.mute);
        tally.delivered >= expected && (expected == 0 || self.has_quorum(tier, tally))
    }

    fn has_quorum(&self, tier: Tier, tally: &Tally) -> bool {
        let quorum = self.quorum.of(tier).unwrap_or(0.0);
        tally.delivered >= (quorum * tally.able() as f64).ceil() as usize
    }
}

/// The times of no fleet are spread over more than this.
const MAX_SPREAD_S: f64 = 900.0;

/// How long one of `fleet` devices waits before it asks again (news reach it earlier), or comes back after a lost link:
/// spread so wide that no more than `arrivals_per_s` come in any second, as far as waiting is bounded. `turn` changes who is
/// first.
pub fn idle(device: &DeviceId, turn: u64, fleet: usize, arrivals_per_s: f64) -> Duration {
    // Chance puts devices unevenly: half the rate on average keeps the peaks below it.
    let spread = (2.0 * fleet as f64 / arrivals_per_s.max(1e-3)).min(MAX_SPREAD_S);
    let name = u64::from(crc32(device.as_str().as_bytes()));
    let place = Rng::new(derive(derive(turn, fleet as u64), name)).unit_f64();
    Duration::from_millis(IDLE.as_millis() + seconds(spread * place).as_millis())
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
    fn ten_thousand_devices_do_not_come_back_at_once() {
        for (turn, (fleet, rate)) in
            [(10_000, 100.0), (10_000, 300.0), (2_000, 100.0)].into_iter().enumerate()
        {
            let mut arrivals = std::collections::BTreeMap::<u64, usize>::new();
            for number in 0..fleet {
                let device = format!("meter-{number:05}").parse().unwrap();
                let wait = idle(&device, turn as u64, fleet, rate).as_millis();
                assert!((10_000..=910_000).contains(&wait));
                *arrivals.entry(wait / 1000).or_default() += 1;
            }
            let most = *arrivals.values().max().unwrap();
            assert!(most as f64 <= rate, "{most} of {fleet} in one second, {rate} allowed");
            // Nor is anybody kept waiting for nothing.
            assert!((arrivals.len() as f64) < 1.1 * (2.0 * fleet as f64 / rate) + 1.0);
        }
    }

    #[test]
    fn the_order_changes_from_turn_to_turn_and_waiting_is_bounded() {
        let device: DeviceId = "a".parse().unwrap();
        let waits: Vec<_> = (0..8).map(|turn| idle(&device, turn, 1_000, 10.0).as_millis()).collect();
        assert!(waits.windows(2).all(|pair| pair[0] != pair[1]));
        assert!(idle(&device, 1, 100_000_000, 1.0).as_millis() <= 910_000);
        assert!(idle(&device, 1, 1, 100.0).as_millis() <= 10_020);
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
}
