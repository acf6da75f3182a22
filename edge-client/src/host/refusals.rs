//! Which refusals end a running device or bridge, and how long it waits after the others.
//!
//! | what happens | the process |
//! |---|---|
//! | an unauthenticated refusal: before the handshake ends, another server, a protocol mismatch | retries with the ordinary back-off ([`super::ReconnectBackoff`]) |
//! | the gateway refuses, authenticated by its certificate | retries after 0.5 s, then twice as long each time, at most 10 minutes |
//! | the gateway answers "not enrolled" (E30) at least [`TRIES`] times in a row, over at least [`LEAVE_AFTER`] | exits |
//! | another process has joined with the same identity (E43) | exits |
//! | the device has never joined, and its own arguments do not fit (E11, E31, E33, E34, E38, E39, E42) | exits |
//!
//! A gateway's clock, disk or configuration can be wrong for hours. A device that exited because of that would not come back.

use std::time::{Duration, Instant};

use common::Code;

/// Refusals in a row, each on its own connection, after which "not enrolled" counts as final.
pub const TRIES: u32 = 5;
/// Shortest time over which these refusals must be spread.
pub const LEAVE_AFTER: Duration = Duration::from_secs(600);

const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// What to do after a refusal.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Next {
    /// Reconnect after this pause.
    TryAgain(Duration),
    /// End the process.
    End,
}

/// The refusals since the process last joined.
#[derive(Clone, Debug)]
pub struct Refusals {
    leave_after: Duration,
    joined: bool,
    pause: Duration,
    /// Number of "not enrolled" in a row, and time of the first.
    unknown: u32,
    since: Option<Instant>,
}

impl Refusals {
    /// `leave_after` is usually [`LEAVE_AFTER`].
    pub fn new(leave_after: Duration) -> Self {
        Self { leave_after, joined: false, pause: FIRST_PAUSE, unknown: 0, since: None }
    }

    /// The gateway has admitted the device.
    pub fn joined(&mut self) {
        *self = Self { joined: true, ..Self::new(self.leave_after) };
    }

    /// The authenticated gateway refuses.
    pub fn refused(&mut self, code: Code, now: Instant) -> Next {
        if code == Code::UnknownDevice {
            self.unknown += 1;
            let since = *self.since.get_or_insert(now);
            if self.unknown >= TRIES && now - since >= self.leave_after {
                return Next::End;
            }
        } else {
            (self.unknown, self.since) = (0, None);
        }
        if code == Code::Displaced || !self.joined && is_about_arguments(code) {
            return Next::End;
        }
        let pause = self.pause;
        self.pause = (pause * 2).min(LONGEST_PAUSE);
        Next::TryAgain(pause)
    }
}

/// Whether a refusal follows from what the process was started with.
fn is_about_arguments(code: Code) -> bool {
    use Code::{DoesNotFit, EmptyShard, NoGroups, NoValidation, TierNotAllowed, WrongData, WrongIdentity};
    matches!(
        code,
        EmptyShard | WrongIdentity | DoesNotFit | WrongData | NoValidation | NoGroups | TierNotAllowed
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Refuses repeatedly; returns how often and for how long until the process ends.
    fn endured(refusals: &mut Refusals, code: Code, most: u32) -> Option<(u32, Duration)> {
        let start = Instant::now();
        let mut now = start;
        for tries in 1..=most {
            match refusals.refused(code, now) {
                Next::End => return Some((tries, now - start)),
                Next::TryAgain(pause) => now += pause,
            }
        }
        None
    }

    #[test]
    fn only_repeated_not_enrolled_ends_a_device_that_has_joined() {
        for &code in Code::ALL {
            let mut refusals = Refusals::new(LEAVE_AFTER);
            refusals.joined();
            match (code, endured(&mut refusals, code, 1000)) {
                (Code::UnknownDevice, Some((tries, time))) => {
                    assert!(tries >= TRIES && time >= LEAVE_AFTER, "{tries} {time:?}");
                    assert!(time < 3 * LEAVE_AFTER, "{time:?}");
                }
                (Code::Displaced, Some((1, _))) => {}
                (_, None) => {}
                (code, ended) => panic!("{code}: {ended:?}"),
            }
        }
    }

    #[test]
    fn a_process_whose_own_arguments_do_not_fit_ends_unless_it_has_joined() {
        let first = |code| Refusals::new(LEAVE_AFTER).refused(code, Instant::now());
        for code in [Code::WrongData, Code::DoesNotFit, Code::WrongIdentity, Code::TierNotAllowed] {
            assert_eq!(first(code), Next::End, "{code}");
        }
        for code in [Code::UnknownDevice, Code::BadCertificate, Code::WrongVersion, Code::BadPlan] {
            assert_eq!(first(code), Next::TryAgain(FIRST_PAUSE), "{code}");
        }
    }

    #[test]
    fn joining_or_another_refusal_resets_the_count() {
        let mut refusals = Refusals::new(Duration::ZERO);
        let now = Instant::now();
        for turn in 0..20 {
            for _ in 1..TRIES {
                assert_ne!(refusals.refused(Code::UnknownDevice, now), Next::End);
            }
            match turn % 2 {
                0 => refusals.joined(),
                _ => assert_ne!(refusals.refused(Code::BadCertificate, now), Next::End),
            }
        }
        assert_eq!(endured(&mut refusals, Code::UnknownDevice, 100).map(|(tries, _)| tries), Some(TRIES));
    }

    #[test]
    fn pauses_grow_to_ten_minutes() {
        let mut refusals = Refusals::new(LEAVE_AFTER);
        let pauses: Vec<_> = (0..13)
            .map(|_| match refusals.refused(Code::BadCertificate, Instant::now()) {
                Next::TryAgain(pause) => pause.as_secs_f32(),
                Next::End => panic!("ended"),
            })
            .collect();
        assert_eq!(pauses[..4], [0.5, 1.0, 2.0, 4.0]);
        assert_eq!(pauses[12], 600.0);
    }
}
