//! Which field of a line belongs to which column of the schema.

use super::{Kind, Schema, Targets, nearest::hint};
use crate::data::load::CsvRow;

/// Why the first line of a file does not fit.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant has its message")]
pub enum HeaderError {
    #[error(
        "has no header, because it holds numbers only; name the columns, or set `header = false` in [data]"
    )]
    Numbers,
    #[error(
        "is the header, but the schema says `header = false`; set `header = true` in [data] or remove the line"
    )]
    Unexpected,
    #[error("has no column `{name}`{hint}; add it, or correct its name in [data]")]
    NoColumn { name: String, hint: String },
    #[error(
        "column {number} (`{name}`) is not in the schema{hint}; add it to [data] with type \"ignored\", or set `extra = \"ignore\"`"
    )]
    Extra { number: usize, name: String, hint: String },
    #[error("columns {first} and {second} are both called `{name}`; give each its own name")]
    Twice { first: usize, second: usize, name: String },
    #[error(
        "is of a CSV file, but column `{0}` of the schema is an array; give an .npz file or a folder of images"
    )]
    Array(String),
    #[error(
        "has {got} columns, the schema has {expected}; without a header all must be there, in the same order"
    )]
    Count { got: usize, expected: usize },
}

/// For every column of the schema the field that holds it; `None` for one that may be absent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Places {
    /// Fields per line.
    pub(super) fields: usize,
    pub(super) at: Vec<Option<usize>>,
}

impl Places {
    /// By name, from the header.
    pub(super) fn named(schema: &Schema, header: &CsvRow, targets: Targets) -> Result<Self, HeaderError> {
        refuse_arrays(schema)?;
        let position = |name: &str| header.iter().position(|field| field == name);
        if header.iter().all(|field| field.parse::<f64>().is_ok())
            && !schema.columns.iter().any(|column| position(&column.name).is_some())
        {
            return Err(HeaderError::Numbers);
        }
        for (second, name) in header.iter().enumerate() {
            match position(name) {
                Some(first) if first < second && schema.columns.iter().any(|column| column.name == name) => {
                    let (first, second) = (first + 1, second + 1);
                    return Err(HeaderError::Twice { first, second, name: name.to_owned() });
                }
                _ => {}
            }
        }
        let mut at = Vec::with_capacity(schema.columns.len());
        for column in &schema.columns {
            let found = position(&column.name);
            let divides = schema.window.as_ref().and_then(|window| window.within.as_ref());
            if found.is_none() && (!may_be_absent(&column.kind, targets) || divides == Some(&column.name)) {
                let hint = hint(&column.name, header.iter());
                return Err(HeaderError::NoColumn { name: column.name.clone(), hint });
            }
            at.push(found);
        }
        if !schema.ignore_extra {
            let known = |name: &str| schema.columns.iter().any(|column| column.name == name);
            if let Some((at, name)) = header.iter().enumerate().find(|(_, name)| !known(name)) {
                let hint = hint(name, schema.columns.iter().map(|column| column.name.as_str()));
                return Err(HeaderError::Extra { number: at + 1, name: name.to_owned(), hint });
            }
        }
        Ok(Self { fields: header.len(), at })
    }

    /// In the order of the schema, from the first line of a file without a header.
    pub(super) fn ordered(schema: &Schema, first: &CsvRow, targets: Targets) -> Result<Self, HeaderError> {
        refuse_arrays(schema)?;
        let all = schema.columns.len();
        if first.len() == all && schema.columns.iter().zip(first).all(|(column, field)| column.name == field)
        {
            return Err(HeaderError::Unexpected);
        }
        let is_input = |kind: &Kind| !may_be_absent(kind, targets) || *kind == Kind::Ignored;
        let inputs = schema.columns.iter().filter(|column| is_input(&column.kind)).count();
        let mut fields = 0..;
        let at = match first.len() {
            got if got == all || (got > all && schema.ignore_extra) => (0..all).map(Some).collect(),
            got if got == inputs => {
                schema.columns.iter().map(|column| fields.next_if(is_input(&column.kind))).collect()
            }
            got => return Err(HeaderError::Count { got, expected: all }),
        };
        Ok(Self { fields: first.len(), at })
    }
}

fn refuse_arrays(schema: &Schema) -> Result<(), HeaderError> {
    let array = schema.columns.iter().find(|column| matches!(column.kind, Kind::Array { .. }));
    array.map_or(Ok(()), |column| Err(HeaderError::Array(column.name.clone())))
}

/// A counter that advances only when asked to.
trait NextIf {
    fn next_if(&mut self, wanted: bool) -> Option<usize>;
}

impl NextIf for std::ops::RangeFrom<usize> {
    fn next_if(&mut self, wanted: bool) -> Option<usize> {
        if wanted { self.next() } else { None }
    }
}

/// Ignored columns are needed in no file; labels, targets and attributes not where a model only predicts.
fn may_be_absent(kind: &Kind, targets: Targets) -> bool {
    match kind {
        Kind::Ignored => true,
        Kind::Label { .. } | Kind::Target { .. } | Kind::Attribute { .. } => targets == Targets::Optional,
        Kind::Number { .. } | Kind::Category { .. } | Kind::Array { .. } => false,
    }
}
