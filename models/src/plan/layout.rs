//! Lays the homes of a [`Flow`] out in memory and writes the nodes and the schedule of the Plan.

use std::collections::BTreeMap;

use common::plan::{Grad, Node, Pass, Port, Step};

use super::{
    arena::{Buffer, Buffers, Placed},
    flow::{Flow, Instr},
};

/// What a buffer holds.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Holds {
    /// A home, by its first value.
    Value(usize),
    /// A home that is computed again.
    Again(usize),
    /// A home of gradients.
    Grad(usize),
    /// What forward leaves for backward, by step.
    Keep(usize),
    /// What backward needs while it runs, by step.
    Scratch(usize),
}

/// Memory per sample.
#[derive(Clone, Debug)]
pub struct Memory<'a> {
    flow: &'a Flow<'a>,
    given_up: Vec<usize>,
    instructions: Vec<Instr>,
    buffers: Buffers,
    held: BTreeMap<Holds, Buffer>,
    placed: Placed,
}

impl<'a> Memory<'a> {
    pub fn new(flow: &'a Flow<'a>, given_up: &[usize]) -> Self {
        let instructions = flow.instructions(given_up);
        let (buffers, held) = (Buffers::default(), BTreeMap::new());
        let given_up = given_up.to_vec();
        let placed = Placed::default();
        let mut memory = Self { flow, given_up, instructions, buffers, held, placed };
        for (time, instr) in memory.instructions.clone().into_iter().enumerate() {
            memory.live(time, instr);
        }
        memory.placed = memory.buffers.place();
        memory
    }

    /// Gives up homes, always the one that saves most, until the memory is at most `target` or nothing
    /// more can be saved.
    pub fn saving(flow: &'a Flow<'a>, target: u64) -> Self {
        let mut best = Self::new(flow, &[]);
        let candidates = flow.candidates();
        while best.len() > target {
            let more = candidates.iter().filter(|home| !best.given_up.contains(home));
            let tried = more.map(|&home| Self::new(flow, &[&best.given_up[..], &[home]].concat()));
            match tried.min_by_key(Self::len) {
                Some(better) if better.len() < best.len() => best = better,
                _ => break,
            }
        }
        best
    }

    /// Numbers per sample.
    pub fn len(&self) -> u64 {
        self.placed.len
    }

    /// Every buffer with its offset, length and first and last instruction.
    pub fn buffers(&self) -> impl Iterator<Item = (Holds, u64, u64, usize, usize)> {
        self.held.iter().map(|(&holds, &buffer)| {
            let (len, first, last) = self.buffers.of(buffer);
            (holds, self.placed.offset(buffer), len, first, last)
        })
    }

    /// Nodes and schedule; `at` turns an offset per sample into one of the arena.
    pub fn emit(&self, at: impl Fn(u64) -> u32) -> (Vec<Node>, Vec<Step>) {
        let place = |holds: Holds| self.held.get(&holds).map(|&buffer| at(self.placed.offset(buffer)));
        let count = self.flow.program.steps.len();
        let copied: Vec<usize> = (0..count).filter(|&step| self.is_copied(step)).collect();
        let copy_of = |step: usize| copied.iter().position(|&other| other == step).map(|place| count + place);
        let forward = (0..count).map(|step| self.node(step, false, copy_of(step).is_none(), &place));
        let copies = copied.iter().map(|&step| self.node(step, true, true, &place));
        let nodes = forward.chain(copies).collect();
        if copied.is_empty() {
            return (nodes, vec![]);
        }
        let number = |step: usize| copy_of(step).unwrap_or(step) as u16;
        let schedule = self.instructions.iter().filter_map(|instr| match *instr {
            Instr::Forward(_) | Instr::Loss => None,
            Instr::Again(step) => Some(Step { node: number(step), pass: Pass::Forward }),
            Instr::Backward(step) => Some(Step { node: number(step), pass: Pass::Backward }),
        });
        (nodes, schedule.collect())
    }

    /// Where the second pass finds a value.
    fn value(&self, value: usize) -> Holds {
        let home = self.flow.homes[value];
        if self.given_up.contains(&home) { Holds::Again(home) } else { Holds::Value(home) }
    }

    /// The gradient of the logits may lie on the logits.
    fn grad(&self, home: usize) -> Holds {
        let logits = self.flow.program.output();
        match self.flow.loss_in_place && home == logits {
            true => Holds::Value(self.flow.homes[logits]),
            false => Holds::Grad(home),
        }
    }

    /// A step that runs again, or whose backward step reads what was computed again.
    fn is_copied(&self, step: usize) -> bool {
        let again = |value: usize| matches!(self.value(value), Holds::Again(_));
        again(step + 1) || (self.flow.runs_backward(step) && self.flow.backward_reads(step).any(again))
    }

    fn node(&self, step: usize, copy: bool, backward: bool, place: &impl Fn(Holds) -> Option<u32>) -> Node {
        let it = &self.flow.program.steps[step];
        let holds = |value: usize| match copy {
            true => self.value(value),
            false => Holds::Value(self.flow.homes[value]),
        };
        let at = |value: usize| place(holds(value)).unwrap_or(u32::MAX);
        let backward = backward && self.flow.runs_backward(step);
        let (input, second) = self.flow.operands(step);
        let grad = |port: usize| {
            let grad = self.flow.ports[step][port].filter(|_| backward)?;
            Some(Grad { at: place(self.grad(grad.at as usize))?, ..grad })
        };
        let output_grad =
            self.flow.grads[step + 1].filter(|_| backward).and_then(|home| place(self.grad(home)));
        let runs_again = matches!(self.value(step + 1), Holds::Again(_));
        let output = match output_grad {
            // A copy that only runs backward writes no output, and this place is surely apart from
            // what it reads.
            Some(grad) if copy && !runs_again && !it.op.backward_reads_output() => grad,
            _ => at(step + 1),
        };
        Node {
            op: it.op,
            input: Port { at: at(input), grad: grad(0) },
            second: second.map(|second| Port { at: at(second), grad: grad(1) }),
            output,
            output_grad,
            keep: place(Holds::Keep(step)),
            scratch: output_grad.and_then(|_| place(Holds::Scratch(step))),
        }
    }

    /// What is in use in one instruction.
    fn live(&mut self, time: usize, instr: Instr) {
        let flow = self.flow;
        match instr {
            Instr::Forward(step) => {
                let (input, second) = flow.operands(step);
                for value in [Some(input), second, Some(step + 1)].into_iter().flatten() {
                    self.touch(Holds::Value(flow.homes[value]), time);
                }
                self.touch(Holds::Keep(step), time);
            }
            Instr::Again(step) => {
                let (input, second) = flow.operands(step);
                for value in [Some(input), second, Some(step + 1)].into_iter().flatten() {
                    self.touch(self.value(value), time);
                }
            }
            Instr::Loss => {
                let output = flow.program.output();
                self.touch(Holds::Value(flow.homes[output]), time);
                if let Some(home) = flow.grads[output] {
                    self.touch(self.grad(home), time);
                }
            }
            Instr::Backward(step) => {
                for value in flow.backward_reads(step) {
                    self.touch(self.value(value), time);
                }
                let written = flow.ports[step].iter().flatten().map(|grad| grad.at as usize);
                for home in flow.grads[step + 1].into_iter().chain(written) {
                    self.touch(self.grad(home), time);
                }
                self.touch(Holds::Keep(step), time);
                self.touch(Holds::Scratch(step), time);
            }
        }
    }

    fn touch(&mut self, holds: Holds, time: usize) {
        let program = self.flow.program;
        let len = match holds {
            Holds::Value(value) | Holds::Again(value) | Holds::Grad(value) => program.len(value),
            Holds::Keep(step) => program.steps[step].op.keep(),
            Holds::Scratch(step) => program.steps[step].op.scratch(),
        };
        if len == 0 {
            return;
        }
        match self.held.get(&holds) {
            Some(&buffer) => self.buffers.extend(buffer, time),
            None => {
                let buffer = self.buffers.add(len, time, time);
                self.held.insert(holds, buffer);
            }
        }
    }
}
