//! The grant of a device: how long its certificate is valid, and which tiers it may have.
//!
//! The certificate states it ([`common::certificate::Grant`]). A renewed certificate has the same grant.

use std::time::Duration;

use common::{
    DeviceId, TierSet,
    certificate::{GRANT_OID, Grant},
};
use rcgen::{CustomExtension, ExtendedKeyUsagePurpose, Issuer, KeyPair, PublicKeyData, date_time_ymd};
use rustls::pki_types::CertificateDer;

use super::{Authority, CaError, authority_params, leaf_params};
use crate::clock::since_1970;

/// Ten years: fleets whose devices never renew must go on working.
const DEFAULT_VALIDITY: Duration = Duration::from_secs(3650 * 24 * 3600);
/// The certificate of the authority itself expires then.
const MAX_VALIDITY: Duration = Duration::from_secs(20 * 365 * 24 * 3600);

/// What a device is granted when it is enrolled.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct GrantOptions {
    /// Time until the credential expires; 10 years by default, at most 20.
    pub valid_for: Duration,
    /// Tiers that the device may be assigned; all by default.
    pub tiers: TierSet,
}

impl Default for GrantOptions {
    fn default() -> Self {
        Self { valid_for: DEFAULT_VALIDITY, tiers: TierSet::ALL }
    }
}

/// Whether a certificate has expired by the gateway's clock. For a certificate without a grant, TLS alone decides.
pub fn has_expired(grant: Option<&Grant>) -> bool {
    grant.is_some_and(|grant| grant.expires <= seconds_now())
}

/// The present time in seconds since 1970.
pub(super) fn seconds_now() -> u64 {
    since_1970().as_secs()
}

impl Authority {
    /// A certificate for a device's key, issued at this time in seconds since 1970.
    pub(super) fn certify(
        &self,
        device: &DeviceId,
        key: &impl PublicKeyData,
        grant: GrantOptions,
        issued: u64,
    ) -> Result<String, CaError> {
        let ca_key = KeyPair::from_pem(&self.read("ca.key")?)?;
        let issuer = Issuer::new(authority_params()?, &ca_key);
        let mut params = leaf_params(device.as_str(), ExtendedKeyUsagePurpose::ClientAuth)?;
        params.not_after =
            date_time_ymd(1970, 1, 1) + Duration::from_secs(issued) + grant.valid_for.min(MAX_VALIDITY);
        let value = Grant::encode(issued, grant.tiers).to_vec();
        params.custom_extensions = vec![CustomExtension::from_oid_content(&GRANT_OID, value)];
        Ok(params.signed_by(key, &issuer)?.pem())
    }
}

impl GrantOptions {
    /// The grant of a certificate; the default one if it states none.
    pub(super) fn of(certificate: &CertificateDer<'_>) -> Self {
        let kept =
            |grant: Grant| Self { valid_for: Duration::from_secs(grant.lifetime()), tiers: grant.tiers };
        Grant::of(certificate).map_or_else(Self::default, kept)
    }
}

#[cfg(test)]
mod tests {
    use common::Tier;
    use rustls::pki_types::pem::PemObject;

    use super::*;

    #[test]
    fn the_grant_is_in_the_certificate_and_kept_when_it_is_renewed() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::create(dir.path()).unwrap();
        let device: DeviceId = "cam-1".parse().unwrap();
        let tiers = TierSet::EMPTY.with(Tier::new(1).unwrap()).with(Tier::new(3).unwrap());
        let grant = GrantOptions { valid_for: Duration::from_secs(900), tiers };
        let of =
            |bundle: &str| Grant::of(&CertificateDer::from_pem_slice(bundle.as_bytes()).unwrap()).unwrap();
        let bundle = authority.enroll_with(&device, grant).unwrap();
        let first = of(&bundle);
        assert_eq!((first.tiers, first.lifetime()), (tiers, 900));
        assert_eq!(first.renewal(), first.issued + 600);
        let key = KeyPair::generate().unwrap();
        let present = CertificateDer::from_pem_slice(bundle.as_bytes()).unwrap();
        let bundle = authority.renew(&present, key.der_bytes()).unwrap().unwrap().bundle;
        let renewed = of(&bundle);
        assert_eq!((renewed.tiers, renewed.lifetime()), (tiers, 900));
        assert!(renewed.issued >= first.issued);
        let usual = of(&authority.enroll(&"cam-2".parse().unwrap()).unwrap());
        assert_eq!((usual.tiers, usual.lifetime()), (TierSet::ALL, DEFAULT_VALIDITY.as_secs()));
    }
}
