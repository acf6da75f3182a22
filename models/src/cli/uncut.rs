//! The hidden axes that stay whole in every tier, as `inspect` and `check` show them.

use crate::{Graph, graph::Whole};
use serde::Serialize;

use super::table::Table;

#[derive(Debug, Serialize)]
pub struct WholeAxis {
    #[serde(flatten)]
    whole: Whole,
    /// Otherwise a rate below 1 is refused without `--keep-whole`.
    by_design: bool,
    /// In words.
    why: String,
}

impl WholeAxis {
    pub fn list(graph: &Graph) -> Vec<Self> {
        let row = |whole: &Whole| Self {
            by_design: whole.reason.is_by_design(),
            why: whole.reason.to_string(),
            whole: whole.clone(),
        };
        graph.whole().iter().map(row).collect()
    }
}

pub fn whole_table(axes: &[WholeAxis]) -> Table {
    let mut table = Table::new(4, &["stays whole", "units", "at", "because"]);
    for axis in axes {
        let refused = if axis.by_design { "" } else { " (rates below 1 need --keep-whole)" };
        let why = format!("{}{refused}", axis.why);
        table.row([axis.whole.layers.join(", "), axis.whole.width.to_string(), axis.whole.node.clone(), why]);
    }
    table
}
