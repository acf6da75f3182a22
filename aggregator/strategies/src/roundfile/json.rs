//! A place in a JSON document that knows its own name, so that every error states where it is.
//!
//! JSON has no NaN or infinity, but programs write them: as bare words (Python), as strings, or as null. All three are read as
//! these numbers, null as NaN.

use std::path::{Component, Path};

use common::files::{self, MAX_MODEL};
use models::npy::Array;
use serde_json::Value;

use super::RoundFileError;

type Result<T> = std::result::Result<T, RoundFileError>;

/// Parses a document, with bare `NaN`, `Infinity` and `-Infinity` allowed.
pub(super) fn parse(text: &str) -> Result<Value> {
    serde_json::from_str(text).or_else(|error| Ok(serde_json::from_str(&quoted(text)).map_err(|_| error)?))
}

/// Bare words as strings.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 64);
    let (mut inside, mut escaped) = (false, false);
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let word = ["NaN", "-Infinity", "Infinity"].into_iter().find(|word| rest.starts_with(word));
        if let Some(word) = word.filter(|_| !inside) {
            out.extend(['"'].into_iter().chain(word.chars()).chain(['"']));
            rest = &rest[word.len()..];
            continue;
        }
        inside ^= next == '"' && !escaped;
        escaped = inside && next == '\\' && !escaped;
        out.push(next);
        rest = &rest[next.len_utf8()..];
    }
    out
}

#[derive(Clone, Debug)]
pub(super) struct Node<'a> {
    value: &'a Value,
    key: String,
    /// Directory of the files that the document names.
    dir: &'a Path,
}

impl<'a> Node<'a> {
    pub fn root(value: &'a Value, dir: &'a Path) -> Self {
        Self { value, key: String::new(), dir }
    }

    pub fn fault(&self, why: impl Into<String>) -> RoundFileError {
        let key = if self.key.is_empty() { "the file" } else { &self.key };
        RoundFileError::key(key, why)
    }

    pub fn value(&self) -> &'a Value {
        self.value
    }

    /// The value of a key, which may be null; `None` if the key is absent.
    pub fn field(&self, name: &str) -> Result<Option<Self>> {
        let Value::Object(fields) = self.value else {
            return Err(self.fault("expected an object { .. }"));
        };
        let key = if self.key.is_empty() { name.to_owned() } else { format!("{}.{name}", self.key) };
        Ok(fields.get(name).map(|value| Self { value, key, dir: self.dir }))
    }

    /// The value of a key; `None` also for null.
    pub fn optional(&self, name: &str) -> Result<Option<Self>> {
        Ok(self.field(name)?.filter(|node| !node.value.is_null()))
    }

    pub fn required(&self, name: &str) -> Result<Self> {
        let dot = if self.key.is_empty() { "" } else { "." };
        let missing = || RoundFileError::key(format!("{}{dot}{name}", self.key), "is missing");
        self.field(name)?.ok_or_else(missing)
    }

    pub fn items(&self) -> Result<Vec<Self>> {
        let Value::Array(items) = self.value else { return Err(self.fault("expected a list [ .. ]")) };
        let item = |(at, value)| Self { value, key: format!("{}[{at}]", self.key), dir: self.dir };
        Ok(items.iter().enumerate().map(item).collect())
    }

    pub fn text(&self) -> Result<&'a str> {
        self.value.as_str().ok_or_else(|| self.fault("expected a string"))
    }

    /// Any number, finite or not.
    pub fn number(&self) -> Result<f64> {
        number(self.value).ok_or_else(|| self.fault(format!("expected a number, not {}", self.value)))
    }

    pub fn finite(&self) -> Result<f64> {
        let number = self.number()?;
        if number.is_finite() { Ok(number) } else { Err(self.fault("must be a finite number")) }
    }

    pub fn positive(&self) -> Result<f64> {
        let number = self.finite()?;
        if number > 0.0 { Ok(number) } else { Err(self.fault(format!("must be above 0, not {number}"))) }
    }

    pub fn not_negative(&self) -> Result<f64> {
        let number = self.finite()?;
        if number >= 0.0 { Ok(number) } else { Err(self.fault(format!("must be 0 or more, not {number}"))) }
    }

    /// A whole number of at most 32 bits; `3.0` is accepted.
    pub fn whole(&self) -> Result<u32> {
        whole(self.number()?).ok_or_else(|| {
            self.fault(format!("expected a whole number from 0 to 2^32 - 1, not {}", self.value))
        })
    }

    /// Inline or in an `.npy` file.
    pub fn numbers(&self) -> Result<Vec<f64>> {
        match self.value {
            Value::Array(items) => {
                let item = |(at, value): (usize, &Value)| {
                    let why = || RoundFileError::key(format!("{}[{at}]", self.key), "expected a number");
                    number(value).ok_or_else(why)
                };
                items.iter().enumerate().map(item).collect()
            }
            Value::Object(fields) if fields.contains_key("npy") => self.npy(),
            _ => Err(self.fault("expected a list of numbers, or { \"npy\": \"file.npy\" }")),
        }
    }

    pub fn wholes(&self) -> Result<Vec<u32>> {
        let numbers = self.numbers()?.into_iter().enumerate();
        let item = |(at, number)| {
            whole(number).ok_or_else(|| {
                RoundFileError::key(format!("{}[{at}]", self.key), "expected a whole number, 0 or more")
            })
        };
        numbers.map(item).collect()
    }

    fn npy(&self) -> Result<Vec<f64>> {
        let node = self.required("npy")?;
        let name = Path::new(node.text()?);
        if !name.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
            return Err(node.fault("must be a path below the round file's directory"));
        }
        let path = self.dir.join(name);
        let bytes = files::read(&path, MAX_MODEL)
            .map_err(|error| node.fault(format!("{}: {error}", path.display())))?;
        let array =
            Array::read(&bytes).map_err(|error| node.fault(format!("{}: {error}", path.display())))?;
        Ok(array.data.to_f64())
    }
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::Null => Some(f64::NAN),
        Value::String(text) => match text.to_ascii_lowercase().trim_start_matches('+') {
            "nan" => Some(f64::NAN),
            "inf" | "infinity" => Some(f64::INFINITY),
            "-inf" | "-infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

fn whole(number: f64) -> Option<u32> {
    let fits = number >= 0.0 && number <= f64::from(u32::MAX) && number.fract() == 0.0;
    fits.then_some(number as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_words_are_numbers_and_strings_stay() {
        let value = parse(r#"{"a": [NaN, -Infinity, 1.5, Infinity], "NaN \" Infinity": "NaN"}"#).unwrap();
        let node = Node::root(&value, Path::new("."));
        let numbers = node.required("a").unwrap().numbers().unwrap();
        assert!(numbers[0].is_nan());
        assert_eq!(numbers[1..], [f64::NEG_INFINITY, 1.5, f64::INFINITY]);
        assert!(node.field("NaN \" Infinity").unwrap().is_some());
        assert!(parse("{\"a\": nope}").unwrap_err().to_string().contains("JSON"));
    }

    #[test]
    fn places_are_named() {
        let value = parse(r#"{"a": [{"b": [1, "x"]}, 2], "n": -1, "f": {"npy": "../x.npy"}}"#).unwrap();
        let node = Node::root(&value, Path::new("."));
        let items = node.required("a").unwrap().items().unwrap();
        let error = |result: Result<Vec<f64>>| result.unwrap_err().to_string();
        let at = |item: &Node<'_>| error(item.required("b").and_then(|node| node.numbers()));
        assert!(at(&items[0]).starts_with("a[0].b[1]: "));
        assert!(at(&items[1]).starts_with("a[1]: expected an object"));
        assert!(node.required("c").unwrap_err().to_string().starts_with("c: is missing"));
        let n = node.required("n").unwrap();
        for error in [n.whole().unwrap_err(), n.positive().unwrap_err(), n.not_negative().unwrap_err()] {
            assert!(error.to_string().starts_with("n: "), "{error}");
        }
        assert!(error(node.required("f").and_then(|node| node.numbers())).contains("below"));
    }
}
