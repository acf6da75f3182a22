//! Credentials of devices: identity files, certificates and their grants, tokens, requests for a certificate, names.
#![no_main]

use client::host::{Identity, enrol::Token};
use common::{DeviceId, certificate::Grant, enrol::EnrolRequest, wire};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = Identity::parse(data);
    if let Some(grant) = Grant::of(data) {
        assert!(grant.renewal() >= grant.issued);
    }
    if let Ok(question) = wire::message::<EnrolRequest>(data) {
        assert!(question.key.len() <= 65);
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    let _ = text.parse::<Token>();
    if let Ok(device) = text.parse::<DeviceId>() {
        assert_eq!(device.as_str(), text);
    }
});
