//! The system's clock.

use std::time::{Duration, SystemTime};

use coordinator::wall::WallTime;

/// The time of day.
pub(crate) fn wall_time() -> WallTime {
    WallTime(u64::try_from(since_1970().as_millis()).unwrap_or(u64::MAX))
}

/// Time since 1970; zero if the clock is set before that.
pub(crate) fn since_1970() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO)
}
