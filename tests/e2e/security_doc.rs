//! Every test that SECURITY.md names exists.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// All Rust sources below a directory.
fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let path = entry.path();
        let name = entry.file_name();
        if path.is_dir() && name != "target" && !name.to_string_lossy().starts_with('.') {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The module of a file: its name, or that of its folder.
fn module(path: &Path) -> String {
    let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
    if stem == "mod" { module(path.parent().unwrap()) } else { stem }
}

#[test]
fn every_test_named_in_security_md_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let page = fs::read_to_string(root.join("SECURITY.md")).unwrap();
    let mut files = vec![];
    sources(root, &mut files);
    let sources: Vec<_> =
        files.iter().map(|path| (module(path), fs::read_to_string(path).unwrap())).collect();
    let quoted = page.split('`').skip(1).step_by(2);
    let named: Vec<_> = quoted.filter_map(|name| name.rsplit_once("::")).collect();
    assert!(named.len() > 20, "{named:?}");
    for (place, test) in named {
        let module = place.strip_suffix("::tests").unwrap_or(place);
        let found = sources.iter().any(|(name, text)| {
            name == module && text.contains(&format!("#[test]\n{}fn {test}()", indent(text, test)))
        });
        assert!(found, "SECURITY.md names {place}::{test}, which does not exist");
    }
}

/// The white space before a function.
fn indent<'a>(text: &'a str, function: &str) -> &'a str {
    let line = text.lines().find(|line| line.trim_start().starts_with(&format!("fn {function}()")));
    line.map_or("", |line| &line[..line.len() - line.trim_start().len()])
}
