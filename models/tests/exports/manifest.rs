//! `fixtures/exports/manifest.toml`: every export, and what is expected of it.
#![allow(dead_code, reason = "the test and the table use a part")]

use std::{collections::BTreeMap, path::PathBuf};

use serde::{Deserialize, Serialize};

const FILE: &str = "manifest.toml";
const HEAD: &str =
    "# Written by generate.py, except `expect` (\"trains\" or \"refused\"), `says`, `uncut` and `why`.\n\n";

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Of the frameworks and exporters.
    pub versions: BTreeMap<String, String>,
    pub export: Vec<Entry>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    pub file: String,
    /// The framework, and what differs from its default call.
    pub by: String,
    /// The file with inputs, targets, outputs and gradients.
    pub reference: String,
    pub loss: LossName,
    pub expect: Expect,
    /// A part of the message, if the export is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub says: Option<String>,
    /// A part of the message, if rate 0.5 is refused. The slice then keeps such axes whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncut: Option<String>,
    /// Parameters of the framework that the export holds as constants, which are not trained.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub constants: Vec<String>,
    /// Why an export that people make is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LossName {
    Softmax,
    Sigmoid,
    Squared,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Expect {
    Trains,
    Refused,
}

pub fn folder() -> PathBuf {
    crate::support::fixture("exports")
}

pub fn read() -> Manifest {
    let text = std::fs::read_to_string(folder().join(FILE)).expect("the manifest");
    toml::from_str(&text).expect("a valid manifest")
}

pub fn write(manifest: &Manifest) {
    let text = toml::to_string(manifest).expect("a manifest");
    std::fs::write(folder().join(FILE), format!("{HEAD}{text}")).expect("the manifest is written");
}
