//! The documents state the shares as the constants do.

use std::{fs, path::Path};

use super::*;

/// Rule 2 of the module's documentation.
fn rule_of_shares() -> String {
    let Policy { unvalidated, one_address, reserved, one_recent_address, .. } = POLICY;
    let (stranger, recent) = (unvalidated + one_address, unvalidated + one_address + one_recent_address);
    format!(
        "{unvalidated} % are for addresses that have not answered a QUIC Retry. One address that has answered gets at \
         most {one_address} %. The last {reserved} % are for recent addresses, from which a device came in; one of them gets \
         at most {one_recent_address} %. In all, one address gets at most {stranger} %, a recent one {recent} %."
    )
}

/// A file without line ends and signs of comments.
fn text(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let file = fs::read_to_string(root.join(path)).unwrap();
    let words = file.lines().flat_map(|line| line.trim_start_matches(['/', '!', '#']).split_whitespace());
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn the_documents_state_the_shares_of_the_constants() {
    for path in ["aggregator/src/admission.rs", "aggregator/src/default.toml", "SECURITY.md"] {
        assert!(text(path).contains(&rule_of_shares()), "{path} does not say: {}", rule_of_shares());
    }
    let Policy { unproven, min_unproven, .. } = POLICY;
    let size = format!("({unproven} % of `server.max_connections`, at least {min_unproven})");
    let device = format!("One device has {PER_DEVICE} connections; a third closes the oldest.");
    let certificate = format!("one certificate in {} s", RENEWAL_INTERVAL.as_secs());
    for sentence in [size, device, certificate] {
        assert!(text("aggregator/src/admission.rs").contains(&sentence), "{sentence}");
    }
    let configured = format!("{unproven} % more (at least {min_unproven}) are for connections");
    assert!(text("aggregator/src/default.toml").contains(&configured), "{configured}");
}
