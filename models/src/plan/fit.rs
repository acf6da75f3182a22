//! Finds a setting that fits a device's RAM.
//!
//! Settings are tried in this order, and the first that fits is used:
//!
//! 1. as requested;
//! 2. without a gradient segment, where the optimiser is plain SGD (each weight gradient is applied as
//!    soon as it is known);
//! 3. fewer samples per pass, with gradients summed over several passes;
//! 4. the same three with recomputed activations.
//!
//! The Plan shows which one it is: see its `segments.grads`, `batch` and `schedule`.

use common::WidthMask;

use super::{CompileError, CompiledPlan, PlanMode, PlanOptions, can_fuse, compile, compile_within};
use crate::graph::Graph;

/// Why even the smallest setting does not fit.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the smallest setting needs {need} bytes of RAM, {} more than the {have} there are", need - have)]
pub struct Shortage {
    /// Bytes of the smallest setting.
    pub need: u64,
    /// Bytes that there are.
    pub have: u64,
}

/// Why no setting is found.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant has its message")]
pub enum FitError {
    #[error(transparent)]
    Compile(#[from] CompileError),
    #[error(transparent)]
    Short(#[from] Shortage),
}

/// The Plan of one tier in at most `ram` bytes.
pub fn fit(
    graph: &Graph,
    mask: &WidthMask,
    options: &PlanOptions,
    ram: u64,
) -> Result<CompiledPlan, FitError> {
    let may_fuse = options.mode == PlanMode::Train && can_fuse(graph, options);
    fit_as(graph, mask, options, ram, may_fuse)
}

/// The same for training that a Plan without a gradient segment may not be able to do, such as with clipped gradients:
/// the segment is left out only if `options` do so.
pub fn fit_as_asked(
    graph: &Graph,
    mask: &WidthMask,
    options: &PlanOptions,
    ram: u64,
) -> Result<CompiledPlan, FitError> {
    fit_as(graph, mask, options, ram, false)
}

fn fit_as(
    graph: &Graph,
    mask: &WidthMask,
    options: &PlanOptions,
    ram: u64,
    may_fuse: bool,
) -> Result<CompiledPlan, FitError> {
    let mut need = u64::MAX;
    let train = options.mode == PlanMode::Train;
    for saving in [false, true] {
        if saving && !(train || options.recompute) {
            break;
        }
        let asked = PlanOptions { recompute: options.recompute || saving, ..*options };
        let fused = PlanOptions { fused: true, ..asked };
        let summed = PlanOptions { fused: false, ..asked };
        let whole = [Some(asked), Some(fused).filter(|_| may_fuse && !asked.fused)];
        for options in whole.into_iter().flatten() {
            let plan = sparing(graph, mask, &options, ram)?;
            if plan.info.arena_bytes() <= ram {
                return Ok(plan);
            }
            need = need.min(plan.info.arena_bytes());
        }
        // The size of the arena is a constant plus a multiple of the batch.
        let one = compile(graph, mask, &PlanOptions { batch: 1, ..summed })?;
        need = need.min(one.info.arena_bytes());
        let segments = one.workspace().map_err(CompileError::from)? * 4;
        let sample = one.info.arena_bytes() - segments;
        let most = (ram.saturating_sub(segments) / sample.max(1)).min(options.batch.into());
        if most > 0 {
            let batch = even(most as u16, options.batch);
            return Ok(sparing(graph, mask, &PlanOptions { batch, ..summed }, ram)?);
        }
    }
    Err(Shortage { need, have: ram }.into())
}

/// Recomputes no more activations than needed.
fn sparing(
    graph: &Graph,
    mask: &WidthMask,
    options: &PlanOptions,
    ram: u64,
) -> Result<CompiledPlan, CompileError> {
    if !options.recompute {
        return compile(graph, mask, options);
    }
    let plain = compile(graph, mask, &PlanOptions { batch: 1, recompute: false, ..*options })?;
    let room = (ram / 4).saturating_sub(plain.workspace()?);
    compile_within(graph, mask, options, room / u64::from(options.batch).max(1))
}

/// Samples per pass so that no pass is nearly empty: 16 in passes of at most 7 are 6, 6, 4, not 7, 7, 2.
fn even(most: u16, batch: u16) -> u16 {
    batch.div_ceil(batch.div_ceil(most.max(1)).max(1))
}
