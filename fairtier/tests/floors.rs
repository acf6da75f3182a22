//! Crates are layered: no crate depends on a higher layer. Pure crates depend on no runtime, socket or database.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::Command,
};

use serde_json::Value;

/// The layers from the lowest up. A crate may depend only on crates in earlier lines.
const FLOORS: &[&[&str]] = &[
    &["fairtier-common", "fairtier-plots"],
    &["fairtier-trainer"],
    &["fairtier-models"],
    &["fairtier-client", "fairtier-strategies"],
    &["fairtier-coordinator"],
    &["fairtier-aggregator"],
    &["fairtier-sim"],
    &["fairtier-bench"],
    &["fairtier"],
    &["custom-strategy", "fairtier-tests"],
];
/// Crates that must not depend on any of [`FORBIDDEN`], directly or through other crates.
const PURE: [&str; 5] =
    ["fairtier-common", "fairtier-plots", "fairtier-models", "fairtier-strategies", "fairtier-coordinator"];
const FORBIDDEN: [&str; 12] = [
    "tokio",
    "mio",
    "socket2",
    "quinn",
    "quinn-udp",
    "rustls",
    "redb",
    "rcgen",
    "async-std",
    "smol",
    "hyper",
    "sqlx",
];

/// Names of packages, and their dependencies in a normal build.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    // Only packages of this platform, because others may not have been fetched.
    let output = Command::new(cargo)
        .args([
            "metadata",
            "--format-version",
            "1",
            "--locked",
            "--all-features",
            "--filter-platform",
            &host(),
        ])
        .arg("--manifest-path")
        .arg(manifest)
        .output()
        .expect("cargo starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let packages = list(&metadata["packages"]);
    let name: BTreeMap<&str, &str> = packages
        .iter()
        .filter_map(|package| Some((package["id"].as_str()?, package["name"].as_str()?)))
        .collect();
    let is_normal = |dep: &&Value| list(&dep["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
    list(&metadata["resolve"]["nodes"])
        .iter()
        .map(|node| {
            let deps = list(&node["deps"]);
            let normal = deps.iter().filter(is_normal).filter_map(|dep| name.get(dep["pkg"].as_str()?));
            let own = name[node["id"].as_str().expect("an id")];
            (own.to_owned(), normal.map(|&dep| dep.to_owned()).collect())
        })
        .collect()
}

/// The target triple of this machine.
fn host() -> String {
    let output = Command::new("rustc").arg("-vV").output().expect("rustc starts");
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines().find_map(|line| line.strip_prefix("host: ")).expect("a host").to_owned()
}

fn reach(dependencies: &BTreeMap<String, BTreeSet<String>>, from: &str) -> BTreeSet<String> {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from.to_owned()]);
    while let Some(name) = next.pop() {
        for dep in dependencies.get(&name).into_iter().flatten() {
            if seen.insert(dep.clone()) {
                next.push(dep.clone());
            }
        }
    }
    seen
}

#[test]
fn no_crate_depends_on_a_higher_layer() {
    let dependencies = dependencies();
    let floor = |name: &str| FLOORS.iter().position(|floor| floor.contains(&name));
    let members =
        dependencies.keys().filter(|name| name.starts_with("fairtier") || *name == "custom-strategy");
    for member in members {
        let own = floor(member).unwrap_or_else(|| panic!("{member} is missing from FLOORS"));
        for dep in dependencies[member].iter().filter(|dep| dep.starts_with("fairtier")) {
            assert!(floor(dep).is_some_and(|below| below < own), "{member} depends on {dep}");
        }
    }
}

#[test]
fn pure_crates_depend_on_no_runtime_socket_or_database() {
    let dependencies = dependencies();
    for name in PURE {
        assert!(dependencies.contains_key(name), "{name}");
        let all = reach(&dependencies, name);
        for forbidden in FORBIDDEN {
            assert!(!all.contains(forbidden), "{name} depends on {forbidden}");
        }
    }
    // Shows that the check can fail.
    assert!(reach(&dependencies, "fairtier-aggregator").contains("tokio"));
}
