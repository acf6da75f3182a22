//! One line of the history: a report, and as its last key a checksum over all bytes of the line before that key.
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
const SEAL: usize = KEY.len() + DIGITS + END.len();

/// Why a line is not taken for a report.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Why {
    WrongChecksum,
    NoChecksum,
    NoReport,
    TooLong,
    CutOff,
    OutOfOrder { round: u32 },
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongChecksum => f.write_str("its checksum is wrong"),
            Self::NoChecksum => f.write_str("it has no checksum"),
            Self::NoReport => f.write_str("it is no report"),
            Self::TooLong => f.write_str("it is too long for a report"),
            Self::CutOff => f.write_str("the file ends inside it"),
            Self::OutOfOrder { round } => write!(f, "it is of round {round}, which is out of order"),
        }
    }
}

/// A line whose bytes are now those of its report.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(in crate::store) struct Opened {
    pub round: u32,
    /// It had a checksum, and that was right.
    pub sealed: bool,
}

/// The only key of a report that the store reads.
#[derive(Deserialize)]
struct Numbered {
    round: u32,
}

/// A report as a line with its checksum.
pub(in crate::store) fn seal(report: &str) -> String {
    let text = report.trim_end().replace('\n', " ");
    // What is no object with a key can hold no checksum; readers name such a line.
    let Some(body) = text.strip_suffix('}').filter(|body| body.trim_end().len() > 1) else {
        return text + "\n";
    };
    let sum = crc32(body.as_bytes());
    format!("{body},\"crc32\":\"{sum:08x}\"}}\n")
}

/// Takes the checksum off a line without its end, if it has one that is right. What is left is a report, or an error says why not.
pub(in crate::store) fn open(line: &mut Vec<u8>) -> Result<Opened, Why> {
    let sealed = match sum_of(line) {
        Some((body, sum)) if crc32(body) == sum => true,
        Some(_) => return Err(Why::WrongChecksum),
        None => false,
    };
    if sealed {
        line.truncate(line.len() - SEAL);
        line.push(b'}');
    }
    // A report has no checksum of its own, or it could not be told from a line.
    let text = str::from_utf8(line).ok().filter(|text| sum_of(text.as_bytes()).is_none());
    let report = text.and_then(|text| serde_json::from_str::<Numbered>(text).ok());
    report.map(|report| Opened { round: report.round, sealed }).ok_or(Why::NoReport)
}

/// What a checksum covers, and the checksum.
fn sum_of(line: &[u8]) -> Option<(&[u8], u32)> {
    let (body, seal) = line.split_at_checked(line.len().checked_sub(SEAL)?)?;
    let digits = seal.strip_prefix(KEY)?.strip_suffix(END)?;
    // Other spellings of the same number are none of ours.
    let ours = digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    let digits = str::from_utf8(digits).ok().filter(|_| ours)?;
    Some((body, u32::from_str_radix(digits, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(line: &[u8]) -> (Result<Opened, Why>, Vec<u8>) {
        let mut line = line.to_vec();
        (open(&mut line), line)
    }

    #[test]
    fn a_sealed_line_is_json_and_gives_its_report_back() {
        let report = "{\"round\":7,\"loss\":{\"mean\":1.5}}";
        let line = seal(report);
        assert_eq!(line, "{\"round\":7,\"loss\":{\"mean\":1.5},\"crc32\":\"99dd56de\"}\n");
        let json: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&json["round"], &json["crc32"]), (&7.into(), &"99dd56de".into()));
        let (found, text) = opened(line.trim_end().as_bytes());
        assert_eq!(found, Ok(Opened { round: 7, sealed: true }));
        assert_eq!(text, report.as_bytes());
        let (found, text) = opened(report.as_bytes());
        assert_eq!((found, text), (Ok(Opened { round: 7, sealed: false }), report.as_bytes().to_vec()));
    }

    #[test]
    fn every_flipped_bit_leaves_no_sealed_line() {
        let line = seal("{\"round\":7,\"text\":\"x\"}").trim_end().as_bytes().to_vec();
        for at in 0..line.len() * 8 {
            let mut flipped = line.clone();
            flipped[at / 8] ^= 1 << (at % 8);
            let found = open(&mut flipped);
            assert!(!matches!(found, Ok(Opened { sealed: true, .. })), "bit {at}: {found:?}");
        }
    }

    #[test]
    fn what_is_no_object_gets_no_checksum() {
        for text in ["", "{}", "7", "{ }"] {
            assert_eq!(seal(text), format!("{text}\n"));
        }
        assert_eq!(seal("{\"round\":1,\n\"a\":2}\n").lines().count(), 1);
        assert_eq!(opened(b"{}").0, Err(Why::NoReport));
        let twice = seal(&seal("{\"round\":1}"));
        assert_eq!(opened(twice.trim_end().as_bytes()).0, Err(Why::NoReport));
        assert_eq!(opened(b"").0, Err(Why::NoReport));
    }
}
