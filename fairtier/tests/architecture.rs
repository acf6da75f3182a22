//! ARCHITECTURE.md names files and functions that exist.

use std::{fs, path::Path};

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn page() -> String {
    fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md is readable")
}

/// The steps of a round as function and file, from lines such as ` 3   Conductor::open   path/to/file.rs`.
fn steps(page: &str) -> Vec<(&str, &str)> {
    let section = page.split("## One round").nth(1).expect("a section on one round");
    let block = section.split("```").nth(1).expect("a block of steps");
    block
        .lines()
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [.., function, file] = words[..] else { return None };
            file.ends_with(".rs").then_some((function, file))
        })
        .collect()
}

#[test]
fn the_steps_of_a_round_name_existing_functions() {
    let page = page();
    let steps = steps(&page);
    assert!(steps.len() > 10, "{steps:?}");
    for (function, file) in steps {
        let text = fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        let name = function.rsplit("::").next().expect("a name");
        assert!(text.contains(&format!("fn {name}")), "{file} has no function {name}");
        let owner = function.split("::").next().expect("a name");
        assert!(function == owner || text.contains(owner), "{file} does not contain {owner}");
    }
}

#[test]
fn every_path_of_the_page_exists() {
    let page = page();
    let mut count = 0;
    for path in page.split('`').skip(1).step_by(2) {
        let is_path = path.contains('/') && !path.contains(['<', ' ', ':', '*']);
        let top = path.split('/').next().expect("a first part");
        if is_path && root().join(top).is_dir() {
            count += 1;
            assert!(root().join(path).exists(), "{path} does not exist");
        }
    }
    assert!(count > 30, "{count} paths");
}
