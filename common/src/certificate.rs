//! What a fleet's certificate says beyond a name and a key.
//!
//! ```text
//! extension 2.25.5071450595159270770 = OCTET STRING | issued u64 | tiers u32 |   (big-endian)
//! issued: seconds since 1970, by the aggregator's clock; tiers: one bit for each that is allowed
//! ```
//! A certificate is valid from long before it was issued, because clocks without a battery start in the past. So the
//! extension states the time of issue. Each new server certificate has a later time of issue than the one before: a device
//! refuses server certificates that are older than the newest one it has seen.

use std::string::String;

use x509_parser::{
    certificate::{X509Certificate, X509CertificateParser},
    nom::Parser,
};

use crate::tier::TierSet;

/// The extension's object identifier as numbers, and as DER encodes it.
pub const GRANT_OID: [u64; 3] = [2, 25, 0x4661_6972_5469_6572];
const GRANT_OID_DER: [u8; 10] = [0x69, 0xc6, 0xb0, 0xda, 0xae, 0xa5, 0xa3, 0xa5, 0xca, 0x72];
/// Bytes of the extension's value.
pub const GRANT_BYTES: usize = 14;
const GRANT_LEN: u8 = GRANT_BYTES as u8 - 2;

const OCTET_STRING: u8 = 0x04;

/// What a certificate grants its device.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Grant {
    /// Seconds since 1970.
    pub issued: u64,
    /// Seconds since 1970.
    pub expires: u64,
    /// The tiers that the device may train.
    pub tiers: TierSet,
}

impl Grant {
    /// The grant of a certificate in DER; `None` if it has none, or cannot be parsed.
    pub fn of(certificate: &[u8]) -> Option<Self> {
        let certificate = parse(certificate)?;
        let expires = u64::try_from(certificate.validity().not_after.timestamp()).ok()?;
        let extension =
            certificate.extensions().iter().find(|extension| extension.oid.as_bytes() == GRANT_OID_DER)?;
        let [OCTET_STRING, GRANT_LEN, value @ ..] = extension.value else { return None };
        let (issued, tiers) = value.split_first_chunk::<8>()?;
        let tiers = <[u8; 4]>::try_from(tiers).ok()?;
        let tiers = TierSet::from_bits(u32::from_be_bytes(tiers));
        Some(Self { issued: u64::from_be_bytes(*issued), expires, tiers })
    }

    /// The value of the extension.
    pub fn encode(issued: u64, tiers: TierSet) -> [u8; GRANT_BYTES] {
        let mut value = [0; GRANT_BYTES];
        value[..2].copy_from_slice(&[OCTET_STRING, GRANT_LEN]);
        value[2..10].copy_from_slice(&issued.to_be_bytes());
        value[10..].copy_from_slice(&tiers.bits().to_be_bytes());
        value
    }

    /// Seconds for which it was issued.
    pub fn lifetime(&self) -> u64 {
        self.expires.saturating_sub(self.issued)
    }

    /// When the certificate is due for renewal: after two thirds of its lifetime.
    pub fn renewal(&self) -> u64 {
        self.issued.saturating_add(self.lifetime() / 3 * 2)
    }
}

/// When a certificate was issued, in seconds since 1970; 0 for certificates of earlier programs, which do not state it.
pub fn issued(certificate: &[u8]) -> u64 {
    Grant::of(certificate).map_or(0, |grant| grant.issued)
}

/// The name that a certificate is for, if it has exactly one.
pub fn common_name(certificate: &[u8]) -> Option<String> {
    let certificate = parse(certificate)?;
    let mut names = certificate.subject().iter_common_name();
    let (Some(name), None) = (names.next(), names.next()) else { return None };
    name.as_str().ok().map(String::from)
}

fn parse(certificate: &[u8]) -> Option<X509Certificate<'_>> {
    // Extensions are not parsed: the only one that is read is FairTier's own.
    let mut parser = X509CertificateParser::new().with_deep_parse_extensions(false);
    parser.parse(certificate).ok().map(|(_, certificate)| certificate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tier::Tier;

    #[test]
    fn bytes_that_are_no_certificate_have_no_grant() {
        let sequence = 0x30;
        assert_eq!(Grant::of(b""), None);
        assert_eq!(Grant::of(&[sequence, 0x84, 0xff, 0xff, 0xff, 0xff]), None);
        assert_eq!(Grant::of(&[sequence, 2, sequence, 9]), None);
        assert_eq!((issued(b""), common_name(b"")), (0, None));
    }

    #[test]
    fn a_certificate_is_renewed_after_two_thirds_of_its_lifetime() {
        let tiers = TierSet::EMPTY.with(Tier::new(1).unwrap());
        let grant = Grant { issued: 1000, expires: 1090, tiers };
        assert_eq!((grant.lifetime(), grant.renewal()), (90, 1060));
    }
}
