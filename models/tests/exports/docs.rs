//! The lists of exports in `docs/your-own-model.md`, between two marks.

use std::{collections::BTreeMap, path::PathBuf};

use super::manifest::{Entry, Expect, Manifest};

const START: &str = "<!-- The exports of the manifest. -->\n";
const END: &str = "<!-- End of the exports. -->\n";

pub fn page() -> PathBuf {
    crate::support::fixture("../../../docs/your-own-model.md")
}

/// The page with the lists as the manifest gives them.
pub fn updated(page: &str, manifest: &Manifest) -> String {
    let (before, rest) = page.split_once(START).expect("the mark before the lists");
    let (_, after) = rest.split_once(END).expect("the mark behind the lists");
    format!("{before}{START}\n{}\n{}\n{END}{after}", trained(manifest), refused(manifest))
}

fn trained(manifest: &Manifest) -> String {
    let mut lists: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for entry in manifest.export.iter().filter(|entry| entry.expect == Expect::Trains) {
        lists.entry(&entry.by).or_default().push(name(entry));
    }
    let row =
        |(by, names): (&&str, &Vec<&str>)| format!("| {by} | {} | {} |\n", names.len(), names.join(", "));
    let rows: String = lists.iter().map(row).collect();
    format!("| exported by | models | that train |\n|---|---:|---|\n{rows}")
}

fn refused(manifest: &Manifest) -> String {
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for entry in manifest.export.iter().filter(|entry| entry.expect == Expect::Refused) {
        reasons.entry(entry.why.as_deref().unwrap_or("?")).or_default().push(name(entry));
    }
    let mut rows: Vec<String> = reasons
        .into_iter()
        .map(|(why, mut names)| {
            names.dedup();
            format!("| {} | {why} |\n", names.join(", "))
        })
        .collect();
    rows.sort();
    format!("| refused | because |\n|---|---|\n{}", rows.concat())
}

/// The model's name, without the exporter that the other column states.
fn name(entry: &Entry) -> &str {
    let name = entry.file.split('.').next().unwrap_or(&entry.file);
    name.strip_prefix("sklearn-").unwrap_or(name)
}
