//! Backends and layouts after one step in `f32`.

use super::plans::{ALL, BATCH, anything};
use crate::train::{
    Backend, Descent, Fast, GradTarget, PassMode, Portable, apply, backward, forward, loss_and_gradient,
    test_plan::{Options, PLAIN, TestPlan},
};

const MODE: PassMode = PassMode::Train { seed: 4, step: 2 };
const LR: f32 = 0.1;

/// The weights after one step.
fn one_step(plan: &TestPlan, backend: &mut dyn Backend<f32>) -> Vec<f32> {
    let params = plan.info.params as usize;
    let mut arena = plan.arena(3, |x| x as f32);
    // The same weights and inputs for every layout.
    let len = plan.info.inputs as usize * usize::from(BATCH);
    let mut rng = common::rng::Rng::new(8);
    arena[..params].fill_with(|| 0.3 * rng.normal() as f32);
    let embeds = matches!(plan.nodes[0].op, common::plan::Op::Embed { .. });
    arena[plan.info.input as usize..][..len]
        .fill_with(|| if embeds { rng.below(6) as f32 } else { rng.normal() as f32 });
    let rows = usize::from(BATCH);
    let checked = plan.plan();
    forward(checked, &mut arena, rows, MODE, backend).unwrap();
    let targets = rows as u32 * plan.info.targets();
    loss_and_gradient(checked, &mut arena, rows, targets, &anything(plan)).unwrap();
    if plan.info.segments.grads.is_some() {
        backward(checked, &mut arena, rows, MODE, GradTarget::Grads, backend).unwrap();
        let brief = common::brief::Brief::sgd(1, BATCH, LR, 1);
        apply(checked, &mut arena, &brief, 1, 1.0).unwrap();
    } else {
        let target = GradTarget::Weights(Descent::new(LR));
        backward(checked, &mut arena, rows, MODE, target, backend).unwrap();
    }
    arena.truncate(params);
    arena
}

#[test]
fn layout_and_immediate_steps_do_not_change_bits() {
    for (name, build) in ALL {
        let plain = one_step(&build(PLAIN), &mut Portable::plain());
        let in_place = one_step(&build(Options { in_place: true, ..PLAIN }), &mut Portable::plain());
        assert_eq!(plain, in_place, "{name}");
        let at_once = Options { in_place: true, grads: false, ..PLAIN };
        let at_once = one_step(&build(at_once), &mut Portable::plain());
        if name.starts_with("tokens") || ["residual", "standardized"].contains(&name) {
            // `Norm` and `Standardize` add their gradients sample by sample.
            assert_close(name, &plain, &at_once, 1e-6);
        } else {
            assert_eq!(plain, at_once, "{name}");
        }
    }
}

#[test]
fn backends_agree_after_one_step() {
    let mut fusing_shows = false;
    for (name, build) in ALL {
        for grads in [true, false] {
            let plan = build(Options { grads, ..PLAIN });
            let portable = one_step(&plan, &mut Portable::plain());
            assert_close(name, &portable, &one_step(&plan, &mut Fast::new()), 1e-5);
            let fused = one_step(&plan, &mut Portable::fused());
            assert_close(name, &portable, &fused, 1e-5);
            fusing_shows |= portable != fused;
        }
    }
    assert!(fusing_shows);
}

fn assert_close(name: &str, a: &[f32], b: &[f32], tolerance: f32) {
    for (at, (a, b)) in a.iter().zip(b).enumerate() {
        assert!((a - b).abs() <= tolerance * a.abs().max(0.1), "{name} {at}: {a} {b}");
    }
}
