//! ARFF, the format of Weka, with the features that the data sets use.
//!
//! ```text
//! % comment
//! @relation name
//! @attribute name numeric | real | integer | {value, value, ...}
//! @data
//! value, value, ...      ? where it is missing
//! ```

use std::path::Path;

use trainer::data::load::{CsvRow, CsvRows};

use super::{
    divide,
    encode::{self, Column},
};
use crate::data::{DataSet, Records, SetError, source};

/// Columns with their names. A nominal value is stored as its index in the list of values.
#[derive(Debug, Default)]
struct Arff {
    attributes: Vec<Attribute>,
}

#[derive(Debug)]
struct Attribute {
    name: String,
    /// Values of a nominal attribute; empty for numbers.
    values: Vec<String>,
    /// NaN if a value is missing.
    rows: Vec<f32>,
}

/// Windows of 10 s from a phone in a pocket, as 43 features; clients are people.
pub fn wisdm(name: &str, path: &Path, seed: u64) -> Result<DataSet, SetError> {
    let arff = read(path)?;
    let missing = |what: &str| SetError::format(path, format!("has no nominal attribute `{what}`"));
    let nominal = |what: &str| {
        let found = arff.attributes.iter().find(|attribute| attribute.name.eq_ignore_ascii_case(what));
        found.filter(|attribute| !attribute.values.is_empty()).ok_or_else(|| missing(what))
    };
    let (user, class) = (nominal("user")?, nominal("class")?);
    let known = |attribute: &Attribute| {
        let whole = |(row, &value): (usize, &f32)| {
            let problem = || format!("`{}` of row {} is missing", attribute.name, row + 1);
            if value.is_finite() { Ok(value as u32) } else { Err(SetError::format(path, problem())) }
        };
        attribute.rows.iter().enumerate().map(whole).collect::<Result<Vec<u32>, _>>()
    };
    let (users, classes) = (known(user)?, known(class)?);
    let features = arff
        .attributes
        .iter()
        .filter(|attribute| attribute.values.is_empty() && !attribute.name.eq_ignore_ascii_case("unique_id"));
    let columns: Vec<Column> = features.map(|attribute| Column::Numbers(attribute.rows.clone())).collect();
    let (train, test) = divide(classes.len(), seed);
    let encoded = encode::encode(&columns, &train, &test);
    let of = |rows: &[u32], features| {
        let pick = |from: &[u32]| rows.iter().filter_map(|&row| from.get(row as usize).copied()).collect();
        Records::new(features, pick(&classes), encoded.inputs, 1)?.with_clients(pick(&users))
    };
    let set = of(&train, encoded.train).and_then(|train| {
        let test = of(&test, encoded.test)?;
        DataSet::new(name, vec![encoded.inputs], class.values.len() as u32, train, test)?
            .with_client_names(user.values.clone())
    });
    let set = set.map_err(|source| SetError::Data { name: name.into(), source })?;
    Ok(DataSet { class_names: class.values.clone(), ..set })
}

fn read(path: &Path) -> Result<Arff, SetError> {
    let mut source = source::open(path)?;
    let (mut buffer, mut number) = (String::new(), 0);
    let mut arff = Arff::default();
    while let Some(line) = source.line(&mut buffer)? {
        number += 1;
        let line = line.trim();
        let wrong = |problem: String| SetError::line(path, number, problem);
        if line.is_empty() || line.starts_with('%') {
            continue;
        }
        let (keyword, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        match keyword.to_ascii_lowercase().as_str() {
            "@relation" => {}
            "@attribute" => arff.attributes.push(attribute(rest.trim()).map_err(wrong)?),
            "@data" => break,
            _ => return Err(wrong("is neither @relation, @attribute nor @data".into())),
        }
    }
    let mut rows = CsvRows::new(source, b',', Some(b'%')).after(number);
    while let Some((line, row)) = rows.read()? {
        arff.add(row).map_err(|problem| SetError::line(path, line, problem))?;
    }
    if arff.attributes.first().is_none_or(|attribute| attribute.rows.is_empty()) {
        return Err(SetError::format(path, "holds no rows after @data"));
    }
    Ok(arff)
}

fn attribute(text: &str) -> Result<Attribute, String> {
    let quote = text.chars().next().filter(|first| matches!(first, '"' | '\''));
    let (name, kind) = match quote {
        Some(quote) => text.get(1..).and_then(|rest| rest.split_once(quote)),
        None => text.find([' ', '\t', '{']).map(|end| text.split_at(end)),
    }
    .ok_or("names an attribute without a type")?;
    let kind = kind.trim();
    let values = match kind.strip_prefix('{').map(|list| list.strip_suffix('}')) {
        Some(Some(list)) => {
            list.split(',').map(|value| value.trim().trim_matches(['"', '\'']).to_owned()).collect()
        }
        Some(None) => return Err("has a list of values that is not closed on the same line".into()),
        None if ["numeric", "real", "integer"].iter().any(|known| kind.eq_ignore_ascii_case(known)) => vec![],
        None => return Err("has a type other than numeric or a list of values".into()),
    };
    Ok(Attribute { name: name.into(), values, rows: Vec::new() })
}

impl Arff {
    fn add(&mut self, fields: &CsvRow) -> Result<(), String> {
        if fields.len() != self.attributes.len() {
            return Err(format!("has {} values for {} attributes", fields.len(), self.attributes.len()));
        }
        for (attribute, field) in self.attributes.iter_mut().zip(fields) {
            let field = field.trim_matches('\'');
            let value = if field == "?" {
                Some(f32::NAN)
            } else if attribute.values.is_empty() {
                field.parse().ok().filter(|value: &f32| value.is_finite())
            } else {
                attribute.values.iter().position(|value| value == field).map(|place| place as f32)
            };
            attribute.rows.push(value.ok_or_else(|| format!("has no valid value for `{}`", attribute.name))?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const HEAD: &str = "% made for the test\n@relation x\n@attribute \"UNIQUE_ID\" numeric\n\
        @attribute \"user\" {1, 2,33}\n@attribute X0 REAL\n@attribute class {Walking,'Jogging'}\n\n@data\n";

    fn load(text: &str) -> Result<DataSet, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.arff");
        fs::write(&path, text).unwrap();
        wisdm("x", &path, 1).map_err(|error| error.to_string())
    }

    #[test]
    fn windows_by_person() {
        let rows: String = (0..10).map(|row| format!("{row},33,{row},Jogging\n")).collect();
        let set = load(&(HEAD.to_owned() + &rows + "10,1,?,Walking\n")).unwrap();
        assert_eq!((set.train.len(), set.test.len(), set.inputs(), set.classes), (8, 3, 1, 2));
        assert_eq!(&*set.client_names, ["1", "2", "33"]);
        let walkers = |part: &Records| {
            let both = part.labels().iter().zip(part.clients());
            both.filter(|(label, client)| **label == 0 && **client == 0).count()
        };
        assert_eq!(walkers(&set.train) + walkers(&set.test), 1);
        let (low, high) = set.train.features().range().unwrap();
        assert_eq!((low, high), (0.0, 1.0));
    }

    #[test]
    fn damage_is_reported_with_its_line() {
        let text = |rows: &str| load(&(HEAD.to_owned() + rows)).unwrap_err();
        assert!(text("1,33,0.5\n").contains("a.arff:9: has 3 values for 4 attributes"));
        assert!(
            text("1,33,0.5,Walking\n1,4,0.5,Walking\n").contains("a.arff:10: has no valid value for `user`")
        );
        assert!(text("1,33,inf,Walking\n").contains("a.arff:9: has no valid value for `X0`"));
        assert!(text("1,33,1,?\n").contains("`class` of row 1 is missing"));
        assert!(text("").contains("holds no rows"));
        assert!(load("hello\n").unwrap_err().contains("a.arff:1: is neither"));
        assert!(load("@attribute x\n").unwrap_err().contains("without a type"));
        assert!(load("@attribute x string\n").unwrap_err().contains("other than numeric"));
        assert!(load("@attribute x {a,b\n").unwrap_err().contains("not closed"));
        assert!(load("@attribute x real\n@data\n1\n").unwrap_err().contains("no nominal attribute `user`"));
    }
}
