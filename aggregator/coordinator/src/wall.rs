//! Times of day, as drivers tell them: nothing here reads a clock.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// Milliseconds since 1970, UTC.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct WallTime(pub u64);

/// As in `2026-11-18T20:06:22.125Z`.
impl fmt::Display for WallTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = OffsetDateTime::from_unix_timestamp_nanos(i128::from(self.0) * 1_000_000);
        match time.map(|time| time.format(&Rfc3339)) {
            Ok(Ok(text)) => f.pad(&text),
            // After the year 9999.
            _ => write!(f, "{} ms since 1970", self.0),
        }
    }
}

/// Writes a time as text, for reports.
pub(crate) fn text<S: Serializer>(time: &Option<WallTime>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&time.map_or(String::new(), |time| time.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_utc_and_none_fails() {
        assert_eq!(WallTime(1_794_838_511_125).to_string(), "2026-11-16T14:15:11.125Z");
        assert_eq!(WallTime(0).to_string(), "1970-01-01T00:00:00Z");
        assert!(WallTime(u64::MAX).to_string().ends_with(" ms since 1970"));
    }
}
