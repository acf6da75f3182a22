//! From the text of one field to what it says.

use super::{Column, Kind, Missing, Schema, nearest::hint};

/// What a field says.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(super) enum Cell {
    /// A finite number, not scaled.
    Number(f32),
    /// Index of a level or class.
    Level(u32),
    /// Missing, and the schema says what replaces it.
    Missing,
    /// Not used, or absent where it may be.
    Unused,
}

/// Why a field does not fit its column.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant has its message")]
pub enum FieldError {
    #[error("has no value; fill it in, remove the line, or set `missing` of the column in [data]")]
    Missing,
    #[error(
        "has no value, and there is nothing to learn from the line without it; fill it in or remove the line"
    )]
    NoTarget,
    #[error("`{0}` is not a number; correct it, or make the column a category in [data]")]
    NotNumber(String),
    #[error("`{0}` has a decimal comma; write a point")]
    DecimalComma(String),
    #[error("`{0}` is not finite, or too large; correct it")]
    NotFinite(String),
    #[error("`{text}` is none of the {count} {what} in the schema{hint}; correct it, or add it to [data]")]
    Unknown { text: String, what: &'static str, count: usize, hint: String },
}

impl Schema {
    /// Reads a field of a column.
    pub(super) fn cell(&self, column: &Column, field: &str) -> Result<Cell, FieldError> {
        let missing = self.is_missing(field);
        let allowed = |allowed: bool| if allowed { Ok(Cell::Missing) } else { Err(FieldError::Missing) };
        match &column.kind {
            // `Places` refuses CSV files for schemas with arrays.
            Kind::Ignored | Kind::Array { .. } => Ok(Cell::Unused),
            Kind::Number { missing: rule, .. } if missing => allowed(*rule != Missing::Refuse),
            Kind::Category { missing: rule, .. } if missing => allowed(*rule != Missing::Refuse),
            Kind::Label { .. } | Kind::Target { .. } if missing => Err(FieldError::NoTarget),
            Kind::Attribute { .. } if missing => Err(FieldError::Missing),
            Kind::Number { .. } | Kind::Target { .. } => number(field).map(Cell::Number),
            Kind::Category { levels, .. } | Kind::Attribute { levels } => level(field, levels, "levels"),
            Kind::Label { classes } => level(field, classes, "classes"),
        }
    }
}

fn number(field: &str) -> Result<f32, FieldError> {
    match field.parse::<f64>() {
        Ok(value) if (value as f32).is_finite() => Ok(value as f32),
        Ok(_) => Err(FieldError::NotFinite(excerpt(field))),
        Err(_) if has_decimal_comma(field) => Err(FieldError::DecimalComma(excerpt(field))),
        Err(_) => Err(FieldError::NotNumber(excerpt(field))),
    }
}

pub(super) fn has_decimal_comma(field: &str) -> bool {
    field.contains(',') && field.replacen(',', ".", 1).parse::<f64>().is_ok()
}

/// The same word, or the same number in another notation: `1.0` is `1`.
fn level(field: &str, levels: &[String], what: &'static str) -> Result<Cell, FieldError> {
    let exact = levels.iter().position(|level| level == field);
    let same = || {
        let value: f64 = field.parse().ok()?;
        levels.iter().position(|level| level.parse() == Ok(value))
    };
    match exact.or_else(same) {
        Some(at) => Ok(Cell::Level(at as u32)),
        None => {
            let hint = hint(field, levels.iter().map(String::as_str));
            Err(FieldError::Unknown { text: excerpt(field), what, count: levels.len(), hint })
        }
    }
}

/// Shortens a field, because a damaged file may be one very long line.
pub(super) fn excerpt(field: &str) -> String {
    match field.char_indices().nth(40) {
        Some((end, _)) => format!("{}..", &field[..end]),
        None => field.to_owned(),
    }
}
