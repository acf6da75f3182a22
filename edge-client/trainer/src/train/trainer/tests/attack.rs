//! An aggregator that tries to remove the noise: what it learns from sums that are known to be pure noise.

use common::{
    brief::{GroupReport, Laplace, Signal},
    rng::{Rng, mix},
};

use super::*;

const LAPLACE: Laplace = Laplace { sums: 2.0, clip_l1: 1e6, update: 0.5 };
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The inverse of [`mix`].
fn unmix(mut z: u64) -> u64 {
    let inverse =
        |factor: u64| (0..6).fold(factor, |x, _| x.wrapping_mul(2u64.wrapping_sub(factor.wrapping_mul(x))));
    z ^= z >> 31 ^ z >> 62;
    z = z.wrapping_mul(inverse(0x94d0_49bb_1331_11eb));
    z ^= z >> 27 ^ z >> 54;
    z = z.wrapping_mul(inverse(0xbf58_476d_1ce4_e5b9));
    z ^= z >> 30 ^ z >> 60;
    z.wrapping_sub(GOLDEN)
}

/// Laplace noise of SplitMix64.
fn draw(rng: &mut Rng, scale: f32) -> f64 {
    let u = ((rng.next_u64() >> 12) as f64 + 0.5) * (1.0 / (1u64 << 52) as f64) - 0.5;
    let size = -f64::from(scale) * (1.0 - 2.0 * u.abs()).ln();
    if u < 0.0 { -size } else { size }
}

/// The state of a SplitMix64 whose first two draws were these, if there is one.
fn state(draws: [f64; 2], scale: f32) -> Option<u64> {
    let place = |noise: f64| {
        let u = 0.5 * (1.0 - (-noise.abs() / f64::from(scale)).exp()).copysign(noise);
        ((u + 0.5) * (1u64 << 52) as f64) as u64
    };
    let [first, second] = draws.map(place);
    let near = first.saturating_sub(64)..=first + 64;
    let words = near.flat_map(|place| (0..1 << 12).map(move |low| place << 12 | low));
    words.map(unmix).find(|state| (mix(state.wrapping_add(GOLDEN)) >> 12).abs_diff(second) <= 64)
}

/// The noise of the update, if it were drawn like that of the sums: from the same SplitMix64.
fn noise_of_update(state: u64, numbers: usize) -> Vec<f64> {
    let inner = unmix(state) ^ mix(1);
    let mut rng = Rng::new(mix(inner ^ mix(2)));
    (0..numbers).map(|_| draw(&mut rng, LAPLACE.update)).collect()
}

/// Samples of groups 2 and 3 alone, so that the sums of groups 0 and 1 are noise and nothing else.
fn answer(privacy: Option<Laplace>) -> (Vec<f64>, Vec<f32>) {
    let plan = logistic(4, PLAIN);
    let mut arena = plan.arena(1, |x| x as f32);
    arena[..2].copy_from_slice(&[0.3, -0.2]);
    let groups = Some(GroupReport { signal: Signal::CrossEntropy, cap: 5.0 });
    let task = Task::Train(Brief { privacy, groups, ..brief() });
    let samples = Samples::new(vec![-1.0, 2.0, 0.5, 3.0], vec![1; 4], 1).unwrap();
    let shard = shard(samples.with_attributes(&[0, 1, 0, 1], 2).unwrap());
    let private = PrivateState { secret: Some(Secret::simulated(9)), ..PrivateState::default() };
    let (scalars, work) = run_as(private, &task, &plan, &mut arena, &shard, &mut Portable::plain()).unwrap();
    work.finish(plan.plan(), &mut arena).unwrap();
    (scalars.group_losses.to_vec(), arena[segment(&plan, plan.info.segments.anchor)].to_vec())
}

#[test]
fn sums_of_empty_groups_do_not_reveal_the_noise_of_the_update() {
    // The attack works on noise of SplitMix64.
    let inner = 0x0123_4567_89ab_cdef;
    let mut rng = Rng::new(mix(inner ^ mix(1)));
    let draws = [(); 2].map(|()| draw(&mut rng, LAPLACE.sums));
    assert_eq!(state(draws, LAPLACE.sums), Some(mix(inner ^ mix(1))));

    let (_, hidden) = answer(None);
    let (sums, sent) = answer(Some(LAPLACE));
    let Some(state) = state([sums[0], sums[1]], LAPLACE.sums) else { return };
    let noise = noise_of_update(state, sent.len());
    let known = sent.iter().zip(&noise).zip(&hidden);
    let found = known
        .filter(|((sent, noise), hidden)| (f64::from(**sent) - *noise - f64::from(**hidden)).abs() < 1e-6);
    assert!(found.count() < sent.len(), "the update without its noise: {hidden:?}");
}
