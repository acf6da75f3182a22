//! The system's clock.

use std::time::{Duration, SystemTime};

/// Time since 1970; zero if the clock is set before that.
pub(crate) fn since_1970() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO)
}
