//! One line of CSV into its fields.
//!
//! A field may stand in double quotes, inside which separators count for nothing and two quotes mean one.
//! Blanks around a field do not belong to it.

use std::borrow::Cow;

pub type Field<'a> = Cow<'a, str>;

pub fn split(line: &str, separator: char) -> Result<Vec<Field<'_>>, &'static str> {
    let mut fields = Vec::new();
    let mut rest = line;
    loop {
        let trimmed = rest.trim_start_matches([' ', '\t']);
        let (field, after) = match trimmed.strip_prefix('"') {
            Some(inside) => {
                let (field, after) = quoted(inside)?;
                let after = after.trim_start();
                if !(after.is_empty() || after.starts_with(separator)) {
                    return Err("has text after a closing quote");
                }
                (field, after)
            }
            None => {
                let (field, after) = trimmed.split_at(trimmed.find(separator).unwrap_or(trimmed.len()));
                (Cow::Borrowed(field.trim()), after)
            }
        };
        fields.push(field);
        match after.strip_prefix(separator) {
            Some(after) => rest = after,
            None => return Ok(fields),
        }
    }
}

/// What stands before the closing quote, and what comes after it.
fn quoted(inside: &str) -> Result<(Field<'_>, &str), &'static str> {
    let mut from = 0;
    let mut doubled = false;
    while let Some(found) = inside.get(from..).and_then(|rest| rest.find('"')) {
        let at = from + found;
        let after = inside.get(at + 1..).unwrap_or_default();
        if !after.starts_with('"') {
            let field = inside.get(..at).unwrap_or_default();
            let field = if doubled { Cow::Owned(field.replace("\"\"", "\"")) } else { Cow::Borrowed(field) };
            return Ok((field, after));
        }
        doubled = true;
        from = at + 2;
    }
    Err("has a quote that is not closed")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{prop_assert_eq, proptest};

    use super::*;

    #[test]
    fn quotes_and_blanks() {
        let of = |line: &'static str, separator| split(line, separator).map(|fields| fields.join("|"));
        assert_eq!(of("39, State-gov, <=50K", ','), Ok("39|State-gov|<=50K".into()));
        assert_eq!(of(r#"58;"a;b";"say ""x""";"#, ';'), Ok(r#"58|a;b|say "x"|"#.into()));
        assert_eq!(of("", ','), Ok(String::new()));
        assert_eq!(of(",,", ','), Ok("||".into()));
        assert_eq!(of(r#""a"#, ','), Err("has a quote that is not closed"));
        assert_eq!(of(r#""a"b,c"#, ','), Err("has text after a closing quote"));
    }

    proptest! {
        #[test]
        fn what_is_quoted_comes_back(fields in proptest::collection::vec("[a-z\",; é]{0,6}", 1..6)) {
            let line: Vec<String> =
                fields.iter().map(|field| format!("\"{}\"", field.replace('"', "\"\""))).collect();
            let line = line.join(",");
            prop_assert_eq!(split(&line, ',').unwrap(), fields);
        }

        #[test]
        fn no_line_makes_it_panic(line: String) {
            let _ = split(&line, ',');
        }
    }
}
