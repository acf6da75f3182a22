use std::collections::BTreeSet;

use common::plan::{Activation, Grad, Node, Op, Operand, Pass, Plan, Segments};
use proptest::prelude::*;

use super::*;
use crate::{
    graph::{self, Builder, Param, ValueId},
    zoo,
};

/// The content of a cell of the arena. Equal operations on equal values give a value of the same number. Gradients are
/// identified by the value and its contributors.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Cell {
    Nothing,
    Value(usize),
    Gradient(usize, BTreeSet<usize>),
    Kept(usize),
    Scratch,
}

/// Stands for the loss among the readers of the logits.
const LOSS: usize = usize::MAX;

/// Executes a Plan on symbols instead of numbers, and fails where a node reads something other than the graph requires.
struct Tracer<'a> {
    cells: Vec<Cell>,
    plan: &'a Plan<'a>,
    /// Forward nodes as the graph has them: operation, and the numbers of the values they read.
    steps: Vec<(Op, Vec<usize>)>,
    /// By value: the first value that is the same.
    numbers: Vec<usize>,
    /// By step, what its first port has read.
    first_read: Vec<usize>,
}

impl<'a> Tracer<'a> {
    fn new(plan: &'a Plan<'a>, graph: &Graph) -> Self {
        let cells = vec![Cell::Nothing; plan.info().arena as usize];
        let mut places = vec![0];
        let mut steps: Vec<(Op, Vec<usize>)> = Vec::new();
        for node in graph.nodes() {
            let reads: Vec<usize> = node.inputs.iter().map(|value| places[value.index()]).collect();
            if node.op.renames() {
                places.push(reads[0]);
                continue;
            }
            let mut reads = reads;
            if matches!(node.op, graph::Op::Add) {
                reads.sort_unstable();
            }
            steps.push((plan.forward()[steps.len()].op, reads));
            places.push(steps.len());
        }
        let mut numbers: Vec<usize> = vec![0];
        let mut known: Vec<(Op, Vec<usize>)> = Vec::new();
        for (op, reads) in &steps {
            let step = (*op, reads.iter().map(|&read| numbers[read]).collect::<Vec<_>>());
            known.push(step.clone());
            numbers.push(known.iter().position(|other| *other == step).unwrap() + 1);
        }
        Self { cells, plan, steps, numbers, first_read: vec![] }
    }

    /// The first value that is the same.
    fn same(&self, value: usize) -> usize {
        self.numbers[value]
    }

    fn write(&mut self, at: u32, len: u64, cell: Cell) {
        let batch = u64::from(self.plan.info().batch);
        assert!(
            u64::from(at) >= self.plan.info().workspace(self.plan.trained() as u32).unwrap(),
            "{cell:?} lies in a segment"
        );
        self.cells[at as usize..][..(len * batch) as usize].fill(cell);
    }

    fn at(&self, at: u32, len: u64) -> &Cell {
        let batch = u64::from(self.plan.info().batch);
        let stretch = &self.cells[at as usize..][..(len * batch) as usize];
        assert!(stretch.iter().all(|cell| *cell == stretch[0]), "{:?} is damaged", stretch[0]);
        &stretch[0]
    }

    /// The value that a port reads.
    fn value(&self, port: &Operand, len: u64) -> usize {
        match self.at(port.at, len) {
            Cell::Value(value) => *value,
            cell => panic!("expected a value, found {cell:?}"),
        }
    }

    fn run(&mut self) {
        let info = self.plan.info();
        self.write(info.input, info.inputs.into(), Cell::Value(0));
        for (step, node) in self.plan.forward().iter().enumerate() {
            let first = self.value(&node.input, node.op.sizes().0);
            self.first_read.push(first);
            assert_eq!(self.forward(node), self.same(step + 1), "{step} computes something else");
        }
        let logits = self.plan.forward().len();
        assert_eq!(*self.at(info.logits, info.outputs.into()), Cell::Value(self.same(logits)));
        if info.segments.anchor.is_none() {
            return;
        }
        let trained = self.trained();
        let last = self.plan.forward().last().unwrap();
        let grad = Cell::Gradient(logits, BTreeSet::from([LOSS]));
        self.write(last.output_grad.unwrap(), info.outputs.into(), grad);
        let mut open: Vec<usize> = (0..logits).filter(|&step| trained[step + 1]).collect();
        for (node, pass) in self.plan.backward() {
            match pass {
                Pass::Forward => {
                    self.forward(node);
                }
                // Not needed.
                Pass::Backward if node.output_grad.is_none() => {}
                Pass::Backward => {
                    let step = open.pop().expect("no more backward steps than trained nodes");
                    self.backward(node, step, &trained);
                }
            }
        }
        assert!(open.is_empty(), "{open:?} have no backward step");
    }

    fn trained(&self) -> Vec<bool> {
        let mut trained = vec![false];
        for (op, reads) in &self.steps {
            let own = op.parameters().iter().any(Option::is_some);
            trained.push(own || reads.iter().any(|&read| trained[read]));
        }
        trained
    }

    /// Returns the number of the computed value.
    fn forward(&mut self, node: &Node) -> usize {
        let (reads, writes) = node.op.sizes();
        let reads_second = node.op.second().unwrap_or(0);
        // Only a sum may exchange its operands.
        let sorted = |mut values: Vec<usize>| {
            if matches!(node.op, Op::Add { .. }) {
                values.sort_unstable();
            }
            values
        };
        let mut inputs = vec![self.value(&node.input, reads)];
        inputs.extend(node.second.map(|second| self.value(&second, reads_second)));
        let inputs = sorted(inputs);
        let made = |(op, from): &(Op, Vec<usize>)| {
            let from = sorted(from.iter().map(|&value| self.same(value)).collect());
            *op == node.op && from == inputs
        };
        let step = self.steps.iter().position(made).expect("a node of the graph");
        let second = node.second.map(|second| (second, self.value(&second, reads_second)));
        self.write(node.output, writes, Cell::Value(self.same(step + 1)));
        if let Some(keep) = node.keep {
            self.write(keep, node.op.keep(), Cell::Kept(step));
        }
        if node.output != node.input.at {
            self.value(&node.input, reads);
        }
        if let Some((port, value)) = second {
            assert_eq!(self.value(&port, reads_second), value, "the second operand is overwritten");
        }
        self.same(step + 1)
    }

    fn backward(&mut self, node: &Node, step: usize, trained: &[bool]) {
        assert_eq!(node.op, self.steps[step].0, "backward steps are out of order");
        let (reads, writes) = node.op.sizes();
        let readers = self.steps.iter().enumerate().filter(|(_, (_, reads))| reads.contains(&(step + 1)));
        let mut readers: BTreeSet<usize> = readers.map(|(reader, _)| reader).collect();
        if step + 1 == self.steps.len() {
            readers.insert(LOSS);
        }
        if node.op.scratch() > 0 {
            self.write(node.scratch.unwrap(), node.op.scratch(), Cell::Scratch);
        }
        assert_eq!(*self.at(node.output_grad.unwrap(), writes), Cell::Gradient(step + 1, readers));
        if node.op.backward_reads_input() {
            assert_eq!(self.value(&node.input, reads), self.same(self.steps[step].1[0]));
        }
        if let Some(second) = node.second.filter(|_| node.op.backward_reads_second()) {
            let read = self.value(&second, node.op.second().unwrap_or(0));
            assert_eq!(read, self.same(self.steps[step].1[1]));
        }
        if node.op.backward_reads_output() {
            assert_eq!(*self.at(node.output, writes), Cell::Value(self.same(step + 1)));
        }
        if node.op.keep() > 0 {
            assert_eq!(*self.at(node.keep.unwrap(), node.op.keep()), Cell::Kept(step));
        }
        // An Add may have changed the order of its operands; its forward step has shown it.
        let ports: Vec<Operand> = [Some(node.input), node.second].into_iter().flatten().collect();
        let mut values: Vec<usize> = self.steps[step].1.clone();
        if self.same(values[0]) != self.first_read[step] {
            values.reverse();
        }
        let lens = [reads, node.op.second().unwrap_or(0)];
        for ((port, value), reads) in ports.iter().zip(values).zip(lens) {
            assert_eq!(port.grad.is_some(), trained[value], "{value}");
            let Some(Grad { at, add }) = port.grad else { continue };
            let mut from = BTreeSet::from([step]);
            if add {
                match self.at(at, reads) {
                    Cell::Gradient(of, others) if *of == value => from.extend(others),
                    cell => panic!("adds to {cell:?}"),
                }
            }
            self.write(at, reads, Cell::Gradient(value, from));
        }
    }
}

fn trace(graph: &Graph, mask: &WidthMask, options: &PlanOptions) -> CompiledPlan {
    let compiled = compile(graph, mask, options).unwrap();
    let plan = compiled.plan().unwrap();
    Tracer::new(&plan, graph).run();
    compiled
}

#[test]
fn the_plan_of_a_known_model() {
    let (graph, _) = zoo::by_name("digits-mlp").unwrap().build(0);
    let infer = compile(&graph, graph.full(), &PlanOptions::infer(16)).unwrap();
    // 2,410 weights; input 64 and hidden 32 are live together, then hidden 32 and logits 10.
    assert_eq!(infer.info.arena, 2_410 + 16 * (64 + 32));
    assert_eq!(infer.info.segments, Segments::default());
    assert!(infer.nodes.iter().all(|node| node.input.grad.is_none() && node.output_grad.is_none()));

    let train = compile(&graph, graph.full(), &PlanOptions::train(16)).unwrap();
    // Input, hidden, logits. The gradient of hidden is live with all three; that of logits overwrites them.
    assert_eq!(train.info.arena, 3 * 2_410 + 16 * (64 + 32 + 10 + 32));
    assert_eq!((train.info.segments.anchor, train.info.segments.grads), (Some(2_410), Some(4_820)));
    assert_eq!(train.nodes.last().unwrap().output_grad, Some(train.info.logits));
    let dense = Op::Dense { rows: 1, inputs: 32, outputs: 10, weight: 2_080, bias: Some(2_400) };
    assert_eq!(train.nodes[2].op, dense);
    assert_eq!(train.plan().unwrap().macs(), 64 * 32 + 32 * 10);
    let end = train.buffers.iter().map(|buffer| buffer.at + buffer.len).max();
    assert_eq!(end, Some(train.info.arena.into()));
}

#[test]
fn segments_follow_the_options() {
    let (graph, _) = zoo::by_name("digits-mlp").unwrap().build(0);
    let arena = |options: PlanOptions| compile(&graph, graph.full(), &options).unwrap().info.arena;
    let train = PlanOptions::train(16);
    let plain = arena(train);
    assert_eq!(arena(PlanOptions { error_feedback: true, ..train }), plain + 2_410);
    assert_eq!(arena(PlanOptions { moments: 2, guide: true, ..train }), plain + 3 * 2_410);
    assert_eq!(arena(PlanOptions { fused: true, ..train }), plain - 2_410);
    let all = PlanOptions { error_feedback: true, moments: 2, guide: true, personal: true, ..train };
    let segments = compile(&graph, graph.full(), &all).unwrap().info.segments;
    assert_eq!(segments.of_params(), [1, 2, 3, 4, 5, 6, 7].map(|number| Some(number * 2_410)));
    assert_eq!((segments.guide, segments.personal), (Some(2 * 2_410), Some(7 * 2_410)));
    // A personal model needs no further optimiser state.
    let lean = PlanOptions { fused: true, personal: true, ..train };
    let lean = compile(&graph, graph.full(), &lean).unwrap();
    assert_eq!(lean.info.segments.of_params()[6], Some(2 * 2_410));
    assert!(lean.buffers.iter().any(|buffer| buffer.name == "personal model" && buffer.at == 2 * 2_410));
    let refused = compile(&graph, graph.full(), &PlanOptions { fused: true, moments: 1, ..train });
    assert_eq!(refused, Err(CompileError::Fused));
}

#[test]
fn invalid_options_are_refused() {
    let (graph, _) = zoo::by_name("digits-mlp").unwrap().build(0);
    assert_eq!(compile(&graph, graph.full(), &PlanOptions::train(0)), Err(CompileError::EmptyBatch));
    let (other, _) = zoo::by_name("mnist-mlp").unwrap().build(0);
    let wrong = compile(&graph, other.full(), &PlanOptions::train(1));
    assert!(matches!(wrong, Err(CompileError::Slice(_))));
    let large = zoo::mlp("large", &[1, 1_000_000, 1]).unwrap();
    let wrong = compile(&large, large.full(), &PlanOptions::train(u16::MAX));
    assert!(matches!(wrong, Err(CompileError::TooLarge(_))));
    let loss = Some(Loss::Softmax { classes: 3 });
    let wrong = compile(&graph, graph.full(), &PlanOptions { loss, ..PlanOptions::train(1) });
    assert_eq!(wrong, Err(CompileError::Loss { classes: 3, outputs: 10 }));
}

#[test]
fn a_relu_at_either_end() {
    let mut builder = Builder::new("m", "x", &[3, 2]).unwrap();
    let first = builder.relu("first", ValueId::INPUT);
    let flat = builder.flatten("flat", first);
    let dense = builder.dense("fc", flat, 6, 4, Param::plain("w"), None).unwrap();
    let last = builder.relu("last", dense);
    let graph = builder.finish("y", last, None).unwrap();
    let plan = trace(&graph, graph.full(), &PlanOptions::train(16));
    assert_eq!(plan.nodes.len(), 3);
    assert_eq!((plan.nodes[0].output_grad, plan.nodes[1].input.grad), (None, None));
    // The relu's backward step reads its output, so the gradient needs separate memory.
    assert_ne!(plan.nodes[2].output_grad, Some(plan.info.logits));
    assert_eq!(plan.info.arena, 3 * 24 + 16 * (6 + 4 + 4));
}

#[test]
fn the_scaler_follows_cut_layers() {
    let (graph, _) = zoo::by_name("mnist-mlp").unwrap().build(0);
    let options = PlanOptions { scaler: true, ..PlanOptions::train(1) };
    let scales = |rate: f64| {
        let mask = graph.full().at_rate(rate).unwrap();
        let plan = compile(&graph, &mask, &options).unwrap();
        let scale = |node: &Node| match node.op {
            Op::Scale { len, factor } => Some((len, factor)),
            _ => None,
        };
        plan.nodes.iter().filter_map(scale).collect::<Vec<_>>()
    };
    assert_eq!(scales(1.0), []);
    assert_eq!(scales(0.25), [(50, 4.0), (25, 4.0)]);
}

#[test]
fn every_tier_of_the_zoo_finds_what_it_reads() {
    for entry in zoo::ALL {
        let (graph, _) = entry.build(0);
        let smallest = entry.rates.last().copied().unwrap();
        let mask = graph.full().at_rate(smallest).unwrap();
        for recompute in [false, true] {
            let options = PlanOptions { recompute, ..PlanOptions::train(1) };
            trace(&graph, &mask, &options);
        }
        trace(&graph, &mask, &PlanOptions::infer(1));
    }
}

#[test]
fn recomputing_activations_saves_memory() {
    let (graph, _) = zoo::by_name("cifar-resnet").unwrap().build(0);
    let train = PlanOptions::train(2);
    let plain = compile(&graph, graph.full(), &train).unwrap();
    let frugal = trace(&graph, graph.full(), &PlanOptions { recompute: true, ..train });
    assert!(frugal.info.arena < plain.info.arena * 9 / 10, "{} {}", frugal.info.arena, plain.info.arena);
    assert!(frugal.recomputed_macs() > 0 && plain.recomputed_macs() == 0);
    assert!(frugal.info.nodes > frugal.info.forward);
}

#[test]
fn an_activation_kind_does_not_matter() {
    for kind in [Activation::Tanh, Activation::LeakyRelu { slope: 0.1 }] {
        let mut builder = Builder::new("m", "x", &[5]).unwrap();
        let a = builder.dense("a", ValueId::INPUT, 5, 4, Param::plain("a"), None).unwrap();
        let b = builder.activate("b", a, kind);
        let c = builder.dense("c", b, 4, 4, Param::plain("c"), None).unwrap();
        let sum = builder.add("sum", b, c).unwrap();
        let graph = builder.finish("y", sum, None).unwrap();
        trace(&graph, graph.full(), &PlanOptions::train(3));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn every_node_finds_what_it_reads(
        seed: u64,
        rate in 0.05f64..=1.0,
        batch in 1u16..4,
        train: bool,
        error_feedback: bool,
        recompute: bool,
    ) {
        let (graph, _) = zoo::random(seed);
        let mask = graph.full().at_rate(rate).unwrap();
        let mask = if graph.check_mask(&mask).is_ok() { mask } else { graph.full().clone() };
        let mode = if train { PlanMode::Train } else { PlanMode::Infer };
        let options = PlanOptions { mode, error_feedback, recompute, ..PlanOptions::infer(batch) };
        let plan = trace(&graph, &mask, &options);
        if recompute {
            let plain = compile(&graph, &mask, &PlanOptions { recompute: false, ..options }).unwrap();
            prop_assert!(plan.info.arena <= plain.info.arena);
        }
        let held = graph.gather_constants(&mask).len() + graph.layout().slice_len(&mask);
        prop_assert_eq!(plan.info.params as usize, held);
        prop_assert_eq!(plan.info.digest, graph.slice(&mask).unwrap().digest(&mask));
    }

    #[test]
    fn a_fitting_setting_is_found(seed: u64, share in 0.2f64..1.2) {
        let (graph, _) = zoo::random(seed);
        let options = PlanOptions::train(8);
        let asked = compile(&graph, graph.full(), &options).unwrap().info.arena_bytes();
        let ram = (asked as f64 * share) as u64;
        match fit::fit(&graph, graph.full(), &options, ram) {
            Ok(plan) => {
                prop_assert!(plan.info.arena_bytes() <= ram);
                let plan = plan.plan().unwrap();
                Tracer::new(&plan, &graph).run();
            }
            Err(fit::FitError::Short(short)) => {
                prop_assert!(short.need > short.have && short.have == ram);
                prop_assert!(fit::fit(&graph, graph.full(), &options, short.need).is_ok());
            }
            Err(error) => prop_assert!(false, "{error}"),
        }
    }
}
