//! One line of the history: a report whose last key is a checksum over all bytes of the line before that key.
//!
//! ```text
//! {"round":7,"purpose":"train",..,"crc32":"0a1b2c3d"}
//! ```
//! So every line is valid JSON, and `grep` and `jq` read the file as it is. Lines of store format 4 have no checksum.

use std::fmt;

use common::wire::crc32;
use serde::Deserialize;

const KEY: &[u8] = b",\"crc32\":\"";
const DIGITS: usize = 8;
const END: &[u8] = b"\"}";
/// Bytes that a checksum adds to a report in place of its last brace.
const CHECKSUM_LEN: usize = KEY.len() + DIGITS + END.len();

/// Why a line is not taken for a report.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum FaultReason {
    WrongChecksum,
    NoChecksum,
    NoReport,
    TooLong,
    CutOff,
    OutOfOrder { round: u32 },
}

impl fmt::Display for FaultReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongChecksum => f.write_str("its checksum is wrong"),
            Self::NoChecksum => f.write_str("it has no checksum"),
            Self::NoReport => f.write_str("it is not a report"),
            Self::TooLong => f.write_str("it is too long for a report"),
            Self::CutOff => f.write_str("the file ends inside it"),
            Self::OutOfOrder { round } => write!(f, "it is of round {round}, which is out of order"),
        }
    }
}

/// A parsed line; its bytes are now those of its report.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(in crate::store) struct ParsedLine {
    pub round: u32,
    /// It had a checksum, which was correct.
    pub has_checksum: bool,
}

/// The only key of a report that the store reads.
#[derive(Deserialize)]
struct Numbered {
    round: u32,
}

/// A report as a line with its checksum.
pub(in crate::store) fn with_checksum(report: &str) -> String {
    let text = report.trim_end().replace('\n', " ");
    // Only an object with a key can hold a checksum; readers report other lines.
    let Some(body) = text.strip_suffix('}').filter(|body| body.trim_end().len() > 1) else {
        return text + "\n";
    };
    let sum = crc32(body.as_bytes());
    format!("{body},\"crc32\":\"{sum:08x}\"}}\n")
}

/// Removes the checksum from a line without its line end, if it has a correct one. The rest is a report, or an error says why
/// not.
pub(in crate::store) fn parse(line: &mut Vec<u8>) -> Result<ParsedLine, FaultReason> {
    let has_checksum = match sum_of(line) {
        Some((body, sum)) if crc32(body) == sum => true,
        Some(_) => return Err(FaultReason::WrongChecksum),
        None => false,
    };
    if has_checksum {
        line.truncate(line.len() - CHECKSUM_LEN);
        line.push(b'}');
    }
    // A report must not end with a checksum itself, or it would look like a line.
    let text = str::from_utf8(line).ok().filter(|text| sum_of(text.as_bytes()).is_none());
    let report = text.and_then(|text| serde_json::from_str::<Numbered>(text).ok());
    report.map(|report| ParsedLine { round: report.round, has_checksum }).ok_or(FaultReason::NoReport)
}

/// The bytes that a checksum covers, and the checksum.
fn sum_of(line: &[u8]) -> Option<(&[u8], u32)> {
    let (body, tail) = line.split_at_checked(line.len().checked_sub(CHECKSUM_LEN)?)?;
    let digits = tail.strip_prefix(KEY)?.strip_suffix(END)?;
    // Other spellings of the same number are not accepted.
    let ours = digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    let digits = str::from_utf8(digits).ok().filter(|_| ours)?;
    Some((body, u32::from_str_radix(digits, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(line: &[u8]) -> (Result<ParsedLine, FaultReason>, Vec<u8>) {
        let mut line = line.to_vec();
        (parse(&mut line), line)
    }

    #[test]
    fn a_line_with_checksum_is_json_and_holds_its_report() {
        let report = "{\"round\":7,\"loss\":{\"mean\":1.5}}";
        let line = with_checksum(report);
        assert_eq!(line, "{\"round\":7,\"loss\":{\"mean\":1.5},\"crc32\":\"99dd56de\"}\n");
        let json: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&json["round"], &json["crc32"]), (&7.into(), &"99dd56de".into()));
        let (found, text) = opened(line.trim_end().as_bytes());
        assert_eq!(found, Ok(ParsedLine { round: 7, has_checksum: true }));
        assert_eq!(text, report.as_bytes());
        let (found, text) = opened(report.as_bytes());
        assert_eq!(
            (found, text),
            (Ok(ParsedLine { round: 7, has_checksum: false }), report.as_bytes().to_vec())
        );
    }

    #[test]
    fn every_flipped_bit_is_detected() {
        let line = with_checksum("{\"round\":7,\"text\":\"x\"}").trim_end().as_bytes().to_vec();
        for at in 0..line.len() * 8 {
            let mut flipped = line.clone();
            flipped[at / 8] ^= 1 << (at % 8);
            let found = parse(&mut flipped);
            assert!(!matches!(found, Ok(ParsedLine { has_checksum: true, .. })), "bit {at}: {found:?}");
        }
    }

    #[test]
    fn only_objects_get_a_checksum() {
        for text in ["", "{}", "7", "{ }"] {
            assert_eq!(with_checksum(text), format!("{text}\n"));
        }
        assert_eq!(with_checksum("{\"round\":1,\n\"a\":2}\n").lines().count(), 1);
        assert_eq!(opened(b"{}").0, Err(FaultReason::NoReport));
        let twice = with_checksum(&with_checksum("{\"round\":1}"));
        assert_eq!(opened(twice.trim_end().as_bytes()).0, Err(FaultReason::NoReport));
        assert_eq!(opened(b"").0, Err(FaultReason::NoReport));
    }
}
