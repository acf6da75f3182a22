//! Exports as people make them, with the default arguments of PyTorch, scikit-learn and Keras (`fixtures/exports`). Each one
//! trains and agrees with its framework, or is refused as the manifest says.
#![cfg(feature = "tools")]

extern crate fairtier_models as models;

use std::collections::BTreeSet;

use models::{Graph, onnx};

#[path = "../support/agree.rs"]
mod agree;
mod check;
mod docs;
mod manifest;
#[path = "../support/mod.rs"]
mod support;

use check::{Found, check};
use manifest::{Entry, Expect};

const ACCEPT: &str =
    "to expect what was found: cargo run --profile ci -p fairtier-models --example exports -- --accept";

#[test]
fn every_export_does_what_the_manifest_says() {
    let wrong: Vec<String> = manifest::read().export.iter().filter_map(unexpected).collect();
    assert!(wrong.is_empty(), "{}\n{ACCEPT}", wrong.join("\n"));
}

/// What differs from the manifest.
fn unexpected(entry: &Entry) -> Option<String> {
    let said = |part: &Option<String>, text: &str| part.as_ref().is_some_and(|part| text.contains(part));
    let problem = match (entry.expect, check(entry)) {
        (Expect::Trains, Found::Trains(trained)) => match (&entry.uncut, trained.uncut) {
            (None, None) => return None,
            (part, Some(text)) if said(part, &text) => return None,
            (part, text) => format!("rate 0.5: expected {part:?}, found {text:?}"),
        },
        (Expect::Refused, Found::Refused(text)) if said(&entry.says, &text) => return None,
        (_, Found::Trains(_)) => "trains, but is expected to be refused".to_owned(),
        (_, Found::Refused(text) | Found::Wrong(text)) => text,
    };
    Some(format!("{}: {problem}", entry.file))
}

/// A refused model is told more than that the operation should go.
#[test]
fn every_refusal_has_advice() {
    for entry in manifest::read().export.iter().filter(|entry| matches!(entry.expect, Expect::Refused)) {
        let file = onnx::read(&manifest::folder().join(&entry.file)).unwrap();
        let error = onnx::import(&file).unwrap_err();
        let advice = error.advice().unwrap_or_else(|| panic!("{}: {error}", entry.file));
        assert!(!advice.starts_with("leave this operation out"), "{}: {error}", entry.file);
    }
}

#[test]
fn every_file_is_in_the_manifest() {
    let files = std::fs::read_dir(manifest::folder()).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let found: BTreeSet<String> =
        names.filter(|name| name.ends_with(".onnx") || name.ends_with(".npz")).collect();
    let manifest = manifest::read();
    let known = manifest.export.iter().flat_map(|entry| [entry.file.clone(), entry.reference.clone()]);
    assert_eq!(found, known.collect());
}

#[test]
fn the_page_about_models_lists_every_export() {
    let manifest = manifest::read();
    let page = std::fs::read_to_string(docs::page()).unwrap();
    assert!(docs::updated(&page, &manifest) == page, "docs/your-own-model.md is out of date\n{ACCEPT}");
    let silent: Vec<&str> = manifest
        .export
        .iter()
        .filter(|entry| entry.expect == Expect::Refused && entry.why.is_none())
        .map(|entry| entry.file.as_str())
        .collect();
    assert!(silent.is_empty(), "state in the manifest why these are refused: {silent:?}");
}

#[test]
fn a_model_with_other_weights_is_detected() {
    let manifest = manifest::read();
    let entry = manifest.export.iter().find(|entry| entry.file == "lenet.torchscript.onnx").unwrap();
    let file = std::fs::read(manifest::folder().join(&entry.file)).unwrap();
    let (graph, mut parameters) = Graph::from_onnx(&file).unwrap();
    assert!(check::train(entry, &graph, &parameters).is_ok());
    parameters[3] += 0.01;
    let problem = check::train(entry, &graph, &parameters).unwrap_err();
    assert!(problem.contains("outputs differ"), "{problem}");
}
