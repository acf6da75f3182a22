//! The device that a certificate names, so that a look at its own files is enough to know whether it is enrolled.

use common::DeviceId;

/// How DER begins a common name: an object identifier, 2.5.4.3.
const COMMON_NAME: [u8; 5] = [0x06, 0x03, 0x55, 0x04, 0x03];
const UTF8: u8 = 0x0c;
const PRINTABLE: u8 = 0x13;

/// Every device's name that stands in a certificate as a common name: hints which files to compare it with, and no more.
/// The authority's is none of a device.
pub(super) fn in_certificate(certificate: &[u8]) -> impl Iterator<Item = DeviceId> {
    certificate.windows(COMMON_NAME.len()).enumerate().filter_map(|(at, window)| {
        let [UTF8 | PRINTABLE, len, rest @ ..] = certificate.get(at + window.len()..)? else { return None };
        let name = rest.get(..usize::from(*len))?;
        (window == COMMON_NAME).then_some(name).and_then(|name| str::from_utf8(name).ok()?.parse().ok())
    })
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::{CertificateDer, pem::PemObject};

    use super::{super::Authority, *};

    #[test]
    fn a_certificate_names_one_device() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::create(dir.path()).unwrap();
        for name in ["a", "cam-1", "Cam.1_x", &"n".repeat(common::id::MAX_DEVICE_ID)] {
            let bundle = authority.enroll(&name.parse().unwrap()).unwrap();
            let certificate = CertificateDer::from_pem_slice(bundle.as_bytes()).unwrap();
            let names: Vec<_> = in_certificate(&certificate).collect();
            assert_eq!(names, [name.parse().unwrap()]);
        }
    }

    #[test]
    fn what_is_cut_off_or_no_certificate_names_nobody() {
        let with = |rest: &[u8]| [&COMMON_NAME[..], rest].concat();
        for bytes in [vec![], with(&[]), with(&[UTF8]), with(&[UTF8, 2, b'a']), with(&[2, 1, b'a'])] {
            assert_eq!(in_certificate(&bytes).count(), 0, "{bytes:?}");
        }
        assert_eq!(in_certificate(&with(&[UTF8, 3, b'.', b'.', b'/'])).count(), 0, "no path");
        assert_eq!(in_certificate(&with(&[UTF8, 1, b'a'])).count(), 1);
    }
}
