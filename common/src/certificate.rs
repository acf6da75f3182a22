//! The little of X.509 that both ends need: what a fleet's certificate says beyond a name and a key.
//!
//! ```text
//! extension 2.25.5071450595159270770 = OCTET STRING | issued u64 | tiers u32 |   (big-endian)
//! issued: seconds since 1970, by the aggregator's clock; tiers: one bit for each that is allowed
//! ```
//! A certificate is valid from long before it was issued, because clocks without a battery start in the past, so
//! the moment of issue stands in the extension. It does so in the server's certificate, too, where it only ever grows from
//! one to the next: a device that has seen one refuses those before it.
//!
//! It is read without a crate: x509-cert knows no names with 64-bit numbers, x509-parser brings a dozen crates.

use crate::tier::TierSet;

/// The extension's name as numbers, and as DER has it.
pub const TERMS_OID: [u64; 3] = [2, 25, 0x4661_6972_5469_6572];
const TERMS_NAME: [u8; 10] = [0x69, 0xc6, 0xb0, 0xda, 0xae, 0xa5, 0xa3, 0xa5, 0xca, 0x72];
/// Bytes of the extension's value.
pub const TERMS_BYTES: usize = 14;

/// The kind of name that is a device's, 2.5.4.3.
const COMMON_NAME: [u8; 3] = [0x55, 0x04, 0x03];

const INTEGER: u8 = 0x02;
const OCTETS: u8 = 0x04;
const OID: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERAL_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;

/// Under which terms a device is a member.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Terms {
    /// Seconds since 1970.
    pub issued: u64,
    pub expires: u64,
    pub tiers: TierSet,
}

impl Terms {
    /// Of a certificate in DER; `None` if it has none, or is none.
    pub fn of(certificate: &[u8]) -> Option<Self> {
        let (validity, rest) = take(after_issuer(certificate)?, SEQUENCE)?;
        let (_, validity) = element(validity).map(|(_, from, until)| (from, until))?;
        let (tag, until, _) = element(validity)?;
        let expires = seconds(tag, until)?;
        // Subject and key.
        let (_, rest) = take(rest, SEQUENCE)?;
        let (_, mut rest) = take(rest, SEQUENCE)?;
        while let Some((tag, content, after)) = element(rest) {
            rest = after;
            if tag == EXTENSIONS {
                return extension(content).map(|(issued, tiers)| Self { issued, expires, tiers });
            }
        }
        None
    }

    /// The value of the extension.
    pub fn encode(issued: u64, tiers: TierSet) -> [u8; TERMS_BYTES] {
        let mut value = [0; TERMS_BYTES];
        value[0] = OCTETS;
        value[1] = TERMS_BYTES as u8 - 2;
        value[2..10].copy_from_slice(&issued.to_be_bytes());
        value[10..].copy_from_slice(&tiers.bits().to_be_bytes());
        value
    }

    /// Seconds for which it was issued.
    pub fn life(&self) -> u64 {
        self.expires.saturating_sub(self.issued)
    }

    /// When it is time for a new one: after two thirds of its life.
    pub fn renewal(&self) -> u64 {
        self.issued.saturating_add(self.life() / 3 * 2)
    }
}

/// When a certificate was issued: seconds since 1970; 0 if it does not say so.
pub fn issued(certificate: &[u8]) -> u64 {
    Terms::of(certificate).map_or(0, |terms| terms.issued)
}

/// The name that a certificate is for, if it has exactly one.
pub fn common_name(certificate: &[u8]) -> Option<&str> {
    let (_, rest) = take(after_issuer(certificate)?, SEQUENCE)?;
    let (mut subject, _) = take(rest, SEQUENCE)?;
    let mut found = None;
    while let Some((set, after)) = take(subject, SET) {
        subject = after;
        let (pair, _) = take(set, SEQUENCE)?;
        let (kind, text) = take(pair, OID)?;
        if kind == COMMON_NAME {
            let (_, text, _) = element(text)?;
            if found.replace(core::str::from_utf8(text).ok()?).is_some() {
                return None;
            }
        }
    }
    found
}

/// What follows version, serial number, signature and issuer.
fn after_issuer(certificate: &[u8]) -> Option<&[u8]> {
    let (body, _) = take(certificate, SEQUENCE)?;
    let (body, _) = take(body, SEQUENCE)?;
    let rest = take(body, VERSION).map_or(body, |(_, rest)| rest);
    let (_, rest) = take(rest, INTEGER)?;
    let (_, rest) = take(rest, SEQUENCE)?;
    let (_, rest) = take(rest, SEQUENCE)?;
    Some(rest)
}

fn extension(extensions: &[u8]) -> Option<(u64, TierSet)> {
    let (mut list, _) = take(extensions, SEQUENCE)?;
    while let Some((extension, after)) = take(list, SEQUENCE) {
        list = after;
        let (name, rest) = take(extension, OID)?;
        if name != TERMS_NAME {
            continue;
        }
        // It is not critical, so the flag is left out.
        let (value, _) = take(rest, OCTETS)?;
        let (value, _) = take(value, OCTETS)?;
        let (issued, tiers) = value.split_first_chunk::<8>()?;
        let tiers = <[u8; 4]>::try_from(tiers).ok()?;
        return Some((u64::from_be_bytes(*issued), TierSet::from_bits(u32::from_be_bytes(tiers))));
    }
    None
}

/// The content of an element with this tag, and what comes after it.
fn take(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    element(bytes).filter(|(found, ..)| *found == tag).map(|(_, content, rest)| (content, rest))
}

/// Tag, content and rest.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (len, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81 | 0x82 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (digits.iter().fold(0, |len, &digit| len << 8 | usize::from(digit)), rest)
        }
        // Nothing in a certificate is longer than 64 KB.
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(len)?;
    Some((tag, content, rest))
}

/// Seconds since 1970 of `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`; 0 before.
fn seconds(tag: u8, text: &[u8]) -> Option<u64> {
    let pair = |at: usize| {
        let digit = |at: usize| text.get(at).filter(|digit| digit.is_ascii_digit()).map(|digit| digit - b'0');
        Some(i64::from(digit(at)?) * 10 + i64::from(digit(at + 1)?))
    };
    let (year, at) = match tag {
        UTC_TIME => (pair(0).map(|year| if year < 50 { 2000 + year } else { 1900 + year })?, 2),
        GENERAL_TIME => (pair(0)? * 100 + pair(2)?, 4),
        _ => return None,
    };
    let (month, day) = (pair(at)?, pair(at + 2)?);
    let (hour, minute, second) = (pair(at + 4)?, pair(at + 6)?, pair(at + 8)?);
    // Days from the civil calendar, with years that begin in March.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    let days =
        era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468;
    u64::try_from(((days * 24 + hour) * 60 + minute) * 60 + second).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tier::Tier;

    #[test]
    fn both_kinds_of_time() {
        assert_eq!(seconds(UTC_TIME, b"700101000000Z"), Some(0));
        assert_eq!(seconds(UTC_TIME, b"261116141511Z"), Some(1_794_838_511));
        assert_eq!(seconds(GENERAL_TIME, b"20560229235959Z"), Some(2_719_094_399));
        assert_eq!(seconds(GENERAL_TIME, b"19600101000000Z"), None);
        assert_eq!(seconds(UTC_TIME, b"26111614151"), None);
        assert_eq!(seconds(UTC_TIME, b"2611161415x1Z"), None);
        assert_eq!(seconds(SEQUENCE, b"261116141511Z"), None);
    }

    #[test]
    fn what_is_cut_off_or_no_certificate_has_no_terms() {
        assert_eq!(Terms::of(b""), None);
        assert_eq!(Terms::of(&[SEQUENCE, 0x84, 0xff, 0xff, 0xff, 0xff]), None);
        assert_eq!(Terms::of(&[SEQUENCE, 2, SEQUENCE, 9]), None);
        assert_eq!((issued(b""), common_name(b"")), (0, None));
    }

    #[test]
    fn two_thirds_of_a_life() {
        let tiers = TierSet::EMPTY.with(Tier::new(1).unwrap());
        let terms = Terms { issued: 1000, expires: 1090, tiers };
        assert_eq!((terms.life(), terms.renewal()), (90, 1060));
    }
}
