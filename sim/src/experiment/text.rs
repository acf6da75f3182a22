//! Experiments as TOML tables: merging of profiles, and overrides of single keys.

use toml::{Table, Value};
use trainer::data::schema::nearest::hint;

/// Why a key of an experiment cannot be set.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant has its message")]
pub enum KeyError {
    #[error("`{0}`: expected KEY=VALUE, as in rounds=10 or strategies.fair.params.q=1")]
    Form(String),
    #[error("`{key}`: there is no `{part}`{hint}; lists take a number or the id of an entry")]
    Nothing { key: String, part: String, hint: String },
    #[error("`{key}`: `{part}` is neither a table nor a list")]
    Leaf { key: String, part: String },
}

/// Merges `over` into `base`: tables are merged, everything else is replaced. A table over a list is merged into its
/// entries by their ids.
pub fn merge(base: &mut Table, over: &Table) {
    for (key, value) in over {
        match (base.get_mut(key), value) {
            (Some(Value::Table(base)), Value::Table(over)) => merge(base, over),
            (Some(Value::Array(list)), Value::Table(over)) => {
                for (id, over) in over {
                    let entry = position(list, id).and_then(|at| list.get_mut(at));
                    match (entry, over) {
                        (Some(Value::Table(entry)), Value::Table(over)) => merge(entry, over),
                        // An unknown id is appended; parsing the list then reports the missing keys.
                        _ => list.push(over.clone()),
                    }
                }
            }
            _ => {
                base.insert(key.clone(), value.clone());
            }
        }
    }
}

/// Splits `KEY=VALUE`. The value is TOML, or else a string.
pub fn assignment(text: &str) -> Result<(String, Value), KeyError> {
    let (key, value) = text.split_once('=').ok_or_else(|| KeyError::Form(text.into()))?;
    if key.trim().is_empty() {
        return Err(KeyError::Form(text.into()));
    }
    Ok((key.trim().into(), parse(value.trim())))
}

/// Splits `KEY=VALUE,VALUE,...`; commas inside brackets do not separate values.
pub fn alternatives(text: &str) -> Result<(String, Vec<Value>), KeyError> {
    let (key, values) = text.split_once('=').ok_or_else(|| KeyError::Form(text.into()))?;
    let (mut parts, mut depth, mut part) = (Vec::new(), 0, String::new());
    for letter in values.chars() {
        match letter {
            '[' | '{' => depth += 1,
            ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(parse(part.trim()));
                part.clear();
                continue;
            }
            _ => {}
        }
        part.push(letter);
    }
    parts.push(parse(part.trim()));
    Ok((key.trim().into(), parts))
}

fn parse(text: &str) -> Value {
    let read = |text: &str| text.parse::<Table>().ok().and_then(|mut table| table.remove("value"));
    read(&format!("value = {text}")).unwrap_or_else(|| Value::String(text.into()))
}

/// Sets a dotted key. Missing tables are created; entries of lists must exist.
pub fn set(table: &mut Table, key: &str, value: Value) -> Result<(), KeyError> {
    let parts: Vec<&str> = key.split('.').collect();
    let Some((last, path)) = parts.split_last() else { return Err(KeyError::Form(key.into())) };
    let mut place = &mut Value::Table(std::mem::take(table));
    let mut root = std::mem::replace(place, Value::Boolean(false));
    place = &mut root;
    let outcome = descend(place, key, path).and_then(|place| put(place, key, last, value));
    if let Value::Table(root) = root {
        *table = root;
    }
    outcome
}

fn descend<'a>(mut place: &'a mut Value, key: &str, path: &[&str]) -> Result<&'a mut Value, KeyError> {
    for part in path {
        place = match place {
            Value::Table(table) => table.entry(part.to_owned()).or_insert_with(|| Value::Table(Table::new())),
            Value::Array(list) => {
                let at = position(list, part);
                let nothing = nothing(list, key, part);
                at.and_then(|at| list.get_mut(at)).ok_or(nothing)?
            }
            _ => return Err(KeyError::Leaf { key: key.into(), part: (*part).into() }),
        };
    }
    Ok(place)
}

fn put(place: &mut Value, key: &str, part: &str, value: Value) -> Result<(), KeyError> {
    match place {
        Value::Table(table) => {
            table.insert(part.into(), value);
            Ok(())
        }
        Value::Array(list) => {
            let nothing = nothing(list, key, part);
            let slot = position(list, part).and_then(|at| list.get_mut(at));
            *slot.ok_or(nothing)? = value;
            Ok(())
        }
        _ => Err(KeyError::Leaf { key: key.into(), part: part.into() }),
    }
}

fn nothing(list: &[Value], key: &str, part: &str) -> KeyError {
    let known = list.iter().filter_map(|value| value.get("id")?.as_str());
    KeyError::Nothing { key: key.into(), part: part.into(), hint: hint(part, known) }
}

/// Index of an entry by its number or its id.
fn position(list: &[Value], part: &str) -> Option<usize> {
    let named = |value: &Value| value.get("id").and_then(Value::as_str) == Some(part);
    part.parse().ok().or_else(|| list.iter().position(named))
}

/// The value as part of a file name.
pub fn plain(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let legal =
        |letter: char| if letter.is_ascii_alphanumeric() || ".-_".contains(letter) { letter } else { '_' };
    text.chars().map(legal).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> Table {
        text.parse().unwrap()
    }

    #[test]
    fn profiles_override_the_base() {
        let mut base = table("rounds = 1\n[data]\nset = 'a'\nclients = 3\n[list]\nx = [1, 2]");
        merge(&mut base, &table("rounds = 2\n[data]\nclients = 5\n[list]\nx = [3]\n[new]\ny = 1"));
        let expected = table("rounds = 2\n[data]\nset = 'a'\nclients = 5\n[list]\nx = [3]\n[new]\ny = 1");
        assert_eq!(base, expected);
        let mut base = table("s = [{ id = 'x', p = { q = [1, 2] } }, { id = 'y' }]");
        merge(&mut base, &table("[s.x.p]\nq = [3]"));
        assert_eq!(base, table("s = [{ id = 'x', p = { q = [3] } }, { id = 'y' }]"));
    }

    #[test]
    fn keys_are_set_in_tables_and_lists() {
        let mut base = table("a = 1\n[[s]]\nid = 'x'\n[[s]]\nid = 'y'\np = { q = 1 }");
        for line in ["a=2.5", "s.1.p.q=[1, 2]", "s.x.p.q=word", "b.c=true"] {
            let (key, value) = assignment(line).unwrap();
            set(&mut base, &key, value).unwrap();
        }
        let expected = "a = 2.5\nb = { c = true }\n[[s]]\nid = 'x'\np = { q = 'word' }\n[[s]]\nid = 'y'\np = { q = [1, 2] }";
        assert_eq!(base, table(expected));
        let before = base.clone();
        assert!(set(&mut base, "s.7.p", true.into()).unwrap_err().to_string().contains("`7`"));
        assert!(set(&mut base, "a.b", true.into()).unwrap_err().to_string().contains("neither"));
        assert_eq!(base, before);
        assert!(assignment("rounds").is_err() && assignment("=3").is_err());
    }

    #[test]
    fn alternatives_are_divided_by_commas() {
        let (key, values) = alternatives("s.0.q=0, 1,[2, 3],x").unwrap();
        assert_eq!((key.as_str(), values.len()), ("s.0.q", 4));
        assert_eq!(values[2], Value::Array(vec![2.into(), 3.into()]));
    }
}
