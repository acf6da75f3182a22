//! Which values share memory, which have a gradient, and in which order a Plan computes.
//!
//! A *storage* is a place in memory, named after the first value in it. Operations that work in place put
//! later values over that one. An operation may overwrite its input if it is the last to read it and no
//! backward pass needs the old content. Gradients have storage likewise: the first reader in backward order
//! writes the gradient of a value, and the others add to it.
//!
//! To save memory, a storage can be released after the forward pass and *recomputed*: its nodes run again,
//! into another place, before the first node whose backward pass needs it.
//!
//! Nodes are named by their index in the [`Program`]; node `k` writes value `k + 1`.

use common::plan::Grad;

use super::program::Program;

/// Decisions before memory is laid out.
#[derive(Clone, Debug)]
pub struct Dataflow<'a> {
    pub program: &'a Program,
    pub train: bool,
    /// By value: its storage.
    pub storage_of: Vec<usize>,
    /// By value; `None` where nothing upstream is trained.
    pub grads: Vec<Option<usize>>,
    /// By node: the gradients that it writes, of its input and of its second input.
    pub operand_grads: Vec<[Option<Grad>; 2]>,
    /// By node: an Add whose operands are swapped, so that it can overwrite the second.
    pub swapped: Vec<bool>,
    /// The loss overwrites the logits with their gradient.
    pub loss_in_place: bool,
}

/// One step of a Plan, with its node.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Instr {
    Forward(usize),
    Loss,
    /// Forward again, into the second place of a recomputed storage.
    Recompute(usize),
    Backward(usize),
}

impl<'a> Dataflow<'a> {
    pub fn new(program: &'a Program, train: bool) -> Self {
        let values = program.nodes.len() + 1;
        let mut flow = Self {
            program,
            train,
            storage_of: (0..values).collect(),
            grads: vec![None; values],
            operand_grads: vec![[None; 2]; program.nodes.len()],
            swapped: vec![false; program.nodes.len()],
            loss_in_place: false,
        };
        let trained = flow.trained();
        flow.share_storage(&trained);
        if train {
            flow.share_grads(&trained);
        }
        flow
    }

    /// The operands of a node, the one that may be overwritten first.
    pub fn operands(&self, index: usize) -> (usize, Option<usize>) {
        let node = &self.program.nodes[index];
        match node.second {
            Some(second) if self.swapped[index] => (second, Some(node.input)),
            second => (node.input, second),
        }
    }

    /// The node takes part in the backward pass.
    pub fn runs_backward(&self, index: usize) -> bool {
        self.grads[index + 1].is_some()
    }

    /// Values that the backward pass of a node reads.
    pub fn backward_reads(&self, index: usize) -> impl Iterator<Item = usize> {
        let op = self.program.nodes[index].op;
        let input = op.backward_reads_input().then(|| self.operands(index).0);
        let second = self.operands(index).1.filter(|_| op.backward_reads_second());
        let output = op.backward_reads_output().then_some(index + 1);
        input.into_iter().chain(second).chain(output)
    }

    /// All steps of a Plan in order, with the storage in `recomputed` recomputed.
    pub fn instructions(&self, recomputed: &[usize]) -> Vec<Instr> {
        let count = self.program.nodes.len();
        let mut list: Vec<Instr> = (0..count).map(Instr::Forward).chain([Instr::Loss]).collect();
        if !self.train {
            return list;
        }
        let mut back = Vec::new();
        for index in (0..count).rev().filter(|&index| self.runs_backward(index)) {
            for value in self.backward_reads(index) {
                self.recompute(self.storage_of[value], recomputed, &mut back, &mut list);
            }
            list.push(Instr::Backward(index));
        }
        list
    }

    /// The last value that is put into a storage.
    pub fn last_value_in(&self, storage: usize) -> usize {
        self.storage_of.iter().rposition(|&other| other == storage).unwrap_or(storage)
    }

    /// Storage that can be recomputed.
    pub fn candidates(&self) -> Vec<usize> {
        let Some(last) = self.program.nodes.len().checked_sub(1).filter(|_| self.train) else {
            return vec![];
        };
        let needed: Vec<usize> = (0..=last)
            .filter(|&index| self.runs_backward(index))
            .flat_map(|index| {
                self.backward_reads(index).map(|value| self.storage_of[value]).collect::<Vec<_>>()
            })
            .collect();
        // Releasing what the first backward pass reads would save nothing.
        let read_first: Vec<usize> = self.backward_reads(last).map(|value| self.storage_of[value]).collect();
        let excluded = [self.storage_of[0], self.storage_of[last + 1]];
        let can = |&storage: &usize| {
            needed.contains(&storage)
                && !read_first.contains(&storage)
                && !excluded.contains(&storage)
                && self.nodes_of(storage).all(|index| self.can_recompute(index, storage))
        };
        (0..self.storage_of.len()).filter(|&value| self.storage_of[value] == value).filter(can).collect()
    }

    /// The nodes that write to a storage, in order.
    pub fn nodes_of(&self, storage: usize) -> impl Iterator<Item = usize> {
        (0..self.program.nodes.len()).filter(move |&index| self.storage_of[index + 1] == storage)
    }

    /// True if a node can run again: its inputs still exist, and its output is its only effect.
    fn can_recompute(&self, index: usize, storage: usize) -> bool {
        let node = &self.program.nodes[index];
        let there = |value: usize| {
            self.storage_of[value] == storage || self.last_value_in(self.storage_of[value]) == value
        };
        node.op.keep() == 0 && node.reads().all(there)
    }

    fn recompute(&self, storage: usize, recomputed: &[usize], done: &mut Vec<usize>, list: &mut Vec<Instr>) {
        if !recomputed.contains(&storage) || done.contains(&storage) {
            return;
        }
        done.push(storage);
        for index in self.nodes_of(storage) {
            let (input, second) = self.operands(index);
            for value in [Some(input), second].into_iter().flatten() {
                self.recompute(self.storage_of[value], recomputed, done, list);
            }
            list.push(Instr::Recompute(index));
        }
    }

    /// By value: it depends on a trained parameter.
    fn trained(&self) -> Vec<bool> {
        let mut trained = vec![false; self.program.nodes.len() + 1];
        for (index, node) in self.program.nodes.iter().enumerate() {
            trained[index + 1] = self.train && (node.trains() || node.reads().any(|value| trained[value]));
        }
        trained
    }

    fn share_storage(&mut self, trained: &[bool]) {
        for (index, node) in self.program.nodes.iter().enumerate() {
            if !node.op.may_work_in_place() {
                continue;
            }
            if self.may_overwrite(index, node.input, trained) && node.second != Some(node.input) {
                self.storage_of[index + 1] = self.storage_of[node.input];
            } else if let Some(second) =
                node.second.filter(|&second| self.may_overwrite(index, second, trained))
            {
                self.swapped[index] = true;
                self.storage_of[index + 1] = self.storage_of[second];
            }
        }
    }

    fn may_overwrite(&self, index: usize, value: usize, trained: &[bool]) -> bool {
        let nodes = || self.program.nodes.iter().enumerate();
        let later = nodes().skip(index + 1).any(|(_, node)| node.reads().any(|read| read == value));
        let read_backward = nodes().any(|(reader, node)| {
            trained[reader + 1] && node.op.backward_reads_input() && node.reads().any(|read| read == value)
        });
        let kept_by_producer = value.checked_sub(1).is_some_and(|producer| {
            trained[value] && self.program.nodes[producer].op.backward_reads_output()
        });
        !later && !read_backward && !kept_by_producer
    }

    fn share_grads(&mut self, trained: &[bool]) {
        let output = self.program.output();
        if !trained[output] {
            return;
        }
        let reads_output = self.program.nodes.last().is_some_and(|node| node.op.backward_reads_output());
        self.loss_in_place = !reads_output;
        self.grads[output] = Some(output);
        for (index, node) in self.program.nodes.iter().enumerate().rev() {
            let Some(output) = self.grads[index + 1] else { continue };
            let mut free = node.op.may_work_in_place();
            let (input, second) = self.operands(index);
            for (operand, value) in [Some(input), second].into_iter().enumerate() {
                let Some(value) = value.filter(|&value| trained[value]) else { continue };
                let add = self.grads[value].is_some();
                let storage = match self.grads[value] {
                    Some(storage) => storage,
                    None if std::mem::take(&mut free) => output,
                    None => value,
                };
                self.grads[value] = Some(storage);
                self.operand_grads[index][operand] = Some(Grad { at: storage as u32, add });
            }
        }
    }
}
