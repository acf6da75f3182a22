use std::{sync::Arc, time::Duration};

use common::certificate::{GRANT_OID, Grant};

use super::*;

#[test]
fn a_device_is_known_by_its_certificate_until_it_is_revoked() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::create(dir.path()).unwrap();
    let device: DeviceId = "cam-1".parse().unwrap();
    let bundle = authority.enroll(&device).unwrap();
    let certificate = CertificateDer::from_pem_slice(bundle.as_bytes()).unwrap();
    assert_eq!(authority.device_of(&certificate).unwrap(), Some(device.clone()));

    authority.enroll_as(&device, GrantOptions::default(), Existing::Replace, None).unwrap();
    let known = authority.device_of(&certificate).unwrap();
    assert_eq!(known, None, "an earlier certificate is no longer valid");
}

/// Puts a directory in the place of a file: not even root can read it as a file.
fn spoil(path: &Path) {
    fs::remove_file(path).unwrap();
    fs::create_dir(path).unwrap();
}

#[test]
fn an_unreadable_file_is_an_error_and_no_refusal() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::create(dir.path()).unwrap();
    let [device, other, third]: [DeviceId; 3] = ["cam-1", "cam-2", "cam-3"].map(|name| name.parse().unwrap());
    let [certificate, others, thirds] = [&device, &other, &third]
        .map(|device| CertificateDer::from_pem_slice(authority.enroll(device).unwrap().as_bytes()).unwrap());
    spoil(&dir.path().join("identity/devices/cam-1.crt"));
    assert!(matches!(authority.device_of(&certificate), Err(CaError::Io { .. })));
    // Other devices are not affected, enrolled or not.
    assert_eq!(authority.device_of(&others).unwrap(), Some(other.clone()));
    authority.revoke(&other).unwrap();
    assert_eq!(authority.device_of(&others).unwrap(), None);
    // As if the disk were not mounted.
    fs::rename(dir.path().join("identity/devices"), dir.path().join("elsewhere")).unwrap();
    assert!(matches!(authority.device_of(&thirds), Err(CaError::Io { .. })));
    assert_eq!(authority.device_of(&others).unwrap(), None, "the revocation is in another file");
}

#[test]
fn a_renewed_certificate_that_cannot_be_activated_stays_valid() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::create(dir.path()).unwrap();
    let device: DeviceId = "cam-1".parse().unwrap();
    let present = CertificateDer::from_pem_slice(authority.enroll(&device).unwrap().as_bytes()).unwrap();
    let key = KeyPair::generate().unwrap();
    let bundle = authority.renew(&present, rcgen::PublicKeyData::der_bytes(&key)).unwrap().unwrap().bundle;
    let renewed = CertificateDer::from_pem_slice(bundle.as_bytes()).unwrap();
    let lock = dir.path().join("identity/lock");
    spoil(&lock);
    assert!(matches!(authority.device_of(&renewed), Err(CaError::Io { .. })));
    assert_eq!(authority.device_of(&present).unwrap(), Some(device.clone()), "no file has to change");
    fs::remove_dir(lock).unwrap();
    assert_eq!(authority.device_of(&renewed).unwrap(), Some(device));
}

#[test]
fn an_authority_is_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(Authority::open(dir.path()), Err(CaError::Missing(_))));
    Authority::create(dir.path()).unwrap();
    assert!(matches!(Authority::create(dir.path()), Err(CaError::Exists(_))));
}

#[test]
fn a_device_whose_clock_was_never_set_trusts_the_server() {
    use rustls::{
        client::{WebPkiServerVerifier, danger::ServerCertVerifier},
        pki_types::{ServerName, UnixTime},
    };
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::create(dir.path()).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(authority.root().unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
    let (server, _) = authority.server().unwrap();
    let name = ServerName::try_from(common::wire::SERVER_NAME).unwrap();
    for seconds in [0, 60, 1_800_000_000] {
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
        verifier.verify_server_cert(&server, &[], &name, &[], now).unwrap();
    }
}

#[test]
fn nothing_in_the_directory_is_open_to_other_users() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::create(dir.path()).unwrap();
    let [cam, board, new]: [DeviceId; 3] = ["cam-1", "m4", "new"].map(|name| name.parse().unwrap());
    let bundle = authority.enroll(&cam).unwrap();
    let present = CertificateDer::from_pem_slice(bundle.as_bytes()).unwrap();
    let key = KeyPair::generate().unwrap();
    authority.renew(&present, rcgen::PublicKeyData::der_bytes(&key)).unwrap().unwrap();
    authority.enroll_serial(&board).unwrap();
    authority.token(&new, Duration::from_secs(60), GrantOptions::default()).unwrap();
    let identity = dir.path().join("identity");
    let check = || {
        let mut open = vec![identity.clone()];
        let mut count = 0;
        while let Some(path) = open.pop() {
            let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, if path.is_dir() { 0o700 } else { 0o600 }, "{}", path.display());
            count += 1;
            if path.is_dir() {
                open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            }
        }
        assert!(count > 10, "{count} files and directories");
    };
    check();
    // As an earlier version has left it.
    let loosen = |name: &str, mode| {
        fs::set_permissions(identity.join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    loosen("lock", 0o644);
    loosen("devices/cam-1.crt", 0o644);
    loosen("devices", 0o755);
    loosen(".", 0o755);
    Authority::open(dir.path()).unwrap();
    check();
}

#[test]
fn a_certificate_names_one_device() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::create(dir.path()).unwrap();
    for name in ["a", "cam-1", "Cam.1_x", &"n".repeat(common::id::MAX_DEVICE_ID)] {
        let bundle = authority.enroll(&name.parse().unwrap()).unwrap();
        let certificate = CertificateDer::from_pem_slice(bundle.as_bytes()).unwrap();
        assert_eq!(common_name(&certificate).as_deref(), Some(name));
    }
}

/// A self-signed certificate for these common names.
fn self_signed(names: &[&str], not_after: impl FnOnce(&mut CertificateParams)) -> CertificateDer<'static> {
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.distinguished_name = DistinguishedName::new();
    names.iter().for_each(|name| params.distinguished_name.push(DnType::CommonName, *name));
    let value = Grant::encode(7, common::TierSet::ALL).to_vec();
    params.custom_extensions = vec![rcgen::CustomExtension::from_oid_content(&GRANT_OID, value)];
    not_after(&mut params);
    params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
}

#[test]
fn a_truncated_or_nameless_certificate_belongs_to_no_device() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::create(dir.path()).unwrap();
    let whole = self_signed(&["cam-1"], |_| {});
    assert_eq!(common_name(&whole).as_deref(), Some("cam-1"));
    for len in 0..whole.len() {
        assert_eq!((common_name(&whole[..len]), Grant::of(&whole[..len])), (None, None), "{len} bytes");
    }
    for names in [&[][..], &["../x"]] {
        assert_eq!(authority.device_of(&self_signed(names, |_| {})).unwrap(), None, "{names:?}");
    }
}

#[test]
fn dates_of_both_encodings_are_read() {
    let expires = |year, month, day, seconds| {
        let certificate = self_signed(&["cam-1"], |params| {
            params.not_after = date_time_ymd(year, month, day) + Duration::from_secs(seconds);
        });
        Grant::of(&certificate).map(|grant| grant.expires)
    };
    assert_eq!(expires(1970, 1, 1, 0), Some(0));
    assert_eq!(expires(2026, 11, 16, 51_311), Some(1_794_838_511));
    assert_eq!(expires(2056, 2, 29, 86_399), Some(2_719_094_399));
    assert_eq!(expires(1960, 1, 1, 0), None);
}
