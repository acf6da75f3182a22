//! The step: `theta^(j) += sum_{m in M(j)} c[j][m] * acc_m^(j)` for every region j, over one or more folds.

use common::{
    RegionId, Tier,
    region::{Piece, RegionMap},
};

use crate::{
    combine::fold::Fold,
    kernel::{Scalar, axpy},
    method::Momentum,
    strategy::Mix,
};

/// Numbers stepped at a time, so that the sums of all tiers fit in the first cache.
const BLOCK: usize = 1024;

/// Everything that moves the model in a round.
#[derive(Debug)]
pub(super) struct ModelStep<'a> {
    pub folds: Vec<(Fold<'a>, Mix)>,
    /// Added everywhere, over the whole model.
    pub shift: Option<Vec<f64>>,
}

impl ModelStep<'_> {
    /// The step itself, over the whole model.
    pub fn vector(&self, regions: &RegionMap) -> Vec<f64> {
        let mut vector = vec![0.0; regions.parameters()];
        self.each_block(regions, |_, at, step| vector[at..at + step.len()].copy_from_slice(step));
        vector
    }

    /// Replaces `theta` in the regions that are `moved`, with `momentum` if there is one: `b = beta * b + step; theta += b`.
    /// Returns false and changes nothing if a number of the result is not finite.
    pub fn apply<P: Scalar>(
        &self,
        regions: &RegionMap,
        moved: &[bool],
        momentum: Option<&mut Momentum>,
        theta: &mut [P],
    ) -> bool {
        let mut next = theta.to_vec();
        let mut next_momentum = momentum.as_deref().cloned();
        if let Some(Momentum { buffer, .. }) = &mut next_momentum
            && buffer.is_empty()
        {
            *buffer = vec![0.0; theta.len()];
        }
        let mut finite = true;
        self.each_block(regions, |region, at, step| {
            if !moved[region.index()] {
                return;
            }
            let range = at..at + step.len();
            if let Some(Momentum { beta, buffer }) = &mut next_momentum {
                for (buffer, step) in buffer[range.clone()].iter_mut().zip(&mut *step) {
                    *buffer = *beta * *buffer + *step;
                    *step = *buffer;
                }
            }
            for (theta, &step) in next[range].iter_mut().zip(&*step) {
                *theta = P::narrow(theta.wide() + step);
                finite &= theta.wide().is_finite();
            }
        });
        if finite {
            theta.copy_from_slice(&next);
            if let (Some(momentum), Some(next)) = (momentum, next_momentum) {
                *momentum = next;
            }
        }
        finite
    }

    /// Visits the model in stretches of at most [`BLOCK`]: region, where it starts, and the step there.
    fn each_block(&self, regions: &RegionMap, mut visit: impl FnMut(RegionId, usize, &mut [f64])) {
        let mut step = [0.0; BLOCK];
        each_run(regions, |held| {
            let Some(&(_, &Piece { full, len, region, .. })) = held.first() else { return };
            for first in (0..len).step_by(BLOCK) {
                let step = &mut step[..BLOCK.min(len - first)];
                match &self.shift {
                    Some(shift) => step.copy_from_slice(&shift[full + first..full + first + step.len()]),
                    None => step.fill(0.0),
                }
                for (fold, mix) in &self.folds {
                    for &(tier, piece) in held {
                        let weight = mix.coefficient(region, tier);
                        if weight != 0.0
                            && let Some(part) = fold.part(tier, piece)
                        {
                            axpy(step, weight, &part[first..]);
                        }
                    }
                }
                visit(region, full + first, step);
            }
        });
    }
}

/// Visits the runs of the model, ascending: each with the tiers that hold it and where they do.
pub(super) fn each_run<'a>(regions: &'a RegionMap, mut visit: impl FnMut(&[(Tier, &'a Piece)])) {
    let mut rest: Vec<_> = (0..regions.tiers())
        .map_while(Tier::new)
        .map(|tier| (tier, regions.pieces(tier).iter().peekable()))
        .collect();
    let mut held = Vec::new();
    while let Some(start) = rest.iter_mut().filter_map(|(_, own)| own.peek().map(|piece| piece.full)).min() {
        held.clear();
        held.extend(
            rest.iter_mut().filter_map(|(tier, own)| {
                own.next_if(|piece| piece.full == start).map(|piece| (*tier, piece))
            }),
        );
        visit(&held);
    }
}
