//! LEAF's JSON: samples grouped by the person they come from.
//!
//! ```text
//! {"users": [u, ...], "num_samples": [n, ...], "user_data": {u: {"x": [...], "y": [...]}, ...}}
//! x   numbers of an image (FEMNIST), or a string (Shakespeare)
//! y   a label, or the character that follows
//! ```
//! Roles that are not yet cut into samples have `"raw": text` instead of x and y.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs,
    path::{Path, PathBuf},
};

use serde::{
    Deserialize, Deserializer,
    de::{self, SeqAccess, Visitor},
};
use trainer::data::load::LoadError;

use super::{DataSet, Features, Records, SetError, source};

/// One file.
#[derive(Deserialize, Debug)]
pub struct Leaf {
    pub users: Vec<String>,
    #[serde(default)]
    num_samples: Vec<u64>,
    pub user_data: BTreeMap<String, User>,
}

#[derive(Deserialize, Debug, Default)]
pub struct User {
    #[serde(default)]
    pub x: Vec<Cell>,
    #[serde(default)]
    pub y: Vec<Cell>,
    #[serde(default)]
    pub raw: String,
}

/// A sample or its label.
#[derive(Clone, PartialEq, Debug)]
pub enum Cell {
    Text(String),
    Numbers(Vec<f32>),
    Number(f64),
}

/// Reads one LEAF file and checks that every user has as many labels as samples.
pub fn read(path: &Path) -> Result<Leaf, SetError> {
    let bytes = source::open(path)?.bytes()?;
    let leaf: Leaf =
        serde_json::from_slice(&bytes).map_err(|problem| SetError::Json { path: path.into(), problem })?;
    let wrong = |problem: String| Err(SetError::format(path, problem));
    for (at, name) in leaf.users.iter().enumerate() {
        let Some(user) = leaf.user_data.get(name) else {
            return wrong(format!("user `{name}` has no data"));
        };
        if user.x.len() != user.y.len() {
            return wrong(format!("user `{name}` has {} samples but {} labels", user.x.len(), user.y.len()));
        }
        let announced = leaf.num_samples.get(at).filter(|_| user.raw.is_empty());
        if announced.is_some_and(|&count| count != user.x.len() as u64) {
            return wrong(format!(
                "user `{name}` has {} samples, which is not the announced number",
                user.x.len()
            ));
        }
    }
    Ok(leaf)
}

/// Images by writer, from all `*.json` and `*.json.gz` files of two directories. `classes` = 10 keeps only digits.
pub fn femnist(name: &str, train: &Path, test: &Path, classes: u32) -> Result<DataSet, SetError> {
    let parts = [read_all(train)?, read_all(test)?];
    let names = people(parts.iter().flatten().map(|(_, leaf)| leaf));
    let [train, test] = parts.map(|files| images(&files, &names, classes));
    let wrong = |source| SetError::Data { name: name.into(), source };
    let set = DataSet::new(name, vec![28, 28], classes, train?, test?).map_err(wrong)?;
    set.with_client_names(names).map_err(wrong)
}

/// All users of some files in alphabetical order. This order numbers the natural clients.
pub fn people<'a>(files: impl IntoIterator<Item = &'a Leaf>) -> Vec<String> {
    let names: BTreeSet<&String> = files.into_iter().flat_map(|leaf| &leaf.users).collect();
    names.into_iter().cloned().collect()
}

fn read_all(dir: &Path) -> Result<Vec<(PathBuf, Leaf)>, SetError> {
    let failed = |source| LoadError::Read { path: dir.into(), source };
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.to_string_lossy();
        if [".json", ".json.gz", ".json.xz"].iter().any(|ending| name.ends_with(ending)) {
            paths.push(path);
        }
    }
    if paths.is_empty() {
        return Err(SetError::format(dir, "holds no JSON files"));
    }
    paths.sort();
    paths.into_iter().map(|path| read(&path).map(|leaf| (path, leaf))).collect()
}

fn images(files: &[(PathBuf, Leaf)], names: &[String], classes: u32) -> Result<Records, SetError> {
    const PIXELS: usize = 28 * 28;
    let (mut pixels, mut labels, mut clients) = (Vec::new(), Vec::new(), Vec::new());
    for (path, leaf) in files {
        for (name, user) in leaf.users.iter().filter_map(|name| Some((name, leaf.user_data.get(name)?))) {
            let client = names.partition_point(|other| other < name) as u32;
            for (index, (x, y)) in user.x.iter().zip(&user.y).enumerate() {
                let (Cell::Numbers(image), Some(label)) = (x, y.label()) else {
                    let problem = format!("sample {index} of user `{name}` is not an image with a label");
                    return Err(SetError::format(path, problem));
                };
                if image.len() != PIXELS {
                    let problem =
                        format!("sample {index} of user `{name}` has {} pixels, not {PIXELS}", image.len());
                    return Err(SetError::format(path, problem));
                }
                // Digits are the first of the 62 characters.
                if label < classes {
                    pixels.extend_from_slice(image);
                    labels.push(label);
                    clients.push(client);
                }
            }
        }
    }
    let records = Records::new(Features::Floats(pixels), labels, PIXELS, 1);
    records
        .and_then(|records| records.with_clients(clients))
        .map_err(|source| SetError::Data { name: "femnist".into(), source })
}

impl Cell {
    fn label(&self) -> Option<u32> {
        match self {
            Self::Number(number) if f64::from(*number as u32) == *number => Some(*number as u32),
            _ => None,
        }
    }
}

impl<'de> Deserialize<'de> for Cell {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;

        impl<'de> Visitor<'de> for Any {
            type Value = Cell;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text, a number or a list of numbers")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Cell, E> {
                Ok(Cell::Text(text.into()))
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Cell, E> {
                Ok(Cell::Number(number as f64))
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Cell, E> {
                Ok(Cell::Number(number as f64))
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Cell, E> {
                Ok(Cell::Number(number))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Cell, A::Error> {
                let mut numbers = Vec::new();
                while let Some(number) = list.next_element()? {
                    numbers.push(number);
                }
                Ok(Cell::Numbers(numbers))
            }
        }

        deserializer.deserialize_any(Any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writers(dir: &Path, train: &str, test: &str) -> Result<DataSet, String> {
        for (part, text) in [("train", train), ("test", test)] {
            fs::create_dir_all(dir.join(part)).unwrap();
            fs::write(dir.join(part).join("all.json"), text).unwrap();
        }
        femnist("x", &dir.join("train"), &dir.join("test"), 10).map_err(|error| error.to_string())
    }

    fn image(ink: f32) -> String {
        format!("{:?}", vec![ink; 784])
    }

    #[test]
    fn images_by_writer_digits_only() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (image(0.25), image(1.0));
        let train = format!(
            r#"{{"users":["w2","w1"],"num_samples":[2,1],"user_data":{{
            "w1":{{"x":[{a}],"y":[3]}},"w2":{{"x":[{b},{a}],"y":[9,40]}}}}}}"#
        );
        let test = format!(r#"{{"users":["w3"],"user_data":{{"w3":{{"x":[{b}],"y":[0]}}}}}}"#);
        let set = writers(dir.path(), &train, &test).unwrap();
        assert_eq!((set.train.labels(), set.train.clients()), (&[9, 3][..], &[1, 0][..]));
        assert_eq!(
            (set.test.clients(), &*set.client_names),
            (&[2][..], &["w1", "w2", "w3"].map(String::from)[..])
        );
        let mut row = [0.0; 784];
        set.train.read(1, &mut row).unwrap();
        assert_eq!(row, [0.25; 784]);
    }

    #[test]
    fn damage_is_reported_with_its_position() {
        let dir = tempfile::tempdir().unwrap();
        let good = format!(r#"{{"users":["w"],"user_data":{{"w":{{"x":[{}],"y":[0]}}}}}}"#, image(0.0));
        let text = |train: &str| writers(dir.path(), train, &good).unwrap_err();
        assert!(text("{\"users\":\n[1]}").contains("line 2 column 2"), "{}", text("{\"users\":\n[1]}"));
        assert!(text(r#"{"users":["a"],"user_data":{}}"#).contains("all.json: user `a` has no data"));
        let short = r#"{"users":["a"],"user_data":{"a":{"x":[[1,2]],"y":[0]}}}"#;
        assert!(text(short).contains("sample 0 of user `a` has 2 pixels, not 784"));
        let words = r#"{"users":["a"],"user_data":{"a":{"x":["hello"],"y":["w"]}}}"#;
        assert!(text(words).contains("is not an image with a label"));
        let uneven = r#"{"users":["a"],"user_data":{"a":{"x":[],"y":[1]}}}"#;
        assert!(text(uneven).contains("has 0 samples but 1 labels"));
        let lies = r#"{"users":["a"],"num_samples":[9],"user_data":{"a":{"x":[],"y":[]}}}"#;
        assert!(text(lies).contains("which is not the announced number"));
        fs::remove_file(dir.path().join("train/all.json")).unwrap();
        let error = femnist("x", &dir.path().join("train"), dir.path(), 10).unwrap_err().to_string();
        assert!(error.contains("holds no JSON files"), "{error}");
    }
}
