//! The step: `theta^(j) += sum_{m in M(j)} c[j][m] * acc_m^(j)` for every region j.

use common::{
    Tier,
    region::{Piece, RegionMap},
};

use super::{
    fold::Fold,
    kernel::{Scalar, axpy},
};
use crate::strategy::Mix;

/// Numbers stepped at a time, so that the sums of all tiers meet in the first cache.
const BLOCK: usize = 1024;

/// Replaces `theta`. False, and `theta` is untouched, if a number of the result is not finite.
pub(super) fn apply<P: Scalar>(fold: &Fold<'_>, mix: &Mix, regions: &RegionMap, theta: &mut [P]) -> bool {
    let mut next = theta.to_vec();
    let mut finite = true;
    let mut step = [0.0; BLOCK];
    each_run(regions, |held| {
        let Some(&(_, &Piece { full, len, region, .. })) = held.first() else { return };
        let run = next.get_mut(full..full + len).unwrap_or_default();
        for (number, block) in run.chunks_mut(BLOCK).enumerate() {
            let step = &mut step[..block.len()];
            step.fill(0.0);
            for &(tier, piece) in held {
                let weight = mix.coefficient(region.index(), tier);
                let part = fold.part(tier, piece).get(number * BLOCK..).unwrap_or(&[]);
                if weight != 0.0 {
                    axpy(step, weight, part);
                }
            }
            for (theta, &step) in block.iter_mut().zip(&*step) {
                *theta = P::narrow(theta.wide() + step);
                finite &= theta.wide().is_finite();
            }
        }
    });
    if finite {
        theta.copy_from_slice(&next);
    }
    finite
}

/// Visits the runs of the model, ascending: each with the tiers that hold it and where they do.
fn each_run<'a>(regions: &'a RegionMap, mut visit: impl FnMut(&[(Tier, &'a Piece)])) {
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
