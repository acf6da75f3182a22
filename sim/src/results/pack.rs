//! Tables in JSON: a list of objects with the same keys names the keys once.
//!
//! ```text
//! [{"a": 1, "b": 2}, {"a": 3, "b": 4}]    {"columns": ["a", "b"], "rows": [[1, 2], [3, 4]]}
//! ```

use serde_json::{Map, Value};

const COLUMNS: &str = "columns";
const ROWS: &str = "rows";

/// Turns every such list into a table.
pub fn pack(value: Value) -> Value {
    match value {
        Value::Array(items) => {
            let items: Vec<Value> = items.into_iter().map(pack).collect();
            table(&items).unwrap_or(Value::Array(items))
        }
        Value::Object(fields) => fields.into_iter().map(|(key, value)| (key, pack(value))).collect(),
        other => other,
    }
}

/// The opposite. What is no table stays.
pub fn unpack(value: Value) -> Value {
    match value {
        Value::Object(mut fields) => match (fields.remove(COLUMNS), fields.remove(ROWS)) {
            (Some(Value::Array(columns)), Some(Value::Array(rows))) if fields.is_empty() => {
                rows.into_iter().map(|row| unpack(object(&columns, row))).collect()
            }
            (columns, rows) => {
                fields.extend(columns.map(|columns| (COLUMNS.into(), columns)));
                fields.extend(rows.map(|rows| (ROWS.into(), rows)));
                fields.into_iter().map(|(key, value)| (key, unpack(value))).collect()
            }
        },
        Value::Array(items) => items.into_iter().map(unpack).collect(),
        other => other,
    }
}

/// `None` for fewer than two items, and for items with other keys than the first.
fn table(items: &[Value]) -> Option<Value> {
    let [Value::Object(first), _, ..] = items else { return None };
    let columns: Vec<Value> = first.keys().cloned().map(Value::String).collect();
    let row = |item: &Value| {
        let fields = item.as_object().filter(|fields| fields.len() == first.len())?;
        first.keys().map(|key| fields.get(key).cloned()).collect::<Option<Vec<_>>>().map(Value::Array)
    };
    let rows: Option<Vec<Value>> = items.iter().map(row).collect();
    (!columns.is_empty()).then_some(())?;
    Some(Value::Object(Map::from_iter([(COLUMNS.into(), columns.into()), (ROWS.into(), rows?.into())])))
}

fn object(columns: &[Value], row: Value) -> Value {
    let Value::Array(cells) = row else { return row };
    columns.iter().filter_map(|key| key.as_str()).map(str::to_owned).zip(cells).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tables_are_packed_and_unpacked() {
        let plain = json!({"list": [{"a": 1, "in": [{"b": 2}, {"b": 3}]}, {"a": 4, "in": []}], "n": [1, 2]});
        let packed = json!({
            "list": {"columns": ["a", "in"], "rows": [[1, {"columns": ["b"], "rows": [[2], [3]]}], [4, []]]},
            "n": [1, 2],
        });
        assert_eq!(pack(plain.clone()), packed);
        assert_eq!(unpack(packed), plain);
    }

    #[test]
    fn what_is_no_table_stays() {
        for plain in [
            json!([]),
            json!([{"a": 1}]),
            json!([{"a": 1}, {"b": 1}]),
            json!([{"a": 1}, {"a": 1, "b": 2}]),
            json!([{"a": 1}, 2]),
            json!([{}, {}]),
            json!({"columns": ["a"]}),
            json!({"columns": 1, "rows": [1]}),
            json!(null),
        ] {
            assert_eq!(pack(plain.clone()), plain);
            assert_eq!(unpack(plain.clone()), plain);
        }
    }
}
