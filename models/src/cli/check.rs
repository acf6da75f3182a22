//! The results of `fairtier model check`, as a table or JSON.

use std::fmt;

use crate::{
    Graph, TierSpec,
    check::{Agreement, TierCheck, has_tract},
    onnx::ImportError,
};
use serde::Serialize;

use super::{
    inspect::TierNeeds,
    table::{Table, grouped},
    uncut::{UncutAxisRow, uncut_table},
};

/// As `inspect` counts memory by default.
const BATCH: u16 = 16;

const NOTHING_TO_CUT: &str = "no hidden axis can be cut, so rates below 1 are refused";
const NO_TRACT: &str = "this build has no tract, so outputs were not compared with it; build with \
                        `cargo build --release --features infer`";

#[derive(Debug, Serialize)]
pub struct CheckReport {
    model: String,
    /// Why the model cannot be used at all.
    refused: Option<String>,
    /// The node that is the reason.
    node: Option<RefusedNode>,
    /// The nearest change that would work.
    advice: Option<&'static str>,
    tract: bool,
    right: bool,
    tiers: Vec<TierRow>,
    /// Samples per batch for which memory is counted.
    batch: u16,
    /// What export puts back behind the logits.
    ends_with: Option<String>,
    /// Hidden axes that no tier cuts.
    whole: Vec<UncutAxisRow>,
    notes: Vec<String>,
}

#[derive(Debug, Serialize)]
struct TierRow {
    #[serde(flatten)]
    check: TierCheck,
    /// Of the training arena; absent where the tier cannot be compiled.
    ram_bytes: Option<u64>,
}

/// A node that is not supported.
#[derive(Debug, Serialize)]
struct RefusedNode {
    name: String,
    op: String,
    /// Names and shapes of what it reads.
    inputs: Vec<String>,
}

impl RefusedNode {
    fn of(error: &ImportError) -> Option<Self> {
        match error {
            ImportError::Op { node, op, inputs } | ImportError::Node { node, op, inputs, .. } => {
                Some(Self { name: node.clone(), op: op.clone(), inputs: inputs.clone() })
            }
            _ => None,
        }
    }
}

impl CheckReport {
    /// `error` is the reason if it is in the model, not in its files.
    pub fn refused(model: &str, reason: String, error: Option<&ImportError>) -> Self {
        Self {
            model: model.to_owned(),
            refused: Some(reason),
            node: error.and_then(RefusedNode::of),
            advice: error.and_then(ImportError::advice),
            tract: has_tract(),
            right: false,
            tiers: vec![],
            batch: BATCH,
            ends_with: None,
            whole: vec![],
            notes: vec![],
        }
    }

    pub fn new(model: &str, graph: &Graph, checks: Vec<TierCheck>, notes: &[String]) -> Self {
        let ram = |(tier, check): (usize, &TierCheck)| {
            TierNeeds::of(graph, tier, &check.spec, BATCH).ok().map(|needs| needs.train_arena_bytes)
        };
        let rams: Vec<Option<u64>> = checks.iter().enumerate().map(ram).collect();
        let tiers: Vec<TierRow> =
            checks.into_iter().zip(rams).map(|(check, ram_bytes)| TierRow { check, ram_bytes }).collect();
        let right = tiers.iter().all(|tier| tier.check.is_right());
        let mut notes = notes.to_vec();
        notes.extend(tiers.iter().filter_map(|tier| tier.check.note.clone()));
        if graph.full().widths().iter().all(|&width| width == 1) {
            notes.push(NOTHING_TO_CUT.to_owned());
        }
        if !has_tract() {
            notes.push(NO_TRACT.to_owned());
        }
        Self {
            model: model.to_owned(),
            refused: None,
            node: None,
            advice: None,
            tract: has_tract(),
            right,
            tiers,
            batch: BATCH,
            ends_with: ending(graph),
            whole: UncutAxisRow::list(graph),
            notes,
        }
    }

    pub fn is_right(&self) -> bool {
        self.right
    }
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(reason) = &self.refused {
            writeln!(f, "{}: not supported: {reason}", self.model)?;
            if let Some(node) = &self.node {
                writeln!(f, "  node   {} ({})", node.name, node.op)?;
                writeln!(f, "  reads  {}", node.inputs.join(", "))?;
            }
            return self.advice.iter().try_for_each(|advice| writeln!(f, "  try    {advice}"));
        }
        let verdict = match self.tiers.iter().all(|tier| tier.check.agrees()) {
            true if self.right => "right",
            true => "a tier is not checked",
            false => "WRONG",
        };
        writeln!(
            f,
            "{}: supported; largest errors per tier ({verdict}), RAM to train at batch {}:",
            self.model, self.batch
        )?;
        let header =
            ["tier", "params", "RAM B", "outputs (tract)", "gradients (diff)", "f32 (f64)", "verdict"];
        let mut table = Table::new(1, &header);
        for TierRow { check: tier, ram_bytes } in &self.tiers {
            table.row([
                title(&tier.spec),
                grouped(tier.parameters as u64),
                ram_bytes.map_or_else(|| "-".to_owned(), grouped),
                error(tier.forward.as_ref()),
                error(tier.gradient.as_ref()),
                error(tier.arithmetic.as_ref()),
                tier_verdict(tier).to_owned(),
            ]);
        }
        write!(f, "{table}")?;
        for TierRow { check: tier, .. } in &self.tiers {
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
        if let Some(end) = &self.ends_with {
            writeln!(f, "kept behind the logits, not trained: {end}")?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "note: {note}"))
    }
}

fn tier_verdict(tier: &TierCheck) -> &'static str {
    match tier.agrees() {
        true if tier.is_right() => "right",
        true => "not checked",
        false => "WRONG",
    }
}

/// What follows the logits in the file.
fn ending(graph: &Graph) -> Option<String> {
    let tail = graph.output().tail?.op_type().to_owned();
    let label = graph.output().labels.as_ref().map(|labels| {
        let maps = if labels.mapped { ", maps of probabilities" } else { "" };
        let label = labels.output.as_ref().map_or_else(String::new, |name| format!(", label '{name}'"));
        format!("{label}{maps}, {} classes", labels.classes.len())
    });
    Some(tail + &label.unwrap_or_default())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        check::{CheckOptions, check},
        zoo,
    };

    #[test]
    fn a_tier_that_cannot_be_cut_is_not_wrong() {
        let (graph, parameters) = zoo::build("mlp:4-3", 0).unwrap();
        let report = |rates: &[f64]| {
            let specs = rates.iter().map(|&rate| TierSpec::Rate(rate));
            let checks = specs.map(|spec| check(&graph, &parameters, None, &spec, &CheckOptions::default()));
            CheckReport::new("m", &graph, checks.collect(), &[])
        };
        assert!(report(&[1.0]).is_right());
        let uncut = report(&[1.0, 0.5]);
        let text = uncut.to_string();
        assert!(!uncut.is_right());
        assert!(text.contains("(a tier is not checked)") && !text.contains("WRONG"), "{text}");
    }
}
