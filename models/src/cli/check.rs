//! The results of `fairtier model check`, as a table or JSON.

use std::fmt;

use crate::{
    Graph, TierSpec,
    check::{Agreement, TierCheck, has_tract},
};
use serde::Serialize;

use super::{
    table::{Table, grouped},
    uncut::{UncutAxisRow, uncut_table},
};

const NOTHING_TO_CUT: &str = "no hidden axis can be cut, so rates below 1 are refused";
const NO_TRACT: &str = "this build has no tract, so outputs were not compared with it; build with \
                        `cargo build --release --features infer`";

#[derive(Debug, Serialize)]
pub struct CheckReport {
    model: String,
    /// Why the model cannot be used at all.
    refused: Option<String>,
    tract: bool,
    right: bool,
    tiers: Vec<TierCheck>,
    /// Hidden axes that no tier cuts.
    whole: Vec<UncutAxisRow>,
    notes: Vec<String>,
}

impl CheckReport {
    pub fn refused(model: &str, reason: String) -> Self {
        let (model, refused) = (model.to_owned(), Some(reason));
        let tract = has_tract();
        Self { model, refused, tract, right: false, tiers: vec![], whole: vec![], notes: vec![] }
    }

    pub fn new(model: &str, graph: &Graph, tiers: Vec<TierCheck>, notes: &[String]) -> Self {
        let right = tiers.iter().all(TierCheck::is_right);
        let mut notes = notes.to_vec();
        notes.extend(tiers.iter().filter_map(|tier| tier.note.clone()));
        if graph.full().widths().iter().all(|&width| width == 1) {
            notes.push(NOTHING_TO_CUT.to_owned());
        }
        if !has_tract() {
            notes.push(NO_TRACT.to_owned());
        }
        let (model, whole) = (model.to_owned(), UncutAxisRow::list(graph));
        Self { model, refused: None, tract: has_tract(), right, tiers, whole, notes }
    }

    pub fn is_right(&self) -> bool {
        self.right
    }
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(reason) = &self.refused {
            return writeln!(f, "{}: not supported: {reason}", self.model);
        }
        let verdict = if self.right { "right" } else { "WRONG" };
        writeln!(f, "{}: supported; largest errors per tier ({verdict}):", self.model)?;
        let header = ["tier", "parameters", "outputs (tract)", "gradients (numeric)", "f32 (f64)", "verdict"];
        let mut table = Table::new(1, &header);
        for tier in &self.tiers {
            table.row([
                title(&tier.spec),
                grouped(tier.parameters as u64),
                error(tier.forward.as_ref()),
                error(tier.gradient.as_ref()),
                error(tier.arithmetic.as_ref()),
                if tier.is_right() { "right" } else { "WRONG" }.to_owned(),
            ]);
        }
        write!(f, "{table}")?;
        for tier in &self.tiers {
            let title = title(&tier.spec);
            if let Some(problem) = &tier.problem {
                writeln!(f, "tier {title}: {problem}")?;
            }
            let checks =
                [("outputs", &tier.forward), ("gradients", &tier.gradient), ("f32", &tier.arithmetic)];
            for (what, wrong) in checks.into_iter().filter_map(|(what, found)| Some((what, found.as_ref()?)))
            {
                if !wrong.is_right() {
                    let Agreement { error, limit, at } = wrong;
                    writeln!(f, "tier {title}: {what} are off by {error:.1e} (limit {limit:.0e}) at {at}")?;
                }
            }
        }
        if !self.whole.is_empty() {
            write!(f, "\n{}", uncut_table(&self.whole))?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "note: {note}"))
    }
}

fn title(spec: &TierSpec) -> String {
    match spec {
        TierSpec::Rate(rate) | TierSpec::Partly { rate, .. } => rate.to_string(),
        TierSpec::Widths { widths, .. } => format!("{widths:?}"),
    }
}

fn error(agreement: Option<&Agreement>) -> String {
    agreement.map_or_else(|| "-".to_owned(), |agreement| format!("{:.1e}", agreement.error))
}
