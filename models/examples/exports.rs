//! The table of all tested exports: `cargo run --profile ci -p fairtier-models --example exports`.
//!
//! With `--accept`, the manifest and the page about models state what was found, unless it is wrong.

extern crate fairtier_models as models;

#[path = "../tests/support/agree.rs"]
mod agree;
#[path = "../tests/exports/check.rs"]
mod check;
#[path = "../tests/exports/docs.rs"]
mod docs;
#[path = "../tests/exports/manifest.rs"]
mod manifest;
#[path = "../tests/support/mod.rs"]
mod support;

use check::Found;
use manifest::{Entry, Expect};

fn main() {
    let is_accepted = std::env::args().any(|argument| argument == "--accept");
    let mut manifest = manifest::read();
    println!("{}", row(["export", "by", "expected", "found", "outputs", "gradients"], "note"));
    for entry in &mut manifest.export {
        let expected = format!("{:?}", entry.expect).to_lowercase();
        let found = check::check(entry);
        let error = |of: fn(&check::Trained) -> f64| match &found {
            Found::Trains(trained) => format!("{:.0e}", of(trained)),
            Found::Refused(_) | Found::Wrong(_) => String::new(),
        };
        let (name, note) = match &found {
            Found::Trains(trained) => ("trains", trained.uncut.as_deref().unwrap_or_default()),
            Found::Refused(text) => ("refused", text.as_str()),
            Found::Wrong(text) => ("WRONG", text.as_str()),
        };
        let (outputs, gradients) = (error(|trained| trained.outputs), error(|trained| trained.gradients));
        println!("{}", row([&entry.file, &entry.by, &expected, name, &outputs, &gradients], note));
        if is_accepted {
            accept(entry, found);
        }
    }
    if is_accepted {
        manifest::write(&manifest);
        let page = std::fs::read_to_string(docs::page()).expect("the page about models");
        std::fs::write(docs::page(), docs::updated(&page, &manifest)).expect("the page is written");
    }
}

fn row([export, by, expected, found, outputs, gradients]: [&str; 6], note: &str) -> String {
    format!("{export:36} {by:38} {expected:8} {found:8} {outputs:>8} {gradients:>9}  {note}")
}

/// Texts that the message still contains are kept.
fn accept(entry: &mut Entry, found: Found) {
    let part = |old: &Option<String>, text: &str| match old {
        Some(part) if text.contains(part) => part.clone(),
        _ => text.split(';').next().unwrap_or(text).to_owned(),
    };
    match found {
        Found::Wrong(_) => {}
        Found::Refused(text) => {
            (entry.expect, entry.says, entry.uncut) = (Expect::Refused, Some(part(&entry.says, &text)), None);
        }
        Found::Trains(trained) => {
            entry.uncut = trained.uncut.map(|text| part(&entry.uncut, &text));
            (entry.expect, entry.says, entry.why) = (Expect::Trains, None, None);
        }
    }
}
