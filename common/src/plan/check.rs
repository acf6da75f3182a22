//! Validates a Plan before it is executed.

use crate::error::Code;

use super::{BackwardStep, Grad, Node, Op, Operand, Pass, Plan, PlanInfo, frozen};

/// Why a Plan is refused.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant has its message")]
pub enum PlanError {
    #[error("the plan has {nodes} nodes, this device stores {room}")]
    TooManyNodes { nodes: usize, room: usize },
    #[error("the plan announces {announced} nodes, {got} arrived")]
    Incomplete { announced: usize, got: usize },
    #[error("node {0} reaches outside the arena or into parameters")]
    OutOfBounds(usize),
    #[error("node {0} would overwrite its own input")]
    Overlap(usize),
    #[error("node {0} has invalid sizes, or lacks memory that it needs")]
    Unsound(usize),
    #[error("node {0} is an op that this program was built without; build it with feature `full`")]
    LeftOut(usize),
    #[error("the plan is empty or its sizes contradict each other")]
    Inconsistent,
}

impl PlanError {
    /// The code that is sent to the aggregator.
    pub fn code(self) -> Code {
        match self {
            Self::LeftOut(_) => Code::LeftOut,
            _ => Code::BadPlan,
        }
    }
}

impl<'a> Plan<'a> {
    /// Checks all sizes and offsets of a Plan, and that no node overwrites what it still reads.
    pub fn check(
        info: &'a PlanInfo,
        nodes: &'a [Node],
        schedule: &'a [BackwardStep],
    ) -> Result<Self, PlanError> {
        let announced = usize::from(info.nodes) + usize::from(info.schedule);
        let got = nodes.len() + schedule.len();
        if nodes.len() != usize::from(info.nodes) || got != announced {
            return Err(PlanError::Incomplete { announced, got });
        }
        if let Some(node) = nodes.iter().position(|node| node.op.is_left_out()) {
            return Err(PlanError::LeftOut(node));
        }
        let forward = nodes.get(..usize::from(info.forward)).ok_or(PlanError::Inconsistent)?;
        let (first, last) = forward.first().zip(forward.last()).ok_or(PlanError::Inconsistent)?;
        let outputs = u64::from(info.outputs);
        if info.batch == 0
            || info.targets() == 0
            || u64::from(info.targets()) * classes(info) != outputs
            || first.input.at != info.input
            || first.op.sizes().0 != u64::from(info.inputs)
            || last.output != info.logits
            || last.op.sizes().1 != outputs
        {
            return Err(PlanError::Inconsistent);
        }
        let frozen = frozen(nodes);
        let arena = Bounds::new(info, frozen).ok_or(PlanError::Inconsistent)?;
        for (index, node) in nodes.iter().enumerate() {
            arena.check(node).map_err(|fault| fault.at(index))?;
        }
        for step in schedule {
            let node = nodes.get(usize::from(step.node)).ok_or(PlanError::Inconsistent)?;
            if step.pass == Pass::Backward && node.output_grad.is_none() {
                return Err(PlanError::Unsound(step.node.into()));
            }
        }
        Ok(Self { info, nodes, schedule, frozen })
    }
}

fn classes(info: &PlanInfo) -> u64 {
    match info.loss {
        super::Loss::Softmax { classes } => classes.into(),
        super::Loss::Sigmoid | super::Loss::Squared => 1,
    }
}

enum Fault {
    OutOfBounds,
    Overlap,
    Unsound,
}

impl Fault {
    fn at(self, node: usize) -> PlanError {
        match self {
            Self::OutOfBounds => PlanError::OutOfBounds(node),
            Self::Overlap => PlanError::Overlap(node),
            Self::Unsound => PlanError::Unsound(node),
        }
    }
}

/// A range of the arena.
#[derive(Copy, Clone)]
struct Span {
    at: u64,
    len: u64,
}

impl Span {
    fn overlaps(self, other: Self) -> bool {
        self.at < other.at.saturating_add(other.len) && other.at < self.at.saturating_add(self.len)
    }

    fn is(self, other: Self) -> bool {
        self.at == other.at
    }
}

struct Bounds {
    workspace: u64,
    arena: u64,
    params: u64,
    stats: u64,
    batch: u64,
}

impl Bounds {
    fn new(info: &PlanInfo, frozen: u32) -> Option<Self> {
        Some(Self {
            workspace: info.workspace(info.params.checked_sub(frozen)?)?,
            arena: info.arena.into(),
            params: info.params.into(),
            stats: info.stats.into(),
            batch: info.batch.into(),
        })
    }

    fn check(&self, node: &Node) -> Result<(), Fault> {
        let op = &node.op;
        if !op.is_sound() || node.second.is_some() != op.second().is_some() {
            return Err(Fault::Unsound);
        }
        let within = |(at, len): (u32, u64), limit| u64::from(at).saturating_add(len) <= limit;
        if !op.parameters().into_iter().flatten().all(|stretch| within(stretch, self.params)) {
            return Err(Fault::OutOfBounds);
        }
        if let Op::BatchNorm { channels, stats, .. } = *op
            && !op.is_left_out()
            && !within((stats, 2 * u64::from(channels)), self.stats)
        {
            return Err(Fault::OutOfBounds);
        }
        if let Op::Arithmetic(arithmetic) = op
            && !op.is_left_out()
            && !arithmetic.constants().is_none_or(|stretch| within(stretch, self.params))
        {
            return Err(Fault::OutOfBounds);
        }
        let (reads, writes) = op.sizes();
        let input = self.span(node.input.at, reads)?;
        let output = self.span(node.output, writes)?;
        let output_grad = self.optional(node.output_grad, writes)?;
        let keep = self.room(node.keep, op.keep())?;
        let scratch = match node.output_grad {
            Some(_) => self.room(node.scratch, op.scratch())?,
            None => None,
        };
        let grad = self.grad(&node.input, reads)?;
        let (second, second_grad) = match &node.second {
            Some(port) => {
                let reads = op.second().ok_or(Fault::Unsound)?;
                (Some(self.span(port.at, reads)?), self.grad(port, reads)?)
            }
            None => (None, None),
        };
        let in_place = op.may_work_in_place();

        // Forward writes the output and what it keeps, and reads its inputs.
        apart(&[Some(output), keep, second])?;
        apart(&[Some(input), keep])?;
        if output.overlaps(input) && !(in_place && output.is(input)) {
            return Err(Fault::Overlap);
        }
        // Backward reads the gradient of its output (and, by kind, input and output) and writes the
        // gradients of its inputs.
        let Some(output_grad) = output_grad else { return Ok(()) };
        let alive_input = op.backward_reads_input().then_some(input);
        let alive_output = op.backward_reads_output().then_some(output);
        if cfg!(feature = "full") && alive_input.is_some() && output.overlaps(input) {
            return Err(Fault::Overlap);
        }
        let alive_second = second.filter(|_| op.backward_reads_second());
        apart(&[Some(output_grad), alive_input, keep, scratch])?;
        apart(&[Some(output_grad), alive_second])?;
        // The gradient may replace an output that is no longer read.
        apart(&[Some(output_grad), alive_output])?;
        for written in [grad, second_grad].into_iter().flatten() {
            apart(&[Some(written), alive_input, keep, scratch])?;
            apart(&[Some(written), alive_output])?;
            apart(&[Some(written), alive_second])?;
            if written.overlaps(output_grad) && !(in_place && written.is(output_grad)) {
                return Err(Fault::Overlap);
            }
        }
        apart(&[grad, second_grad])
    }

    /// The range of a value or gradient, which must be behind the segments.
    fn span(&self, at: u32, per_sample: u64) -> Result<Span, Fault> {
        let span = Span { at: at.into(), len: per_sample.saturating_mul(self.batch) };
        let inside = span.at >= self.workspace && span.at.saturating_add(span.len) <= self.arena;
        if inside { Ok(span) } else { Err(Fault::OutOfBounds) }
    }

    fn optional(&self, at: Option<u32>, per_sample: u64) -> Result<Option<Span>, Fault> {
        at.map(|at| self.span(at, per_sample)).transpose()
    }

    /// Like [`Self::optional`], but an error if the range is needed and absent.
    fn room(&self, at: Option<u32>, per_sample: u64) -> Result<Option<Span>, Fault> {
        match (at, per_sample) {
            (_, 0) => Ok(None),
            (Some(at), _) => self.span(at, per_sample).map(Some),
            (None, _) => Err(Fault::Unsound),
        }
    }

    fn grad(&self, port: &Operand, per_sample: u64) -> Result<Option<Span>, Fault> {
        self.optional(port.grad.map(|Grad { at, .. }| at), per_sample)
    }
}

/// No two of these may share memory.
fn apart(spans: &[Option<Span>]) -> Result<(), Fault> {
    for (index, span) in spans.iter().enumerate() {
        for other in &spans[..index] {
            if let (Some(span), Some(other)) = (span, other)
                && span.overlaps(*other)
            {
                return Err(Fault::Overlap);
            }
        }
    }
    Ok(())
}
