//! The hidden axes that stay whole in every tier, as `inspect` and `check` show them.

use crate::{Graph, graph::UncutAxis};
use serde::Serialize;

use super::table::Table;

#[derive(Debug, Serialize)]
pub struct UncutAxisRow {
    #[serde(flatten)]
    axis: UncutAxis,
    /// False if a rate below 1 is refused without `--keep-whole`.
    by_design: bool,
    /// In words.
    why: String,
}

impl UncutAxisRow {
    pub fn list(graph: &Graph) -> Vec<Self> {
        let row = |axis: &UncutAxis| Self {
            by_design: axis.reason.is_by_design(),
            why: axis.reason.to_string(),
            axis: axis.clone(),
        };
        graph.uncut_axes().iter().map(row).collect()
    }
}

pub fn uncut_table(axes: &[UncutAxisRow]) -> Table {
    let mut table = Table::new(4, &["stays whole", "units", "at", "because"]);
    for row in axes {
        let refused = if row.by_design { "" } else { " (rates below 1 need --keep-whole)" };
        let why = format!("{}{refused}", row.why);
        table.row([row.axis.layers.join(", "), row.axis.width.to_string(), row.axis.node.clone(), why]);
    }
    table
}
