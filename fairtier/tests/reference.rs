//! Generated pages are up to date.

use std::{fs, path::Path, process::Command};

fn compare(file: &str, args: &[&str]) {
    let printed =
        Command::new(env!("CARGO_BIN_EXE_fairtier")).args(args).output().expect("the program starts");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
    let kept = fs::read_to_string(&path).unwrap_or_default();
    let printed = String::from_utf8(printed.stdout).expect("text");
    assert!(kept == printed, "{file} is stale: fairtier {} > {file}", args.join(" "));
}

#[test]
fn the_reference_is_up_to_date() {
    compare("docs/REFERENCE.md", &["reference"]);
}

#[test]
fn the_schema_of_the_configuration_is_up_to_date() {
    compare("docs/fairtier.schema.json", &["gateway", "schema"]);
}

#[test]
fn troubleshooting_is_up_to_date() {
    compare("docs/troubleshooting.md", &["reference", "--page", "troubleshooting"]);
}
