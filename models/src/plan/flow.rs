//! Which values share memory, which have a gradient, and in which order a Plan computes.
//!
//! A *home* is a place in memory: a value, and the values that operations working in place put over it.
//! An operation may overwrite its input if it is the last to read it and no backward step needs what was
//! there. Gradients have homes likewise; the first reader in backward order writes the gradient of a
//! value and the others add to it.
//!
//! To save memory, a home can be *given up* after the forward pass. Its nodes are run again, into another
//! place, before the first backward step that needs it.

use common::plan::Grad;

use super::program::Program;

/// What is decided before memory is laid out.
#[derive(Clone, Debug)]
pub struct Flow<'a> {
    pub program: &'a Program,
    pub train: bool,
    /// By value.
    pub homes: Vec<usize>,
    /// By value; `None` where nothing upstream is trained.
    pub grads: Vec<Option<usize>>,
    /// By step: the gradients that it writes, of its input and of its second input.
    pub ports: Vec<[Option<Grad>; 2]>,
    /// By step: an Add whose operands change places, so that it can overwrite the second.
    pub swapped: Vec<bool>,
    /// The loss puts the gradient of the logits over the logits.
    pub loss_in_place: bool,
}

/// One thing a Plan does.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Instr {
    Forward(usize),
    Loss,
    /// Forward again, into the second place of a home that was given up.
    Again(usize),
    Backward(usize),
}

impl<'a> Flow<'a> {
    pub fn new(program: &'a Program, train: bool) -> Self {
        let values = program.steps.len() + 1;
        let mut flow = Self {
            program,
            train,
            homes: (0..values).collect(),
            grads: vec![None; values],
            ports: vec![[None; 2]; program.steps.len()],
            swapped: vec![false; program.steps.len()],
            loss_in_place: false,
        };
        let trained = flow.trained();
        flow.share_homes(&trained);
        if train {
            flow.share_grads(&trained);
        }
        flow
    }

    /// The operands of a step, the one that may be overwritten first.
    pub fn operands(&self, step: usize) -> (usize, Option<usize>) {
        let Some(it) = self.program.steps.get(step) else { return (0, None) };
        match it.second {
            Some(second) if self.swapped[step] => (second, Some(it.input)),
            second => (it.input, second),
        }
    }

    /// The step takes part in the backward pass.
    pub fn runs_backward(&self, step: usize) -> bool {
        self.grads.get(step + 1).is_some_and(Option::is_some)
    }

    /// Values that the backward step of a node reads.
    pub fn backward_reads(&self, step: usize) -> impl Iterator<Item = usize> {
        let op = self.program.steps.get(step).map(|it| it.op);
        let input = op.filter(|op| op.backward_reads_input()).map(|_| self.operands(step).0);
        let output = op.filter(|op| op.backward_reads_output()).map(|_| step + 1);
        input.into_iter().chain(output)
    }

    /// Everything a Plan does, in order, if the homes in `given_up` are computed again.
    pub fn instructions(&self, given_up: &[usize]) -> Vec<Instr> {
        let count = self.program.steps.len();
        let mut list: Vec<Instr> = (0..count).map(Instr::Forward).chain([Instr::Loss]).collect();
        if !self.train {
            return list;
        }
        let mut back = Vec::new();
        for step in (0..count).rev().filter(|&step| self.runs_backward(step)) {
            for value in self.backward_reads(step) {
                self.compute_again(self.homes[value], given_up, &mut back, &mut list);
            }
            list.push(Instr::Backward(step));
        }
        list
    }

    /// The last value that is put into a home.
    pub fn last_in(&self, home: usize) -> usize {
        self.homes.iter().rposition(|&other| other == home).unwrap_or(home)
    }

    /// Homes that can be given up.
    pub fn candidates(&self) -> Vec<usize> {
        let Some(last) = self.program.steps.len().checked_sub(1).filter(|_| self.train) else {
            return vec![];
        };
        let needed: Vec<usize> = (0..=last)
            .filter(|&step| self.runs_backward(step))
            .flat_map(|step| self.backward_reads(step).map(|value| self.homes[value]).collect::<Vec<_>>())
            .collect();
        // What the first backward step reads, there is no point in giving up.
        let at_once: Vec<usize> = self.backward_reads(last).map(|value| self.homes[value]).collect();
        let excluded = [self.homes[0], self.homes[last + 1]];
        let can = |&home: &usize| {
            needed.contains(&home)
                && !at_once.contains(&home)
                && !excluded.contains(&home)
                && self.steps_of(home).all(|step| self.can_run_again(step, home))
        };
        (0..self.homes.len()).filter(|&value| self.homes[value] == value).filter(can).collect()
    }

    /// The steps that fill a home, in order.
    pub fn steps_of(&self, home: usize) -> impl Iterator<Item = usize> {
        (0..self.program.steps.len()).filter(move |&step| self.homes[step + 1] == home)
    }

    /// Its inputs are still there, and it leaves nothing but its output.
    fn can_run_again(&self, step: usize, home: usize) -> bool {
        let Some(it) = self.program.steps.get(step) else { return false };
        let there = |value: usize| self.homes[value] == home || self.last_in(self.homes[value]) == value;
        it.op.keep() == 0 && it.reads().all(there)
    }

    fn compute_again(&self, home: usize, given_up: &[usize], done: &mut Vec<usize>, list: &mut Vec<Instr>) {
        if !given_up.contains(&home) || done.contains(&home) {
            return;
        }
        done.push(home);
        for step in self.steps_of(home) {
            let (input, second) = self.operands(step);
            for value in [Some(input), second].into_iter().flatten() {
                self.compute_again(self.homes[value], given_up, done, list);
            }
            list.push(Instr::Again(step));
        }
    }

    /// By value: it depends on a parameter.
    fn trained(&self) -> Vec<bool> {
        let mut trained = vec![false; self.program.steps.len() + 1];
        for (step, it) in self.program.steps.iter().enumerate() {
            trained[step + 1] = self.train && (it.trains() || it.reads().any(|value| trained[value]));
        }
        trained
    }

    fn share_homes(&mut self, trained: &[bool]) {
        for (step, it) in self.program.steps.iter().enumerate() {
            if !it.op.may_work_in_place() {
                continue;
            }
            if self.may_overwrite(step, it.input, trained) && it.second != Some(it.input) {
                self.homes[step + 1] = self.homes[it.input];
            } else if let Some(second) = it.second.filter(|&second| self.may_overwrite(step, second, trained))
            {
                self.swapped[step] = true;
                self.homes[step + 1] = self.homes[second];
            }
        }
    }

    fn may_overwrite(&self, step: usize, value: usize, trained: &[bool]) -> bool {
        let steps = || self.program.steps.iter().enumerate();
        let later = steps().skip(step + 1).any(|(_, it)| it.reads().any(|read| read == value));
        let read_backward = steps().any(|(reader, it)| {
            trained[reader + 1] && it.op.backward_reads_input() && it.reads().any(|read| read == value)
        });
        let kept_by_producer = value
            .checked_sub(1)
            .and_then(|producer| self.program.steps.get(producer))
            .is_some_and(|it| trained[value] && it.op.backward_reads_output());
        !later && !read_backward && !kept_by_producer
    }

    fn share_grads(&mut self, trained: &[bool]) {
        let output = self.program.output();
        if !trained[output] {
            return;
        }
        let reads_output = self.program.steps.last().is_some_and(|it| it.op.backward_reads_output());
        self.loss_in_place = !reads_output;
        self.grads[output] = Some(output);
        for (step, it) in self.program.steps.iter().enumerate().rev() {
            let Some(output) = self.grads[step + 1] else { continue };
            let mut free = it.op.may_work_in_place();
            let (input, second) = self.operands(step);
            for (port, value) in [Some(input), second].into_iter().enumerate() {
                let Some(value) = value.filter(|&value| trained[value]) else { continue };
                let add = self.grads[value].is_some();
                let home = match self.grads[value] {
                    Some(home) => home,
                    None if std::mem::take(&mut free) => output,
                    None => value,
                };
                self.grads[value] = Some(home);
                self.ports[step][port] = Some(Grad { at: home as u32, add });
            }
        }
    }
}
