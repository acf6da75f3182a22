//! Readers of data files that people bring, with and without a schema; the first byte selects one.
#![no_main]

use std::{
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use common::npy;
use libfuzzer_sys::fuzz_target;
use trainer::data::{
    load::{self, CsvOptions},
    schema::{self, ProposeOptions, Schema, Table, Targets},
};

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
        b'z' => fuzz::with_file("npz", content, |path| arrays(path, false)),
        b'p' => {
            // Samples, then labels.
            let (x, y) = content.split_at(content.len() / 2);
            pair(x, y)
        }
        b'f' => folder(content),
        b'd' => drop(Schema::decode(content)),
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
    let _ = schema::fleet_moments(path, &fixed);
    for targets in [Targets::Needed, Targets::Optional] {
        let _ = schema::survey(path, &fixed, targets);
        if let Ok(table) = schema::read(path, &fixed, targets) {
            fits(&table, &fixed);
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
  { name = "v", type = "number", missing = { constant = 1 }, scaling = "fleet" },
  { name = "sex", type = "attribute", levels = ["f", "m"] },
  { name = "y", type = "label", classes = ["no", "yes"] },
]
"#;

/// Columns whose scale the fleet agrees on, an array, a label and a group.
static ARRAYS: LazyLock<Schema> = LazyLock::new(|| Schema::from_toml(NAMED).expect("a valid schema"));
/// The only input is an image.
static IMAGES: LazyLock<Schema> = LazyLock::new(|| Schema::from_toml(PICTURES).expect("a valid schema"));
/// Images of two classes.
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = fuzz::place().join(format!("fairtier-fuzz-{}-folder", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    for class in ["0", "1"] {
        fs::create_dir_all(folder.join(class)).expect("the directory for temporary files can be written to");
    }
    folder
});

const NAMED: &str = r#"
[data]
task = "classification"
extra = "ignore"
columns = [
  { name = "x", type = "array", shape = [2], scaling = { mean = 1, deviation = 2 } },
  { name = "z", type = "number", scaling = "fleet" },
  { name = "g", type = "attribute", levels = ["f", "m"] },
  { name = "y", type = "label", classes = ["no", "yes"] },
]
"#;

const PICTURES: &str = r#"
[data]
task = "classification"
columns = [
  { name = "x", type = "array", shape = [1, 2, 2] },
  { name = "y", type = "label", classes = ["0", "1"] },
]
"#;

/// Named arrays by a schema. `own` arrays are those of a pair, under the names of `ARRAYS`.
fn arrays(path: &Path, own: bool) {
    let schema = &*ARRAYS;
    for targets in [Targets::Needed, Targets::Optional] {
        match schema::read_any(path, schema, targets) {
            Ok(table) => fits(&table, schema),
            Err(error) => assert!(!own || !error.to_string().contains("checksum"), "own archive: {error}"),
        }
        let _ = schema::survey_any(path, schema, targets);
    }
    if let Ok(moments) = schema::fleet_moments(path, schema) {
        assert_eq!(moments.len(), 1);
    }
}

/// As files of their own, and in an archive, whose checksums a fuzzer would not find.
fn pair(x: &[u8], y: &[u8]) {
    fuzz::with_file("x.npy", x, |x| {
        drop(schema::read_array(x, &IMAGES));
        fuzz::with_file("y.npy", y, |y| {
            drop(load::npy(x, y));
            drop(schema::read_pair(x, y, &IMAGES));
        })
    });
    let (Ok(x), Ok(y)) = (npy::Array::read(x), npy::Array::read(y)) else { return };
    let named = [("x", &x), ("y", &y), ("z", &y), ("g", &y)];
    let named: Vec<_> = named.iter().map(|(name, array)| ((*name).to_owned(), (*array).clone())).collect();
    let archive = npy::write_archive(&named).expect("a small archive");
    fuzz::with_file("npz", &archive, |path| {
        drop(load::npz(path));
        arrays(path, true);
    });
}

/// One image in the folders of two classes.
fn folder(image: &[u8]) {
    for class in ["0", "1"] {
        fs::write(FOLDER.join(class).join("a"), image).expect("the folder can be written to");
    }
    if let Ok(samples) = load::folder(&FOLDER) {
        assert_eq!(samples.labels(), [0, 1]);
        assert!(samples.features().iter().all(|pixel| (0.0..=1.0).contains(pixel)));
    }
    for targets in [Targets::Needed, Targets::Optional] {
        if let Ok(table) = schema::read_any(&FOLDER, &IMAGES, targets) {
            fits(&table, &IMAGES);
        }
    }
}

fn fits(table: &Table, schema: &Schema) {
    assert_eq!(table.features.len(), table.len() * schema.inputs());
    assert!(table.features.iter().all(|value| value.is_finite()));
    assert!(table.labels.is_empty() || table.labels.len() == table.len());
}
