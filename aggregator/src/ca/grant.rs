//! Under which terms devices are members: how long a certificate is good, and for which tiers.
//!
//! The terms stand in the certificate ([`common::certificate::Terms`]) and are those of every later one that it is
//! traded for.

use std::time::{Duration, SystemTime};

use common::{
    DeviceId, TierSet,
    certificate::{TERMS_OID, Terms},
};
use rcgen::{CustomExtension, ExtendedKeyUsagePurpose, Issuer, KeyPair, PublicKeyData, date_time_ymd};
use rustls::pki_types::CertificateDer;

use super::{Authority, CaError, authority_params, leaf_params};

/// Ten years: fleets that never hear of renewal must go on working.
const USUAL: Duration = Duration::from_secs(3650 * 24 * 3600);
/// The authority itself ends then.
const LONGEST: Duration = Duration::from_secs(20 * 365 * 24 * 3600);

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Membership {
    pub good_for: Duration,
    pub tiers: TierSet,
}

impl Default for Membership {
    fn default() -> Self {
        Self { good_for: USUAL, tiers: TierSet::ALL }
    }
}

/// Whether a certificate with these terms is too old, by our clock. One without terms is judged by TLS alone.
pub fn has_expired(terms: Option<&Terms>) -> bool {
    terms.is_some_and(|terms| terms.expires <= seconds_now())
}

/// Since 1970.
pub(super) fn seconds_now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

impl Authority {
    /// A certificate for a device's key, issued in this second since 1970.
    pub(super) fn certify(
        &self,
        device: &DeviceId,
        key: &impl PublicKeyData,
        terms: Membership,
        issued: u64,
    ) -> Result<String, CaError> {
        let ca_key = KeyPair::from_pem(&self.read("ca.key")?)?;
        let issuer = Issuer::new(authority_params()?, &ca_key);
        let mut params = leaf_params(device.as_str(), ExtendedKeyUsagePurpose::ClientAuth)?;
        params.not_after =
            date_time_ymd(1970, 1, 1) + Duration::from_secs(issued) + terms.good_for.min(LONGEST);
        let value = Terms::encode(issued, terms.tiers).to_vec();
        params.custom_extensions = vec![CustomExtension::from_oid_content(&TERMS_OID, value)];
        Ok(params.signed_by(key, &issuer)?.pem())
    }
}

impl Membership {
    /// The terms of a certificate; the usual ones where it names none.
    pub(super) fn of(certificate: &CertificateDer<'_>) -> Self {
        let kept = |terms: Terms| Self { good_for: Duration::from_secs(terms.life()), tiers: terms.tiers };
        Terms::of(certificate).map_or_else(Self::default, kept)
    }
}

#[cfg(test)]
mod tests {
    use common::Tier;
    use rustls::pki_types::pem::PemObject;

    use super::*;

    #[test]
    fn terms_stand_in_the_certificate_and_are_kept_when_it_is_renewed() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::create(dir.path()).unwrap();
        let device: DeviceId = "cam-1".parse().unwrap();
        let tiers = TierSet::EMPTY.with(Tier::new(1).unwrap()).with(Tier::new(3).unwrap());
        let terms = Membership { good_for: Duration::from_secs(900), tiers };
        let of =
            |bundle: &str| Terms::of(&CertificateDer::from_pem_slice(bundle.as_bytes()).unwrap()).unwrap();
        let bundle = authority.enroll_under(&device, terms).unwrap();
        let first = of(&bundle);
        assert_eq!((first.tiers, first.life()), (tiers, 900));
        assert_eq!(first.renewal(), first.issued + 600);
        let key = KeyPair::generate().unwrap();
        let present = CertificateDer::from_pem_slice(bundle.as_bytes()).unwrap();
        let (_, bundle) = authority.renew(&present, key.der_bytes()).unwrap().unwrap();
        let renewed = of(&bundle);
        assert_eq!((renewed.tiers, renewed.life()), (tiers, 900));
        assert!(renewed.issued >= first.issued);
        let usual = of(&authority.enroll(&"cam-2".parse().unwrap()).unwrap());
        assert_eq!((usual.tiers, usual.life()), (TierSet::ALL, USUAL.as_secs()));
    }
}
