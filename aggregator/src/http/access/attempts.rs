//! Limits guessing: after some failures, a name and an address wait twice as long after each further one.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Failures without a wait.
const FREE: u32 = 5;
const LONGEST: Duration = Duration::from_secs(15 * 60);
/// Failures are forgotten after this time.
const FORGOTTEN: Duration = Duration::from_secs(3600);
/// Names and addresses that are remembered.
const MOST: usize = 4096;

#[derive(Copy, Clone, Debug)]
struct Failures {
    count: u32,
    last: Instant,
}

/// Failures by name and by address.
#[derive(Debug, Default)]
pub struct Attempts(Mutex<HashMap<String, Failures>>);

impl Attempts {
    /// How long all of these still have to wait; `None`: an attempt is allowed now, and counts as failed until it succeeds.
    pub fn begin(&self, who: &[&str], now: Instant) -> Option<Duration> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let wait = who.iter().filter_map(|key| all.get(*key)?.wait(now)).max();
        if wait.is_some() {
            return wait;
        }
        for key in who {
            if all.len() >= MOST && !all.contains_key(*key) {
                all.retain(|_, failures| now.duration_since(failures.last) < FORGOTTEN);
                // Those that have failed least are forgotten first: a flood of names does not free the others.
                if all.len() >= MOST
                    && let Some(least) = all
                        .iter()
                        .min_by_key(|(_, failures)| (failures.count, failures.last))
                        .map(|(key, _)| key.clone())
                {
                    all.remove(&least);
                }
            }
            let failures = all.entry((*key).to_owned()).or_insert(Failures { count: 0, last: now });
            if now.duration_since(failures.last) >= FORGOTTEN {
                failures.count = 0;
            }
            (failures.count, failures.last) = (failures.count.saturating_add(1), now);
        }
        None
    }

    /// The attempt was right.
    pub fn succeed(&self, who: &[&str]) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        who.iter().for_each(|key| _ = all.remove(*key));
    }
}

impl Failures {
    fn wait(&self, now: Instant) -> Option<Duration> {
        let over = self.count.checked_sub(FREE)?;
        let whole = Duration::from_secs(1 << over.min(16)).min(LONGEST);
        whole.checked_sub(now.duration_since(self.last)).filter(|left| !left.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guessing_a_password_soon_takes_minutes_for_each_attempt() {
        let (attempts, mut now) = (Attempts::default(), Instant::now());
        let who = ["name ann", "address 192.0.2.1"];
        let start = now;
        for _ in 0..FREE + 15 {
            while let Some(wait) = attempts.begin(&who, now) {
                now += wait;
            }
        }
        assert!(now - start > Duration::from_secs(3600), "{:?}", now - start);
        assert!(
            attempts.begin(&["name ann", "address 192.0.2.2"], now).is_some(),
            "another address is no way round"
        );
        assert!(attempts.begin(&["name bob", "address 192.0.2.1"], now).is_some(), "nor is another name");
        assert!(attempts.begin(&["name bob", "address 192.0.2.2"], now).is_none());
        attempts.succeed(&["name ann"]);
        assert!(attempts.begin(&["name ann", "address 192.0.2.3"], now).is_none());
    }

    #[test]
    fn a_flood_of_names_does_not_free_those_that_wait() {
        let (attempts, now) = (Attempts::default(), Instant::now());
        for _ in 0..FREE {
            assert!(attempts.begin(&["name ann"], now).is_none());
        }
        assert!(attempts.begin(&["name ann"], now).is_some());
        for number in 0..2 * MOST {
            attempts.begin(&[&format!("name {number}")], now);
        }
        assert!(attempts.begin(&["name ann"], now).is_some());
        assert!(attempts.0.lock().unwrap().len() <= MOST);
    }
}
