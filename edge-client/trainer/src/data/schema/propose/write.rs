//! The commented TOML of a proposal.

use std::fmt::Write;

use toml::Value;

use super::Proposal;
use crate::data::schema::{MISSING, SchemaText, Task};

impl Proposal {
    /// The table `[data]`, with what was seen of each column as a comment.
    pub fn toml(&self) -> Result<String, toml::ser::Error> {
        let schema = &self.schema;
        let table = toml::Table::try_from(SchemaText::from(schema))?;
        let mut text = String::new();
        let outputs = match schema.task {
            Task::Classification => format!("{} classes", schema.outputs()),
            Task::Binary => "1 output, the logit of the second class".to_owned(),
            Task::Regression => format!("{} number(s)", schema.outputs()),
        };
        let _ = writeln!(
            text,
            "# {} samples. The model needs {} inputs and {outputs}.",
            self.rows,
            schema.inputs()
        );
        let missing = MISSING.map(|missing| format!("\"{missing}\"")).join(", ");
        let _ = writeln!(text, "# A missing value is one of {missing}.");
        let _ = writeln!(text, "[data]\ntask = \"{}\"", schema.task.word());
        if !schema.header {
            text += "header = false  # columns are taken in the order of this list\n";
        }
        text += "columns = [\n";
        let columns = table.get("columns").and_then(Value::as_array);
        for (column, remark) in columns.into_iter().flatten().zip(&self.remarks) {
            let _ = write!(text, "  {},", inline(column));
            let _ = if remark.is_empty() { writeln!(text) } else { writeln!(text, "  # {remark}") };
        }
        text += "]\n";
        Ok(text)
    }
}

/// The keys of a column, in the order they are written. Tables of TOML are sorted by name otherwise.
const KEYS: [&str; 12] = [
    "name",
    "type",
    "levels",
    "classes",
    "shape",
    "missing",
    "constant",
    "scaling",
    "mean",
    "deviation",
    "min",
    "max",
];

/// A column or its scaling on one line.
fn inline(value: &Value) -> String {
    let Some(table) = value.as_table() else { return value.to_string() };
    let keys =
        KEYS.iter().filter_map(|key| table.get(*key).map(|value| format!("{key} = {}", inline(value))));
    format!("{{ {} }}", keys.collect::<Vec<_>>().join(", "))
}
