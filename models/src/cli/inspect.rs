//! The description of a model by `fairtier model inspect`, as text or JSON.

use std::fmt;

use crate::{
    Graph, TierSpec,
    graph::ValueId,
    plan::{CompileError, PlanMode, PlanOptions, compile},
};
use common::{Dim, TensorShape, WidthMask};
use serde::Serialize;

use super::{
    table::{Table, grouped},
    uncut::{UncutAxisRow, uncut_table},
};

#[derive(Debug, Serialize)]
pub struct Inspection {
    name: String,
    /// Digest of structure and full widths.
    digest: String,
    input: ValueRow,
    output: ValueRow,
    /// The operation after the logits in the file.
    tail: Option<&'static str>,
    nodes: Vec<NodeRow>,
    params: Vec<ParamRow>,
    axes: Vec<AxisRow>,
    /// Hidden axes that no tier cuts.
    whole: Vec<UncutAxisRow>,
    batch: u16,
    tiers: Vec<TierNeeds>,
    /// Tiers that cannot be cut out of the model.
    refused: Vec<RefusedTier>,
    notes: Vec<String>,
}

#[derive(Debug, Serialize)]
struct ValueRow {
    name: String,
    /// Per sample.
    shape: Vec<usize>,
}

#[derive(Debug, Serialize)]
struct NodeRow {
    name: String,
    op: &'static str,
    inputs: Vec<String>,
    shape: Vec<usize>,
    /// Hidden axis of the outputs.
    axis: Option<u8>,
}

#[derive(Debug, Serialize)]
struct ParamRow {
    name: String,
    shape: Vec<usize>,
    /// In the flat vector.
    offset: usize,
    len: usize,
    /// The file holds it transposed.
    transposed: bool,
}

#[derive(Debug, Serialize)]
struct AxisRow {
    axis: usize,
    width: u32,
    /// The layer whose units it counts.
    layer: String,
}

#[derive(Debug, Serialize)]
struct RefusedTier {
    tier: usize,
    spec: TierSpec,
    problem: String,
}

/// What one tier needs.
#[derive(Debug, Serialize)]
pub struct TierNeeds {
    pub tier: usize,
    pub spec: TierSpec,
    pub widths: Vec<u32>,
    pub parameters: usize,
    /// Of the parameters, as f32.
    pub bytes: u64,
    /// Of one sample, forward.
    pub macs: u64,
    pub infer_arena_bytes: u64,
    pub train_arena_bytes: u64,
    pub digest: String,
}

impl Inspection {
    pub fn new(
        graph: &Graph,
        notes: &[String],
        tiers: &[TierSpec],
        batch: u16,
    ) -> Result<Self, CompileError> {
        let full = graph.full();
        let sizes = |shape: &TensorShape| shape.dims.iter().map(|dim| dim.size(full)).collect::<Vec<_>>();
        let value_name = |value: ValueId| match value.index().checked_sub(1) {
            Some(node) => graph.nodes()[node].name.clone(),
            None => graph.input().name.clone(),
        };
        let node = |node: &crate::graph::Node| NodeRow {
            name: node.name.clone(),
            op: node.op.name(),
            inputs: node.inputs.iter().map(|&value| value_name(value)).collect(),
            shape: sizes(&node.shape),
            axis: axis_of(&node.shape),
        };
        let params = graph.params().iter().zip(graph.param_shapes()).zip(graph.offsets(full));
        let layer = |axis: usize| {
            let owner = graph.nodes().iter().find(|node| {
                node.op.params().next().is_some() && axis_of(&node.shape).map(usize::from) == Some(axis)
            });
            owner.map_or_else(String::new, |node| node.name.clone())
        };
        let output = graph.output();
        let (mut fitting, mut refused) = (vec![], vec![]);
        for (tier, spec) in tiers.iter().enumerate() {
            match TierNeeds::of(graph, tier, spec, batch) {
                Ok(tier) => fitting.push(tier),
                Err(CompileError::Slice(error)) => {
                    refused.push(RefusedTier { tier, spec: spec.clone(), problem: error.to_string() });
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Self {
            name: graph.name().to_owned(),
            digest: hex(graph.digest(full)),
            input: ValueRow { name: graph.input().name.clone(), shape: sizes(&graph.input().shape) },
            output: ValueRow { name: output.name.clone(), shape: sizes(graph.shape(output.value)) },
            tail: output.tail.map(crate::graph::Tail::op_type),
            nodes: graph.nodes().iter().map(node).collect(),
            params: params
                .map(|((param, shape), offset)| ParamRow {
                    name: param.name.clone(),
                    shape: sizes(shape),
                    offset,
                    len: shape.len(full),
                    transposed: !param.layout.is_plain(),
                })
                .collect(),
            axes: full
                .widths()
                .iter()
                .enumerate()
                .map(|(axis, &width)| AxisRow { axis, width, layer: layer(axis) })
                .collect(),
            whole: UncutAxisRow::list(graph),
            batch,
            tiers: fitting,
            refused,
            notes: notes.to_vec(),
        })
    }
}

impl TierNeeds {
    pub fn list(graph: &Graph, tiers: &[TierSpec], batch: u16) -> Result<Vec<Self>, CompileError> {
        tiers.iter().enumerate().map(|(tier, spec)| Self::of(graph, tier, spec, batch)).collect()
    }

    pub fn of(graph: &Graph, tier: usize, spec: &TierSpec, batch: u16) -> Result<Self, CompileError> {
        Self::new(graph, tier, spec, &spec.mask(graph)?, batch)
    }

    fn new(
        graph: &Graph,
        tier: usize,
        spec: &TierSpec,
        mask: &WidthMask,
        batch: u16,
    ) -> Result<Self, CompileError> {
        let plan = |mode| compile(graph, mask, &PlanOptions { mode, ..PlanOptions::infer(batch) });
        let (infer, train) = (plan(PlanMode::Infer)?, plan(PlanMode::Train)?);
        Ok(Self {
            tier,
            spec: spec.clone(),
            widths: mask.widths().to_vec(),
            parameters: graph.layout().slice_len(mask),
            bytes: infer.info.flash_bytes(),
            macs: infer.nodes.iter().map(|node| node.op.macs()).sum(),
            infer_arena_bytes: infer.info.arena_bytes(),
            train_arena_bytes: train.info.arena_bytes(),
            digest: hex(infer.info.digest),
        })
    }
}

impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} (digest {})", self.name, self.digest)?;
        writeln!(f, "  input   {} {:?}", self.input.name, self.input.shape)?;
        let tail = self.tail.map_or_else(String::new, |tail| format!(" after {tail}"));
        writeln!(f, "  output  {} {:?}{tail}", self.output.name, self.output.shape)?;
        for note in &self.notes {
            writeln!(f, "  note    {note}")?;
        }
        let mut nodes = Table::new(3, &["node", "op", "reads", "output per sample", "hidden axis"]);
        for node in &self.nodes {
            let axis = node.axis.map_or_else(String::new, |axis| axis.to_string());
            let shape = format!("{:?}", node.shape);
            nodes.row([node.name.clone(), node.op.to_owned(), node.inputs.join(", "), shape, axis]);
        }
        let mut params = Table::new(1, &["parameter", "shape", "offset", "numbers"]);
        for param in &self.params {
            let turned = if param.transposed { " (file: transposed)" } else { "" };
            let shape = format!("{:?}{turned}", param.shape);
            params.row([param.name.clone(), shape, grouped(param.offset as u64), grouped(param.len as u64)]);
        }
        let mut axes = Table::new(1, &["hidden axis", "units", "of layer"]);
        for axis in &self.axes {
            axes.row([axis.axis.to_string(), axis.width.to_string(), axis.layer.clone()]);
        }
        writeln!(f, "\n{nodes}\n{params}\n{axes}")?;
        if !self.whole.is_empty() {
            writeln!(f, "{}", uncut_table(&self.whole))?;
        }
        writeln!(f, "Needs of each tier at batch {}:\n{}", self.batch, tiers_table(&self.tiers))?;
        for RefusedTier { tier, spec, problem } in &self.refused {
            writeln!(f, "tier {} is refused: {problem}", title(*tier, spec))?;
        }
        Ok(())
    }
}

/// The table of tiers, as `inspect` and `export` print it.
pub fn tiers_table(tiers: &[TierNeeds]) -> Table {
    let header = ["tier", "widths", "parameters", "bytes", "MACs", "infer arena B", "training arena B"];
    let mut table = Table::new(2, &header);
    for tier in tiers {
        table.row([
            title(tier.tier, &tier.spec),
            format!("{:?}", tier.widths),
            grouped(tier.parameters as u64),
            grouped(tier.bytes),
            grouped(tier.macs),
            grouped(tier.infer_arena_bytes),
            grouped(tier.train_arena_bytes),
        ]);
    }
    table
}

fn title(tier: usize, spec: &TierSpec) -> String {
    match spec {
        TierSpec::Rate(rate) | TierSpec::Partly { rate, .. } => format!("{tier} ({rate})"),
        TierSpec::Widths { .. } => format!("{tier} (widths)"),
    }
}

fn axis_of(shape: &TensorShape) -> Option<u8> {
    shape.dims.iter().find_map(|dim: &Dim| dim.axes().next()).map(|axis| axis.0)
}

fn hex(digest: u32) -> String {
    format!("{digest:08x}")
}
