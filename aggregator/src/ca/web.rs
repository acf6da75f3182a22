//! Certificates for browsers: of the dashboard, not of the gateway.
//!
//! A device accepts no such certificate as its gateway: it has none of the gateway's names, and does not state when it was
//! issued.

use std::{net::IpAddr, time::Duration};

use rcgen::{ExtendedKeyUsagePurpose, Issuer, KeyPair, SanType, date_time_ymd};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::{Authority, CaError, authority_params, grant::seconds_now, leaf_params};

/// Browsers refuse certificates that are valid much longer.
const VALID_FOR: Duration = Duration::from_secs(397 * 24 * 3600);

impl Authority {
    /// A new certificate with its chain and key, for an address and names. The key is in memory alone.
    pub fn web_certificate(
        &self,
        address: IpAddr,
        names: &[String],
    ) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), CaError> {
        let ca_key = KeyPair::from_pem(&self.read("ca.key")?)?;
        let key = KeyPair::generate()?;
        let mut params = leaf_params("dashboard", ExtendedKeyUsagePurpose::ServerAuth)?;
        params.not_after = date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds_now()) + VALID_FOR;
        let mut alternatives = vec![SanType::DnsName("localhost".try_into()?)];
        if !address.is_unspecified() {
            alternatives.push(SanType::IpAddress(address));
        }
        for name in names {
            alternatives.push(match name.parse() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => SanType::DnsName(name.as_str().try_into()?),
            });
        }
        params.subject_alt_names = alternatives;
        let certificate = params.signed_by(&key, &Issuer::new(authority_params()?, &ca_key))?;
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        Ok((vec![certificate.der().clone(), self.root()?], key))
    }
}
