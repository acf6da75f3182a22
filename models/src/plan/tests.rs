use common::plan::{Grad, Node, Op, Plan, Segments};
use proptest::prelude::*;

use super::*;
use crate::{
    graph::{Builder, Param, Units},
    zoo,
};

const TRAIN: PlanOptions = PlanOptions { batch: 16, mode: Mode::Train, error_feedback: false };
const INFER: PlanOptions = PlanOptions { batch: 16, mode: Mode::Infer, error_feedback: false };

/// What a cell of the arena holds; nodes are named by index, the input comes before the first.
#[derive(Copy, Clone, PartialEq, Debug)]
enum Cell {
    Nothing,
    Input,
    Activation(usize),
    Gradient(usize),
}

/// Executes a plan on names instead of numbers, and fails where a node would read anything else than
/// what it needs.
struct Tracer {
    cells: Vec<Cell>,
    batch: usize,
    workspace: usize,
}

impl Tracer {
    fn new(plan: &Plan<'_>, segments: usize) -> Self {
        let workspace = plan.info().params as usize * segments;
        Self {
            cells: vec![Cell::Nothing; plan.info().arena as usize],
            batch: plan.info().batch.into(),
            workspace,
        }
    }

    fn write(&mut self, at: u32, len: u32, cell: Cell) {
        assert!(at as usize >= self.workspace, "{cell:?} lies in the parameters");
        self.cells[at as usize..][..len as usize * self.batch].fill(cell);
    }

    fn read(&self, at: u32, len: u32, cell: Cell) {
        let stretch = &self.cells[at as usize..][..len as usize * self.batch];
        assert!(stretch.iter().all(|&got| got == cell), "expected {cell:?}, found {:?}", stretch[0]);
    }

    fn forward(&mut self, plan: &Plan<'_>) {
        self.write(plan.info().input, plan.info().inputs, Cell::Input);
        for (index, node) in plan.forward().iter().enumerate() {
            let (reads, writes) = sizes(node);
            self.read(node.input.at, reads, before(index));
            self.write(node.output, writes, Cell::Activation(index));
            if !matches!(node.op, Op::Activate { .. }) {
                self.read(node.input.at, reads, before(index));
            }
        }
        self.read(plan.info().logits, plan.info().outputs, Cell::Activation(plan.forward().len() - 1));
    }

    fn backward(&mut self, plan: &Plan<'_>) {
        let loss = plan.forward().last().unwrap();
        self.write(loss.output_grad.unwrap(), plan.info().outputs, Cell::Gradient(plan.forward().len() - 1));
        for (index, node) in plan.forward().iter().enumerate().rev() {
            let (reads, _) = sizes(node);
            self.needs(index, node);
            assert_eq!(node.input.grad.is_none(), index == 0);
            if let Some(Grad { at, .. }) = node.input.grad {
                let in_place = Some(at) == node.output_grad;
                self.write(at, reads, Cell::Gradient(index - 1));
                assert_eq!(in_place, matches!(node.op, Op::Activate { .. }));
                if !in_place {
                    self.needs(index, node);
                }
            }
        }
    }

    /// What the backward step of a node reads.
    fn needs(&self, index: usize, node: &Node) {
        let (reads, writes) = sizes(node);
        self.read(node.output_grad.unwrap(), writes, Cell::Gradient(index));
        match node.op {
            Op::Dense { .. } => self.read(node.input.at, reads, before(index)),
            _ => self.read(node.output, writes, Cell::Activation(index)),
        }
    }
}

fn sizes(node: &Node) -> (u32, u32) {
    let (reads, writes) = node.op.sizes();
    (reads as u32, writes as u32)
}

fn before(index: usize) -> Cell {
    index.checked_sub(1).map_or(Cell::Input, Cell::Activation)
}

#[test]
fn the_plan_of_a_known_model() {
    let (graph, _) = zoo::by_name("digits-mlp").unwrap().build(0);
    let infer = compile(&graph, graph.full(), &INFER).unwrap();
    // 2,410 weights; input 64 and hidden 32 are live together, then hidden 32 and logits 10.
    assert_eq!(infer.info.arena, 2_410 + 16 * (64 + 32));
    assert_eq!(infer.info.segments, Segments::default());
    assert!(infer.nodes.iter().all(|node| node.input.grad.is_none() && node.output_grad.is_none()));

    let train = compile(&graph, graph.full(), &TRAIN).unwrap();
    // Input, hidden, logits; the gradient of hidden meets all three, that of logits lies on them.
    assert_eq!(train.info.arena, 3 * 2_410 + 16 * (64 + 32 + 10 + 32));
    assert_eq!((train.info.segments.anchor, train.info.segments.grads), (Some(2_410), Some(4_820)));
    assert_eq!(train.nodes.last().unwrap().output_grad, Some(train.info.logits));
    let dense = Op::Dense { rows: 1, inputs: 32, outputs: 10, weight: 2_080, bias: Some(2_400) };
    assert_eq!(train.nodes[2].op, dense);
    assert_eq!(train.plan().unwrap().macs(), 64 * 32 + 32 * 10);

    let feedback = compile(&graph, graph.full(), &PlanOptions { error_feedback: true, ..TRAIN }).unwrap();
    assert_eq!(feedback.info.segments.residual, Some(3 * 2_410));
    assert_eq!(feedback.info.arena, train.info.arena + 2_410);
}

#[test]
fn nonsense_is_refused() {
    let (graph, _) = zoo::by_name("digits-mlp").unwrap().build(0);
    let none = compile(&graph, graph.full(), &PlanOptions { batch: 0, ..TRAIN });
    assert_eq!(none, Err(CompileError::EmptyBatch));
    let (other, _) = zoo::by_name("mnist-mlp").unwrap().build(0);
    assert!(matches!(compile(&graph, other.full(), &TRAIN), Err(CompileError::Mask(_))));
    let large = zoo::mlp("large", &[1, 1_000_000, 1]).unwrap();
    let options = PlanOptions { batch: u16::MAX, ..TRAIN };
    assert!(matches!(compile(&large, large.full(), &options), Err(CompileError::TooLarge(_))));
}

#[test]
fn a_value_with_two_readers_is_refused() {
    let mut builder = Builder::new("m", "x", &[3]).unwrap();
    let hidden = builder.dense("fc", ValueId::INPUT, 3, Units::Fixed(4), Param::plain("w"), None).unwrap();
    let first = builder.relu("first", hidden);
    builder.relu("second", hidden);
    let graph = builder.finish("y", first, None).unwrap();
    assert_eq!(compile(&graph, graph.full(), &TRAIN), Err(CompileError::FanOut("second".into())));
}

#[test]
fn a_relu_at_either_end() {
    let mut builder = Builder::new("m", "x", &[3, 2]).unwrap();
    let first = builder.relu("first", ValueId::INPUT);
    let flat = builder.flatten("flat", first);
    let dense = builder.dense("fc", flat, 6, Units::Fixed(4), Param::plain("w"), None).unwrap();
    let last = builder.relu("last", dense);
    let graph = builder.finish("y", last, None).unwrap();
    let plan = compile(&graph, graph.full(), &TRAIN).unwrap();
    assert_eq!(plan.nodes.len(), 3);
    assert_eq!((plan.nodes[0].output_grad, plan.nodes[1].input.grad), (None, None));
    // The relu's backward step reads its output, so the gradient needs a place of its own.
    assert_ne!(plan.nodes[2].output_grad, Some(plan.info.logits));
    assert_eq!(plan.info.arena, 3 * 24 + 16 * (6 + 4 + 4));
}

proptest! {
    #[test]
    fn every_node_finds_what_it_reads(
        widths in prop::collection::vec(1u32..40, 2..8),
        rate in 0.05f64..=1.0,
        batch in 1u16..9,
        train: bool,
        error_feedback: bool,
    ) {
        let graph = zoo::mlp("random", &widths).unwrap();
        let mask = graph.full().at_rate(rate).unwrap();
        let mode = if train { Mode::Train } else { Mode::Infer };
        let compiled = compile(&graph, &mask, &PlanOptions { batch, mode, error_feedback }).unwrap();
        let plan = compiled.plan().unwrap();
        let segments = if !train { 1 } else if error_feedback { 4 } else { 3 };
        let mut tracer = Tracer::new(&plan, segments);
        tracer.forward(&plan);
        if train {
            tracer.backward(&plan);
        }

        // Never longer than one buffer per value and per gradient.
        let values: u32 = plan.forward().iter().map(|node| sizes(node).1).sum();
        let buffers = plan.info().inputs + values * if train { 2 } else { 1 };
        let most = plan.info().params * segments as u32 + buffers * u32::from(batch);
        prop_assert!(plan.info().arena <= most);
        prop_assert_eq!(plan.info().params as usize, graph.layout().slice_len(&mask));
        prop_assert_eq!(plan.info().digest, graph.slice(&mask).unwrap().digest(&mask));
    }
}
