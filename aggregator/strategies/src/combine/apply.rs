//! The step: `theta^(j) += sum_{m in M(j)} c[j][m] * acc_m^(j)` for every region j, over one or more folds.

use common::{
    Tier,
    region::{Piece, RegionMap},
};

use crate::{
    combine::fold::Fold,
    kernel::{Scalar, axpy},
    strategy::Mix,
};

/// Numbers stepped at a time, so that the sums of all tiers meet in the first cache.
const BLOCK: usize = 1024;

/// Everything that moves the model in a round.
#[derive(Debug)]
pub(super) struct Step<'a> {
    pub folds: Vec<(Fold<'a>, Mix)>,
    /// Added everywhere; whole model or empty.
    pub shift: Vec<f64>,
    /// By region.
    pub moved: Vec<bool>,
}

impl Step<'_> {
    /// The step itself, over the whole model.
    pub fn vector(&self, regions: &RegionMap) -> Vec<f64> {
        let mut vector = vec![0.0; regions.parameters()];
        self.each_block(regions, |_, at, step| {
            if let Some(part) = vector.get_mut(at..at + step.len()) {
                part.copy_from_slice(step);
            }
        });
        vector
    }

    /// Replaces `theta`, by way of `momentum` if there is one: `b = beta * b + step; theta += b`, where the
    /// region moves. False, and both are untouched, if a number of the result is not finite.
    pub fn apply<P: Scalar>(
        &self,
        regions: &RegionMap,
        momentum: Option<(f64, &mut Vec<f64>)>,
        theta: &mut [P],
    ) -> bool {
        let mut next = theta.to_vec();
        let mut finite = true;
        let (beta, mut buffer) = match &momentum {
            Some((beta, buffer)) => (*beta, (**buffer).clone()),
            None => (0.0, Vec::new()),
        };
        if momentum.is_some() {
            buffer.resize(theta.len(), 0.0);
        }
        self.each_block(regions, |region, at, step| {
            if !self.moved.get(region).copied().unwrap_or(false) {
                return;
            }
            if let Some(buffer) = buffer.get_mut(at..at + step.len()) {
                for (buffer, step) in buffer.iter_mut().zip(&mut *step) {
                    *buffer = beta * *buffer + *step;
                    *step = *buffer;
                }
            }
            for (theta, &step) in next.get_mut(at..).unwrap_or_default().iter_mut().zip(&*step) {
                *theta = P::narrow(theta.wide() + step);
                finite &= theta.wide().is_finite();
            }
        });
        if finite {
            theta.copy_from_slice(&next);
            if let Some((_, old)) = momentum {
                *old = buffer;
            }
        }
        finite
    }

    /// Visits the model in stretches of at most [`BLOCK`]: region, where it starts, and the step there.
    fn each_block(&self, regions: &RegionMap, mut visit: impl FnMut(usize, usize, &mut [f64])) {
        let mut step = [0.0; BLOCK];
        each_run(regions, |held| {
            let Some(&(_, &Piece { full, len, region, .. })) = held.first() else { return };
            for first in (0..len).step_by(BLOCK) {
                let step = &mut step[..BLOCK.min(len - first)];
                match self.shift.get(full + first..full + first + step.len()) {
                    Some(shift) => step.copy_from_slice(shift),
                    None => step.fill(0.0),
                }
                for (fold, mix) in &self.folds {
                    for &(tier, piece) in held {
                        let weight = mix.coefficient(region.index(), tier);
                        if weight != 0.0 {
                            axpy(step, weight, fold.part(tier, piece).get(first..).unwrap_or(&[]));
                        }
                    }
                }
                visit(region.index(), full + first, step);
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
