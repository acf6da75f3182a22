//! What is generated from the code must not be stale.

use std::{fs, path::Path, process::Command};

#[test]
fn the_reference_is_that_of_the_code() {
    let printed =
        Command::new(env!("CARGO_BIN_EXE_fairtier")).arg("reference").output().expect("the program starts");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/REFERENCE.md");
    let kept = fs::read_to_string(&file).unwrap_or_default();
    let printed = String::from_utf8(printed.stdout).expect("text");
    assert!(kept == printed, "docs/REFERENCE.md is stale: fairtier reference > docs/REFERENCE.md");
}
