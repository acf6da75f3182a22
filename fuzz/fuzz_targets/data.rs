//! Every reader of data files; the first byte selects one.
#![no_main]

use std::path::Path;

use client::data::{
    load::{self, CsvOptions},
    schema::{self, ProposeOptions, Schema, Targets},
};
use libfuzzer_sys::fuzz_target;
use sim::data::files;

fuzz_target!(|data: &[u8]| {
    let Some((&kind, content)) = data.split_first() else { return };
    match kind {
        b'c' => fuzz::with_file("csv", content, |path| drop(load::csv(path, &CsvOptions::default()))),
        b'i' => {
            // Images, then labels.
            let (images, labels) = content.split_at(content.len() / 2);
            fuzz::with_file("images", images, |images| {
                fuzz::with_file("labels", labels, |labels| drop(load::idx(images, labels, 1.0)))
            })
        }
        b's' => fuzz::with_file("csv", content, by_schema),
        b'n' => fuzz::with_file("npz", content, |path| drop(load::npz(path))),
        b'd' => drop(Schema::decode(content)),
        b'a' => fuzz::with_file("arff", content, |path| drop(files::wisdm("arff", path, 1))),
        b'l' => fuzz::with_file("leaf", content, |path| drop(files::leaf(path))),
        b'b' => fuzz::with_file("cifar", content, |path| {
            let paths = [path.to_owned()];
            drop(files::cifar10("cifar", &paths, &paths));
        }),
        b't' => table(content, &files::ADULT),
        b'o' => table(content, &files::COMPAS),
        b'k' => table(content, &files::BANK),
        b'm' => fuzz::with_file("motion", content, |path| drop(files::motion("motion", path))),
        _ => {}
    }
});

/// A file is read by what is proposed for it, and by a schema with every type of column.
fn by_schema(path: &Path) {
    if let Ok(proposal) = Schema::propose(path, &ProposeOptions::default()) {
        let text = proposal.toml().expect("a proposal can be written");
        assert_eq!(Schema::from_toml(&text).expect("and read again"), proposal.schema);
        let _ = schema::survey(path, &proposal.schema, Targets::Needed);
    }
    let fixed = Schema::from_toml(FIXED).expect("a valid schema");
    for targets in [Targets::Needed, Targets::Optional] {
        if let Ok(table) = schema::read(path, &fixed, targets) {
            assert_eq!(table.features.len(), table.len() * fixed.inputs());
            assert!(table.features.iter().all(|value| value.is_finite()));
        }
    }
}

const FIXED: &str = r#"
[data]
task = "classification"
extra = "ignore"
window = { rows = 2, stride = 1, within = "id" }
columns = [
  { name = "x", type = "number", missing = "mean", scaling = { min = 0, max = 10 } },
  { name = "c", type = "category", levels = ["a", "b"], missing = { constant = "b" } },
  { name = "id", type = "ignored" },
  { name = "sex", type = "attribute", levels = ["f", "m"] },
  { name = "y", type = "label", classes = ["no", "yes"] },
]
"#;

fn table(content: &[u8], schema: &files::Schema) {
    fuzz::with_file("table", content, |path| drop(files::table("table", &[path.to_owned()], schema, 1)));
}
