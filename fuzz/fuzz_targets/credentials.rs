//! What devices prove themselves with: identity files, certificates and their terms, tokens, questions for a
//! certificate, names.
#![no_main]

use common::{DeviceId, certificate::Terms, enrol::Question, wire};
use client::host::{Identity, enrol::Token};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = Identity::parse(data);
    if let Some(terms) = Terms::of(data) {
        assert!(terms.renewal() >= terms.issued);
    }
    if let Ok(question) = wire::message::<Question>(data) {
        assert!(question.key.len() <= 65);
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    let _ = text.parse::<Token>();
    if let Ok(device) = text.parse::<DeviceId>() {
        assert_eq!(device.as_str(), text);
    }
});
