//! Lays out the storage of a [`Dataflow`] in memory, and writes the nodes and the schedule of the Plan.

use std::collections::BTreeMap;

use common::plan::{BackwardStep, Grad, Node, Operand, Pass};

use super::{
    arena::{ArenaLayout, BufferId, Buffers},
    dataflow::{Dataflow, Instr},
};

/// What a buffer holds.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Contents {
    /// A storage, by its first value.
    Value(usize),
    /// A storage that is computed again.
    Recomputed(usize),
    /// A storage of gradients.
    Grad(usize),
    /// What the forward pass of a node leaves for its backward pass.
    Keep(usize),
    /// What the backward pass of a node needs while it runs.
    Scratch(usize),
}

/// Memory per sample: every buffer with its live range and its place.
#[derive(Clone, Debug)]
pub struct MemoryPlan<'a> {
    flow: &'a Dataflow<'a>,
    recomputed: Vec<usize>,
    instructions: Vec<Instr>,
    buffers: Buffers,
    buffer_ids: BTreeMap<Contents, BufferId>,
    arena: ArenaLayout,
}

impl<'a> MemoryPlan<'a> {
    pub fn new(flow: &'a Dataflow<'a>, recomputed: &[usize]) -> Self {
        let instructions = flow.instructions(recomputed);
        let (buffers, buffer_ids) = (Buffers::default(), BTreeMap::new());
        let recomputed = recomputed.to_vec();
        let arena = ArenaLayout::default();
        let mut memory = Self { flow, recomputed, instructions, buffers, buffer_ids, arena };
        for (time, instr) in memory.instructions.clone().into_iter().enumerate() {
            memory.live(time, instr);
        }
        memory.arena = memory.buffers.place();
        memory
    }

    /// Recomputes storage, the one that saves most first, until the memory is at most `target` or nothing more can be saved.
    pub fn saving(flow: &'a Dataflow<'a>, target: u64) -> Self {
        let mut best = Self::new(flow, &[]);
        let candidates = flow.candidates();
        while best.len() > target {
            let more = candidates.iter().filter(|storage| !best.recomputed.contains(storage));
            let tried = more.map(|&storage| Self::new(flow, &[&best.recomputed[..], &[storage]].concat()));
            match tried.min_by_key(Self::len) {
                Some(better) if better.len() < best.len() => best = better,
                _ => break,
            }
        }
        best
    }

    /// Numbers per sample.
    pub fn len(&self) -> u64 {
        self.arena.len
    }

    /// Every buffer with its offset, length and first and last instruction.
    pub fn buffers(&self) -> impl Iterator<Item = (Contents, u64, u64, usize, usize)> {
        self.buffer_ids.iter().map(|(&contents, &buffer)| {
            let (len, first, last) = self.buffers.of(buffer);
            (contents, self.arena.offset(buffer), len, first, last)
        })
    }

    /// Nodes and schedule; `at` turns an offset per sample into one of the arena.
    pub fn emit(&self, at: impl Fn(u64) -> u32) -> (Vec<Node>, Vec<BackwardStep>) {
        let place =
            |contents: Contents| self.buffer_ids.get(&contents).map(|&buffer| at(self.arena.offset(buffer)));
        let count = self.flow.program.nodes.len();
        let copied: Vec<usize> = (0..count).filter(|&index| self.is_copied(index)).collect();
        let copy_of =
            |index: usize| copied.iter().position(|&other| other == index).map(|place| count + place);
        let forward = (0..count).map(|index| self.node(index, false, copy_of(index).is_none(), &place));
        let copies = copied.iter().map(|&index| self.node(index, true, true, &place));
        let nodes = forward.chain(copies).collect();
        if copied.is_empty() {
            return (nodes, vec![]);
        }
        let number = |index: usize| copy_of(index).unwrap_or(index) as u16;
        let schedule = self.instructions.iter().filter_map(|instr| match *instr {
            Instr::Forward(_) | Instr::Loss => None,
            Instr::Recompute(index) => Some(BackwardStep { node: number(index), pass: Pass::Forward }),
            Instr::Backward(index) => Some(BackwardStep { node: number(index), pass: Pass::Backward }),
        });
        (nodes, schedule.collect())
    }

    /// The buffer from which the backward pass reads a value.
    fn value(&self, value: usize) -> Contents {
        let storage = self.flow.storage_of[value];
        if self.recomputed.contains(&storage) {
            Contents::Recomputed(storage)
        } else {
            Contents::Value(storage)
        }
    }

    /// The buffer of a gradient; that of the logits may be the logits' own.
    fn grad(&self, storage: usize) -> Contents {
        let logits = self.flow.program.output();
        match self.flow.loss_in_place && storage == logits {
            true => Contents::Value(self.flow.storage_of[logits]),
            false => Contents::Grad(storage),
        }
    }

    /// A node that runs again, or whose backward pass reads a recomputed value.
    fn is_copied(&self, index: usize) -> bool {
        let again = |value: usize| matches!(self.value(value), Contents::Recomputed(_));
        again(index + 1) || (self.flow.runs_backward(index) && self.flow.backward_reads(index).any(again))
    }

    fn node(
        &self,
        index: usize,
        copy: bool,
        backward: bool,
        place: &impl Fn(Contents) -> Option<u32>,
    ) -> Node {
        let node = &self.flow.program.nodes[index];
        let contents = |value: usize| match copy {
            true => self.value(value),
            false => Contents::Value(self.flow.storage_of[value]),
        };
        // A value without a buffer would be refused by `Plan::check`.
        let at = |value: usize| place(contents(value)).unwrap_or(u32::MAX);
        let backward = backward && self.flow.runs_backward(index);
        let (input, second) = self.flow.operands(index);
        let grad = |operand: usize| {
            let grad = self.flow.operand_grads[index][operand].filter(|_| backward)?;
            Some(Grad { at: place(self.grad(grad.at as usize))?, ..grad })
        };
        let output_grad =
            self.flow.grads[index + 1].filter(|_| backward).and_then(|storage| place(self.grad(storage)));
        let is_recomputed = matches!(self.value(index + 1), Contents::Recomputed(_));
        let output = match output_grad {
            // A copy that only runs backward writes no output, and this place does not overlap what it reads.
            Some(grad) if copy && !is_recomputed && !node.op.backward_reads_output() => grad,
            _ => at(index + 1),
        };
        Node {
            op: node.op,
            input: Operand { at: at(input), grad: grad(0) },
            second: second.map(|second| Operand { at: at(second), grad: grad(1) }),
            output,
            output_grad,
            keep: place(Contents::Keep(index)),
            scratch: output_grad.and_then(|_| place(Contents::Scratch(index))),
        }
    }

    /// Marks the buffers that one instruction uses.
    fn live(&mut self, time: usize, instr: Instr) {
        let flow = self.flow;
        match instr {
            Instr::Forward(index) => {
                let (input, second) = flow.operands(index);
                for value in [Some(input), second, Some(index + 1)].into_iter().flatten() {
                    self.touch(Contents::Value(flow.storage_of[value]), time);
                }
                self.touch(Contents::Keep(index), time);
            }
            Instr::Recompute(index) => {
                let (input, second) = flow.operands(index);
                for value in [Some(input), second, Some(index + 1)].into_iter().flatten() {
                    self.touch(self.value(value), time);
                }
            }
            Instr::Loss => {
                let output = flow.program.output();
                self.touch(Contents::Value(flow.storage_of[output]), time);
                if let Some(storage) = flow.grads[output] {
                    self.touch(self.grad(storage), time);
                }
            }
            Instr::Backward(index) => {
                for value in flow.backward_reads(index) {
                    self.touch(self.value(value), time);
                }
                let written = flow.operand_grads[index].iter().flatten().map(|grad| grad.at as usize);
                for storage in flow.grads[index + 1].into_iter().chain(written) {
                    self.touch(self.grad(storage), time);
                }
                self.touch(Contents::Keep(index), time);
                self.touch(Contents::Scratch(index), time);
            }
        }
    }

    fn touch(&mut self, contents: Contents, time: usize) {
        let program = self.flow.program;
        let len = match contents {
            Contents::Value(value) | Contents::Recomputed(value) | Contents::Grad(value) => {
                program.len(value)
            }
            Contents::Keep(index) => program.nodes[index].op.keep(),
            Contents::Scratch(index) => program.nodes[index].op.scratch(),
        };
        if len == 0 {
            return;
        }
        match self.buffer_ids.get(&contents) {
            Some(&buffer) => self.buffers.extend(buffer, time),
            None => {
                let buffer = self.buffers.add(len, time, time);
                self.buffer_ids.insert(contents, buffer);
            }
        }
    }
}
