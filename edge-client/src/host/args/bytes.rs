//! Sizes as people write them.

use std::str::FromStr;

/// A number of bytes: `64k`, `64KiB` and `0.5M` are powers of 1024, `64KB` is 64,000.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Bytes(pub u64);

/// A text is not a size in bytes.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "a size is a number with a unit: k, M, G or KiB, MiB, GiB (powers of 1024), KB, MB, GB (powers of 1000)"
)]
pub struct BadBytes;

impl FromStr for Bytes {
    type Err = BadBytes;

    fn from_str(text: &str) -> Result<Self, BadBytes> {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let factor: u64 = match unit.trim_start().to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kib" => 1 << 10,
            "m" | "mib" => 1 << 20,
            "g" | "gib" => 1 << 30,
            "kb" => 1_000,
            "mb" => 1_000_000,
            "gb" => 1_000_000_000,
            _ => return Err(BadBytes),
        };
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(factor).map(Self).ok_or(BadBytes);
        }
        let bytes = number.parse::<f64>().map_err(|_| BadBytes)? * factor as f64;
        // Above 2^53 a fraction of a unit is no longer exact.
        if bytes.fract() == 0.0 && bytes < 9e15 { Ok(Self(bytes as u64)) } else { Err(BadBytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed() {
        for (text, bytes) in [
            ("64k", 65_536),
            ("64K", 65_536),
            ("64KiB", 65_536),
            ("64 KiB", 65_536),
            ("64KB", 64_000),
            ("0.5M", 512 << 10),
            ("1.5k", 1536),
            ("12", 12),
            ("12B", 12),
            ("2M", 2 << 20),
            ("2MB", 2_000_000),
            ("1G", 1 << 30),
        ] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
        for bad in ["", "k", "1kk", "-1", "0.3", "1.0001k", ".", "1.2.3M", "64Kb/s", "99999999999G", "64TB"] {
            assert_eq!(bad.parse::<Bytes>(), Err(BadBytes), "{bad}");
        }
    }
}
