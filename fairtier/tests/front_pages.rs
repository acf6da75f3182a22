//! The front page of every published crate has an example that `cargo test --doc` runs.

use std::{fs, path::Path};

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Folders of the members of the workspace that are published.
fn published() -> Vec<String> {
    let manifest = read("Cargo.toml");
    let members = manifest.split("members = [").nth(1).and_then(|rest| rest.split(']').next());
    let folders = members.expect("members").split('"').skip(1).step_by(2);
    let is_published = |folder: &&str| !read(&format!("{folder}/Cargo.toml")).contains("publish = false");
    folders.filter(is_published).map(str::to_owned).collect()
}

/// The code blocks of a crate's front page, each with the words after its opening fence.
fn blocks(lib: &str) -> Vec<(String, String)> {
    let (mut blocks, mut open) = (vec![], None);
    for line in lib.lines().map_while(|line| line.strip_prefix("//!")) {
        match (line.trim_start().strip_prefix("```"), open.take()) {
            (Some(words), None) => open = Some((words.to_owned(), String::new())),
            (Some(_), Some(block)) => blocks.push(block),
            (None, Some((words, text))) => open = Some((words, text + line + "\n")),
            (None, None) => {}
        }
    }
    blocks
}

/// rustdoc runs a block without words after its fence. An example that asserts nothing shows nothing.
fn is_run((words, text): &(String, String)) -> bool {
    (words.is_empty() || words == "rust") && text.contains("assert")
}

#[test]
fn every_published_crate_shows_an_example_that_runs() {
    let published = published();
    assert!(published.len() >= 10, "{published:?}");
    for folder in published {
        let lib = format!("{folder}/src/lib.rs");
        assert!(blocks(&read(&lib)).iter().any(is_run), "{lib} has no example that rustdoc runs");
    }
}

#[test]
fn blocks_that_are_not_run_do_not_count() {
    let page = |words: &str, code: &str| format!("//! Text.\n//! ```{words}\n//! {code}\n//! ```\nmod a;\n");
    let counts = |words, code| blocks(&page(words, code)).iter().any(is_run);
    assert!(counts("", "assert!(true);"));
    assert!(!counts("", "let a = 1;"));
    for words in ["no_run", "ignore", "text", "toml"] {
        assert!(!counts(words, "assert!(true);"), "{words}");
    }
    assert!(blocks("mod a;\n//! ```\n//! assert!(true);\n//! ```\n").is_empty());
}
